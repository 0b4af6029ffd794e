"""The words a run may use: what it can measure, and the values of its fields that are chosen from a list."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "retrieval": "scores of the model on the suite, under each context",
        "batches": "how hard the run's batches are for the surrogate, and what the filter would leave out; no training",
        "counts": "how many pairs each training source has, how many queries and documents each evaluation set",
        "neighbours": "the nearest documents of training documents under the surrogate, and how many may be positives",
        "cluster": "the pairs of one cluster, and how alike the pairs of clusters are; no training",
        "shape": "the sizes of the run's contextual model, from its own configuration; no training",
        "divergence": "how far the word statistics of each evaluation set are from those of the training text",
        "spread": "vectors of a few documents, each under many contexts",
        "cross": "scores on each of some domains under the context of each other",
        "mteb": "scores by mteb's own tasks of seven categories, under a context of the task, of others, and none",
    }
)
"""What a run can measure; each is a module of `repro.measures`."""

CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "domain_column": ("source", "domain"),
        "sampler": ("random", "domain", "cluster"),
        "packing": ("random", "greedy"),
        "filter": ("none", "surrogate"),
        "architecture": ("biencoder", "contextual", "bm25", "surrogate", "none"),
        "heads": ("random", "identity", "both-identity"),
        "backbone": ("nomic", "bert", "modernbert"),
        "prompts": ("none", "task"),
        "protocol": ("full", "rerank"),
        "measure": tuple(MEASURES),
    }
)
