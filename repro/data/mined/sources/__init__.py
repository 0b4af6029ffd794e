"""One module per kind of text. Each yields rows from the files of wheels without importing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from repro.data.pairs import Row

MIN_ROWS_PER_DOMAIN = 64


def merge_small_domains(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows. Domains with fewer than `MIN_ROWS_PER_DOMAIN` rows become `….others` of their source."""
    every = list(rows)
    sizes = Counter(row.domain for row in every)
    for row in every:
        yield row if sizes[row.domain] >= MIN_ROWS_PER_DOMAIN else row._replace(domain=f"{row.source}.others")
