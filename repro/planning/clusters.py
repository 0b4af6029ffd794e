"""Check clusters, batches and hard negatives of a run against the sizes of its domains, as far as these are known."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from repro.pipeline.needs import domain_codes
from repro.pipeline.stages import StageGraph
from repro.planning.cost import list_training_phases
from repro.planning.pairs import count_pairs
from repro.spec import TRAINED, Run, draws_within_domains, needs_surrogate
from repro.spec.identity import run_id


def check_domain_sizes(runs: Iterable[Run]) -> None:
    """Raise ValueError if the domains of a run are too small for its fields, before any work starts."""
    for message in find_oversized(runs).values():
        raise ValueError(message)


def find_oversized(runs: Iterable[Run]) -> dict[Run, str]:
    """Return a message per run whose domains are too small, also in an earlier phase.

    Clusters and batches must fit into the largest domain. Batches of mixed domains must fit into the smallest one, and it
    must have more documents than there are mined negatives per query.
    """
    known_sizes: dict[tuple[object, ...], tuple[int | None, int | None]] = {}
    messages: dict[Run, str] = {}
    for run in runs:
        for phase in list_training_phases(run):
            # Many runs of a sweep share their pairs, so each selection is counted once.
            pairs = (phase.corpus, phase.sources, phase.num_pairs, phase.domain_column, draws_within_domains(phase))
            if pairs not in known_sizes:
                known_sizes[pairs] = count_domains(phase)
            sizes = dict(zip(("largest", "smallest"), known_sizes[pairs], strict=True))
            for name, limit, num_more in _list_limits(phase):
                size, num_pairs = getattr(phase, name), sizes[limit]
                if num_pairs is not None and size + num_more > num_pairs:
                    where = "" if phase == run else " of its first phase"
                    messages[run] = (
                        f"run {run_id(run)}: {name}{where} is {size}, and the {limit} domain has {num_pairs} pairs: choose "
                        f"at most {num_pairs - num_more}"
                    )
    return messages


def _list_limits(phase: Run) -> list[tuple[str, str, int]]:
    """Return the fields that are numbers of pairs of one domain, the domain, and how many more pairs it needs."""
    limits = []
    if phase.architecture in TRAINED or phase.measure == "batches":
        limits.append(("batch_size", "largest" if phase.mixing_alpha is None else "smallest", 0))
        if phase.num_hard_negatives and phase.mined_negatives != "given":
            limits.append(("num_hard_negatives", "smallest", 1))
    if phase.sampler == "cluster" and needs_surrogate(phase):
        limits.append(("cluster_size", "largest", 0))
    return limits


def count_domains(run: Run) -> tuple[int | None, int | None]:
    """Return the number of pairs in the largest and in the smallest domain of a run, or None if unknown.

    Until the pairs are selected, all pairs are an upper bound of the largest. If batches are not drawn within domains, the
    largest domain holds all pairs.
    """
    counts = _count_built_domains(run)
    if counts is None:
        return count_pairs(run), None
    return int(counts.max() if draws_within_domains(run) else counts.sum()), int(counts.min())


def _count_built_domains(run: Run) -> np.ndarray | None:
    """Return the number of pairs of each domain, or None until the pairs are selected."""
    # the corpus may be missing, which the plan reports separately
    with suppress(ValueError):
        graph = StageGraph(run)
        if graph.selection.is_built:
            counts = np.bincount(domain_codes(run, graph.selected_pairs()))
            return counts[counts > 0]
    return None
