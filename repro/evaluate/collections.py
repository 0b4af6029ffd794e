"""Load and search the collections of a suite, with the known rules of each dataset applied and noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from repro.data.beir import HEADLINE, Retrieval, Suite, group_datasets, load_dataset
from repro.data.paper.collection_rules import CollectionRules
from repro.data.wording import is_empty
from repro.evaluate.retrieval import Hits, Matrix, remove_self_hits, score, search


class Encoder(Protocol):
    """A model to score. The models of `repro.model` implement it."""

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Set the context documents. `prompt` is the role of the texts."""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return float32 vectors (N, D), ranked by inner product. They have unit length unless a setting differs."""
        ...


@dataclass(frozen=True)
class Collection:
    """A loaded collection and the rules that its scoring respects."""

    retrieval: Retrieval
    rules: CollectionRules

    @property
    def document_role(self) -> str:
        """The prompt role of documents and context documents."""
        return self.rules.document_role

    def embed(self, encoder: Encoder) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of the queries and of the documents under the encoder's current context."""
        return encoder.encode(self.retrieval.queries, "query"), self.embed_documents(encoder)

    def embed_documents(self, encoder: Encoder) -> np.ndarray:
        """Return the vectors of the documents under the encoder's current context."""
        return encoder.encode(self.retrieval.documents, self.document_role)

    @property
    def num_extra_hits(self) -> int:
        """Number of additional hits to request, because self-hits are removed afterwards."""
        return int(self.rules.removes_self_hits)

    @property
    def notes(self) -> list[str]:
        """Notes that a reader of the scores needs."""
        retrieval = self.retrieval
        num_judged = len(retrieval.judgements)
        rules = self.rules.describe(num_judged)
        notes = [rules] if rules else []
        document_ids = set(retrieval.document_ids)
        missing = {document_id for grades in retrieval.judgements.values() for document_id in grades} - document_ids
        if missing:
            notes.append(f"{len(missing)} judged documents are not in the corpus")
        num_answerable = sum(any(grade > 0 for grade in grades.values()) for grades in retrieval.judgements.values())
        if num_answerable < num_judged:
            notes.append(
                f"{num_judged - num_answerable} queries have no relevant document and score 0, as in trec_eval"
            )
        for side, texts in (("documents", retrieval.documents), ("queries", retrieval.queries)):
            num_empty = sum(map(is_empty, texts))
            if num_empty:
                notes.append(f"{num_empty} of {len(texts)} {side} are empty")
        num_self_hits = sum(query_id in document_ids for query_id in retrieval.query_ids)
        if num_self_hits and not self.rules.removes_self_hits:
            notes.append(
                f"{num_self_hits} of {len(retrieval.query_ids)} queries have the id of a document, which counts here as "
                "any other; BEIR's own tools take it out of that query's ranking"
            )
        return notes

    @property
    def provenance(self) -> dict[str, Any]:
        """The description of the collection for a record."""
        return {"num_queries": len(self.retrieval.judgements), "split": self.rules.split, "quirks": self.notes}


def read_collections(suite: Suite) -> dict[str, Collection]:
    """Return each dataset of a suite by name, with its own rules or those known for its name."""
    return {dataset.name: Collection(*load_dataset(dataset)) for dataset in suite.datasets}


def describe_datasets(suite: Suite, collections: Mapping[str, Collection]) -> list[dict[str, Any]]:
    """Return the description of each dataset for a record, in the order of the suite."""
    rows = []
    for dataset in suite.datasets:
        row: dict[str, Any] = {"name": dataset.name, "family": dataset.family}
        if dataset.part_of:
            row["part_of"] = dataset.part_of
        rows.append(row | collections[dataset.name].provenance)
    return rows


def search_collection(
    collection: Collection, queries_QH: Matrix, documents_DH: Matrix, k: int, candidates: Hits | None = None
) -> Hits:
    """Return the k best documents per query, or per query's candidates, without self-hits if the rules exclude them."""
    retrieval, num_hits = collection.retrieval, k + collection.num_extra_hits
    run = search(queries_QH, documents_DH, retrieval.query_ids, retrieval.document_ids, num_hits, candidates)
    return apply_collection_rules(run, collection, k)


def score_headline(run: Hits, collection: Collection) -> np.ndarray:
    """Return the NDCG@10 of each judged query, float32 (Q,)."""
    return score(run, collection.retrieval.judgements, (HEADLINE,))[HEADLINE]


def summarise_scores(
    scores: Mapping[str, Sequence[Mapping[str, np.ndarray]]], datasets: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the mean of each measure per group as `PATH/GROUP/MEASURE`, and NDCG@10 of every query by path, float32 (Q,).

    `scores` has the values of the queries of each dataset by measure, by path. Each dataset counts the same in a mean,
    whatever its number of queries. The sizes of the datasets split the arrays again.
    """
    metrics = {
        f"{path}/{group}/{measure}": float(np.mean([float(values[index][measure].mean()) for index in members]))
        for path, values in scores.items()
        for group, members in group_datasets(datasets).items()
        for measure in values[members[0]]
    }
    arrays = {path: np.concatenate([each[HEADLINE] for each in values]) for path, values in scores.items()}
    return metrics, {path: values.astype(np.float32) for path, values in arrays.items()}


def apply_collection_rules(run: Hits, collection: Collection, k: int) -> Hits:
    """Return the k best hits per query, without self-hits if the rules of the collection exclude them."""
    return remove_self_hits(run, k, collection.retrieval.judgements) if collection.rules.removes_self_hits else run
