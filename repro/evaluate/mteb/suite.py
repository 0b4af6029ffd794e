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
from typing import Any

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

from repro.data.beir import Retrieval
from repro.evaluate.mteb.task import SPLIT, make_local_task, split_data
from repro.evaluate.polarity import list_gensim_texts, load_film_reviews
from repro.evaluate.retrieval import ENGLISH, search_bm25
from repro.seeds import make_rng

RERANKED = 20
TEXTS_PER_LABEL = 60
# use every fourth of the 1225 pairs of 50 news texts, since texts are embedded once per pair
NEWS_STRIDE = 4
RERANKED_ENDING = "-reranked"
Labelled = tuple[list[str], list[str]]


def list_offline_tasks(families: dict[str, list[Retrieval]]) -> list[AbsTask]:
    """Return the tasks over collections by family. The first two of a family are searched, the third is reranked."""
    tasks: list[AbsTask] = []
    for family, collections in families.items():
        for collection in collections[:2]:
            data = {SPLIT: split_data(collection)}
            tasks.append(_make_task(AbsTaskRetrieval, collection.name, "Retrieval", data))
        tasks.append(_make_reranking_task(collections[2 % len(collections)]))
        tasks.append(_make_pair_task(f"{family}-pairs", collections[0]))
        if len(collections) > 1:
            documents = [(collection.name, collection.documents) for collection in collections]
            queries = [(collection.name, collection.queries) for collection in collections]
            clusters = _sample_labelled_texts(documents, family)
            classes = _sample_labelled_texts(queries, family)
            tasks.append(_make_clustering_task(f"{family}-clusters", clusters))
            tasks.append(_make_classification_task(f"{family}-classes", classes))
    return tasks + list_human_tasks()


def list_human_tasks() -> list[AbsTask]:
    """Return the tasks with human judgements from the gensim wheel. Raises ValueError if it is not installed."""
    folder = list_gensim_texts()
    return [
        _make_sts_task("wordsim-353", _list_word_pairs(folder / "wordsim353.tsv")),
        _make_sts_task("simlex-999", _list_word_pairs(folder / "simlex999.txt")),
        _make_sts_task("lee-news", _list_news_pairs(folder)),
        _make_classification_task("polarity", load_film_reviews()),
    ]


def _make_reranking_task(collection: Retrieval) -> AbsTask:
    """Rerank the best BM25 documents of each query, with missing judged documents added."""
    # as in published records
    run, _ = search_bm25(collection, RERANKED, tokenizer=ENGLISH)
    candidates = {query: sorted({*list(hits)[:RERANKED], *collection.judgements[query]}) for query, hits in run.items()}
    data = split_data(collection) | {"top_ranked": candidates}
    return _make_task(AbsTaskRetrieval, f"{collection.name}{RERANKED_ENDING}", "Reranking", {SPLIT: data})


def _make_pair_task(name: str, collection: Retrieval) -> AbsTask:
    """Pair each query with its relevant document, and with an irrelevant one.

    The irrelevant document is the relevant one of a preceding query, the nearest that is irrelevant here. If there is
    none, it is the first irrelevant document of the collection. Queries without a relevant document are skipped.
    """
    documents = dict(zip(collection.document_ids, collection.documents, strict=True))
    queries = dict(zip(collection.query_ids, collection.queries, strict=True))
    relevant = {
        query_id: [document_id for document_id, grade in collection.judgements[query_id].items() if grade > 0]
        for query_id in queries
    }
    positives: dict[str, str] = {}
    for query_id, document_ids in relevant.items():
        known = [document_id for document_id in document_ids if document_id in documents]
        if known:
            positives[query_id] = known[0]
    answers = list(positives.values())
    negatives: dict[str, str] = {}
    for index, query_id in enumerate(positives):
        # a negative index wraps around, so the first queries use the documents of the last ones
        candidates = chain((answers[index - step] for step in range(1, len(answers))), documents)
        negative = next((document_id for document_id in candidates if document_id not in relevant[query_id]), None)
        if negative is not None:
            negatives[query_id] = negative
    rows = {
        "sentence1": [queries[query_id] for query_id in [*positives, *negatives]],
        "sentence2": [documents[document_id] for document_id in [*answers, *negatives.values()]],
        "labels": [1] * len(positives) + [0] * len(negatives),
    }
    return _make_task(AbsTaskPairClassification, name, "PairClassification", {SPLIT: Dataset.from_dict(rows)})


