"""The greedy tour, against the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.batches import pack
from repro.batches.pack import greedy_tour


def tour_by_definition(centroids: np.ndarray, start: int) -> list[int]:
    left, visits = set(range(len(centroids))) - {start}, [start]
    while left:
        here = centroids[visits[-1]].astype(np.float64)
        visits.append(min(left, key=lambda k: float(((centroids[k].astype(np.float64) - here) ** 2).sum())))
        left.remove(visits[-1])
    return visits


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_the_tour_is_the_brute_force_tour(num_centroids: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    centroids = rng.normal(size=(num_centroids, 5)).astype(np.float32)
    start = int(rng.integers(num_centroids))
    assert greedy_tour(centroids, start).tolist() == tour_by_definition(centroids, start)


def test_looking_into_all_cells_gives_the_brute_force_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "NUM_PROBES", 10**6)
    centroids = np.random.default_rng(3).normal(size=(300, 6)).astype(np.float32)
    assert greedy_tour(centroids, 7, small=10).tolist() == tour_by_definition(centroids, 7)


def test_a_tour_by_cells_visits_everything_once_and_is_hardly_longer() -> None:
    centroids = np.random.default_rng(4).normal(size=(2000, 6)).astype(np.float32)

    def length(order: np.ndarray | list[int]) -> float:
        return np.linalg.norm(np.diff(centroids[order], axis=0), axis=1).sum()

    cells, exact = greedy_tour(centroids, 11, small=100), greedy_tour(centroids, 11)
    assert cells[0] == 11
    assert sorted(cells.tolist()) == list(range(2000))
    assert length(cells) < 1.03 * length(exact)


def test_equal_centroids_are_all_visited() -> None:
    assert sorted(greedy_tour(np.ones((50, 3), dtype=np.float32), 2, small=5).tolist()) == list(range(50))


def test_a_start_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="start is 3: there are 3 centroids"):
        greedy_tour(np.eye(3, dtype=np.float32), 3)
