"""What of its inputs a run wants, told from its fields: which tokenizer, which domains, pairs, the surrogate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.data.pairs import Pairs
from repro.spec import TRAINED, Run

MINILM = "minilm"
LOOKS_AT_PAIRS = ("batches", "neighbours", "cluster")
"""Measures of the training pairs under the surrogate, whatever is trained."""
READS_PAIRS = ("counts", "divergence", "headroom")
"""Measures of the training pairs as text."""


def tokenizer_of(run: Run) -> str:
    """Return the name of a run's tokenizer: MiniLM's, or that of other pretrained weights that it starts from."""
    return MINILM if run.start in ("random", "words", MINILM) else run.start


def domain_codes(run: Run, pairs: Pairs) -> np.ndarray:
    """Return each pair's domain (int32 N): its source, or its finest division."""
    return pairs.source_codes if run.domain_column == "source" else pairs.domain_codes


def domain_names(run: Run, pairs: Pairs) -> Sequence[str]:
    """Return the name of each domain by its code."""
    return pairs.source_names if run.domain_column == "source" else pairs.domain_names


def needs_surrogate(run: Run) -> bool:
    """Return whether a run's batches depend on the surrogate's embeddings."""
    if run.measure in LOOKS_AT_PAIRS:
        return True
    wanted = run.sampler == "cluster" or run.filter == "surrogate" or run.num_hard_negatives > 0
    return run.architecture in TRAINED and wanted


def num_contexts_scored(run: Run) -> int:
    """Return how many context documents a contextual model of the run is given when it is scored."""
    return run.num_contexts if run.num_test_contexts is None else run.num_test_contexts


def tells_headroom(run: Run) -> bool:
    """Return whether a run says what share of the headroom it takes: a contextual one, scored under own and wrong."""
    is_contextual = run.measure == "retrieval" and run.architecture == "contextual"
    return is_contextual and {"own", "wrong"} <= set(run.test_contexts.split("+"))
