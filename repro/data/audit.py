"""Check that no document or query of the evaluation suites is in the training pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.data.beir import load_beir, load_suite
from repro.data.pairs import Pairs
from repro.data.wording import normalise

ROWS_PER_READ = 65_536


@dataclass(frozen=True)
class Overlap:
    """Normalised texts that are both trained on and evaluated, sorted. Empty if training data is clean."""

    documents: tuple[str, ...]
    queries: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.documents or self.queries)


def overlap(train: Pairs, suites: Sequence[Path]) -> Overlap:
    """Return the queries and documents of `train` that are documents or queries of the suites in these folders."""
    retrievals = [load_beir(dataset.path) for suite in suites for dataset in load_suite(suite).datasets]
    documents = {normalise(text) for retrieval in retrievals for text in retrieval.documents}
    queries = {normalise(text) for retrieval in retrievals for text in retrieval.queries}
    found: set[str] = set()
    for start in range(0, len(train), ROWS_PER_READ):
        rows = range(start, min(start + ROWS_PER_READ, len(train)))
        for text in train.texts("query", rows) + train.texts("document", rows):
            key = normalise(text)
            if key in documents or key in queries:
                found.add(key)
    return Overlap(tuple(sorted(found & documents)), tuple(sorted(found & queries)))


def check_no_overlap(train: Pairs, suites: Sequence[Path]) -> None:
    """Raise ValueError with the first texts if an evaluated text is in the training pairs."""
    both = overlap(train, suites)
    if both:
        first = [*both.documents, *both.queries][:3]
        raise ValueError(
            f"{len(both.documents)} evaluated documents and {len(both.queries)} evaluated queries are in the training "
            f"pairs, first {first}: build the corpus again"
        )
