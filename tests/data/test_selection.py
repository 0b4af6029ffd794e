"""Selecting pairs: exact in number, fair between domains, and a function of the seed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.data.pairs import Pairs, Row, read_pairs, write_pairs
from repro.data.selection import select_pairs, shares


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    sizes = {"small": 5, "middle": 100, "large": 900}
    rows = [Row(f"{name}-{i}", "q", "d", name, "s") for name, size in sizes.items() for i in range(size)]
    path: Path = tmp_path_factory.mktemp("pairs") / "train.arrow"
    write_pairs(path, rows)
    return read_pairs(path)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_shares_never_exceed_a_domain(sizes: list[int], part: float, alpha: float) -> None:
    total = round(part * sum(sizes))
    quotas = shares(np.array(sizes), total, alpha)
    assert quotas.sum() == total
    assert ((quotas >= 0) & (quotas <= sizes)).all()


def test_alpha_sets_the_shares() -> None:
    sizes = np.array([100, 400, 1600])
    assert shares(sizes, 210, 0.0).tolist() == [70, 70, 70]
    assert shares(sizes, 210, 0.5).tolist() == [30, 60, 120]
    assert shares(sizes, 210, 1.0).tolist() == [10, 40, 160]


def test_selection_is_unique_and_repeatable(pairs: Pairs) -> None:
    chosen = select_pairs(pairs, 300, seed=0)
    assert len(np.unique(chosen)) == 300
    assert (np.diff(chosen) > 0).all()
    assert np.array_equal(chosen, select_pairs(pairs, 300, seed=0))
    assert not np.array_equal(chosen, select_pairs(pairs, 300, seed=1))


@pytest.mark.parametrize(
    ("num_pairs", "lot", "expected"),
    [(320, 32, [256, 64, 0]), (300, 1, [221, 74, 5]), (488, 256, [392, 96, 0]), (1004, 256, [900, 100, 4])],
    ids=["lots fill batches", "small domains are taken whole", "lots are halved to divide", "lots are halved to fit"],
)
def test_lots_fill_batches(pairs: Pairs, num_pairs: int, lot: int, expected: list[int]) -> None:
    chosen = pairs.take(select_pairs(pairs, num_pairs, seed=0, lot=lot))
    assert chosen.domain_names == ("large", "middle", "small")
    assert np.bincount(chosen.domain_codes, minlength=3).tolist() == expected


def test_too_large_requests_give_all(pairs: Pairs) -> None:
    assert select_pairs(pairs, 10_000, seed=0).tolist() == list(range(1005))
