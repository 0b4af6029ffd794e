"""Derive the needs of a run from its fields: kinds of stages, tokenizer, domains and number of contexts.

No data has to exist for this.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.data.pairs import Pairs
from repro.data.paper.hub import SOURCES
from repro.spec import MEASURES, TRAINED, Run, needs_surrogate

STAGE_KINDS = (
    *("corpus", "selection", "tokens", "keys", "positives", "embeddings", "clusters", "negatives", "order"),
    *("candidates", "headroom"),
)
"""Names of stages. The filter's vectors are embeddings, too."""
MINILM, NOMIC_BERT = "minilm", "nomic-ai/nomic-bert-2048"


def list_evaluation_kinds(run: Run) -> list[str]:
    """Return the kinds of stages for evaluation: the suite first, then those that build on it."""
    kinds = ["evaluation"]
    if run.protocol != "full" and MEASURES[run.measure].reranks and run.architecture != "none":
        kinds.append("candidates")
    if reports_headroom(run):
        kinds.append("headroom")
    return kinds


def list_pair_kinds(run: Run) -> list[str]:
    """Return the kinds of stages of a run's training pairs, in the order of building."""
    trains, embeds = run.architecture in TRAINED, needs_surrogate(run)
    conditions = {
        "selection": MEASURES[run.measure].reads_pairs,
        "tokens": trains,
        "keys": trains or embeds,
        "positives": (trains or embeds) and run.known_positives == "mask",
        "embeddings": embeds,
        "filter_embeddings": embeds and run.filter != "none",
        "clusters": embeds and run.sampler == "cluster",
        "negatives": has_hard_negatives(run),
        "order": stores_order(run),
    }
    return [kind for kind, is_needed in conditions.items() if is_needed]


def stores_order(run: Run) -> bool:
    """Return whether the batches of all epochs are a stage. On the paper's corpora, packing one takes up to hours."""
    is_packed = run.sampler in ("random", "domain", "cluster") and run.mixing_alpha is None
    return is_packed and run.architecture in TRAINED and run.num_steps != 0 and run.corpus in SOURCES


def has_hard_negatives(run: Run) -> bool:
    """Return whether a run draws batches with hard negatives, to train on them or to measure them."""
    return (run.architecture in TRAINED or run.measure == "batches") and run.num_hard_negatives > 0


def uses_given_negatives(run: Run) -> bool:
    """Return whether the batches of a run have the hard negatives that were given with its pairs."""
    return has_hard_negatives(run) and run.mined_negatives == "given"


def reads_pairs(run: Run) -> bool:
    """Return whether a run reads the pairs of its corpus. BM25 does not. The first phase does not count."""
    return bool(list_pair_kinds(run)) or reports_headroom(run)


def reports_headroom(run: Run) -> bool:
    """Return whether a run reports its share of the headroom: a contextual model under the own and wrong contexts.

    The headroom is measured by full search, so it says nothing about a run that reranks candidates.
    """
    is_contextual = run.measure == "retrieval" and run.architecture == "contextual"
    return is_contextual and run.protocol == "full" and {"own", "wrong"} <= set(run.test_contexts.split("+"))


def get_tokenizer_name(run: Run) -> str:
    """Return the name of a run's tokenizer: MiniLM's, or that of the pretrained weights it starts from.

    MiniLM has the vocabulary of bert-base-uncased. The paper's NomicBERT has it too, and may come without a tokenizer.
    """
    return MINILM if run.start in ("random", "words", MINILM, NOMIC_BERT) else run.start


def domain_codes(run: Run, pairs: Pairs) -> np.ndarray:
    """Return the domain of each pair, int32 (N,): its source, or its finest division."""
    return pairs.source_codes if run.domain_column == "source" else pairs.domain_codes


def check_domain_sizes(run: Run, largest: int) -> None:
    """Raise ValueError if batches or clusters of a run exceed its largest domain, of `largest` pairs."""
    draws = (run.architecture in TRAINED and run.num_steps != 0) or run.measure == "batches"
    names = (["batch_size"] if draws else []) + (["cluster_size"] if "clusters" in list_pair_kinds(run) else [])
    for name in names:
        if getattr(run, name) > largest:
            raise ValueError(f"{name} is {getattr(run, name)}, and the largest domain has {largest} pairs")


def list_domain_names(run: Run, pairs: Pairs) -> Sequence[str]:
    """Return the name of each domain by its code."""
    return pairs.source_names if run.domain_column == "source" else pairs.domain_names


def count_test_contexts(run: Run) -> int:
    """Return the number of context documents of a contextual model in evaluation."""
    return run.num_contexts if run.num_test_contexts is None else run.num_test_contexts
