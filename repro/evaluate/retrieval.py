"""Exact search, BM25 and reranking, with measures per query and TREC run files.

A run maps query ids to document ids to scores. Ranking is deterministic:

- Scores are never rounded to decimals, so scaling all vectors does not change a ranking.
- The best documents are scored again in float64, in one order of summation, and compared in float32. Documents with
  equal vectors therefore tie, whichever kernel found them. Ties go to the smaller id.

Shapes: Q queries, D documents, H dimensions, C candidates of a query, S survivors of a query, B documents of a block.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import ir_measures
import numpy as np
import Stemmer
from scipy.sparse import csr_array

from repro.data.beir import Retrieval
from repro.data.own.languages import load_stop_words
from repro.evaluate.terms import NO_STEMMER, check_language, import_bm25s, tokenize_terms
from repro.storage.arrays import iter_blocks
from repro.storage.files import atomic_file
from repro.text import count_noun, shorten

Matrix: TypeAlias = np.ndarray | csr_array
Hits = dict[str, dict[str, float]]
Judgements = Mapping[str, Mapping[str, int]]

QUERIES_PER_BLOCK = 128
DOCUMENTS_PER_BLOCK = 2**18
"""Larger corpora are multiplied in parts, since their scores would take gigabytes. Results do not depend on it."""
ROWS_PER_CHUNK = 4096
ROUNDING = 2.0**-24
"""Relative error of one operation in float32."""
TIE_TOLERANCE = 8 * ROUNDING
"""Scores of one query within this spread, relative to the lengths of its vectors, do not distinguish documents."""
SAFE_EXPONENT = 20
# files are a third larger than at the best level, but written in a fraction of the time
GZIP_LEVEL = 3
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
"""k1 and b are from the baseline of the BEIR paper."""
UNICODE, ENGLISH = "unicode", "english"
BM25_TOKENIZERS: dict[str, dict[str, Any]] = {
    ENGLISH: {},
    UNICODE: {"tokenizer": "words with marks, characters, symbols (NFKC, case folded)"},
}
"""Changes of each tokenizer to the parameters. "english" drops words of one letter and everything except words."""


def search(
    query_vectors_QH: Matrix,
    document_vectors_DH: Matrix,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    k: int,
    candidates: Mapping[str, Iterable[str]] | None = None,
) -> Hits:
    """Return the k best documents of every query by inner product.

    Args:
        query_vectors_QH: dense or sparse, of the same kind as the documents.
        document_vectors_DH: vectors of all documents. If the largest number is far from 1, each side is first scaled by
            a power of two.
        query_ids: one per query vector.
        document_ids: one per document vector.
        k: number of hits per query.
        candidates: documents per query to rank instead of all (the truncated protocol). Requires dense vectors.

    A query that scores several documents all the same gets no hits.

    Raises:
        ValueError: for vectors without ids, an empty corpus, NaN or infinity, or a candidate that is not a document.
    """
    _check_vectors("queries", query_vectors_QH, query_ids)
    _check_vectors("documents", document_vectors_DH, document_ids)
    queries_QH = _scale_to_range(_as_float32(query_vectors_QH))
    documents_DH = _scale_to_range(_as_float32(document_vectors_DH))
    if candidates is not None:
        assert isinstance(queries_QH, np.ndarray) and isinstance(documents_DH, np.ndarray), "sparse vectors rerank none"
        return _rerank(queries_QH, documents_DH, query_ids, document_ids, candidates, k)
    # The rank of an id decides ties. Sorting ids once serves all queries.
    ranks_D = np.empty(len(document_ids), dtype=np.int64)
    # As objects: numpy strings would pad every id to the longest one and drop trailing NULs.
    ranks_D[np.argsort(np.asarray(document_ids, dtype=object), kind="stable")] = np.arange(len(document_ids))
    lengths_D = _compute_lengths(documents_DH)
    run: Hits = {}
    for part in iter_blocks(len(query_ids), QUERIES_PER_BLOCK):
        results = _search_blocks(queries_QH[part], documents_DH, lengths_D, ranks_D, k)
        for query_id, (scores_K, rows_K) in zip(query_ids[part], results, strict=True):
            run[query_id] = _map_ids_to_scores([document_ids[row] for row in rows_K], scores_K)
    return run


def _search_blocks(
    queries_QH: Matrix, documents_DH: Matrix, lengths_D: np.ndarray, ranks_D: np.ndarray, k: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return scores and indices of the k best documents per query, reading the documents block by block.

    Fast float32 products only exclude documents. A document is excluded if its score plus the largest float32 error is
    below the lower bounds of k other documents. The survivors are scored exactly.
    """
    num_queries = queries_QH.shape[0]
    # Bound of the rounding error of n products: n · ROUNDING · |query| · |document|, plus a margin of four operations.
    error_Q = (_count_terms(queries_QH) + 4) * ROUNDING * _compute_lengths(queries_QH)
    # Lower bounds, upper bounds and indices of the surviving documents, per query.
    survivors: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = [
        (np.zeros(0, np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in range(num_queries)
    ]
    threshold_Q = np.full(num_queries, -np.inf, np.float32)
    lowest_Q, highest_Q = np.full(num_queries, np.inf), np.full(num_queries, -np.inf)
    for part in iter_blocks(len(ranks_D), DOCUMENTS_PER_BLOCK):
        for query, scores_B in enumerate(_as_dense(queries_QH @ documents_DH[part].T)):
            error_B = np.float32(error_Q[query]) * lengths_D[part]
            lower_B, upper_B = scores_B - error_B, scores_B + error_B
            # An upper bound of the lowest score, and a lower bound of the highest one. If they overlap, all scores may
            # be equal.
            lowest_Q[query] = min(lowest_Q[query], upper_B.min())
            highest_Q[query] = max(highest_Q[query], lower_B.max())
            rows_S = np.flatnonzero(upper_B >= threshold_Q[query])
            # No document of this block can be among the k best, so the lists stay as they are.
            if not len(rows_S):
                continue
            lower_S = np.concatenate([survivors[query][0], lower_B[rows_S]])
            upper_S = np.concatenate([survivors[query][1], upper_B[rows_S]])
            rows_S = np.concatenate([survivors[query][2], rows_S + part.start])
            if 0 < k < len(rows_S):
                # The k-th largest lower bound: no document below it can be among the k best.
                threshold_Q[query] = np.partition(lower_S, -k)[-k]
                survives_S = upper_S >= threshold_Q[query]
                lower_S, upper_S, rows_S = lower_S[survives_S], upper_S[survives_S], rows_S[survives_S]
            survivors[query] = lower_S, upper_S, rows_S
    results = []
    for query, (_, _, rows_S) in enumerate(survivors):
        query_H = _get_row(queries_QH, query)
        # The bounds are cheap and decide nearly all queries. The exact check reads all documents again.
        may_be_constant = len(ranks_D) > 1 and highest_Q[query] <= lowest_Q[query]
        if may_be_constant and _has_constant_score(query_H, documents_DH, lengths_D):
            rows_S = rows_S[:0]
        scores_S = _score_exactly(query_H, documents_DH, rows_S)
        best_K = _find_top(scores_S, ranks_D[rows_S], k)
        results.append((scores_S[best_K], rows_S[best_K]))
    return results


def remove_self_hits(run: Hits, k: int, judgements: Judgements) -> Hits:
    """Return the k best hits per query without the document that has the id of the query. Search for k + 1 first.

    A document that the query judges is never removed.
    """
    filtered: Hits = {}
    for query_id, hits in run.items():
        judged = judgements.get(query_id, ())
        ranked = [hit for hit in rank_by_score(hits) if hit[0] != query_id or hit[0] in judged]
        filtered[query_id] = dict(ranked[:k])
    return filtered


def rank_by_score(hits: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return documents and scores, best first. Ties go to the smaller id."""
    values = np.fromiter(hits.values(), dtype=np.float64, count=len(hits))
    ids = list(hits)
    ties = np.flatnonzero(values[:-1] == values[1:])
    if (values[:-1] >= values[1:]).all() and all(ids[rank] < ids[rank + 1] for rank in ties):
        # already in the order of `search`: sorting a million hits again is expensive
        return list(hits.items())
    return sorted(hits.items(), key=lambda hit: (-hit[1], hit[0]))


def score(run: Hits, judgements: Judgements, measures: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Return each measure of every judged query, float32 (Q,), in the order of the sorted query ids. Default: all.

    A judged query that is missing from the run scores 0. Grades below 0, such as -2 for junk, count as 0, as in
    trec_eval. Ties go to the smaller id. Raises ValueError for a query without judgements.
    """
    measures = measures or tuple(MEASURES)
    unjudged = sorted({*run, *judgements} - {query_id for query_id, grades in judgements.items() if grades})
    if unjudged:
        raise ValueError(f"{len(unjudged)} queries have no judged document, first {unjudged[0]!r}")
    # The evaluator has its own rule for ties, so it gets ranks instead of scores.
    negative_ranks = {query_id: _negate_ranks(rank_by_score(hits)) for query_id, hits in run.items()}
    rows = {query_id: row for row, query_id in enumerate(sorted(judgements))}
    values = {name: np.zeros(len(rows), dtype=np.float32) for name in measures}
    names = {MEASURES[name]: name for name in measures}
    for metric in ir_measures.iter_calc(list(names), clip_negative_grades(judgements), negative_ranks):
        values[names[metric.measure]][rows[metric.query_id]] = metric.value
    return values


def clip_negative_grades(judgements: Judgements) -> dict[str, dict[str, int]]:
    """Return the judgements with 0 for every grade below 0.

    The scores in trec_eval are the same. Its code reads outside its tables for a query with only negative grades.
    """
    return {
        query_id: {document_id: max(0, grade) for document_id, grade in grades.items()}
        for query_id, grades in judgements.items()
    }


class Ties(NamedTuple):
    """Numbers of queries whose measure depends on ids, and of queries whose scores are all equal (no ranking)."""

    num_decided_by_ids: int
    # NDCG@10 if every tie goes against the more relevant document, and if every tie goes to it
    worst: float
    best: float
    num_without_ranking: int
    num_cut: int = 0
    """Queries whose run ends within the tie at rank 10, so that a relevant document of the tie may be missing."""

    @property
    def note(self) -> str:
        """One line. Empty if no query has a tie that matters."""
        notes = []
        if self.num_decided_by_ids:
            queries = count_noun(self.num_decided_by_ids, "query", "queries")
            notes.append(
                f"ids decide ties with a relevant document in {queries} "
                f"(NDCG@10 {100 * self.worst:.1f} to {100 * self.best:.1f}, if all went against it or to it)"
            )
        if self.num_cut:
            queries = count_noun(self.num_cut, "query", "queries")
            notes.append(f"as many documents tie at rank 10 as are kept, so ids decide which are ranked, in {queries}")
        if self.num_without_ranking:
            queries = count_noun(self.num_without_ranking, "query scores", "queries score")
            notes.append(f"{queries} all documents the same: no ranking, counted 0")
        return "; ".join(notes)


def find_ties(run: Hits, judgements: Judgements, *, is_exhaustive: bool, num_kept: int = 0) -> Ties:
    """Return the effect of ties on the NDCG@10 of a run.

    If `is_exhaustive`, every query was compared with every document, so a query without hits has no ranking. A run
    has at most `num_kept` hits.
    """
    worst_Q, best_Q = (_score_with_ties(run, judgements, relevant_first=is_best) for is_best in (False, True))
    num_without_ranking = sum(not run.get(query_id) for query_id in judgements) if is_exhaustive else 0
    # The tolerance is the rounding of float32 values of NDCG.
    num_decided_by_ids = int((worst_Q < best_Q - 1e-6).sum())
    num_cut = 0
    for query_id, grades in judgements.items():
        scores = sorted(run.get(query_id, {}).values(), reverse=True)
        is_cut = len(scores) == num_kept > 10 and scores[9] == scores[-1]
        num_cut += is_cut and any(grade > 0 and document not in run[query_id] for document, grade in grades.items())
    return Ties(num_decided_by_ids, float(worst_Q.mean()), float(best_Q.mean()), num_without_ranking, num_cut)


def _score_with_ties(run: Hits, judgements: Judgements, *, relevant_first: bool) -> np.ndarray:
    """Return the NDCG@10 of every judged query (Q,) if ties go to the most, or to the least relevant document."""
    sign = -1 if relevant_first else 1
    ranked = {
        query_id: _negate_ranks(
            sorted(run.get(query_id, {}).items(), key=lambda hit: (-hit[1], sign * grades.get(hit[0], 0), hit[0]))
        )
        for query_id, grades in judgements.items()
    }
    # Already ordered by falling rank, so `rank_by_score` in `score` keeps this order.
    return score(ranked, judgements, ("ndcg_at_10",))["ndcg_at_10"]


def _negate_ranks(ranked: list[tuple[str, float]]) -> dict[str, float]:
    """Return the negative rank of each document, which orders documents like scores but never ties."""
    return {document_id: -float(rank) for rank, (document_id, _) in enumerate(ranked)}


def bm25_parameters(tokenizer: str, language: str = "english") -> dict[str, Any]:
    """Return the parameters that decide the scores of BM25.

    Raises ValueError for an unknown language, and if the tokenizer of published rows has another language.
    """
    check_language(language)
    if tokenizer == ENGLISH and language != ENGLISH:
        raise ValueError(f"tokenizer={tokenizer!r} stems English, but language={language!r}; choose {UNICODE!r}")
    stemmer = None if language == NO_STEMMER else f"{language} (Snowball)"
    parameters = BM25_PARAMETERS | BM25_TOKENIZERS[tokenizer] | {"stemmer": stemmer}
    if tokenizer == UNICODE:
        parameters["stop_words"] = f"{language}, in queries" if load_stop_words(language) else None
    return parameters


def search_bm25(
    retrieval: Retrieval,
    k: int,
    candidates: Mapping[str, Iterable[str]] | None = None,
    *,
    tokenizer: str = UNICODE,
    language: str = "english",
) -> tuple[Hits, dict[str, Any]]:
    """Return the BM25 run of a collection and its parameters. Documents that share no term with a query are dropped.

    If queries find nothing, or documents have no term, the parameters contain a note with the counts.

    Args:
        retrieval: the collection.
        k: number of hits per query.
        candidates: documents per query to rank instead of all. Term counts are still those of the whole collection.
        tokenizer: "unicode" supports any script (`repro.evaluate.terms`), "english" is that of published rows.
        language: Snowball stemmer of the tokenizer "unicode", or "none".
    """
    # In the order of ids, so that ties go to the smaller id.
    order = sorted(range(len(retrieval.document_ids)), key=retrieval.document_ids.__getitem__)
    sorted_ids = [retrieval.document_ids[row] for row in order]
    index = import_bm25s().BM25(**{name: BM25_PARAMETERS[name] for name in ("k1", "b", "method")})
    parameters = {**bm25_parameters(tokenizer, language), "bm25s": version("bm25s")}
    document_tokens = _tokenize_for_bm25([retrieval.documents[row] for row in order], tokenizer, language)
    query_tokens = _tokenize_for_bm25(list(retrieval.queries), tokenizer, language, drops_stop_words=True)
    # bm25s cannot index a collection without any term
    if any(document_tokens.ids):
        index.index(document_tokens, show_progress=False)
    else:
        index.vocab_dict = {}
    rows = {document_id: row for row, document_id in enumerate(sorted_ids)}
    terms_by_id = {term_id: term for term, term_id in query_tokens.vocab.items()}
    run: Hits = {}
    for query_id, term_ids in zip(retrieval.query_ids, query_tokens.ids, strict=True):
        # Terms outside the index add nothing. A query without a known term scores 0 everywhere.
        terms = [terms_by_id[term_id] for term_id in term_ids if terms_by_id[term_id] in index.vocab_dict]
        scores_D = index.get_scores(terms) if terms else np.zeros(len(sorted_ids))
        ranked_ids = sorted_ids
        if candidates is not None:
            ranked_ids = sorted(set(candidates.get(query_id, ())))
            scores_D = scores_D[[rows[document_id] for document_id in ranked_ids]]
        hits = _rank_candidates(scores_D, ranked_ids, k)
        run[query_id] = {document_id: value for document_id, value in hits.items() if value > 0}
    num_unanswered = sum(not hits for hits in run.values())
    num_unread = sum(not terms for terms in document_tokens.ids)
    if num_unanswered or num_unread:
        parameters["note"] = (
            f"BM25 finds no document for {count_noun(num_unanswered, 'query', 'queries')} and reads no term in "
            f"{count_noun(num_unread, 'document')}"
        )
    return run, parameters


def _tokenize_for_bm25(texts: list[str], tokenizer: str, language: str, *, drops_stop_words: bool = False) -> Any:
    if tokenizer == UNICODE:
        return tokenize_terms(texts, language, drops_stop_words=drops_stop_words)
    stemmer = Stemmer.Stemmer("english")
    return import_bm25s().tokenize(texts, stopwords=BM25_PARAMETERS["stop_words"], stemmer=stemmer, show_progress=False)


def write_run(path: Path, run: Hits, *, tag: str) -> None:
    """Write a gzipped TREC run file atomically. Equal runs give equal bytes."""
    lines = [
        f"{query_id} Q0 {document_id} {rank} {float(value)!r} {tag}\n"
        for query_id, hits in run.items()
        for rank, (document_id, value) in enumerate(rank_by_score(hits), 1)
    ]
    with atomic_file(path) as part:
        # Without a modification time in the header, equal runs give equal bytes.
        part.write_bytes(gzip.compress("".join(lines).encode(), compresslevel=GZIP_LEVEL, mtime=0))


def read_run(path: Path) -> Hits:
    """Load a file of `write_run`."""
    run: Hits = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            query_id, _, document_id, _, value, _ = line.split()
            run.setdefault(query_id, {})[document_id] = float(value)
    return run


def _as_float32(vectors: Matrix) -> Matrix:
    return vectors.astype(np.float32) if isinstance(vectors, csr_array) else np.asarray(vectors, dtype=np.float32)


def _as_dense(scores: Matrix) -> np.ndarray:
    return scores.toarray() if isinstance(scores, csr_array) else scores


def _check_vectors(side: str, vectors: Matrix, ids: Sequence[str]) -> None:
    if not len(ids):
        raise ValueError(f"there are no {side} to search")
    if vectors.shape[0] != len(ids) or len(set(ids)) != len(ids):
        raise ValueError(f"{side}: {vectors.shape[0]} vectors, {len(ids)} ids, {len(set(ids))} of them distinct")
    if isinstance(vectors, csr_array):
        if not np.isfinite(vectors.data).all():
            raise ValueError(f"{side}: vectors hold NaN or infinity")
        return
    invalid = [
        part.start + int(row)
        for part in iter_blocks(len(ids), DOCUMENTS_PER_BLOCK)
        for row in np.flatnonzero(~np.isfinite(vectors[part]).all(axis=1))
    ]
    if invalid:
        raise ValueError(f"{side}: {len(invalid)} vectors hold NaN or infinity, first {shorten(ids[invalid[0]])}")


def _rerank(
    queries_QH: np.ndarray,
    documents_DH: np.ndarray,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    candidates: Mapping[str, Iterable[str]],
    k: int,
) -> Hits:
    rows = {document_id: row for row, document_id in enumerate(document_ids)}
    lengths_D = _compute_lengths(documents_DH)
    run: Hits = {}
    for query_id, query_H in zip(query_ids, queries_QH.astype(np.float64), strict=True):
        # Sorted, because ties go to the smaller id.
        candidate_ids = sorted(set(candidates.get(query_id, ())))
        unknown = [document_id for document_id in candidate_ids if document_id not in rows]
        if unknown:
            raise ValueError(f"query {query_id!r} has candidates that are not documents, first {unknown[0]!r}")
        rows_C = np.array([rows[document_id] for document_id in candidate_ids], dtype=np.int64)
        if len(rows_C) > 1 and _has_constant_score(query_H, documents_DH[rows_C], lengths_D[rows_C]):
            run[query_id] = {}
        else:
            run[query_id] = _rank_candidates(_score_exactly(query_H, documents_DH, rows_C), candidate_ids, k)
    return run


def _scale_to_range(vectors: Matrix) -> Matrix:
    """Scale vectors by a power of two if their largest number is far from 1, so that products stay in range."""
    numbers = vectors.data if isinstance(vectors, csr_array) else vectors
    largest = max(float(np.max(numbers, initial=0)), -float(np.min(numbers, initial=0)))
    # A power of two leaves every mantissa as it is, so no ranking changes.
    exponent = int(np.frexp(largest)[1])
    return vectors if abs(exponent) <= SAFE_EXPONENT else _as_float32(vectors * np.ldexp(1.0, -exponent))


def _compute_lengths(vectors_NH: Matrix) -> np.ndarray:
    """Return the length of each vector, float32 (N,)."""
    if isinstance(vectors_NH, csr_array):
        return np.sqrt((vectors_NH * vectors_NH).sum(axis=1)).astype(np.float32)
    # One pass without a temporary array of the size of the vectors.
    return np.sqrt(np.einsum("nh,nh->n", vectors_NH, vectors_NH))


def _count_terms(queries_QH: Matrix) -> int:
    """Return the largest number of products in a score."""
    if isinstance(queries_QH, csr_array):
        return int(np.diff(queries_QH.indptr).max(initial=0))
    return int(queries_QH.shape[1])


def _get_row(vectors_NH: Matrix, row: int) -> np.ndarray:
    """Return one vector, dense, float64 (H,)."""
    vector_H: np.ndarray = _as_dense(vectors_NH[[row]])[0].astype(np.float64)
    return vector_H


def _score_exactly(query_H: np.ndarray, documents_DH: Matrix, rows_S: np.ndarray) -> np.ndarray:
    """Return inner products summed in float64 and rounded to float32, (S,). Equal vectors give equal results."""
    parts = [
        _compute_products(query_H, documents_DH[rows_S[part]]) for part in iter_blocks(len(rows_S), ROWS_PER_CHUNK)
    ]
    return np.concatenate([np.zeros(0), *parts]).astype(np.float32)


def _compute_products(query_H: np.ndarray, documents_SH: Matrix) -> np.ndarray:
    """Return inner products in float64, (S,), summed within each row. A matrix product would vary the order of sums."""
    if isinstance(documents_SH, csr_array):
        products_S: np.ndarray = documents_SH.astype(np.float64) @ query_H
    else:
        products_S = (documents_SH * query_H).sum(axis=1)
    return products_S


def _has_constant_score(query_H: np.ndarray, documents_DH: Matrix, lengths_D: np.ndarray) -> bool:
    """Return whether a query scores all documents the same, up to the float32 error of equal texts."""
    tolerance = TIE_TOLERANCE * float(np.sqrt(query_H @ query_H)) * float(lengths_D.max())
    low, high = np.inf, -np.inf
    for part in iter_blocks(len(lengths_D), ROWS_PER_CHUNK):
        scores_B = _compute_products(query_H, documents_DH[part])
        # Stops at the first block with two different scores, usually the first one.
        low, high = min(low, float(scores_B.min())), max(high, float(scores_B.max()))
        if high - low > tolerance:
            return False
    return True


def _find_top(scores_S: np.ndarray, ranks_S: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k best, best first, (K,). Ties go to the smaller rank."""
    if 0 < k < len(scores_S):
        # includes all documents that tie with the k-th best, so that ids decide among them
        top_S = np.flatnonzero(scores_S >= np.partition(scores_S, -k)[-k])
        return top_S[np.lexsort((ranks_S[top_S], -scores_S[top_S]))[:k]]
    best_K: np.ndarray = np.lexsort((ranks_S, -scores_S))[:k]
    return best_K


def _rank_candidates(scores_D: np.ndarray, sorted_ids: Sequence[str], k: int) -> dict[str, float]:
    """Return the k best of documents that are sorted by id."""
    best_K = _find_top(scores_D, np.arange(len(scores_D)), k)
    return _map_ids_to_scores([sorted_ids[row] for row in best_K], scores_D[best_K])


def _map_ids_to_scores(ids: Sequence[str], scores_K: np.ndarray) -> dict[str, float]:
    """Return float32 scores by id as the shortest decimals that identify them, so a run file restores them exactly."""
    return {id_: float(str(value)) for id_, value in zip(ids, scores_K.astype(np.float32), strict=True)}
