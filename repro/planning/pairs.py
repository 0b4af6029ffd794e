"""Number of training pairs of a run before its corpus is available: declared, imported or unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repro.data.own.imported import find_imported
from repro.data.paper.hub import SOURCES
from repro.spec import Run

MINED = {"desk": 168_464, "planted-tiny": 240}
"""Pairs of the generated corpora. A test compares them with the real corpora."""


def count_pairs(run: Run) -> int | None:
    """Return the number of pairs after the selection of corpus, sources and `num_pairs`, before any hold-out.

    If the size of the corpus is unknown, the result is `num_pairs` as an upper bound, or None.
    """
    num_all, named = _count_pairs_of_corpus(run.corpus), list_sources(run)
    printed = get_printed_sizes(run.corpus)
    if num_all is not None and named and printed:
        num_all = round(num_all * sum(get_printed_sizes(run.corpus, named)) / sum(printed))
    return min((number for number in (num_all, run.num_pairs) if number is not None), default=None)


def list_sources(run: Run) -> tuple[str, ...]:
    """Return the selected sources of a run. An empty tuple means all."""
    return tuple(run.sources.split("+")) if run.sources else ()


def count_domain_sizes(corpus: str, num_pairs: int, named: Sequence[str] = ()) -> Sequence[int]:
    """Return the pairs per domain as printed in the paper, scaled to `num_pairs` in total.

    `named` restricts the domains. Without printed sizes, all pairs are one domain.
    """
    printed = get_printed_sizes(corpus, named or None)
    return [round(rows * num_pairs / sum(printed)) for rows in printed] or [num_pairs]


def get_printed_sizes(corpus: str, named: Sequence[str] | None = None) -> list[int]:
    """Return the printed sizes of the domains of a corpus, or of the named ones. Empty if none are printed."""
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
    except ValueError:
        # it is missing, which the plan reports separately
        return None
