"""Reads and searches the collections of a suite as their oddities want it, and keeps a note of each that mattered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.data.beir import HEADLINE, Retrieval, Suite, load_dataset
from repro.data.paper.quirks import Quirks
from repro.evaluate.retrieval import Hits, Matrix, score, search, without_self_hits


@dataclass(frozen=True)
class Collection:
    """A collection that was read, and how it is to be scored."""

    retrieval: Retrieval
    quirks: Quirks

    @property
    def document_role(self) -> str:
        """The prompt that documents, and context documents, carry."""
        return self.quirks.document_role

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
        for what, texts in (("documents", self.retrieval.documents), ("queries", self.retrieval.queries)):
            empty = sum(not text.strip() for text in texts)
            lacking += [f"{empty} of {len(texts)} {what} are empty"] if empty else []
        alike = 0 if self.quirks.removes_self_hits else sum(one in here for one in self.retrieval.query_ids)
        if alike:
            lacking.append(
                f"{alike} of {len(self.retrieval.query_ids)} queries have the id of a document, which counts here as "
                "any other; BEIR's own tools take it out of that query's ranking"
            )
        return [note for note in (self.quirks.describe_quirks(len(grades)), *lacking) if note]

    @property
    def provenance(self) -> dict[str, Any]:
        """What a record keeps."""
        return {"num_queries": len(self.retrieval.judgements), "split": self.quirks.split, "quirks": self.notes}


def read_collections(suite: Suite) -> dict[str, Collection]:
    """Return each dataset of a suite by name, read as its oddities want it: its own, or those of a known name."""
    return {dataset.name: Collection(*load_dataset(dataset)) for dataset in suite.datasets}


def describe_datasets(suite: Suite, collections: Mapping[str, Collection]) -> list[dict[str, Any]]:
    """Return what a record keeps of each dataset of a suite, in their order."""
    return [
        {
            "name": d.name,
            "family": d.family,
            **({"part_of": d.part_of} if d.part_of else {}),
            **collections[d.name].provenance,
        }
        for d in suite.datasets
    ]


def ranked_in(
    collection: Collection, queries_QH: Matrix, documents_DH: Matrix, k: int, candidates: Hits | None = None
) -> Hits:
    """Return the k best documents of every query, or of its candidates, less what the collection's table takes out."""
    ids, most = (collection.retrieval.query_ids, collection.retrieval.document_ids), k + collection.num_extra_hits
    return without_quirky_hits(search(queries_QH, documents_DH, *ids, most, candidates), collection, k)


def headline(run: Hits, collection: Collection) -> np.ndarray:
    """Return the NDCG@10 of each judged query, float32 (Q,)."""
    return score(run, collection.retrieval.judgements, (HEADLINE,))[HEADLINE]


def without_quirky_hits(run: Hits, collection: Collection, k: int) -> Hits:
    """Return the k best of every query, less what the collection's table takes out."""
    return without_self_hits(run, k, collection.retrieval.judgements) if collection.quirks.removes_self_hits else run
