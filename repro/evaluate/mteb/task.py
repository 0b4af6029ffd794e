"""Wrap one of our collections as an mteb task, to use mteb's evaluation and result files offline."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from repro.data.beir import Retrieval, match_quirks
from repro.data.paper.quirks import find_quirks
from repro.evaluate.result_cache import compute_content_digest
from repro.evaluate.retrieval import clip_negative_grades

SPLIT = "test"
BOTH_SIDES = {"QuoraRetrieval"}
"""Names of tasks whose documents are questions, so they carry the query prompt. The first is from the authors."""


def retrieval_task(retrieval: Retrieval) -> AbsTaskRetrieval:
    """Return a retrieval task. Its revision is a digest of its content, including texts.

    The name of the task ends with the digest, because mteb caches results by name and ignores the revision. The
    peculiarities of a known collection apply if the content matches them.
    """
    quirks = match_quirks(find_quirks(retrieval.name), retrieval)

    class Collection(AbsTaskRetrieval):
        metadata = _build_metadata(retrieval)
        ignore_identical_ids = quirks.removes_self_hits

        def load_data(self, num_proc: int | None = None, **_: Any) -> None:
            self.dataset = {"default": {SPLIT: split_data(retrieval)}}
            self.data_loaded = True

    if quirks.asks_on_both_sides:
        BOTH_SIDES.add(Collection.metadata.name)
    return Collection()


def split_data(retrieval: Retrieval) -> Any:
    """Return the corpus, queries and judgements in the format of mteb."""
    return {
        "corpus": Dataset.from_dict({"id": list(retrieval.document_ids), "text": list(retrieval.documents)}),
        "queries": Dataset.from_dict({"id": list(retrieval.query_ids), "text": list(retrieval.queries)}),
        "relevant_docs": clip_negative_grades(retrieval.judgements),
        "top_ranked": None,
    }


def _build_metadata(retrieval: Retrieval) -> TaskMetadata:
    digest = compute_content_digest(retrieval)
    return TaskMetadata(
        name=f"{retrieval.name}-{digest[:8]}",
        description=f"The collection {retrieval.name} of this machine.",
        dataset={"path": f"local/{retrieval.name}", "revision": digest},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )
