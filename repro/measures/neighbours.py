"""Nearest documents of training documents under the surrogate, and how many of them may be positives (table 3).

1. Some pairs (q, d) are drawn. The documents of all pairs are ranked by f(d, ·); those with the text of d are skipped.
2. A neighbour d′ is a plausible positive of q when eq. 4 says so: f(q, d′) ≥ f(q, d), the pairs the filter leaves out.
3. The same is counted among as many documents drawn from the pair's own domain, and from anywhere.

Shapes: A drawn pairs, N pairs, D dimensions, K neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from repro.batches.mask import content_keys
from repro.evaluate.suites import Encoder
from repro.inputs.inputs import Inputs
from repro.measures import Measured
from repro.seeds import generator_for

NUM_DRAWN = 1000
NUM_NEIGHBOURS = 11  # as many as the paper shows
ROWS_AT_ONCE = 64


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return shares under `nearest/…`, `domain/…`, `anywhere/…`, one value for each drawn pair, and one to be read."""
    pairs, generator = inputs.pairs, generator_for(inputs.run.seed, "neighbours")
    queries_ND, documents_ND = (np.asarray(inputs.embeddings(side), np.float32) for side in ("query", "document"))
    drawn_A = generator.choice(len(pairs), min(NUM_DRAWN, len(pairs)), replace=False)
    keys_N = content_keys(pairs.texts("document", np.arange(len(pairs))))
    rows_by_kind = {
        "nearest": nearest_rows(documents_ND, keys_N, drawn_A, NUM_NEIGHBOURS),
        "domain": _from_own_domain(pairs.domain_codes, drawn_A, generator),
        "anywhere": generator.integers(0, len(pairs), (len(drawn_A), NUM_NEIGHBOURS)),
    }
    arrays: dict[str, np.ndarray] = {}
    for kind, rows_AK in rows_by_kind.items():
        positive_A1 = (queries_ND[drawn_A] * documents_ND[drawn_A]).sum(1)[:, None]
        scores_AK = np.einsum("ad,akd->ak", queries_ND[drawn_A], documents_ND[rows_AK])
        alike_AK = np.einsum("ad,akd->ak", documents_ND[drawn_A], documents_ND[rows_AK])
        arrays[f"{kind}/plausible"] = (scores_AK >= positive_A1).mean(1)
        arrays[f"{kind}/similarity"] = alike_AK.mean(1)
        for column, codes_N in (("same_domain", pairs.domain_codes), ("same_source", pairs.source_codes)):
            arrays[f"{kind}/{column}"] = (codes_N[rows_AK] == codes_N[drawn_A][:, None]).mean(1)
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    metrics["nearest/any_plausible"] = float((arrays["nearest/plausible"] > 0).mean())
    shown = _shown(pairs, int(drawn_A[0]), rows_by_kind["nearest"][0], queries_ND, documents_ND)
    found = {"num_drawn": len(drawn_A), "num_neighbours": NUM_NEIGHBOURS, "num_pairs": len(pairs)}
    return Measured(metrics, arrays, found, {"neighbours": shown})


def nearest_rows(documents_ND: np.ndarray, keys_N: np.ndarray, drawn_A: np.ndarray, count: int) -> np.ndarray:
    """Return the rows of the nearest documents of each drawn one, nearest first, without texts equal to its own."""
    found = []
    for start in range(0, len(drawn_A), ROWS_AT_ONCE):
        rows = drawn_A[start : start + ROWS_AT_ONCE]
        scores_AN = documents_ND[rows] @ documents_ND.T
        scores_AN[keys_N[rows][:, None] == keys_N[None]] = -np.inf
        near_AK = np.argpartition(-scores_AN, count, axis=1)[:, :count]
        order_AK = np.argsort(-np.take_along_axis(scores_AN, near_AK, 1), axis=1, kind="stable")
        found.append(np.take_along_axis(near_AK, order_AK, 1))
    return np.concatenate(found)


def _from_own_domain(codes_N: np.ndarray, drawn_A: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    order_N = np.argsort(codes_N, kind="stable")
    starts = np.searchsorted(codes_N[order_N], codes_N[drawn_A], side="left")
    ends = np.searchsorted(codes_N[order_N], codes_N[drawn_A], side="right")
    places_AK = generator.integers(starts[:, None], ends[:, None], (len(drawn_A), NUM_NEIGHBOURS))
    rows_AK: np.ndarray = order_N[places_AK]
    return rows_AK


def _shown(
    pairs: Any, own: int, near_K: np.ndarray, queries_ND: np.ndarray, documents_ND: np.ndarray
) -> list[Mapping[str, str | float]]:
    rows = np.array([own, *near_K])
    positive = float(queries_ND[own] @ documents_ND[own])
    domains = [pairs.domain_names[code] for code in pairs.domain_codes[rows]]
    texts = zip(rows, pairs.texts("query", rows), pairs.texts("document", rows), domains, strict=True)
    return [
        {
            "query": query,
            "document": document,
            "domain": domain,
            "similarity": round(float(documents_ND[own] @ documents_ND[row]), 3),
            "may be a positive": "it is" if row == own else _yes(queries_ND[own] @ documents_ND[row] >= positive),
        }
        for row, query, document, domain in texts
    ]


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
