"""Samplers over awkward sizes, mixing of sources, and packing of clusters by a tour."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.batches import mixing, pack
from repro.batches.cluster import Clusters, cluster_pairs
from repro.batches.mixing import DRAWS_PER_BLOCK, MixedSampler, compute_mixing_shares
from repro.batches.pack import greedy_tour
from repro.batches.sampler import KINDS, BatchSampler, DroppedPairs, StoredSampler
from repro.train.feed import get_sampler_state
from tests.batches.planted import plant_pairs


def make_clusters(domain_codes: np.ndarray) -> Clusters:
    queries, documents, _ = plant_pairs([len(domain_codes)], noise=3.0)
    return cluster_pairs(queries, documents, domain_codes, cluster_size=4, seed=0)


def make_sampler(kind: str, domain_codes: np.ndarray, **changes: Any) -> BatchSampler:
    options = {"batch_size": 8, "seed": 0, "packing": "greedy"} | changes
    clusters = make_clusters(domain_codes) if kind == "cluster" else None
    return BatchSampler(kind, domain_codes, clusters=clusters, **options)


DOMAINS = np.random.default_rng(0).permutation(np.repeat([0, 3, 5, 7], [43, 32, 25, 5])).astype(np.int32)


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(lambda sizes: max(sizes) >= 4),
    st.integers(1, 4),
    st.sampled_from(KINDS),
    st.integers(0, 3),
)
def test_pairs_come_once_per_epoch(sizes: list[int], batch_size: int, kind: str, epoch: int) -> None:
    sampler = make_sampler(kind, np.repeat(np.arange(len(sizes)), sizes), batch_size=batch_size)
    batches = sampler.epoch(epoch)
    num_batches = sum(sizes) // batch_size if kind == "random" else sum(size // batch_size for size in sizes)
    assert batches.shape == (len(sampler), batch_size) == (num_batches, batch_size)
    assert len(np.unique(batches)) == batches.size
    dropped_pairs = sampler.dropped_pairs
    assert batches.size + dropped_pairs.num_in_tails + dropped_pairs.num_in_small_domains == sum(sizes)


@pytest.mark.parametrize("packing", ["random", "greedy"])
@pytest.mark.parametrize("kind", ["domain", "cluster"])
def test_no_batch_mixes_domains(kind: str, packing: str) -> None:
    sampler = make_sampler(kind, DOMAINS, packing=packing)
    for epoch in range(4):
        batch_domains = DOMAINS[sampler.epoch(epoch)]
        assert (batch_domains == batch_domains[:, :1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_epoch_has_other_batches(kind: str) -> None:
    sampler = make_sampler(kind, DOMAINS)
    first, second = ({frozenset(batch.tolist()) for batch in sampler.epoch(epoch)} for epoch in (0, 1))
    assert not first & second


@pytest.mark.parametrize("kind", KINDS)
def test_batches_depend_on_step_only(kind: str) -> None:
    sampler = make_sampler(kind, DOMAINS)
    steps = range(3 * len(sampler))
    forward = [sampler.at(step).tolist() for step in steps]
    backward = [make_sampler(kind, DOMAINS).at(step).tolist() for step in reversed(steps)]
    assert forward == backward[::-1]
    assert forward != [make_sampler(kind, DOMAINS, seed=1).at(step).tolist() for step in steps]
    assert get_sampler_state(sampler, len(sampler) + 3) == (0, 1, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_epochs_give_same_batches(kind: str, tmp_path: Path) -> None:
    packed = make_sampler(kind, DOMAINS, seed=2)
    packed.save(tmp_path, 3)
    stored = StoredSampler(tmp_path, batch_size=8, seed=2)
    for epoch in (2, 0):
        np.testing.assert_array_equal(stored.epoch(epoch), packed.epoch(epoch))
    assert (len(stored), stored.dropped_pairs) == (len(packed), packed.dropped_pairs)
    assert get_sampler_state(stored, len(packed) + 3) == (2, 1, 3)


def test_tails_take_turns() -> None:
    sampler = BatchSampler("domain", np.repeat([0, 1], [11, 3]), batch_size=4, seed=0)
    assert sampler.dropped_pairs == DroppedPairs(3, 3)
    counts = np.zeros((11, 14), dtype=int)
    for epoch in range(11):
        counts[epoch, sampler.epoch(epoch).ravel()] = 1
    assert counts[:, :11].sum(0).tolist() == [8] * 11
    assert counts[:4, :11].sum(0).min() >= 2
    assert not counts[:, 11:].any()


def test_clusters_are_split_least() -> None:
    """A batch of 8 is inside one cluster of 16."""
    assignment = np.repeat(np.arange(6), 16).astype(np.int32)
    centroids = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    clusters = Clusters(assignment, centroids, np.zeros(6, dtype=np.int32))
    sampler = BatchSampler("cluster", np.zeros(96, dtype=np.int32), batch_size=8, seed=0, clusters=clusters)
    assert all(len(set(assignment[batch])) == 1 for batch in sampler.epoch(0))


def test_greedy_packing_joins_small_neighbours() -> None:
    """Clusters of 2 are on a line and batches have 4 pairs. Only greedy batches join neighbours."""
    places = np.arange(64, dtype=np.float32)
    clusters = Clusters(np.repeat(np.arange(64), 2).astype(np.int32), places[:, None], np.zeros(64, dtype=np.int32))

    def spread(packing: str) -> float:
        domains = np.zeros(128, dtype=np.int32)
        sampler = BatchSampler("cluster", domains, batch_size=4, seed=0, clusters=clusters, packing=packing)
        return np.mean([np.ptp(places[clusters.assignment_N[batch]]) for batch in sampler.epoch(0)])

    assert spread("greedy") < 4 < 10 < spread("random")


CLUSTERS = make_clusters(DOMAINS)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("random", {"batch_size": 106}, "batch_size is 106, and the largest of 1 domains has 105"),
        ("domain", {"batch_size": 44}, "batch_size is 44, and the largest of 4 domains has 43"),
        ("cluster", {"clusters": replace(CLUSTERS, assignment_N=CLUSTERS.assignment_N[1:])}, "of 104 pairs"),
        ("cluster", {"clusters": make_clusters(np.zeros(105, dtype=np.int32))}, "made for other domains"),
    ],
)
def test_bad_input_is_refused(kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchSampler(kind, DOMAINS, **{"batch_size": 8, "seed": 0, **changes})


SIZES = (400, 100, 25)
CODES = np.random.default_rng(0).permutation(np.repeat([0, 2, 5], SIZES)).astype(np.int32)
NAMES = ("large", "unused", "medium", "unused", "unused", "small")


def make_mixed(alpha: float, seed: int = 0, batch_size: int = 8) -> MixedSampler:
    return MixedSampler(CODES, alpha=alpha, batch_size=batch_size, seed=seed, names=NAMES)


def read_source(batches: MixedSampler, step: int) -> int:
    """Return the number of the source of a batch."""
    return [0, 2, 5].index(CODES[batches.at(step)[0]])


def test_shares_match_the_equation() -> None:
    """The square roots of the sizes 400, 100 and 25 are 20, 10 and 5."""
    assert compute_mixing_shares(np.array(SIZES), 0.5) == pytest.approx([20 / 35, 10 / 35, 5 / 35])
    assert compute_mixing_shares(np.array(SIZES), 0) == pytest.approx([1 / 3] * 3)
    assert compute_mixing_shares(np.array(SIZES), 1) == pytest.approx([400 / 525, 100 / 525, 25 / 525])


def test_source_batches_are_whole_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source gives all batches of an epoch before the next epoch, also over several blocks of draws."""
    monkeypatch.setattr(mixing, "DRAWS_PER_BLOCK", 16)
    batches = make_mixed(0.5)
    batches_of_source: dict[int, list[np.ndarray]] = {0: [], 1: [], 2: []}
    for step in range(600):
        batches_of_source[read_source(batches, step)].append(batches.at(step))
    for source, size in enumerate(SIZES):
        num_batches, source_batches = size // 8, batches_of_source[source]
        assert len(source_batches) > 2 * num_batches
        for start in range(0, len(source_batches) - num_batches + 1, num_batches):
            assert len(np.unique(source_batches[start : start + num_batches])) == 8 * num_batches
        assert not np.array_equal(source_batches[:num_batches], source_batches[num_batches : 2 * num_batches])
    blocks = {tuple(read_source(batches, 16 * block + offset) for offset in range(16)) for block in range(6)}
    assert len(blocks) == 6, "all blocks differ"


@pytest.mark.parametrize("step", [0, 17, DRAWS_PER_BLOCK - 1, DRAWS_PER_BLOCK, DRAWS_PER_BLOCK + 5])
def test_steps_do_not_depend_on_history(step: int) -> None:
    fresh, used = make_mixed(0.5), make_mixed(0.5)
    for other in (2 * DRAWS_PER_BLOCK, 3, step + 1):
        used.at(other)
    assert np.array_equal(fresh.at(step), used.at(step))
    assert not np.array_equal(fresh.at(step), make_mixed(0.5, seed=1).at(step))


def test_state_covers_all_pairs() -> None:
    batches = make_mixed(0.5)
    assert len(batches) == 400 // 8 + 100 // 8 + 25 // 8
    assert get_sampler_state(batches, len(batches) + 2) == (0, 1, 2)
    assert batches.dropped_pairs.num_in_tails == 400 % 8 + 100 % 8 + 25 % 8


def test_source_below_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch_size=32: 1 of 3 domains .*'small'"):
        make_mixed(0.5, batch_size=32)


def tour_by_brute_force(centroids: np.ndarray, start: int) -> list[int]:
    unvisited, visits = set(range(len(centroids))) - {start}, [start]
    while unvisited:
        current = centroids[visits[-1]].astype(np.float64)
        visits.append(min(unvisited, key=lambda k: float(((centroids[k].astype(np.float64) - current) ** 2).sum())))
        unvisited.remove(visits[-1])
    return visits


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_tour_matches_brute_force(num_centroids: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    centroids = rng.normal(size=(num_centroids, 5)).astype(np.float32)
    start = int(rng.integers(num_centroids))
    assert greedy_tour(centroids, start).tolist() == tour_by_brute_force(centroids, start)


def test_all_cells_give_brute_force_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "NUM_PROBES", 10**6)
    centroids = np.random.default_rng(3).normal(size=(300, 6)).astype(np.float32)
    assert greedy_tour(centroids, 7, small=10).tolist() == tour_by_brute_force(centroids, 7)


def test_cell_tour_is_barely_longer() -> None:
    centroids = np.random.default_rng(4).normal(size=(2000, 6)).astype(np.float32)

    def length(order: np.ndarray | list[int]) -> float:
        return np.linalg.norm(np.diff(centroids[order], axis=0), axis=1).sum()

    cells, exact = greedy_tour(centroids, 11, small=100), greedy_tour(centroids, 11)
    assert cells[0] == 11
    assert sorted(cells.tolist()) == list(range(2000))
    assert length(cells) < 1.03 * length(exact)


def test_equal_centroids_are_all_visited() -> None:
    assert sorted(greedy_tour(np.ones((50, 3), dtype=np.float32), 2, small=5).tolist()) == list(range(50))
