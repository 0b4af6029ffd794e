"""Check that clusters and batches of a run are not larger than its largest domain, if the size of that domain is known."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from repro.pipeline.needs import domain_codes
from repro.pipeline.stages import StageGraph
from repro.planning.cost import list_training_phases
from repro.planning.pairs import count_domain_sizes, count_pairs, get_printed_sizes, list_sources
from repro.spec import TRAINED, Run, needs_surrogate
from repro.spec.identity import run_id


def check_domain_sizes(runs: Iterable[Run]) -> None:
    """Raise ValueError if a run has larger clusters or batches than its largest domain, before any work starts."""
    for message in find_oversized(runs).values():
        raise ValueError(message)


def find_oversized(runs: Iterable[Run]) -> dict[Run, str]:
    """Return a message per run with larger clusters or batches than its largest domain, also in an earlier phase."""
    largest_domains: dict[tuple[object, ...], int | None] = {}
    messages: dict[Run, str] = {}
    for run in runs:
        for phase in list_training_phases(run):
            fields = _list_limited_fields(phase)
            if not fields:
                continue
            # Many runs of a sweep share their pairs, so each selection is counted once.
            pairs = (phase.corpus, phase.sources, phase.num_pairs, phase.domain_column, phase.sampler == "random")
            if pairs not in largest_domains:
                largest_domains[pairs] = count_largest_domain(phase)
            largest = largest_domains[pairs]
            for name in fields:
                size = getattr(phase, name)
                if largest is not None and size > largest:
                    where = "" if phase == run else " of its first phase"
                    messages[run] = (
                        f"run {run_id(run)}: {name}{where} is {size}, and the largest domain has {largest} pairs: choose "
                        "at most that many"
                    )
    return messages


def _list_limited_fields(phase: Run) -> list[str]:
    """Return the fields of a phase that are numbers of pairs of one domain."""
    fields = []
    if phase.architecture in TRAINED or phase.measure == "batches":
        fields.append("batch_size")
    if phase.sampler == "cluster" and needs_surrogate(phase):
        fields.append("cluster_size")
    return fields


def count_largest_domain(run: Run) -> int | None:
    """Return the number of pairs in the largest domain of a run, or an upper bound, or None if it is unknown.

    All pairs are one domain if the sampler is "random".
    """
    num_pairs = count_pairs(run)
    has_one_domain = run.sampler == "random"
    if get_printed_sizes(run.corpus) and not has_one_domain:
        sources = list_sources(run)
        num_corpus_pairs = count_pairs(replace(run, num_pairs=None))
        assert num_corpus_pairs and num_pairs, "a corpus with printed domains has a printed size"
        return min(num_pairs, max(count_domain_sizes(run.corpus, num_corpus_pairs, sources)))
    # the corpus is missing, which the plan reports separately
    with suppress(ValueError):
        graph = StageGraph(run)
        if graph.selection.is_built:
            pairs = graph.selected_pairs()
            return len(pairs) if has_one_domain else int(np.bincount(domain_codes(run, pairs)).max())
    return num_pairs
