"""One of our collections as a task of mteb, so that its own evaluation and result files are used offline."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from repro.data.beir import Retrieval, fitting_quirks
from repro.data.paper.quirks import Quirks, find_quirks
from repro.evaluate.kept import compute_content_digest
from repro.evaluate.retrieval import without_negative_grades

BOTH_SIDES = {"QuoraRetrieval"}
"""Names of tasks whose documents are questions and carry the prompt of queries: the authors' exception, and ours."""


def retrieval_task(retrieval: Retrieval, split: str = "test", quirks: Quirks | None = None) -> AbsTaskRetrieval:
    """Return a retrieval task; its revision is a digest of its content, texts too, which ends its name as well.

    mteb caches results by a task's name, whatever its revision: changed data must have another name. `quirks`: what is
    odd about the collection. Default: what its name is known for, if its content fits.
    """
    odd = fitting_quirks(find_quirks(retrieval.name), retrieval) if quirks is None else quirks

    class Collection(AbsTaskRetrieval):
        metadata = _metadata(retrieval, split)
        ignore_identical_ids = odd.removes_self_hits

        def load_data(self, num_proc: int | None = None, **_: Any) -> None:
            self.dataset = {"default": {split: split_data(retrieval)}}
            self.data_loaded = True

    if odd.asks_on_both_sides:
        BOTH_SIDES.add(Collection.metadata.name)
    return Collection()


def split_data(retrieval: Retrieval) -> Any:
    """Return the corpus, queries and judgements as mteb holds them."""
    return {
        "corpus": Dataset.from_dict({"id": list(retrieval.document_ids), "text": list(retrieval.documents)}),
        "queries": Dataset.from_dict({"id": list(retrieval.query_ids), "text": list(retrieval.queries)}),
        "relevant_docs": without_negative_grades(retrieval.judgements),
        "top_ranked": None,
    }


def _metadata(retrieval: Retrieval, split: str) -> TaskMetadata:
    content = compute_content_digest(retrieval)
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
