"""Load and search the collections of a suite, with the known quirks of each dataset applied and noted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.data.beir import HEADLINE, Retrieval, Suite, load_dataset
from repro.data.paper.quirks import Quirks
from repro.data.wording import is_empty
from repro.evaluate.retrieval import Hits, Matrix, remove_self_hits, score, search


@dataclass(frozen=True)
class Collection:
    """A loaded collection and the quirks that its scoring respects."""

    retrieval: Retrieval
    quirks: Quirks

    @property
    def document_role(self) -> str:
        """The prompt role of documents and context documents."""
        return self.quirks.document_role

    @property
    def num_extra_hits(self) -> int:
        """Number of additional hits to request, because self-hits are removed afterwards."""
        return int(self.quirks.removes_self_hits)

    @property
    def notes(self) -> list[str]:
        """Notes that a reader of the scores needs."""
        here = set(self.retrieval.document_ids)
        missing = {one for grades in self.retrieval.judgements.values() for one in grades} - here
        notes = [f"{len(missing)} judged documents are not in the corpus"] if missing else []
        grades = self.retrieval.judgements.values()
        num_without_relevant = sum(not any(grade > 0 for grade in given.values()) for given in grades)
        notes += (
            [f"{num_without_relevant} queries have no relevant document and score 0, as in trec_eval"]
            if num_without_relevant
            else []
        )
        for side, texts in (("documents", self.retrieval.documents), ("queries", self.retrieval.queries)):
            empty = sum(map(is_empty, texts))
            notes += [f"{empty} of {len(texts)} {side} are empty"] if empty else []
        num_self_hits = 0 if self.quirks.removes_self_hits else sum(one in here for one in self.retrieval.query_ids)
        if num_self_hits:
            notes.append(
                f"{num_self_hits} of {len(self.retrieval.query_ids)} queries have the id of a document, which counts here as "
                "any other; BEIR's own tools take it out of that query's ranking"
            )
        return [note for note in (self.quirks.describe_quirks(len(grades)), *notes) if note]

    @property
    def provenance(self) -> dict[str, Any]:
        """The description of the collection for a record."""
        return {"num_queries": len(self.retrieval.judgements), "split": self.quirks.split, "quirks": self.notes}


def read_collections(suite: Suite) -> dict[str, Collection]:
    """Return each dataset of a suite by name, with its own quirks or those known for its name."""
    return {dataset.name: Collection(*load_dataset(dataset)) for dataset in suite.datasets}


def describe_datasets(suite: Suite, collections: Mapping[str, Collection]) -> list[dict[str, Any]]:
    """Return the description of each dataset for a record, in the order of the suite."""
    return [
        {
            "name": d.name,
            "family": d.family,
            **({"part_of": d.part_of} if d.part_of else {}),
            **collections[d.name].provenance,
        }
        for d in suite.datasets
    ]


def search_collection(
    collection: Collection, queries_QH: Matrix, documents_DH: Matrix, k: int, candidates: Hits | None = None
) -> Hits:
    """Return the k best documents per query, or per query's candidates, without self-hits if the quirks exclude them."""
    ids, most = (collection.retrieval.query_ids, collection.retrieval.document_ids), k + collection.num_extra_hits
    return without_quirky_hits(search(queries_QH, documents_DH, *ids, most, candidates), collection, k)


def score_headline(run: Hits, collection: Collection) -> np.ndarray:
    """Return the NDCG@10 of each judged query, float32 (Q,)."""
    return score(run, collection.retrieval.judgements, (HEADLINE,))[HEADLINE]


def without_quirky_hits(run: Hits, collection: Collection, k: int) -> Hits:
    """Return the k best hits per query, without self-hits if the quirks of the collection exclude them."""
    return remove_self_hits(run, k, collection.retrieval.judgements) if collection.quirks.removes_self_hits else run
