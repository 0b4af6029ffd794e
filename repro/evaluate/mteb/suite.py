"""A small MTEB that needs no network: mteb's own task classes over our evaluation collections and what wheels ship.

Retrieval: documents of a collection by its queries. Reranking: the same after BM25's best 20. Clustering: documents of
a family's collections. Classification: which collection of its family a query belongs to, and the polarity of film
reviews (Pang and Lee, a sample of 200 in gensim). Pair classification: a query and its document, or another of the same
collection. STS: news texts (Lee), WordSim-353 and SimLex-999, with human judgements, from gensim. Summarisation: no
wheel carries summaries with judgements, so there is none.
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
from repro.evaluate.polarity import film_reviews, list_gensim_texts
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
NEWS_STRIDE = 4  # of the 1225 pairs of 50 news texts: each text is embedded once a pair
SPLIT = "test"
RERANKED_ENDING = "-reranked"
Labelled = tuple[list[str], list[str]]


def list_offline_tasks(families: dict[str, list[Retrieval]]) -> list[AbsTask]:
    """Return the tasks over collections by family; of each family the first two are searched, the third reranked."""
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
    """Return the tasks on texts that people have judged, from gensim's wheel; ValueError when it is not installed."""
    folder = list_gensim_texts()
    words = (("wordsim-353", "wordsim353.tsv"), ("simlex-999", "simlex999.txt"))
    tasks: list[AbsTask] = [_make_sts_task(name, _list_word_pairs(folder / file)) for name, file in words]
    tasks.append(_make_sts_task("lee-news", _list_news_pairs(folder)))
    tasks.append(_make_classification_task("polarity", film_reviews()))
    return tasks


def _make_retrieval_task(collection: Retrieval) -> AbsTask:
    return _make_task(AbsTaskRetrieval, collection.name, "Retrieval", {SPLIT: split_data(collection)})


def _make_reranking_task(collection: Retrieval) -> AbsTask:
    """BM25's best documents of each query, its right ones added where they are missing."""
    run, _ = bm25_search(collection, RERANKED, tokenizer=ENGLISH)  # as published records have it
    candidates = {query: sorted({*list(hits)[:RERANKED], *collection.judgements[query]}) for query, hits in run.items()}
    data = split_data(collection) | {"top_ranked": candidates}
    return _make_task(AbsTaskRetrieval, f"{collection.name}{RERANKED_ENDING}", "Reranking", {SPLIT: data})


def _make_pair_task(name: str, collection: Retrieval) -> AbsTask:
    """Each query with its right document, and with the nearest before it of other queries' that is not right for it.

    Where all of them are right, the wrong one is the first of the collection that is not. Queries without a right
    document are left out.
    """
    texts, asked = (
        dict(zip(ids, words, strict=True))
        for ids, words in ((collection.document_ids, collection.documents), (collection.query_ids, collection.queries))
    )
    relevant = {query: [one for one, grade in collection.judgements[query].items() if grade > 0] for query in asked}
    right = {query: here[0] for query, of in relevant.items() if (here := [one for one in of if one in texts])}
    answers = list(right.values())
    wrong: dict[str, str] = {}
    for place, query in enumerate(right):
        others = chain((answers[place - step] for step in range(1, len(answers))), texts)
        found = next((document for document in others if document not in relevant[query]), None)
        if found is not None:
            wrong[query] = found
    rows = {
        "sentence1": [asked[query] for query in [*right, *wrong]],
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


def _lines(path: Path, encoding: str) -> list[str]:
    return path.read_text(encoding=encoding).strip("\n").split("\n")


def _list_word_pairs(path: Path) -> list[tuple[str, str, float]]:
    lines = [line.split("\t") for line in _lines(path, "utf-8") if not line.startswith("#")]
    return [(first, second, float(score)) for first, second, score in lines]


def _list_news_pairs(folder: Path) -> list[tuple[str, str, float]]:
    texts = _lines(folder / "lee.cor", "latin-1")
    judged = np.loadtxt(folder / "similarities0-1.txt")
    pairs = list(zip(*np.triu_indices(len(texts), 1), strict=True))[::NEWS_STRIDE]
    return [(texts[i], texts[j], float(judged[i, j])) for i, j in pairs]


def _make_task(kind: type[AbsTask], name: str, category: str, data: dict[str, Any]) -> Any:
    """Return a task of mteb's own class with this data; its revision is a digest of it."""
    holder = DatasetDict(data) if category not in ("Retrieval", "Reranking") else data
    metadata = TaskMetadata(
        name=name,
        description=f"{category} on {name}, from texts of this machine.",
        dataset={"path": f"local/{name}", "revision": _digest(data)},
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


def _digest(data: dict[str, Any]) -> str:
    found = hashlib.sha256()
    for split, value in sorted(data.items()):
        parts = value.items() if isinstance(value, dict) else [("rows", value)]
        for name, part in parts:
            text = part.to_dict() if isinstance(part, Dataset) else part
            found.update(f"{split} {name} {text!r}".encode())
    return found.hexdigest()[:12]
