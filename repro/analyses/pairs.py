"""Compare training pairs under the surrogate: nearest documents (`neighbours`) and clusters (`cluster`).

`neighbours`: Find the nearest documents of training documents under the surrogate, and count possible positives (table 3).

1. Some pairs (q, d) are drawn. The documents of all pairs are ranked by f(d, ·), skipping those with the text of d.
2. A neighbour d′ is a plausible positive of q if eq. 4 holds: f(q, d′) ≥ f(q, d). The filter removes such pairs.
3. As many documents from the same domain, and from anywhere, are compared alike. Those with the text of d do not count.

Shapes: A drawn pairs, N pairs, B pairs of a block, D dimensions, K neighbours, S pairs to show.

`cluster`: Compare the pairs of a cluster with pairs of the same domain (table 4). Nothing is trained.

1. Clusters of at least two pairs are drawn. Up to 64 pairs of each are compared with each other. The results are the
   mean similarity of their documents, and the share of other documents that eq. 4 would remove: f(q, d′) ≥ f(q, d).
2. The same number of pairs is drawn from the same domain, from any cluster, and compared alike.

Shapes: C drawn clusters, N pairs, M pairs of one cluster, D dimensions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from repro.analyses import Measured
from repro.batches.negatives import as_near
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import domain_codes
from repro.seeds import make_rng
from repro.storage.arrays import iter_blocks, release_pages, take_rows

# ---- neighbours


NUM_DRAWN = 1000
NUM_NEIGHBOURS = 11  # as many as the paper shows
ROWS_PER_CHUNK, DOCUMENTS_PER_CHUNK = 64, 2**19
"""Number of drawn documents, and of other documents, per matrix product."""


def measure_neighbours(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return shares under `nearest/…`, `domain/…`, `anywhere/…`, one value per drawn pair, and one pair to show."""
    pairs, generator = inputs.pairs, make_rng(inputs.run.seed, "neighbours")
    queries_ND, documents_ND = inputs.embeddings("query"), inputs.embeddings("document")
    assert queries_ND is not None and documents_ND is not None, "this analysis requires the surrogate's vectors"
    drawn_A = generator.choice(len(pairs), min(NUM_DRAWN, len(pairs)), replace=False)
    queries_AD, documents_AD = load_vectors(queries_ND, drawn_A), load_vectors(documents_ND, drawn_A)
    rows_by_kind = {
        "nearest": find_nearest_rows(documents_ND, inputs.content_keys, drawn_A, NUM_NEIGHBOURS),
        "domain": _draw_from_own_domain(pairs.domain_codes, drawn_A, generator),
        "anywhere": generator.integers(0, len(pairs), (len(drawn_A), NUM_NEIGHBOURS)),
    }
    arrays: dict[str, np.ndarray] = {}
    for kind, rows_AK in rows_by_kind.items():
        others_AKD = load_vectors(documents_ND, rows_AK)
        # Documents with the text of d are not other documents, so they do not count.
        is_other_AK = inputs.content_keys[rows_AK] != inputs.content_keys[drawn_A][:, None]
        scores_AK = np.einsum("ad,akd->ak", queries_AD, others_AKD)
        similarities_AK = np.einsum("ad,akd->ak", documents_AD, others_AKD)
        arrays[f"{kind}/plausible"] = _average_where(
            as_near(scores_AK, queries_AD[:, None], documents_AD[:, None]), is_other_AK
        )
        arrays[f"{kind}/similarity"] = _average_where(similarities_AK, is_other_AK)
        for column, codes_N in (("same_domain", pairs.domain_codes), ("same_source", pairs.source_codes)):
            arrays[f"{kind}/{column}"] = _average_where(codes_N[rows_AK] == codes_N[drawn_A][:, None], is_other_AK)
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    metrics["nearest/any_plausible"] = float((arrays["nearest/plausible"] > 0).mean())
    rows = np.array([drawn_A[0], *rows_by_kind["nearest"][0]])
    examples = _describe_neighbours(pairs, rows, queries_AD[0], load_vectors(documents_ND, rows))
    provenance = {"num_drawn": len(drawn_A), "num_neighbours": NUM_NEIGHBOURS, "num_pairs": len(pairs)}
    return Measured(metrics, arrays, provenance, {"neighbours": examples})


