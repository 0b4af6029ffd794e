"""Pairs around planted centres."""

import numpy as np


def normalise(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def plant_pairs(
    counts: list[int], *, dimensions: int = 16, noise: float = 0.1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return queries (N, D), documents (N, D) and topics (N,) of pairs around random centres, with `counts` per topic."""
    rng = np.random.default_rng(seed)
    topics = np.repeat(np.arange(len(counts)), counts)
    centres = normalise(rng.normal(size=(len(counts), dimensions)))
    spread = noise / np.sqrt(dimensions)
    queries, documents = (
        normalise(centres[topics] + spread * rng.normal(size=(len(topics), dimensions))) for _ in range(2)
    )
    return queries, documents, topics
