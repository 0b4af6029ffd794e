"""Exact search, BM25 and reranking, their measures per query, and their TREC run files.

A run maps query ids to document ids to scores. Our own scores are compared at six decimals, so that documents with
equal vectors tie whatever kernel multiplied them; runs made elsewhere are compared as they stand. A tie goes to the
smaller id, here and in every measure.

Shapes: Q queries, D documents, H dimensions, C candidates of a query.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeAlias

import bm25s
import ir_measures
import numpy as np
import Stemmer
from scipy.sparse import csr_array

from repro.data.beir import Retrieval
from repro.storage.arrays import blocks_of
from repro.storage.atomic import whole_file
from repro.storage.json_files import check_regular, short

Matrix: TypeAlias = np.ndarray | csr_array
Hits = dict[str, dict[str, float]]
Judgements = Mapping[str, Mapping[str, int]]

QUERIES_PER_BLOCK = 128
DOCUMENTS_PER_BLOCK = 2**18
"""More are multiplied in parts: their scores would take gigabytes. Sums of one block do not depend on it."""
LONGEST_LINE = 65_536  # characters of a line of a run
DECIMALS = 6
GZIP_LEVEL = 3  # a third larger than the best, in a fraction of its time
MEASURES: dict[str, Any] = {
    "ndcg_at_10": ir_measures.nDCG @ 10,
    "recall_at_100": ir_measures.R @ 100,
    "mrr_at_10": ir_measures.RR @ 10,
}
BM25_PARAMETERS: dict[str, Any] = {
    "k1": 0.9,
    "b": 0.4,
    "method": "lucene",
    "stemmer": "english (Snowball)",
    "stop_words": "en",
}
"""k1 and b are those of the BEIR paper's baseline."""


def search(
    query_vectors_QH: Matrix,
    document_vectors_DH: Matrix,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    k: int,
    candidates: Mapping[str, Iterable[str]] | None = None,
) -> Hits:
    """Return the k best documents of every query by inner product in float32; vectors may be sparse, both sides alike.

    With `candidates`, a query is compared only with its own (the truncated protocol: rerank a first stage), by dense
    vectors. ValueError for vectors without ids, an empty corpus, numbers that are not finite, a candidate that is no
    document.
    """
    _check_vectors("queries", query_vectors_QH, query_ids)
    _check_vectors("documents", document_vectors_DH, document_ids)
    queries_QH, documents_DH = _float32(query_vectors_QH), _float32(document_vectors_DH)
    if candidates is not None:
        assert isinstance(queries_QH, np.ndarray) and isinstance(documents_DH, np.ndarray), "sparse vectors rerank none"
        return _rerank(queries_QH, documents_DH, query_ids, document_ids, candidates, k)
    ranks_D = np.empty(len(document_ids), dtype=np.int64)
    ranks_D[np.argsort(np.asarray(document_ids, dtype=object), kind="stable")] = np.arange(len(document_ids))
    run: Hits = {}
    for part in blocks_of(len(query_ids), QUERIES_PER_BLOCK):
        found = _best(queries_QH[part], documents_DH, ranks_D, k)
        for query_id, (scores_K, places_K) in zip(query_ids[part], found, strict=True):
            run[query_id] = {document_ids[place]: float(one) for place, one in zip(places_K, scores_K, strict=True)}
    return run


