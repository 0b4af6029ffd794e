"""Intervals over queries, against scipy and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from repro.evaluate.comparison import paired_gaps
from repro.report.query_scores import QueryScores
from repro.statistics.bootstrap import choose_interval, compute_interval, paired_bootstrap, percentile_interval
from repro.statistics.units import stratified_mean

RNG = np.random.default_rng(3)


def make_rows(sizes: list[int]) -> list[dict[str, object]]:
    return [{"name": f"c{index}", "family": "f", "num_queries": size} for index, size in enumerate(sizes)]


@pytest.mark.parametrize("num_units", [3, 5, 19])
def test_few_units_get_t(num_units: int) -> None:
    values_Q, zeros_Q = RNG.normal(size=num_units), np.zeros(num_units)
    expected = stats.ttest_1samp(values_Q, 0).confidence_interval(0.95)
    assert compute_interval(values_Q, zeros_Q, zeros_Q) == pytest.approx(tuple(expected))


def test_strata_are_combined_as_by_welch() -> None:
    first, second = RNG.normal(size=7), RNG.normal(scale=3, size=12)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert choose_interval([first, second], np.array([1.0, -1.0]), lambda: np.zeros(0)) == pytest.approx(
        tuple(expected)
    )


def test_many_units_are_resampled() -> None:
    values_Q, strata_Q = RNG.normal(size=45), np.repeat([0, 1], [20, 25])
    expected = percentile_interval(paired_bootstrap(values_Q, np.zeros(45), strata_Q))
    assert compute_interval(values_Q, np.zeros(45), strata_Q) == expected


@pytest.mark.parametrize("sizes", [[2], [3], [5], [8], [2] * 20, [3] * 20, [1, 2, 3, 30], [10] * 13])
def test_intervals_cover_no_difference(sizes: list[int]) -> None:
    """Of draws without a difference, about 5 % have an interval without zero, or there is no interval."""
    rng, zeros_Q, num_misses, num_trials = np.random.default_rng(0), np.zeros(sum(sizes)), 0, 400
    strata_Q = np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(num_trials):
        interval = compute_interval(rng.normal(0, 0.1, sum(sizes)), zeros_Q, strata_Q)
        num_misses += interval is not None and interval[0] * interval[1] > 0
    assert num_misses / num_trials <= 0.08
    assert (num_misses > 0) == (sum(sizes) > 2)


@pytest.mark.parametrize("num_queries", [2, 16, 40])
def test_equal_scores_have_no_interval(num_queries: int) -> None:
    """An interval of zero width would say that other queries change nothing."""
    perfect = QueryScores.of("a", np.ones(num_queries), make_rows([num_queries]))
    assert perfect.interval() is None and perfect.interval(perfect) is None
    gap = paired_gaps(np.ones(num_queries), np.ones(num_queries), make_rows([num_queries]))["mean"]
    assert gap.as_metrics("x") == {"x/difference": 0.0}


def test_strata_weigh_the_same() -> None:
    rng = np.random.default_rng(1)
    strata = np.repeat([0, 1, 2], [400, 40, 4])
    gap = rng.normal(strata.astype(float), 1)
    samples = paired_bootstrap(gap, np.zeros(444), strata, num_samples=4000)
    parts = [gap[strata == stratum] for stratum in range(3)]
    assert stratified_mean(gap, strata) == pytest.approx(np.mean([part.mean() for part in parts]))
    assert samples.mean() == pytest.approx(stratified_mean(gap, strata), abs=0.02)
    assert samples.std() == pytest.approx(np.sqrt(sum(part.var() / len(part) for part in parts)) / 3, rel=0.06)


def test_comparisons_share_their_draws() -> None:
    """The draws depend on the seed alone, so that effects add up and difficulty that two systems share cancels."""
    a, b, c = (np.random.default_rng(seed).normal(size=60) for seed in range(3))
    strata = np.arange(60) % 3
    direct = paired_bootstrap(a, c, strata)
    np.testing.assert_allclose(direct, paired_bootstrap(a, b, strata) + paired_bootstrap(b, c, strata))
    with pytest.raises(ValueError, match="units do not pair up"):
        paired_bootstrap(np.ones(3), np.ones(4), np.zeros(3))