def _make_clustering_task(name: str, labelled: Labelled) -> AbsTask:
    texts, labels = labelled
    data = {SPLIT: Dataset.from_dict({"sentences": texts, "labels": labels})}
    task = _make_task(AbsTaskClustering, name, "Clustering", data)
    task.max_fraction_of_documents_to_embed = None
    task.max_documents_per_cluster = len(texts)
    return task


def _make_classification_task(name: str, labelled: Labelled) -> AbsTask:
    texts, labels = labelled
    classes = sorted(set(labels))
    order = make_rng(0, "mteb classification", name).permutation(len(texts))
    halves = {"train": order[: len(order) // 2], SPLIT: order[len(order) // 2 :]}
    data = {}
    for split, rows in halves.items():
        columns = {"text": [texts[row] for row in rows], "label": [classes.index(labels[row]) for row in rows]}
        data[split] = Dataset.from_dict(columns)
    return _make_task(AbsTaskClassification, name, "Classification", data)


def _make_sts_task(name: str, pairs: Sequence[tuple[str, str, float]]) -> AbsTask:
    first, second, scores = zip(*pairs, strict=True)
    rows = {"sentence1": list(first), "sentence2": list(second), "score": list(scores)}
    task = _make_task(AbsTaskSTS, name, "STS", {SPLIT: Dataset.from_dict(rows)})
    task.min_score, task.max_score = min(scores), max(scores)
    return task


def _sample_labelled_texts(groups: Sequence[tuple[str, Sequence[str]]], family: str) -> Labelled:
    """Return up to `TEXTS_PER_LABEL` texts of each group, and their labels, the names of the groups."""
    texts: list[str] = []
    labels: list[str] = []
    for name, members in groups:
        sample = make_rng(0, "mteb texts", family, name).permutation(len(members))[:TEXTS_PER_LABEL]
        texts += [members[row] for row in sample]
        labels += [name] * len(sample)
    return texts, labels


def _read_lines(path: Path, encoding: str) -> list[str]:
    return path.read_text(encoding=encoding).strip("\n").split("\n")


def _list_word_pairs(path: Path) -> list[tuple[str, str, float]]:
    lines = [line.split("\t") for line in _read_lines(path, "utf-8") if not line.startswith("#")]
    return [(first, second, float(score)) for first, second, score in lines]


def _list_news_pairs(folder: Path) -> list[tuple[str, str, float]]:
    texts = _read_lines(folder / "lee.cor", "latin-1")
    similarities = np.loadtxt(folder / "similarities0-1.txt")
    pairs = list(zip(*np.triu_indices(len(texts), 1), strict=True))[::NEWS_STRIDE]
    return [(texts[i], texts[j], float(similarities[i, j])) for i, j in pairs]


def _make_task(kind: type[AbsTask], name: str, category: str, data: dict[str, Any]) -> Any:
    """Return a task of an mteb class with this data. Its revision is a digest of the data."""
    # mteb expects retrieval data by subset, and the data of other tasks by split
    dataset = {"default": data} if category in ("Retrieval", "Reranking") else DatasetDict(data)
    return make_local_task(kind, name, category, dataset, _compute_digest(data))


def _compute_digest(data: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for split, value in sorted(data.items()):
        parts = value.items() if isinstance(value, dict) else [("rows", value)]
        for name, part in parts:
            content = part.to_dict() if isinstance(part, Dataset) else part
            digest.update(f"{split} {name} {content!r}".encode())
    return digest.hexdigest()[:12]
