"""Whether a run's clusters can be made at all: none is larger than the largest domain, as far as its size is known."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from repro.pipeline.kinds import needs_surrogate
from repro.pipeline.stages import StageGraph
from repro.pipeline.wanted import domain_codes
from repro.planning.cost import list_training_phases
from repro.planning.pairs import count_domain_sizes, count_pairs, get_printed_sizes, list_sources
from repro.spec import Run
from repro.spec.identity import run_id


def check_clusters(runs: Iterable[Run]) -> None:
    """ValueError, before anything is spent, for a run whose clusters are larger than its largest domain."""
    for found in too_large_clusters(runs).values():
        raise ValueError(found)


def too_large_clusters(runs: Iterable[Run]) -> dict[Run, str]:
    """Return the runs whose clusters, or those of a training before, are larger than the largest domain, and why."""
    known: dict[tuple[object, ...], int | None] = {}
    found: dict[Run, str] = {}
    for run in runs:
        for phase in list_training_phases(run):
            if phase.sampler != "cluster" or phase.cluster_size is None or not needs_surrogate(phase):
                continue
            pairs = (phase.corpus, phase.sources, phase.num_pairs, phase.domain_column)
            if pairs not in known:
                known[pairs] = largest_domain(phase)
            most = known[pairs]
            if most is not None and phase.cluster_size > most:
                asked = f"run {run_id(run)}: cluster_size is {phase.cluster_size}"
                found[run] = f"{asked}, and the largest domain has {most} pairs: choose at most that many"
    return found


def largest_domain(run: Run) -> int | None:
    """Return how many pairs a run's largest domain has: counted, or at most; None where nobody knows yet."""
    num_pairs = count_pairs(run)
    if get_printed_sizes(run.corpus):
        named = list_sources(run)
        whole = count_pairs(replace(run, num_pairs=None))
        assert whole is not None and num_pairs is not None, "who prints the domains of a corpus prints its size"
        return min(num_pairs, max(count_domain_sizes(run.corpus, whole, named)))
    with suppress(ValueError):  # the corpus is not here, which a plan says in its own line
        graph = StageGraph(run)
        if graph.selection.is_built:
            return int(np.bincount(domain_codes(run, graph.selected_pairs())).max())
    return num_pairs
