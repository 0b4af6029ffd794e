"""Offline mteb tasks: mteb's own task classes over our evaluation collections and texts from installed wheels.

- Retrieval: the queries of a collection search its documents.
- Reranking: the same for the 20 best documents of BM25.
- Clustering: documents by collection, within a family.
- Classification: queries by collection within a family, and the polarity of film reviews (Pang and Lee, a sample of 200
  in gensim).
- Pair classification: a query with its document, or with another document of the collection.
- STS: news texts (Lee), WordSim-353 and SimLex-999, with human judgements, from gensim.
- Summarisation: no tasks, because no wheel contains summaries with judgements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import Dataset, DatasetDict
from mteb.abstasks import (
    AbsTask,
    AbsTaskClassification,
    AbsTaskClustering,
    AbsTaskPairClassification,
    AbsTaskRetrieval,
    AbsTaskSTS,
)
from mteb.abstasks.task_metadata import TaskMetadata

from repro.data.beir import Retrieval
from repro.evaluate.mteb.task import split_data
from repro.evaluate.polarity import list_gensim_texts, load_film_reviews
from repro.evaluate.retrieval import ENGLISH, bm25_search
from repro.seeds import generator_for

CATEGORIES = ("Classification", "Clustering", "PairClassification", "Reranking", "Retrieval", "STS", "Summarization")
MAIN_SCORES = {
    "Classification": "accuracy",
    "Clustering": "v_measure",
    "PairClassification": "max_ap",
    "Reranking": "map_at_1000",
    "Retrieval": "ndcg_at_10",
    "STS": "cosine_spearman",
}
RERANKED = 20
TEXTS_PER_LABEL = 60
# use every fourth of the 1225 pairs of 50 news texts, since texts are embedded once per pair
NEWS_STRIDE = 4
SPLIT = "test"
RERANKED_ENDING = "-reranked"
Labelled = tuple[list[str], list[str]]


def list_offline_tasks(families: dict[str, list[Retrieval]]) -> list[AbsTask]:
    """Return the tasks over collections by family. The first two of a family are searched, the third is reranked."""
    tasks: list[AbsTask] = []
    for family, collections in families.items():
        tasks += [_make_retrieval_task(collection) for collection in collections[:2]]
        tasks.append(_make_reranking_task(collections[2 % len(collections)]))
        tasks.append(_make_pair_task(f"{family}-pairs", collections[0]))
        if len(collections) > 1:
            documents = _make_labelled_task([(one.name, one.documents) for one in collections], family)
            tasks.append(_make_clustering_task(f"{family}-clusters", documents))
            queries = _make_labelled_task([(one.name, one.queries) for one in collections], family)
            tasks.append(_make_classification_task(f"{family}-classes", queries))
    return tasks + list_human_tasks()


def list_human_tasks() -> list[AbsTask]:
    """Return the tasks with human judgements from the gensim wheel. Raises ValueError if it is not installed."""
    folder = list_gensim_texts()
    words = (("wordsim-353", "wordsim353.tsv"), ("simlex-999", "simlex999.txt"))
    tasks: list[AbsTask] = [_make_sts_task(name, _list_word_pairs(folder / file)) for name, file in words]
    tasks.append(_make_sts_task("lee-news", _list_news_pairs(folder)))
    tasks.append(_make_classification_task("polarity", load_film_reviews()))
    return tasks


def _make_retrieval_task(collection: Retrieval) -> AbsTask:
    return _make_task(AbsTaskRetrieval, collection.name, "Retrieval", {SPLIT: split_data(collection)})


def _make_reranking_task(collection: Retrieval) -> AbsTask:
    """Rerank the best BM25 documents of each query, with missing judged documents added."""
    # as in published records
    run, _ = bm25_search(collection, RERANKED, tokenizer=ENGLISH)
    candidates = {query: sorted({*list(hits)[:RERANKED], *collection.judgements[query]}) for query, hits in run.items()}
    data = split_data(collection) | {"top_ranked": candidates}
    return _make_task(AbsTaskRetrieval, f"{collection.name}{RERANKED_ENDING}", "Reranking", {SPLIT: data})


def _make_pair_task(name: str, collection: Retrieval) -> AbsTask:
    """Pair each query with its relevant document, and with an irrelevant one.

    The irrelevant document is the relevant one of a preceding query, the nearest that is irrelevant here. If there is
    none, it is the first irrelevant document of the collection. Queries without a relevant document are skipped.
    """
    texts, queries = (
        dict(zip(ids, words, strict=True))
        for ids, words in ((collection.document_ids, collection.documents), (collection.query_ids, collection.queries))
    )
    relevant = {query: [one for one, grade in collection.judgements[query].items() if grade > 0] for query in queries}
    right = {query: here[0] for query, of in relevant.items() if (here := [one for one in of if one in texts])}
    answers = list(right.values())
    wrong: dict[str, str] = {}
    # a negative index wraps around, so the first queries use the documents of the last ones
    for place, query in enumerate(right):
        others = chain((answers[place - step] for step in range(1, len(answers))), texts)
        found = next((document for document in others if document not in relevant[query]), None)
        if found is not None:
            wrong[query] = found
    rows = {
        "sentence1": [queries[query] for query in [*right, *wrong]],
        "sentence2": [texts[document] for document in [*answers, *wrong.values()]],
        "labels": [1] * len(right) + [0] * len(wrong),
    }
    return _make_task(AbsTaskPairClassification, name, "PairClassification", {SPLIT: Dataset.from_dict(rows)})


def _make_clustering_task(name: str, labelled: Labelled) -> AbsTask:
    texts, labels = labelled
    data = {SPLIT: Dataset.from_dict({"sentences": texts, "labels": labels})}
    task = _make_task(AbsTaskClustering, name, "Clustering", data)
    task.max_fraction_of_documents_to_embed, task.max_documents_per_cluster = None, len(texts)
    return task


def _make_classification_task(name: str, labelled: Labelled) -> AbsTask:
    names = sorted(set(labelled[1]))
    order = generator_for(0, "mteb classification", name).permutation(len(labelled[0]))
    halves = {"train": order[: len(order) // 2], SPLIT: order[len(order) // 2 :]}
    data = {
        split: Dataset.from_dict(
            {"text": [labelled[0][n] for n in rows], "label": [names.index(labelled[1][n]) for n in rows]}
        )
        for split, rows in halves.items()
    }
    return _make_task(AbsTaskClassification, name, "Classification", data)


def _make_sts_task(name: str, pairs: Sequence[tuple[str, str, float]]) -> AbsTask:
    first, second, scores = zip(*pairs, strict=True)
    rows = {"sentence1": list(first), "sentence2": list(second), "score": list(scores)}
    task = _make_task(AbsTaskSTS, name, "STS", {SPLIT: Dataset.from_dict(rows)})
    task.min_score, task.max_score = min(scores), max(scores)
    return task


def _make_labelled_task(groups: Sequence[tuple[str, Sequence[str]]], family: str) -> Labelled:
    texts: list[str] = []
    labels: list[str] = []
    for name, members in groups:
        order = generator_for(0, "mteb texts", family, name).permutation(len(members))[:TEXTS_PER_LABEL]
        texts += [members[place] for place in order]
        labels += [name] * len(order)
    return texts, labels


def _read_lines(path: Path, encoding: str) -> list[str]:
    return path.read_text(encoding=encoding).strip("\n").split("\n")


def _list_word_pairs(path: Path) -> list[tuple[str, str, float]]:
    lines = [line.split("\t") for line in _read_lines(path, "utf-8") if not line.startswith("#")]
    return [(first, second, float(score)) for first, second, score in lines]


def _list_news_pairs(folder: Path) -> list[tuple[str, str, float]]:
    texts = _read_lines(folder / "lee.cor", "latin-1")
    judged = np.loadtxt(folder / "similarities0-1.txt")
    pairs = list(zip(*np.triu_indices(len(texts), 1), strict=True))[::NEWS_STRIDE]
    return [(texts[i], texts[j], float(judged[i, j])) for i, j in pairs]


def _make_task(kind: type[AbsTask], name: str, category: str, data: dict[str, Any]) -> Any:
    """Return a task of an mteb class with this data. Its revision is a digest of the data."""
    holder = DatasetDict(data) if category not in ("Retrieval", "Reranking") else data
    metadata = TaskMetadata(
        name=name,
        description=f"{category} on {name}, from texts of this machine.",
        dataset={"path": f"local/{name}", "revision": _compute_digest(data)},
        type=cast(Any, category),
        category="t2t",
        modalities=["text"],
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        main_score=MAIN_SCORES[category],
    )

    def load_data(task: Any, **_: Any) -> None:
        task.dataset = {"default": holder} if category in ("Retrieval", "Reranking") else holder
        task.data_loaded = True

    return type(f"Local{category}", (kind,), {"metadata": metadata, "load_data": load_data})()


def _compute_digest(data: dict[str, Any]) -> str:
    found = hashlib.sha256()
    for split, value in sorted(data.items()):
        parts = value.items() if isinstance(value, dict) else [("rows", value)]
        for name, part in parts:
            text = part.to_dict() if isinstance(part, Dataset) else part
            found.update(f"{split} {name} {text!r}".encode())
    return found.hexdigest()[:12]
