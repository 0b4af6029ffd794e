"""Wrap texts of this machine as mteb tasks, to use the evaluation and result files of mteb offline."""

from __future__ import annotations

from typing import Any, cast

from datasets import Dataset
from mteb.abstasks import AbsTask, AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from repro.data.beir import Retrieval, match_rules
from repro.data.paper.collection_rules import CollectionRules, find_rules
from repro.evaluate.result_cache import compute_content_digest
from repro.evaluate.retrieval import clip_negative_grades

SPLIT = "test"
MAIN_SCORES = {
    "Classification": "accuracy",
    "Clustering": "v_measure",
    "PairClassification": "max_ap",
    "Reranking": "map_at_1000",
    "Retrieval": "ndcg_at_10",
    "STS": "cosine_spearman",
}
BOTH_SIDES = {"QuoraRetrieval"}
"""Names of tasks whose documents are questions, so they carry the query prompt. The first is from the authors."""


def retrieval_task(retrieval: Retrieval, rules: CollectionRules | None = None) -> AbsTaskRetrieval:
    """Return a retrieval task. Its revision is a digest of its content, including texts.

    The name of the task ends with the digest, because mteb caches results by name and ignores the revision.

    Args:
        retrieval: The collection.
        rules: Its peculiarities, as `load_dataset` returns them. Default: those of a known name, if the content matches.
    """
    rules = rules or match_rules(find_rules(retrieval.name), retrieval)
    digest = compute_content_digest(retrieval)
    name, data = f"{retrieval.name}-{digest[:8]}", {"default": {SPLIT: split_data(retrieval)}}
    if rules.asks_on_both_sides:
        BOTH_SIDES.add(name)
    return make_local_task(
        AbsTaskRetrieval, name, "Retrieval", data, digest, ignore_identical_ids=rules.removes_self_hits
    )


def split_data(retrieval: Retrieval) -> Any:
    """Return the corpus, queries and judgements in the format of mteb."""
    return {
        "corpus": Dataset.from_dict({"id": list(retrieval.document_ids), "text": list(retrieval.documents)}),
        "queries": Dataset.from_dict({"id": list(retrieval.query_ids), "text": list(retrieval.queries)}),
        "relevant_docs": clip_negative_grades(retrieval.judgements),
        "top_ranked": None,
    }


def make_local_task(
    kind: type[AbsTask], name: str, category: str, dataset: Any, revision: str, **attributes: Any
) -> Any:
    """Return a task of an mteb class with this data in the format of mteb, and further class attributes."""
    metadata = TaskMetadata(
        name=name,
        description=f"{category} on {name}, from texts of this machine.",
        dataset={"path": f"local/{name}", "revision": revision},
        type=cast(Any, category),
        category="t2t",
        modalities=["text"],
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        main_score=MAIN_SCORES[category],
    )

    def load_data(task: Any, **_: Any) -> None:
        task.dataset = dataset
        task.data_loaded = True

    return type(f"Local{category}", (kind,), {"metadata": metadata, "load_data": load_data, **attributes})()
