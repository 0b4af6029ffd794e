"""One of our collections as a task of mteb, so that its own evaluation and result files are used offline."""

from __future__ import annotations

import hashlib
from typing import Any

from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from repro.data.beir import Retrieval


def retrieval_task(retrieval: Retrieval, split: str = "test") -> AbsTaskRetrieval:
    """Return a retrieval task; its revision is a digest of ids and judgements: changed data is another task."""

    class Collection(AbsTaskRetrieval):
        metadata = _metadata(retrieval, split)

        def load_data(self, num_proc: int | None = None, **_: Any) -> None:
            self.dataset = {"default": {split: split_data(retrieval)}}
            self.data_loaded = True

    return Collection()


def split_data(retrieval: Retrieval) -> Any:
    """Return the corpus, queries and judgements as mteb holds them."""
    return {
        "corpus": Dataset.from_dict({"id": list(retrieval.document_ids), "text": list(retrieval.documents)}),
        "queries": Dataset.from_dict({"id": list(retrieval.query_ids), "text": list(retrieval.queries)}),
        "relevant_docs": {query: dict(grades) for query, grades in retrieval.judgements.items()},
        "top_ranked": None,
    }


def _metadata(retrieval: Retrieval, split: str) -> TaskMetadata:
    content = repr((retrieval.document_ids, retrieval.query_ids, sorted(map(str, retrieval.judgements.items()))))
    return TaskMetadata(
        name=retrieval.name,
        description=f"The collection {retrieval.name} of this machine.",
        dataset={"path": f"local/{retrieval.name}", "revision": hashlib.sha256(content.encode()).hexdigest()[:12]},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[split],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )
