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
    num_corpus_pairs = _count_pairs_of_corpus(run.corpus)
    sources = list_sources(run)
    printed = get_printed_sizes(run.corpus)
    if num_corpus_pairs is not None and sources and printed:
        num_corpus_pairs = round(num_corpus_pairs * sum(get_printed_sizes(run.corpus, sources)) / sum(printed))
    limits = [limit for limit in (num_corpus_pairs, run.num_pairs) if limit is not None]
    return min(limits, default=None)


def list_sources(run: Run) -> tuple[str, ...]:
    """Return the selected sources of a run. An empty tuple means all."""
    return tuple(run.sources.split("+")) if run.sources else ()


def count_domain_sizes(corpus: str, num_pairs: int, sources: Sequence[str] = ()) -> Sequence[int]:
    """Return the pairs per domain as printed in the paper, scaled to `num_pairs` in total.

    `sources` restricts the domains. Without printed sizes, all pairs are one domain.
    """
    printed = get_printed_sizes(corpus, sources or None)
    return [round(rows * num_pairs / sum(printed)) for rows in printed] or [num_pairs]


def get_printed_sizes(corpus: str, sources: Sequence[str] | None = None) -> list[int]:
    """Return the printed sizes of the domains of a corpus, or of the named ones. Empty if none are printed."""
    domains: Mapping[str, object] = SOURCES[corpus].domains if corpus in SOURCES else {}
    selected = [domain for name, domain in domains.items() if sources is None or name in sources]
    sizes = [getattr(domain, "num_rows", None) for domain in selected]
    return [size for size in sizes if size]


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
