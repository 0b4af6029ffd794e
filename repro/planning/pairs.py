"""Number of training pairs of a run before its corpus is available: declared, imported or unknown."""

from __future__ import annotations

from repro.data.own.imported import find_imported
from repro.data.paper.hub import SOURCES
from repro.spec import Run

MINED = {"desk": 168_464, "planted-tiny": 240}
"""Pairs of the generated corpora. A test compares them with the real corpora."""


def count_pairs(run: Run) -> int | None:
    """Return the number of pairs after the selection of corpus, sources and `num_pairs`, before any hold-out.

    If the size of the corpus is unknown, the result is `num_pairs` as an upper bound, or None.
    """
    limits = [limit for limit in (_count_pairs_of_corpus(run), run.num_pairs) if limit is not None]
    return min(limits, default=None)


def _count_pairs_of_corpus(run: Run) -> int | None:
    if run.corpus in SOURCES:
        source = SOURCES[run.corpus]
        if run.sources is None:
            return source.num_rows
        # a source of the paper's corpus is one domain
        sizes = [source.domains[name].num_rows for name in run.sources.split("+") if name in source.domains]
        return sum(size for size in sizes if size) if sizes and all(sizes) else source.num_rows
    if "@" not in run.corpus:
        return MINED.get(run.corpus)
    try:
        return find_imported(run.corpus).found.num_kept
    except ValueError:
        # it is missing, which the plan reports separately
        return None
