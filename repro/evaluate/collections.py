"""Reads the collections of a suite as their oddities want it, and keeps a note of each that mattered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from repro.data.beir import Retrieval, Suite, load_dataset
from repro.data.paper.quirks import Quirks
from repro.evaluate.retrieval import Run, without_self_hits


@dataclass(frozen=True)
class Collection:
    """A collection that was read, and how it is to be scored."""

    retrieval: Retrieval
    quirks: Quirks

    @property
    def document_role(self) -> str:
        """The prompt that documents, and context documents, carry."""
        return "query" if self.quirks.asks_on_both_sides else "document"

    @property
    def num_extra_hits(self) -> int:
        """How many more documents to search for, because some are taken out after."""
        return int(self.quirks.removes_self_hits)

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores must know."""
        here = set(self.retrieval.document_ids)
        missing = {one for grades in self.retrieval.judgements.values() for one in grades} - here
        lacking = [f"{len(missing)} judged documents are not in the corpus"] if missing else []
        grades = self.retrieval.judgements.values()
        hopeless = sum(not any(grade > 0 for grade in given.values()) for given in grades)
        lacking += [f"{hopeless} queries have no relevant document and score 0, as in trec_eval"] if hopeless else []
        return [note for note in (self.quirks.told_of(len(grades)), *lacking) if note]

    @property
    def provenance(self) -> dict[str, Any]:
        """What a record keeps."""
        return {"num_queries": len(self.retrieval.judgements), "split": self.quirks.split, "quirks": self.notes}


def read_collections(suite: Suite) -> dict[str, Collection]:
    """Return each dataset of a suite by name, read as its oddities want it: its own, or those of a known name."""
    return {dataset.name: Collection(*load_dataset(dataset)) for dataset in suite.datasets}


def without_quirky_hits(run: Run, collection: Collection, k: int) -> Run:
    """Return the k best of every query, less what the collection's table takes out."""
    return without_self_hits(run, k) if collection.quirks.removes_self_hits else run
