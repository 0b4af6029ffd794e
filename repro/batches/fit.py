"""On how much of a domain its centroids are fitted: on all of it, or on a declared sample where it is too large.

K-means holds all points that it is fitted on. Assigning the pairs to the centroids does not: every pair is assigned,
whatever the centroids were fitted on.
"""

from __future__ import annotations

import numpy as np

NUM_ITERATIONS = 100
NUM_ATTEMPTS = 3
MOST_EXACT_PAIRS = 2**19
"""Up to so many pairs K-means is fitted on all of a domain: a million points, 1 GiB at 128 dimensions, 6 GiB at 768."""
PAIRS_A_CENTROID = 64
"""Pairs of a sample a centroid, at least: 128 points; FAISS asks for 39 and samples 256."""


def count_clusters(num_pairs: int, cluster_size: int) -> int:
    """Return how many clusters a domain of so many pairs is cut into."""
    return -(-num_pairs // cluster_size)


def count_fitted_pairs(num_pairs: int, cluster_size: int) -> int:
    """Return on how many of a domain's pairs its centroids are fitted: on all, unless there are too many."""
    return min(num_pairs, max(MOST_EXACT_PAIRS, PAIRS_A_CENTROID * count_clusters(num_pairs, cluster_size)))


def list_sampled_domains(domain_codes_N: np.ndarray, cluster_size: int) -> dict[int, tuple[int, int]]:
    """Return the domains whose centroids are fitted on a sample: on how many pairs, of how many."""
    sizes = zip(*np.unique(domain_codes_N, return_counts=True), strict=True)
    fits = {int(code): (count_fitted_pairs(int(count), cluster_size), int(count)) for code, count in sizes}
    return {code: fit for code, fit in fits.items() if fit[0] < fit[1]}
