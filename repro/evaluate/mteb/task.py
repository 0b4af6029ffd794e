"""One of our collections as a task of mteb, so that its own evaluation and result files are used offline."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from repro.data.beir import Retrieval
from repro.evaluate.kept import content_digest


def retrieval_task(retrieval: Retrieval, split: str = "test") -> AbsTaskRetrieval:
    """Return a retrieval task; its revision is a digest of its content, texts too, which ends its name as well.

    mteb gives out kept results by a task's name, whatever its revision: changed data must be another name.
    """

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
    content = content_digest(retrieval)
    return TaskMetadata(
        name=f"{retrieval.name}-{content[:8]}",
        description=f"The collection {retrieval.name} of this machine.",
        dataset={"path": f"local/{retrieval.name}", "revision": content},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[split],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )
