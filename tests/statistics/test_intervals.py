"""Intervals over few queries, against scipy and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from repro.evaluate.comparison import paired_gaps
from repro.report.query_scores import QueryScores
from repro.statistics.bootstrap import choose_interval, compute_interval, paired_bootstrap, percentile_interval
from repro.statistics.units import stratified_mean

RNG = np.random.default_rng(3)
NO_SAMPLES = np.zeros(0)


def make_rows(sizes: list[int]) -> list[dict[str, object]]:
    return [{"name": f"c{index}", "family": "f", "num_queries": size} for index, size in enumerate(sizes)]


@pytest.mark.parametrize("num_units", [3, 5, 19])
def test_few_units_get_t(num_units: int) -> None:
    values_Q = RNG.normal(size=num_units)
    expected = stats.ttest_1samp(values_Q, 0).confidence_interval(0.95)
    zeros_Q = np.zeros(num_units)
    assert compute_interval(values_Q, zeros_Q, zeros_Q) == pytest.approx(tuple(expected))


def test_strata_are_combined_as_by_welch() -> None:
    first, second = RNG.normal(size=7), RNG.normal(scale=3, size=12)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert choose_interval([first, second], np.array([1.0, -1.0]), NO_SAMPLES) == pytest.approx(tuple(expected))


def test_many_units_are_resampled() -> None:
    values_Q, strata_Q = RNG.normal(size=45), np.repeat([0, 1], [20, 25])
    expected = percentile_interval(paired_bootstrap(values_Q, np.zeros(45), strata_Q))
    assert compute_interval(values_Q, np.zeros(45), strata_Q) == expected


@pytest.mark.parametrize("sizes", [[2], [3], [5], [8], [2] * 20, [3] * 20, [1, 2, 3, 30], [10] * 13])
def test_intervals_cover_no_difference(sizes: list[int]) -> None:
    """Of draws without a difference, about 5 % have an interval without zero, or there is no interval."""
    rows, num_misses, num_trials = make_rows(sizes), 0, 400
    rng = np.random.default_rng(0)
    for _ in range(num_trials):
        first_Q = rng.normal(0.5, 0.2, sum(sizes))
        gap = paired_gaps(first_Q, first_Q + rng.normal(0, 0.1, sum(sizes)), rows)["mean"]
        num_misses += gap.interval is not None and gap.interval[0] * gap.interval[1] > 0
    assert num_misses / num_trials <= 0.08
    assert (num_misses > 0) == (sum(sizes) > 2)


@pytest.mark.parametrize("num_queries", [2, 16, 40])
def test_equal_scores_have_no_interval(num_queries: int) -> None:
    """An interval of zero width would say that other queries change nothing."""
    perfect = QueryScores.of("a", np.ones(num_queries), make_rows([num_queries]))
    assert perfect.interval() is None and perfect.interval(perfect) is None
    gap = paired_gaps(np.ones(num_queries), np.ones(num_queries), make_rows([num_queries]))["mean"]
    assert gap.as_metrics("x") == {"x/difference": 0.0}


def test_stratified_mean_is_exact() -> None:
    strata_Q = np.array([0, 0, 0, 2, 2, 5])
    values_Q = RNG.random(len(strata_Q))
    means = [values_Q[strata_Q == stratum].mean() for stratum in (0, 2, 5)]
    assert stratified_mean(values_Q, strata_Q) == float(np.mean(means))
