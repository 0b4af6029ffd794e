"""The analyses that a run can name in its field `measure`, with the requirements of each on the other fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

TRAINED = ("biencoder", "contextual")
"""Architectures that are trained. The others are reference systems in tables."""
NUM_SCORED_PARTS = 5
"""Number of equal parts of a training run after each of which the analysis `steps` scores the model."""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The requirements of one analysis. The module of the same name in `repro.analyses` implements and describes it."""

    architectures: tuple[str, ...] | None = None  # None: all
    searches_in_full: bool = False  # searches all documents, whatever the protocol of the scale
    reranks: bool = False  # ranks the candidates of a first stage if the protocol says so
    # may give a contextual model fewer context documents than in training
    sets_num_contexts: bool = False
    needs_full_width: bool = False  # compares prefixes with the whole vector
    reads_pairs: bool = False  # reads the training pairs as text
    # draws training pairs with the run's seed, and reads the surrogate's vectors of them
    samples_pairs: bool = False


MEASURES: Mapping[str, Analysis] = MappingProxyType(
    {
        "retrieval": Analysis(reranks=True, sets_num_contexts=True),
        "batches": Analysis(samples_pairs=True),
        "counts": Analysis(reads_pairs=True),
        "neighbours": Analysis(samples_pairs=True),
        "cluster": Analysis(samples_pairs=True),
        "shape": Analysis(),
        "divergence": Analysis(reads_pairs=True),
        "spread": Analysis(architectures=("contextual",)),
        "headroom": Analysis(
            architectures=("biencoder", "bm25", "surrogate", "none"), searches_in_full=True, reads_pairs=True
        ),
        "selection": Analysis(architectures=("contextual",), searches_in_full=True, sets_num_contexts=True),
        "whitening": Analysis(architectures=(*TRAINED, "surrogate"), searches_in_full=True, reads_pairs=True),
        "widths": Analysis(architectures=TRAINED, searches_in_full=True, sets_num_contexts=True),
        "adaptive": Analysis(architectures=("biencoder",), searches_in_full=True, needs_full_width=True),
        "cascade": Analysis(architectures=("biencoder",)),
        "probe": Analysis(architectures=("biencoder",)),
        "disagreement": Analysis(architectures=("biencoder",), needs_full_width=True),
        "steps": Analysis(architectures=TRAINED, reranks=True, sets_num_contexts=True),
        "curve": Analysis(architectures=TRAINED),
        "cross": Analysis(architectures=("contextual",), reranks=True),
        "polarity": Analysis(architectures=(*TRAINED, "surrogate")),
        "mteb": Analysis(architectures=(*TRAINED, "surrogate", "bm25"), searches_in_full=True),
    }
)
"""Analyses by the value of the field `measure`."""
