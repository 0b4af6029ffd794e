"""The analyses that a run can name in its field `measure`, with the requirements of each on the other fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

TRAINED = ("biencoder", "contextual")
"""Architectures that are trained. The others are reference systems in tables."""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis, implemented by the module of the same name in `repro.analyses`."""

    summary: str
    architectures: tuple[str, ...] | None = None  # None: all
    searches_in_full: bool = False  # searches all documents, whatever the protocol of the scale
    reranks: bool = False  # ranks the candidates of a first stage if the protocol says so
    # may give a contextual model more or fewer context documents than in training
    sets_num_contexts: bool = False
    reads_pairs: bool = False  # reads the training pairs as text
    # draws training pairs with the run's seed, and reads the surrogate's vectors of them
    samples_pairs: bool = False


MEASURES: Mapping[str, Analysis] = MappingProxyType(
    {
        "retrieval": Analysis(
            summary="scores of the model on the suite, under each context",
            reranks=True,
            sets_num_contexts=True,
        ),
        "batches": Analysis(
            summary="difficulty of the batches under the surrogate, and the share that the filter removes, untrained",
            samples_pairs=True,
        ),
        "counts": Analysis(
            summary="number of pairs per training source, of queries and documents per evaluation set",
            reads_pairs=True,
        ),
        "neighbours": Analysis(
            summary="nearest documents of training documents under the surrogate, and the share of possible positives",
            samples_pairs=True,
        ),
        "cluster": Analysis(
            summary="pairs of one cluster, and the similarity of pairs within clusters, untrained",
            samples_pairs=True,
        ),
        "shape": Analysis(summary="sizes of the run's contextual model, from its configuration, untrained"),
        "divergence": Analysis(
            summary="divergence of the word statistics of each evaluation set from those of the training text",
            reads_pairs=True,
        ),
        "spread": Analysis(
            summary="vectors of a few documents, each under many contexts",
            architectures=("contextual",),
        ),
        "headroom": Analysis(
            summary="scores of words weighted by IDF from different texts: the value of knowing the corpus",
            architectures=("biencoder", "bm25", "surrogate", "none"),
            searches_in_full=True,
            reads_pairs=True,
        ),
        "selection": Analysis(
            summary="scores under documents of the corpus selected as context: centres, typical, diverse, relevant",
            architectures=("contextual",),
            searches_in_full=True,
            sets_num_contexts=True,
        ),
        "whitening": Analysis(
            summary="scores of vectors adapted to the corpus without training: whitened by own, other and random text",
            architectures=(*TRAINED, "surrogate"),
            searches_in_full=True,
            reads_pairs=True,
        ),
        "widths": Analysis(
            summary="scores of prefixes of the vectors, at every width, and of the same vectors rotated by SVD",
            architectures=TRAINED,
            searches_in_full=True,
            sets_num_contexts=True,
        ),
        "adaptive": Analysis(
            summary="scores, cost and time of a search with a shortlist by a prefix, ranked by wider prefixes",
            architectures=("biencoder",),
            searches_in_full=True,
        ),
        "cascade": Analysis(
            summary="classification of queries by collection, with prefixes that widen for uncertain queries",
            architectures=("biencoder",),
        ),
        "probe": Analysis(
            summary="classification of documents by collection, with linear heads and 1-NN on prefixes of the vectors",
            architectures=("biencoder",),
        ),
        "disagreement": Analysis(
            summary="the first document of each query at every width, when all collections are searched together",
            architectures=("biencoder",),
        ),
        "steps": Analysis(
            summary="scores after each fifth of the training steps, along one training run",
            architectures=TRAINED,
            reranks=True,
            sets_num_contexts=True,
        ),
        "curve": Analysis(
            summary="training loss along the steps, as means of equal stretches, without evaluation",
            architectures=TRAINED,
        ),
        "cross": Analysis(
            summary="scores on each of some domains under contexts from each other domain",
            architectures=("contextual",),
            reranks=True,
        ),
        "polarity": Analysis(
            summary="zero-shot polarity of film reviews by the words of the label, bare and in a sentence",
            architectures=(*TRAINED, "surrogate"),
        ),
        "mteb": Analysis(
            summary="scores on mteb's own tasks of seven categories, under own, unrelated and null contexts",
            architectures=(*TRAINED, "surrogate", "bm25"),
            searches_in_full=True,
        ),
    }
)
"""Analyses by the value of the field `measure`."""
