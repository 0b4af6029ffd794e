"""How many pairs a run trains on, told before its corpus is here: declared, imported, or not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repro.data.own.imported import find_imported
from repro.data.paper.hub import SOURCES
from repro.spec import Run

MINED = {"desk": 168_464, "planted-tiny": 240}
"""Pairs of corpora that are made here; a test holds them to what is made."""


def count_pairs(run: Run) -> int | None:
    """Return how many pairs a run's corpus, sources and selection leave, before anything is held out of an import.

    None where nobody knows before the corpus is here; then a selection of so many pairs says how many at most.
    """
    num_all, named = _count_pairs_of_corpus(run.corpus), list_sources(run)
    printed = get_printed_sizes(run.corpus)
    if num_all is not None and named and printed:
        num_all = round(num_all * sum(get_printed_sizes(run.corpus, named)) / sum(printed))
    return min((number for number in (num_all, run.num_pairs) if number is not None), default=None)


def list_sources(run: Run) -> tuple[str, ...]:
    """Return the sources that a run names; none where it trains on all."""
    return tuple(run.sources.split("+")) if run.sources else ()


def count_domain_sizes(corpus: str, num_pairs: int, named: Sequence[str] = ()) -> Sequence[int]:
    """Return the pairs of each domain as the paper prints them, or of the named, scaled to so many in all; else one."""
    printed = get_printed_sizes(corpus, named or None)
    return [round(rows * num_pairs / sum(printed)) for rows in printed] or [num_pairs]


def get_printed_sizes(corpus: str, named: Sequence[str] | None = None) -> list[int]:
    """Return the rows that the paper prints of a corpus' domains, or of the named; none where it prints none."""
    domains: Mapping[str, object] = SOURCES[corpus].domains if corpus in SOURCES else {}
    wanted = [domain for name, domain in domains.items() if named is None or name in named]
    return [rows for domain in wanted if (rows := getattr(domain, "num_rows", None))]


def _count_pairs_of_corpus(corpus: str) -> int | None:
    if corpus in SOURCES:
        return SOURCES[corpus].num_rows
    if "@" not in corpus:
        return MINED.get(corpus)
    try:
        return find_imported(corpus).found.num_kept
    except ValueError:  # it is not here, which the plan says in its own line
        return None
