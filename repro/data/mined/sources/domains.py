"""What counts as a domain of a source: divisions that have enough rows for a batch; smaller ones share one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from repro.data.pairs import Row

MIN_ROWS_PER_DOMAIN = 64


def merge_small_domains(rows: Iterable[Row]) -> Iterator[Row]:
    """Return the rows, those of domains of fewer than `MIN_ROWS_PER_DOMAIN` rows in their source's `….others`."""
    every = list(rows)
    sizes = Counter(row.domain for row in every)
    for row in every:
        yield row if sizes[row.domain] >= MIN_ROWS_PER_DOMAIN else row._replace(domain=f"{row.source}.others")