def load_vectors(vectors_ND: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return rows of any shape from an array that may be memory-mapped, float32, with the vectors in the last axis."""
    return take_rows(vectors_ND, rows.reshape(-1)).astype(np.float32).reshape(*rows.shape, -1)


def find_nearest_rows(documents_ND: np.ndarray, keys_N: np.ndarray, drawn_A: np.ndarray, count: int) -> np.ndarray:
    """Return the rows of the nearest documents of each drawn one, nearest first, without documents of the same text.

    Documents may be memory-mapped. They are read once, and memory holds one block.
    """
    drawn_AD, keys_A = load_vectors(documents_ND, drawn_A), np.asarray(keys_N[drawn_A])
    scores_AK, rows_AK = np.zeros((len(drawn_A), 0), np.float32), np.zeros((len(drawn_A), 0), np.int64)
    for part in iter_blocks(len(documents_ND), DOCUMENTS_PER_CHUNK):
        block_BD, keys_B = np.asarray(documents_ND[part], np.float32), np.asarray(keys_N[part])
        chunks = [
            _find_nearest(drawn_AD[rows] @ block_BD.T, keys_A[rows][:, None] == keys_B[None], count)
            for rows in iter_blocks(len(drawn_A), ROWS_PER_CHUNK)
        ]
        new_AK, columns_AK = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
        scores_AK = np.concatenate([scores_AK, new_AK], axis=1)
        rows_AK = np.concatenate([rows_AK, columns_AK + part.start], axis=1)
        # Merge the best of this block with the best so far.
        order_AK = np.argsort(-scores_AK, axis=1, kind="stable")[:, :count]
        scores_AK, rows_AK = np.take_along_axis(scores_AK, order_AK, 1), np.take_along_axis(rows_AK, order_AK, 1)
        release_pages(documents_ND, keys_N)
    return rows_AK


def _find_nearest(scores_AB: np.ndarray, is_same_AB: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and indices of the nearest documents of a block."""
    scores_AB[is_same_AB] = -np.inf
    columns_AK = np.argpartition(-scores_AB, min(count, scores_AB.shape[1] - 1), axis=1)[:, :count]
    return np.take_along_axis(scores_AB, columns_AK, 1), columns_AK


def _average_where(values_AK: np.ndarray, is_other_AK: np.ndarray) -> np.ndarray:
    """Return the mean of the values that count, (A,). It is 0 if none does, as in a domain with a single text."""
    means_A: np.ndarray = np.where(is_other_AK, values_AK, 0.0).sum(1) / np.maximum(is_other_AK.sum(1), 1)
    return means_A


def _draw_from_own_domain(codes_N: np.ndarray, drawn_A: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    order_N = np.argsort(codes_N, kind="stable")
    starts = np.searchsorted(codes_N[order_N], codes_N[drawn_A], side="left")
    ends = np.searchsorted(codes_N[order_N], codes_N[drawn_A], side="right")
    # After the stable sort, a domain is a contiguous range of positions.
    positions_AK = generator.integers(starts[:, None], ends[:, None], (len(drawn_A), NUM_NEIGHBOURS))
    rows_AK: np.ndarray = order_N[positions_AK]
    return rows_AK


def _describe_neighbours(
    pairs: Any, rows_S: np.ndarray, query_D: np.ndarray, documents_SD: np.ndarray
) -> list[dict[str, str | float]]:
    """Return the texts of a pair, whose row comes first, and of its neighbours, for the report."""
    document_D = documents_SD[0]
    # The first row is the pair itself.
    are_near = [as_near(query_D @ vector_D, query_D, document_D) for vector_D in documents_SD[1:]]
    answers = ["it is", *("yes" if is_near else "no" for is_near in are_near)]
    return [
        text | {"similarity": round(float(document_D @ vector_D), 3), "may be a positive": answer}
        for text, vector_D, answer in zip(_describe_pairs(pairs, rows_S), documents_SD, answers, strict=True)
    ]


# ---- cluster


NUM_CLUSTERS = 200
MAX_PAIRS = 64
NUM_SHOWN = 16  # as many as the paper shows


def measure_cluster(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `cluster/similarity`, `difficulty` and `plausible`, and the same under `domain/`: a value per drawn cluster.

    `cluster/num_pairs` is the mean size of all clusters.
    """
    run, generator = inputs.run, make_rng(inputs.run.seed, "clusters to look at")
    queries_ND, documents_ND = inputs.embeddings("query"), inputs.embeddings("document")
    assert queries_ND is not None and documents_ND is not None, "this analysis requires the surrogate's vectors"
    assignment_N, codes_N = np.asarray(inputs.clusters.assignment_N), domain_codes(run, inputs.pairs)
    sizes = np.bincount(assignment_N)
    drawn_C = generator.permutation(np.flatnonzero(sizes > 1))[:NUM_CLUSTERS]
    values: dict[str, list[float]] = {}
    for cluster in drawn_C:
        cluster_rows = np.flatnonzero(assignment_N == cluster)
        domain_rows = np.flatnonzero(codes_N == codes_N[cluster_rows[0]])
        num_drawn = min(MAX_PAIRS, len(cluster_rows))
        for kind, pool in (("cluster", cluster_rows), ("domain", domain_rows)):
            rows_M = np.sort(generator.choice(pool, num_drawn, replace=False))
            means = _compare_pairs(queries_ND[rows_M].astype(np.float32), documents_ND[rows_M].astype(np.float32))
            for name, value in means.items():
                values.setdefault(f"{kind}/{name}", []).append(value)
    arrays = {name: np.array(results) for name, results in values.items()}
    metrics = {name: float(results.mean()) for name, results in arrays.items()}
    metrics |= {"cluster/num_pairs": float(sizes[sizes > 0].mean())}
    # The pairs to show come from the drawn cluster whose size is nearest to the requested one.
    index = int(np.argmin(np.abs(sizes[drawn_C] - (run.cluster_size or 0))))
    members = np.flatnonzero(assignment_N == drawn_C[index])
    examples = _describe_pairs(inputs.pairs, generator.choice(members, min(NUM_SHOWN, len(members)), replace=False))
    provenance = {
        "num_clusters": len(drawn_C),
        "num_clusters_in_all": int((sizes > 0).sum()),
        "num_shown_of": len(members),
    }
    return Measured(metrics, arrays, provenance, {"pairs": examples})


def _compare_pairs(queries_MD: np.ndarray, documents_MD: np.ndarray) -> dict[str, float]:
    others_MM = ~np.eye(len(queries_MD), dtype=bool)
    scores_MM = queries_MD @ documents_MD.T
    plausible_MM = as_near(scores_MM, queries_MD[:, None], documents_MD[:, None])
    return {
        "similarity": float((documents_MD @ documents_MD.T)[others_MM].mean()),
        "difficulty": float(scores_MM[others_MM].mean()),
        "plausible": float(plausible_MM[others_MM].mean()),
    }


def _describe_pairs(pairs: Any, rows: np.ndarray) -> list[dict[str, str | float]]:
    domains = [pairs.domain_names[code] for code in pairs.domain_codes[rows]]
    texts = zip(pairs.texts("query", rows), pairs.texts("document", rows), domains, strict=True)
    return [{"query": query, "document": document, "domain": domain} for query, document, domain in texts]
