"""Analyses that a run can measure: the values of its field `measure`, and their constraints on other fields."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "retrieval": "scores of the model on the suite, under each context",
        "batches": "difficulty of the run's batches for the surrogate, and the effect of the filter, without training",
        "counts": "number of pairs per training source, and of queries and documents per evaluation set",
        "neighbours": "nearest training documents under the surrogate, and the number that may be positives",
        "cluster": "pairs of one cluster, and the similarity of the pairs of clusters, without training",
        "shape": "sizes of the run's contextual model from its configuration, without training",
        "divergence": "divergence of the word statistics of each evaluation set from those of the training text",
        "spread": "vectors of a few documents, each under many contexts",
        "headroom": "scores of words weighted by IDF of different corpora, which shows the value of knowing the corpus",
        "whitening": "scores of vectors whitened by text of the same, another or a random corpus, without training",
        "widths": "scores of prefixes of the vectors at each width, and of the same vectors truncated by SVD",
        "adaptive": "scores, cost and time of a search by a short prefix that reranks its results by longer ones",
        "cascade": "the collection of a query, classified by prefixes that grow if the classifier is uncertain",
        "steps": "scores after each fifth of the steps of one training run",
        "curve": "training loss over the steps, averaged over equal intervals, without evaluation",
        "cross": "scores on each of several domains under the context of each other domain",
        "polarity": "zero-shot polarity of film reviews, with the label as a word and in a sentence",
        "mteb": "scores on mteb's tasks of seven categories, under the context of the task, of other tasks, and none",
    }
)
"""Each analysis with a description. Its code is a module of `repro.analyses`."""

TRAINED = ("biencoder", "contextual")
"""Architectures that are trained. The others are baselines in a table."""

MEASURED_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "spread": ("contextual",),
        "cross": ("contextual",),
        "adaptive": ("biencoder",),
        "cascade": ("biencoder",),
        "headroom": ("biencoder", "bm25", "surrogate", "none"),
        "whitening": (*TRAINED, "surrogate"),
        "widths": TRAINED,
        "steps": TRAINED,
        "curve": TRAINED,
        "polarity": (*TRAINED, "surrogate"),
        "mteb": (*TRAINED, "surrogate", "bm25"),
    }
)
"""The architectures that an analysis accepts. An analysis that is not listed accepts all."""

SEARCHES_IN_FULL = ("widths", "adaptive", "headroom", "whitening", "mteb")
"""Analyses that always search all documents and require protocol="full"."""

SETS_NUM_CONTEXTS = ("retrieval", "steps", "widths")
"""Analyses that can use another number of context documents than training did."""

DRAWS = ("batches", "neighbours", "cluster")
"""Analyses that sample with the run's seed. The others depend on the seed only through training."""
