"""Intervals, against scipy, statsmodels, plain loops and simulated truth."""

import numpy as np
import pytest
from scipy import stats

from repro.statistics.bootstrap import paired_bootstrap, percentile_interval
from repro.statistics.units import stratified_mean


def test_one_stratum_and_one_seed_is_the_bootstrap_of_scipy() -> None:
    rng = np.random.default_rng(0)
    better, worse = rng.normal(0.3, 1, 200), rng.normal(0, 1, 200)
    ours = paired_bootstrap(better, worse, np.zeros(200, int), num_samples=5000)
    theirs = stats.bootstrap((better - worse,), np.mean, n_resamples=5000, method="percentile", rng=1)
    low, high = percentile_interval(ours)
    assert ours.std() == pytest.approx(theirs.standard_error, rel=0.05)
    assert (low, high) == pytest.approx(tuple(theirs.confidence_interval), abs=0.02)


def test_strata_weigh_the_same_whatever_their_size() -> None:
    rng = np.random.default_rng(1)
    strata = np.repeat([0, 1, 2], [400, 40, 4])
    gap = rng.normal(strata.astype(float), 1)
    samples = paired_bootstrap(gap, np.zeros(444), strata, num_samples=4000)
    parts = [gap[strata == name] for name in range(3)]
    assert stratified_mean(gap, strata) == pytest.approx(np.mean([part.mean() for part in parts]))
    assert samples.mean() == pytest.approx(stratified_mean(gap, strata), abs=0.02)
    assert samples.std() == pytest.approx(np.sqrt(sum(part.var() / len(part) for part in parts)) / 3, rel=0.06)


def test_what_two_systems_share_cancels() -> None:
    hard = np.random.default_rng(2).normal(size=100) * 50
    np.testing.assert_allclose(paired_bootstrap(hard + 1, hard, np.arange(100) % 5), 1, atol=1e-9)


def test_the_same_seed_gives_the_same_draw_for_other_systems() -> None:
    a, b, c = (np.random.default_rng(n).normal(size=60) for n in range(3))
    strata = np.arange(60) % 3
    direct = paired_bootstrap(a, c, strata)
    np.testing.assert_allclose(direct, paired_bootstrap(a, b, strata) + paired_bootstrap(b, c, strata))


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    strata, truth, hits = np.repeat([0, 1], [60, 30]), 0.2, 0
    for trial in range(300):
        rng = np.random.default_rng(trial)
        shared = rng.normal(size=90)
        better, worse = shared + rng.normal(truth, 1, 90), shared + rng.normal(0, 1, 90)
        low, high = percentile_interval(paired_bootstrap(better, worse, strata, num_samples=300, seed=trial))
        hits += low <= truth <= high
    assert 0.90 <= hits / 300 <= 0.98


def test_bad_input_is_one_clear_line() -> None:
    with pytest.raises(ValueError, match="units do not pair up"):
        paired_bootstrap(np.ones(3), np.ones(4), np.zeros(3))
