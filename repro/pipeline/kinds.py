"""Which kinds of stages a run needs, by its fields alone, before anything is here."""

from __future__ import annotations

from repro.spec import TRAINED, Run

LOOKS_AT_PAIRS = ("batches", "neighbours", "cluster")
"""Measures of the training pairs under the surrogate, whatever is trained."""
READS_PAIRS = ("counts", "divergence", "headroom", "whitening")
"""Measures of the training pairs as text."""
RANKS_CANDIDATES = ("retrieval", "steps", "cross")
"""Measures that rank what a first stage found, where the protocol says so; the others search in full, or not at all."""


def kinds_of_evaluation(run: Run) -> list[str]:
    """Return the names of what a run is scored with: first its suite, then what is made with it."""
    wanted = ["evaluation"]
    ranks = run.measure in RANKS_CANDIDATES and run.architecture != "none"
    wanted += ["candidates"] if run.protocol != "full" and ranks else []
    return wanted + (["headroom"] if tells_headroom(run) else [])


def list_pair_kinds(run: Run) -> list[str]:
    """Return the names of what is made of the pairs that a run itself trains on or looks at, in order of building."""
    trains, embeds = run.architecture in TRAINED, needs_surrogate(run)
    wanted = ["selection"] if run.measure in READS_PAIRS else []
    wanted += ["tokens", "keys"] if trains else ["keys"] if embeds else []
    wanted += ["positives"] if run.known_positives == "mask" and (trains or embeds) else []
    wanted += ["embeddings"] if embeds else []
    wanted += ["filter_embeddings"] if embeds and run.filter == "surrogate" else []
    wanted += ["clusters"] if embeds and run.sampler == "cluster" else []
    return wanted + (["negatives"] if trains and run.num_hard_negatives else [])


def reads_pairs(run: Run) -> bool:
    """Return whether a run itself, not its first phase, reads the pairs of its corpus; BM25 reads its suite alone."""
    return bool(list_pair_kinds(run)) or tells_headroom(run)


def needs_surrogate(run: Run) -> bool:
    """Return whether a run's batches depend on the surrogate's embeddings."""
    if run.measure in LOOKS_AT_PAIRS:
        return True
    wanted = run.sampler == "cluster" or run.filter == "surrogate" or run.num_hard_negatives > 0
    return run.architecture in TRAINED and wanted


def tells_headroom(run: Run) -> bool:
    """Return whether a run says what share of the headroom it takes: a contextual one, scored under own and wrong."""
    is_contextual = run.measure == "retrieval" and run.architecture == "contextual"
    return is_contextual and {"own", "wrong"} <= set(run.test_contexts.split("+"))
