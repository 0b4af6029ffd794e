"""Check that the clusters of a run are not larger than its largest domain, if the size of that domain is known."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from repro.pipeline.needs import domain_codes, needs_surrogate
from repro.pipeline.stages import StageGraph
from repro.planning.cost import list_training_phases
from repro.planning.pairs import count_domain_sizes, count_pairs, get_printed_sizes, list_sources
from repro.spec import Run
from repro.spec.identity import run_id


def check_clusters(runs: Iterable[Run]) -> None:
    """Raise ValueError if the clusters of a run are larger than its largest domain, before any work starts."""
    for message in find_oversized_clusters(runs).values():
        raise ValueError(message)


def find_oversized_clusters(runs: Iterable[Run]) -> dict[Run, str]:
    """Return a message per run with too large clusters, also in an earlier training phase."""
    largest_domains: dict[tuple[object, ...], int | None] = {}
    messages: dict[Run, str] = {}
    for run in runs:
        for phase in list_training_phases(run):
            if phase.sampler != "cluster" or phase.cluster_size is None or not needs_surrogate(phase):
                continue
            # Many runs of a sweep share their pairs, so each selection is counted once.
            pairs = (phase.corpus, phase.sources, phase.num_pairs, phase.domain_column)
            if pairs not in largest_domains:
                largest_domains[pairs] = count_largest_domain(phase)
            largest = largest_domains[pairs]
            if largest is not None and phase.cluster_size > largest:
                messages[run] = (
                    f"run {run_id(run)}: cluster_size is {phase.cluster_size}, and the largest domain has {largest} "
                    "pairs: choose at most that many"
                )
    return messages


def count_largest_domain(run: Run) -> int | None:
    """Return the number of pairs in the largest domain of a run, or an upper bound, or None if it is unknown."""
    num_pairs = count_pairs(run)
    if get_printed_sizes(run.corpus):
        sources = list_sources(run)
        num_corpus_pairs = count_pairs(replace(run, num_pairs=None))
        assert num_corpus_pairs and num_pairs, "a corpus with printed domains has a printed size"
        return min(num_pairs, max(count_domain_sizes(run.corpus, num_corpus_pairs, sources)))
    # the corpus is missing, which the plan reports separately
    with suppress(ValueError):
        graph = StageGraph(run)
        if graph.selection.is_built:
            return int(np.bincount(domain_codes(run, graph.selected_pairs())).max())
    return num_pairs