def _best(queries_QH: Matrix, documents_DH: Matrix, ranks_D: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return rounded scores and places of the k best documents of each query, K of each, from one block after another.

    A document is looked at again only if it may be among the k best of those before it.
    """
    none = (np.zeros(0, np.float32), np.zeros(0, np.int64))
    best, least_Q = [none] * queries_QH.shape[0], np.full(queries_QH.shape[0], -np.inf, np.float32)
    for part in blocks_of(len(ranks_D), DOCUMENTS_PER_BLOCK):
        for query, scores_B in enumerate(_dense(queries_QH @ documents_DH[part].T)):
            places_S = np.flatnonzero(scores_B >= least_Q[query])
            if not len(places_S):
                continue
            scores_S = np.concatenate([best[query][0], scores_B[places_S]])
            places_S = np.concatenate([best[query][1], places_S + part.start])
            scores_K, inside_K = _top(scores_S, ranks_D[places_S], k)
            best[query] = scores_K, places_S[inside_K]
            if 0 < k == len(inside_K):
                least_Q[query] = _below(scores_K[-1], np.float32)
    return best


def without_self_hits(run: Hits, k: int) -> Hits:
    """Return the k best of every query without the document of the query's own id; search for k + 1 first."""
    return {query_id: dict([hit for hit in ranked(hits) if hit[0] != query_id][:k]) for query_id, hits in run.items()}


def ranked(hits: Mapping[str, float], decimals: int | None = DECIMALS) -> list[tuple[str, float]]:
    """Return documents and scores, best first, the smaller id first in a tie; `decimals=None` compares raw scores."""
    values = np.fromiter(hits.values(), dtype=np.float64, count=len(hits))
    if decimals is not None:
        values = np.round(values, decimals)
    ids = list(hits)
    ties = np.flatnonzero(values[:-1] == values[1:])
    if (values[:-1] >= values[1:]).all() and all(ids[place] < ids[place + 1] for place in ties):
        return list(hits.items())  # as search gives them: sorting a million hits again is dear
    order = sorted(range(len(ids)), key=lambda place: (-values[place], ids[place]))
    return [(ids[place], hits[ids[place]]) for place in order]


def score(
    run: Hits, judgements: Judgements, measures: Sequence[str] = tuple(MEASURES), *, decimals: int | None = DECIMALS
) -> dict[str, np.ndarray]:
    """Return each measure of every judged query, float32 (Q,), in the order of the sorted query ids.

    A judged query that the run lacks scores 0. `decimals=None` ranks by raw scores: for runs that were made elsewhere.
    ValueError for an unknown measure, and for a query that nothing judges.
    """
    unknown = [name for name in measures if name not in MEASURES]
    if unknown:
        raise ValueError(f"unknown measure {unknown}; choose one of {list(MEASURES)}")
    unjudged = sorted({*run, *judgements} - {query_id for query_id, grades in judgements.items() if grades})
    if unjudged:
        raise ValueError(f"{len(unjudged)} queries have no judged document, first {unjudged[0]!r}")
    # The evaluator has its own rule for ties, so it gets positions instead of scores.
    positions = {
        query_id: {document_id: -float(place) for place, (document_id, _) in enumerate(ranked(hits, decimals))}
        for query_id, hits in run.items()
    }
    place_of = {query_id: place for place, query_id in enumerate(sorted(judgements))}
    values = {name: np.zeros(len(place_of), dtype=np.float32) for name in measures}
    name_of = {MEASURES[name]: name for name in measures}
    for metric in ir_measures.iter_calc(list(name_of), judgements, positions):
        values[name_of[metric.measure]][place_of[metric.query_id]] = metric.value
    return values


def bm25_search(
    retrieval: Retrieval, k: int, candidates: Mapping[str, Iterable[str]] | None = None
) -> tuple[Hits, dict[str, Any]]:
    """Return the BM25 run of a collection, without documents that share no word with a query, and its parameters.

    With `candidates`, only a query's own are ranked; word counts are those of the whole collection.
    """
    stemmer = Stemmer.Stemmer("english")
    order = sorted(range(len(retrieval.document_ids)), key=retrieval.document_ids.__getitem__)
    ids = [retrieval.document_ids[place] for place in order]
    index = bm25s.BM25(**{name: BM25_PARAMETERS[name] for name in ("k1", "b", "method")})
    parameters = {**BM25_PARAMETERS, "bm25s": version("bm25s")}
    options = {"stopwords": BM25_PARAMETERS["stop_words"], "stemmer": stemmer, "show_progress": False}
    texts = bm25s.tokenize([retrieval.documents[place] for place in order], **options)
    if not any(texts.ids):  # every word is a stop word: nothing can be found
        return {query_id: {} for query_id in retrieval.query_ids}, parameters
    index.index(texts, show_progress=False)
    place_of = {document_id: place for place, document_id in enumerate(ids)}
    queries = bm25s.tokenize(list(retrieval.queries), return_ids=False, **options)
    run: Hits = {}
    for query_id, words in zip(retrieval.query_ids, queries, strict=True):
        known = [word for word in words if word in index.vocab_dict]
        scores_D, among = index.get_scores(known) if known else np.zeros(len(ids)), ids
        if candidates is not None:
            among = sorted(set(candidates.get(query_id, ())))
            scores_D = scores_D[[place_of[document_id] for document_id in among]]
        hits = _hits(scores_D, among, k)
        run[query_id] = {document_id: value for document_id, value in hits.items() if value > 0}
    return run, parameters


def write_run(path: Path, run: Hits, *, tag: str) -> None:
    """Write a gzipped TREC run file by rename; the same run gives the same bytes."""
    words = {tag, *run, *(document_id for hits in run.values() for document_id in hits)}
    if unfit := sorted(word for word in words if len(word.split()) != 1):
        raise ValueError(f"{path.name}: a TREC run cannot hold an empty id or one with a space: {unfit[0]!r}")
    lines = [
        f"{query_id} Q0 {document_id} {rank} {value:.{DECIMALS}f} {tag}\n"
        for query_id, hits in run.items()
        for rank, (document_id, value) in enumerate(ranked(hits), 1)
    ]
    with whole_file(path) as part:
        part.write_bytes(gzip.compress("".join(lines).encode(), compresslevel=GZIP_LEVEL, mtime=0))


def read_run(path: Path) -> Hits:
    """Read a TREC run file, gzipped or not.

    ValueError names the line that is not one, or that ranks a document for the same query again; and a damaged file.
    """
    check_regular(path)
    run: Hits = {}
    number = 0
    try:
        with _opened(path) as lines:
            while line := lines.readline(LONGEST_LINE):
                number += 1
                if not line.strip():
                    continue
                query_id, document_id, value = _parse_hit(line)
                hits = run.setdefault(query_id, {})
                if document_id in hits:
                    raise ValueError(f"{short(document_id)} is ranked for {short(query_id)} before")
                hits[document_id] = value
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged after line {number} ({error}): copy it again") from error
    except ValueError as error:
        raise ValueError(f"{path}, line {number} is no line of a TREC run ({error})") from error
    return run


def _parse_hit(line: str) -> tuple[str, str, float]:
    parts = line.split()
    if len(parts) != 6:
        raise ValueError(f"{len(parts)} columns, expected query, Q0, document, rank, score, tag")
    try:
        if "_" in parts[4]:  # which Python reads as digits, and no other program
            raise ValueError
        value = float(parts[4])
    except ValueError as error:
        raise ValueError(f"its score is {short(repr(parts[4]))}") from error
    if not np.isfinite(value):
        raise ValueError(f"its score is {value}")
    return parts[0], parts[2], value


def _opened(path: Path) -> IO[str]:
    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8-sig") if is_gzip else path.open(encoding="utf-8-sig")


def _float32(vectors: Matrix) -> Matrix:
    return vectors.astype(np.float32) if isinstance(vectors, csr_array) else np.asarray(vectors, dtype=np.float32)


def _dense(scores: Matrix) -> np.ndarray:
    return scores.toarray() if isinstance(scores, csr_array) else scores


def _check_vectors(what: str, vectors: Matrix, ids: Sequence[str]) -> None:
    if not len(ids):
        raise ValueError(f"there are no {what} to search")
    if vectors.shape[0] != len(ids) or len(set(ids)) != len(ids):
        raise ValueError(f"{what}: {vectors.shape[0]} vectors, {len(ids)} ids, {len(set(ids))} of them distinct")
    if isinstance(vectors, csr_array):
        if not np.isfinite(vectors.data).all():
            raise ValueError(f"{what}: vectors hold NaN or infinity")
        return
    odd = sum(int((~np.isfinite(vectors[part])).any(axis=1).sum()) for part in blocks_of(len(ids), DOCUMENTS_PER_BLOCK))
    if odd:
        raise ValueError(f"{what}: {odd} vectors hold NaN or infinity")


def _rerank(
    queries_QH: np.ndarray,
    documents_DH: np.ndarray,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    candidates: Mapping[str, Iterable[str]],
    k: int,
) -> Hits:
    place_of = {document_id: place for place, document_id in enumerate(document_ids)}
    run: Hits = {}
    for query_id, query_H in zip(query_ids, queries_QH, strict=True):
        wanted = sorted(set(candidates.get(query_id, ())))
        unknown = [document_id for document_id in wanted if document_id not in place_of]
        if unknown:
            raise ValueError(f"query {query_id!r} has candidates that are no documents, first {unknown[0]!r}")
        scores_C = documents_DH[[place_of[document_id] for document_id in wanted]] @ query_H
        run[query_id] = _hits(scores_C, wanted, k)
    return run


def _top(scores_D: np.ndarray, ranks_D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rounded scores and places of the k best, best first, of equal ones the smaller rank; K of each.

    Only those are rounded that may be among them: all that tie with the k-th, and a little less.
    """
    places_S = np.arange(len(scores_D))
    if 0 < k < len(scores_D):
        places_S = np.flatnonzero(scores_D >= _below(np.partition(scores_D, -k)[-k], scores_D.dtype.type))
    rounded_S = np.round(scores_D[places_S].astype(np.float64), DECIMALS)
    first_K = np.lexsort((ranks_D[places_S], -rounded_S))[:k]
    return rounded_S[first_K], places_S[first_K]


def _below(score: float, kind: type) -> Any:
    """Return a number of this kind that is less than every score that a rounding can make equal to this one."""
    return np.nextafter(kind(float(score) - 2 * 10**-DECIMALS), kind(-np.inf))


def _hits(scores_D: np.ndarray, sorted_ids: Sequence[str], k: int) -> dict[str, float]:
    """Return the k best of documents in the order of their ids."""
    scores_K, places_K = _top(scores_D, np.arange(len(scores_D)), k)
    return {sorted_ids[place]: float(one) for place, one in zip(places_K, scores_K, strict=True)}
