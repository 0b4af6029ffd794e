"""Adapt the vectors of a fixed encoder to the searched corpus, without training.

Every method estimates statistics from the vectors of documents and then changes queries, documents or both. No method
uses the queries of the test set. At search time one query arrives at a time. Statistics with all test queries would
leak the test set, and they double the measured gain.

Shapes: N vectors, Q queries, D documents, H dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repro.data.wording import is_empty

MIN_DOCUMENTS, FEW = 2, 16
"""Two moments need two documents. Below sixteen the covariance is mostly noise."""
SHRINKAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Values of the shrinkage s from which validation collections choose."""
DEFAULT_SHRINKAGE = 0.95
"""Value without validation queries. It gained 0.3 to 3.6 points on every tested pair of model and suite. 0.8 gained more
for weak models and lost for a strong one."""
FEEDBACK_DEPTH = 3
"""Number of documents that pseudo-relevance feedback treats as relevant (Li et al. 2023, arXiv 2108.11044)."""
HUB_NEIGHBOURS = 10
"""Nearest neighbours of the hubness correction (Conneau et al. 2018)."""
BLOCK = 4096
SINGULAR = 1e-12
"""Smallest over largest variance below which a covariance has no inverse in float64."""


@dataclass(frozen=True)
class Moments:
    """The first two moments of the vectors of a corpus: mean (H,), covariance (H, H), float64."""

    mean_H: np.ndarray
    covariance_HH: np.ndarray
    num_documents: int

    @classmethod
    def of(cls, vectors_NH: np.ndarray) -> Moments:
        """Estimate both from document vectors, block by block.

        Raises ValueError for fewer than two documents, and for vectors with NaN or infinity.
        """
        count, width = vectors_NH.shape
        if count < MIN_DOCUMENTS:
            raise ValueError(f"a corpus of {count} documents has no covariance: use at least {FEW}")
        mean_H = np.asarray(np.mean(vectors_NH, axis=0, dtype=np.float64))
        # the mean of a dimension is not finite if one of its numbers is not
        if not np.isfinite(mean_H).all():
            num_invalid = int((~np.isfinite(vectors_NH)).any(axis=1).sum())
            raise ValueError(f"{num_invalid} of {count} document vectors hold NaN or infinity")
        covariance_HH = np.zeros((width, width))
        # Subtract the mean first. The difference E[x²] − mean² would lose digits.
        for start in range(0, count, BLOCK):
            centred_BH = vectors_NH[start : start + BLOCK].astype(np.float64) - mean_H
            covariance_HH += centred_BH.T @ centred_BH
        return cls(mean_H, covariance_HH / count, count)


@dataclass(frozen=True)
class AffineMap:
    """Maps a vector x to W (x − m), then to unit length. W (H, H) and m (H,) are float64."""

    mean_H: np.ndarray
    weight_HH: np.ndarray

    def __call__(self, vectors_NH: np.ndarray) -> np.ndarray:
        """Return unit vectors, float32 (N, H)."""
        mapped_NH = np.empty(vectors_NH.shape, np.float32)
        for start in range(0, len(vectors_NH), BLOCK):
            block_BH = vectors_NH[start : start + BLOCK].astype(np.float64)
            mapped_NH[start : start + BLOCK] = normalize((block_BH - self.mean_H) @ self.weight_HH.T)
        return mapped_NH


def list_distinct_rows(texts: Sequence[str]) -> list[int]:
    """Return the rows whose vectors give the moments of a corpus: the first row of each text that is not empty.

    Otherwise a text that a thousand documents repeat would decide the covariance.
    """
    rows: dict[str, int] = {}
    for row, text in enumerate(texts):
        if not is_empty(text):
            rows.setdefault(text, row)
    return list(rows.values())


def make_whitening_map(moments: Moments, shrinkage: float) -> AffineMap:
    """Return m and W = C^(−1/2) of a corpus, with C = (1 − s) Cov + s (trace Cov / H) I.

    Su et al. 2021 (arXiv 2103.15316, algorithm 1) and Huang et al. 2021 (arXiv 2104.01767) whiten without shrinkage,
    Jung et al. 2022 (arXiv 2209.00218) for dense retrieval. The shrinkage target is that of Ledoit & Wolf 2004. Any
    other root of C⁻¹ is a rotation of this symmetric one and ranks the same.

    Args:
        moments: of the document vectors of a corpus.
        shrinkage: s, from 0 (the covariance as estimated) to 1 (its mean variance in all directions).

    Raises:
        ValueError: if C has no inverse.
    """
    width = len(moments.mean_H)
    mean_variance = float(np.trace(moments.covariance_HH)) / width
    variances_H, directions_HH = np.linalg.eigh(moments.covariance_HH)
    shrunk_H = (1.0 - shrinkage) * variances_H + shrinkage * mean_variance
    # `eigh` returns rising variances, so the first is the smallest.
    if not shrunk_H[0] > SINGULAR * max(float(shrunk_H[-1]), SINGULAR):
        raise ValueError(f"{moments.num_documents} documents in {width} dimensions: the covariance has no inverse")
    # Shrinking towards a multiple of the identity keeps the eigenvectors. Only the variances change.
    return AffineMap(moments.mean_H, (directions_HH / np.sqrt(shrunk_H)) @ directions_HH.T)


