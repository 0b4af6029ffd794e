"""What a run can measure: the words of its field `measure`, and what each of them asks of the other fields."""

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
        "headroom": "scores of words weighted by IDF, by where the IDF comes from: what knowing the corpus is worth",
        "whitening": "scores of vectors adapted to the corpus without training: whitened by own, other and random text",
        "widths": "scores of prefixes of the vectors, of every width, and of the same vectors cut by SVD",
        "adaptive": "scores, cost and time of a search that makes a shortlist by a prefix and ranks it by wider ones",
        "cascade": "which collection a query belongs to, told by prefixes that grow where it is unsure",
        "steps": "scores after each fifth of the training's steps, along one training",
        "curve": "the training loss along the steps, means of equal stretches; nothing is evaluated",
        "cross": "scores on each of some domains under the context of each other",
        "polarity": "zero-shot polarity of film reviews by the words of the label, bare and in a sentence",
        "mteb": "scores by mteb's own tasks of seven categories, under a context of the task, of others, and none",
    }
)
"""What a run can measure; each is a module of `repro.analyses`."""

TRAINED = ("biencoder", "contextual")
"""Architectures that are trained; the others are references that take their place in a table."""

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
"""The architectures that a measure takes; one that is not here takes all."""

SEARCHES_IN_FULL = ("widths", "adaptive", "headroom", "whitening", "mteb")
"""Measures that search all documents, whatever the scale's protocol is."""

SETS_NUM_CONTEXTS = ("retrieval", "steps", "widths")
"""Measures that a contextual model can be given another number of context documents in than in training."""

DRAWS = ("batches", "neighbours", "cluster")
"""Measures that draw with the run's seed; the others depend on it only through a training."""
