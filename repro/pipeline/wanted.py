"""What of its inputs a run wants, told from its fields: which tokenizer, which domains, how many contexts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.data.pairs import Pairs
from repro.spec import Run

MINILM, NOMIC_BERT = "minilm", "nomic-ai/nomic-bert-2048"


def get_tokenizer_name(run: Run) -> str:
    """Return the name of a run's tokenizer: MiniLM's, or that of other pretrained weights that it starts from.

    MiniLM has the vocabulary of bert-base-uncased; so has the paper's NomicBERT, which may come without a tokenizer.
    """
    return MINILM if run.start in ("random", "words", MINILM, NOMIC_BERT) else run.start


def domain_codes(run: Run, pairs: Pairs) -> np.ndarray:
    """Return each pair's domain (int32 N): its source, or its finest division."""
    return pairs.source_codes if run.domain_column == "source" else pairs.domain_codes


def list_domain_names(run: Run, pairs: Pairs) -> Sequence[str]:
    """Return the name of each domain by its code."""
    return pairs.source_names if run.domain_column == "source" else pairs.domain_names


def count_test_contexts(run: Run) -> int:
    """Return how many context documents a contextual model of the run is given when it is scored."""
    return run.num_contexts if run.num_test_contexts is None else run.num_test_contexts