def make_centring_map(moments: Moments) -> AffineMap:
    """Return the map that subtracts the mean of the corpus (Mu & Viswanath 2018, algorithm 1, step 1)."""
    return AffineMap(moments.mean_H, np.eye(len(moments.mean_H)))


def all_but_the_top(moments: Moments, num_directions: int) -> AffineMap:
    """Return the map that subtracts the mean and removes the directions of largest variance.

    Mu & Viswanath 2018, "All-but-the-top", algorithm 1: v ← v − μ − Σᵢ (uᵢᵀ v) uᵢ.
    """
    directions_HH = np.linalg.eigh(moments.covariance_HH).eigenvectors
    # The last columns. A negative index would select all of them for zero directions.
    top_HK = directions_HH[:, len(directions_HH) - num_directions :]
    return AffineMap(moments.mean_H, np.eye(len(directions_HH)) - top_HK @ top_HK.T)


def add_feedback(queries_QH: np.ndarray, documents_DH: np.ndarray, weight: float) -> np.ndarray:
    """Return queries moved towards the documents they find first, unit vectors, float32 (Q, H).

    Rocchio 1971 with α = 1, β = `weight` and γ = 0. The relevant set is the `FEEDBACK_DEPTH` best documents of a first
    search, as in the vector feedback of Li et al. 2023 (arXiv 2108.11044).
    """
    depth = min(FEEDBACK_DEPTH, len(documents_DH))
    moved_QH = np.empty(queries_QH.shape, np.float32)
    for start in range(0, len(queries_QH), BLOCK):
        block_BH = queries_QH[start : start + BLOCK]
        best_BK = np.argsort(-(block_BH @ documents_DH.T), axis=1, kind="stable")[:, :depth]
        moved_QH[start : start + BLOCK] = normalize(block_BH + weight * documents_DH[best_BK].mean(axis=1))
    return moved_QH


def compute_hub_scores(documents_DH: np.ndarray) -> np.ndarray:
    """Return the mean cosine of each document to its nearest other documents, float32 (D,). Hubs have high values.

    This is r(y) of cross-domain similarity local scaling (Conneau et al. 2018, "Word translation without parallel
    data", section 2.3). There the neighbours are queries. Here they are other documents, since test queries are unseen.
    """
    count = min(HUB_NEIGHBOURS, len(documents_DH) - 1)
    scores_D = np.zeros(len(documents_DH), np.float32)
    if count < 1:
        return scores_D
    for start in range(0, len(documents_DH), BLOCK // 4):
        cosines_BD = documents_DH[start : start + BLOCK // 4] @ documents_DH.T
        rows = np.arange(len(cosines_BD))
        # A document is not its own neighbour.
        cosines_BD[rows, start + rows] = -np.inf
        nearest_BK = np.partition(cosines_BD, -count, axis=1)[:, -count:]
        scores_D[start : start + BLOCK // 4] = nearest_BK.mean(axis=1)
    return scores_D


def subtract_hubness(queries_QH: np.ndarray, documents_DH: np.ndarray, weight: float) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors whose inner products are cosine − weight · hub score, float32, with one more dimension.

    Conneau et al. 2018 rank by 2 cos(x, y) − r(x) − r(y), which for one query is a weight of 1/2.
    """
    # One more dimension adds the penalty to every inner product, so exact search needs no change.
    ones_Q1 = np.ones((len(queries_QH), 1), np.float32)
    penalty_D1 = (-weight * compute_hub_scores(documents_DH))[:, None].astype(np.float32)
    return np.hstack([queries_QH, ones_Q1]), np.hstack([documents_DH, penalty_D1])


def normalize(vectors_NH: np.ndarray) -> np.ndarray:
    """Return unit vectors along the last axis, float32 (…, N, H). A zero vector stays zero."""
    norms_N1 = np.linalg.norm(vectors_NH, axis=-1, keepdims=True)
    # The smallest positive float keeps a zero vector at zero instead of NaN.
    unit_NH: np.ndarray = (vectors_NH / np.maximum(norms_N1, np.finfo(np.float32).tiny)).astype(np.float32, copy=False)
    return unit_NH


SOURCES = ("own", "wrong", "random")
"""Corpora for whitening: the searched corpus, another one, or random training text."""
WHITENED = "whitened"


def make_whitened_view(source: str, count: int | None = None) -> str:
    """Return the name of a view: "whitened", "whitened64" (documents of the own corpus), "whitened-wrong"."""
    suffix = "" if source == "own" else f"-{source}"
    return f"{WHITENED}{suffix}{'' if count is None else count}"


def describe_small_sample(num_documents: int) -> str | None:
    """Return a line if a corpus is too small for its covariance to help, else None."""
    # Measured: 16 documents give a fifth of the gain, 64 about half.
    return f"only {num_documents} documents, fewer than {FEW}: expect no gain" if num_documents < FEW else None
