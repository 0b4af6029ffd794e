"""Clusters of pairs against brute force, planted topics and other numbers of threads."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from repro.batches import cluster
from repro.batches.cluster import (
    Clusters,
    best_attempt,
    cluster_pairs,
    cluster_part,
    join_clusters,
    list_sampled_domains,
)
from repro.storage.stages import Part
from tests.batches.planted import normalise, plant_pairs


def draw_pairs(num_pairs: int, dimensions: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Return queries and documents without clusters."""
    queries, documents = np.random.default_rng(1).normal(size=(2, num_pairs, dimensions))
    return normalise(queries), normalise(documents)


def stack_both_orders(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Return the points that are clustered: query ⊕ document of all pairs, then document ⊕ query."""
    return np.concatenate([np.concatenate(sides, axis=1) for sides in ((queries, documents), (documents, queries))])


def assign_by_brute_force(
    queries: np.ndarray, documents: np.ndarray, domains: np.ndarray, clusters: Clusters
) -> np.ndarray:
    """Return the nearest cluster of the domain of each pair."""
    pairs = np.concatenate([queries, documents], axis=1).astype(np.float64)
    distances = ((pairs[:, None] - clusters.centroids_KD[None].astype(np.float64)) ** 2).sum(-1)
    distances[domains[:, None] != clusters.domain_of_cluster_K[None]] = np.inf
    return distances.argmin(1)


def test_planted_topics_are_recovered() -> None:
    queries, documents, topics = plant_pairs([40] * 6)
    clusters = cluster_pairs(queries, documents, np.zeros(240, dtype=np.int32), cluster_size=10, seed=0)
    topic_clusters = {(topic, cluster) for topic, cluster in zip(topics, clusters.assignment_N, strict=True)}
    assert len(topic_clusters) == len(clusters.centroids_KD) >= 6


def test_every_point_is_fitted() -> None:
    """A single centroid is the mean of all points. FAISS samples 256 by default, whose mean is another one."""
    points = stack_both_orders(*draw_pairs(2000))
    np.testing.assert_allclose(best_attempt(points, 1, 0)[0], points.mean(0), atol=1e-5)


def test_early_stop_gives_same_clusters() -> None:
    queries, documents, _ = plant_pairs([30] * 8, noise=1.0)
    points = stack_both_orders(queries, documents)
    start = best_attempt(points, 8, 5)[np.random.default_rng(0).permutation(8)].copy()
    kmeans = faiss.Kmeans(32, 8, niter=100, max_points_per_centroid=10**6, min_points_per_centroid=1)
    kmeans.train(points, init_centroids=start)
    np.testing.assert_allclose(kmeans.centroids, start, atol=1e-6)


def test_best_of_three_attempts_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = stack_both_orders(*draw_pairs(150))
    best, attempts = best_attempt(points, 12, 1), []
    for number in range(3):
        cluster._Progress(attempt=number).save(tmp_path / f"{number}.npz")
        monkeypatch.setattr(cluster, "NUM_ATTEMPTS", number + 1)
        attempts.append(best_attempt(points, 12, 1, progress=tmp_path / f"{number}.npz"))
    objectives = [((points[:, None] - centroids) ** 2).sum(-1).min(1).sum() for centroids in attempts]
    assert len({round(float(objective), 2) for objective in objectives}) == 3, "all attempts differ"
    np.testing.assert_array_equal(best, attempts[int(np.argmin(objectives))])


def test_killed_kmeans_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill at any group of ten iterations, only that group runs again, and the clusters are the same."""
    monkeypatch.setattr(cluster, "LARGE_DOMAIN", 200)
    pairs, train, calls = draw_pairs(200), faiss.Kmeans.train, []

    def run(folder: Path, limit: int = 30) -> Clusters:
        def count(*args: Any, **options: Any) -> float:
            calls.append(len(calls))
            if len(calls) > limit:
                raise KeyboardInterrupt
            return train(*args, **options)

        calls.clear()
        monkeypatch.setattr(faiss.Kmeans, "train", count)
        options = {"seed": 0, "num_dimensions": 4, "progress_folder": folder}
        return cluster_pairs(*pairs, np.zeros(200, np.int32), cluster_size=10, **options)

    expected = run(tmp_path / "whole")
    num_calls = len(calls)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", num_calls - 2)
    resumed = run(tmp_path / "killed")
    assert len(calls) == 2
    for name, array in vars(resumed).items():
        np.testing.assert_array_equal(array, getattr(expected, name))


@pytest.mark.parametrize("num_parts", [1, 2, 5])
def test_parts_join_to_whole(num_parts: int, tmp_path: Path) -> None:
    """A part may have no domain."""
    inputs = (*draw_pairs(160), np.random.default_rng(1).permutation(np.repeat([0, 2, 5, 9], [80, 40, 30, 10])))
    options = {"cluster_size": 10, "seed": 3, "num_dimensions": 4}
    folders = [tmp_path / str(number) for number in range(num_parts)]
    for number, folder in enumerate(folders, 1):
        folder.mkdir()
        cluster_part(folder, Part(number, num_parts), *inputs, **options)
    joined, expected = join_clusters(folders, inputs[2]), cluster_pairs(*inputs, **options)
    for name, array in vars(joined).items():
        np.testing.assert_array_equal(array, getattr(expected, name))


@pytest.mark.parametrize("num_dimensions", [3, None])
def test_centroid_is_mean_of_both_orders(num_dimensions: int | None) -> None:
    """A single cluster has the mean of all pairs in both orders, or that of their projections, as its centroid."""
    pairs, options = draw_pairs(60), {"cluster_size": 60, "seed": 0, "num_dimensions": num_dimensions}
    centroids = cluster_pairs(*pairs, np.zeros(60, np.int32), **options).centroids_KD
    directions = np.linalg.svd(pairs[0].astype(np.float64))[2][:3].T if num_dimensions else np.eye(8)
    expected = stack_both_orders(*(side @ directions for side in pairs)).mean(0)
    np.testing.assert_allclose(np.abs(centroids[0]), np.abs(expected), atol=1e-6)


def test_blocks_of_stored_vectors_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, documents, _ = plant_pairs([150] * 6, noise=2.0, dimensions=16)
    domains = np.random.default_rng(2).permutation(np.repeat([1, 4, 6], [500, 250, 150]))
    arrays = [side.astype(np.float16) for side in (queries, documents)]
    expected = cluster_pairs(*arrays, domains, cluster_size=20, seed=3)
    mapped = []
    for name, array in zip("qd", arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
        mapped.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    monkeypatch.setattr(cluster, "ROWS_PER_SEARCH", 64)
    clusters = cluster_pairs(*mapped, domains, cluster_size=20, seed=3)
    np.testing.assert_array_equal(clusters.assignment_N, expected.assignment_N)
    np.testing.assert_array_equal(clusters.centroids_KD, expected.centroids_KD)


def test_large_domains_are_fitted_on_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "MAX_EXACT_PAIRS", 300)
    monkeypatch.setattr(cluster, "PAIRS_PER_CENTROID", 16)
    pairs, domains = draw_pairs(1200), np.repeat([2, 5], [1000, 200])
    assert list_sampled_domains(domains, 50) == {2: (320, 1000)}
    assert list_sampled_domains(domains, 100) == {2: (300, 1000)}
    fitted: dict[int, np.ndarray] = {}

    def keep_points(points: np.ndarray, *args: int, **options: Any) -> np.ndarray:
        fitted[len(points)] = points.copy()
        return best_attempt(points, *args, **options)

    monkeypatch.setattr(cluster, "best_attempt", keep_points)
    clusters = cluster_pairs(*pairs, domains, cluster_size=50, seed=0)
    assert fitted.keys() == {400, 640}
    np.testing.assert_array_equal(fitted[400], stack_both_orders(*(side[1000:] for side in pairs)))
    np.testing.assert_array_equal(clusters.assignment_N, assign_by_brute_force(*pairs, domains, clusters))


@pytest.mark.parametrize("large_domain", [0, 100_000])
def test_clusters_do_not_depend_on_threads(large_domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LARGE_DOMAIN", large_domain)
    queries, documents, _ = plant_pairs([100] * 15, noise=2.0, dimensions=64)
    threads_before, results = faiss.omp_get_max_threads(), []
    for num_threads in (1, 2, 3):
        faiss.omp_set_num_threads(num_threads)
        results.append(cluster_pairs(queries, documents, np.arange(1500) % 2, cluster_size=20, seed=3))
    faiss.omp_set_num_threads(threads_before)
    for clusters in results[1:]:
        np.testing.assert_array_equal(clusters.assignment_N, results[0].assignment_N)
        np.testing.assert_array_equal(clusters.centroids_KD, results[0].centroids_KD)


def test_small_domain_is_one_cluster() -> None:
    clusters = cluster_pairs(*draw_pairs(25), np.repeat([0, 1], [20, 5]), cluster_size=10, seed=0)
    assert clusters.assignment_N[20:].tolist() == np.flatnonzero(clusters.domain_of_cluster_K == 1).tolist() * 5


def test_no_cluster_is_empty() -> None:
    pairs = (side.astype(np.float16) for side in draw_pairs(400))
    clusters = cluster_pairs(*pairs, np.zeros(400, dtype=np.int32), cluster_size=4, seed=0)
    assert np.bincount(clusters.assignment_N, minlength=len(clusters.centroids_KD)).min() > 0
    assert clusters.assignment_N.dtype == clusters.domain_of_cluster_K.dtype == np.int32


def test_impossible_cluster_size_is_refused() -> None:
    with pytest.raises(ValueError, match="largest domain has 30 pairs"):
        cluster_pairs(*draw_pairs(50), np.repeat([0, 1], [30, 20]), cluster_size=31, seed=0)
