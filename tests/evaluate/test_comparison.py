"""Differences by collection and family: plain means, with the intervals that scipy gives."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from repro.data.beir import group_datasets
from repro.evaluate.comparison import paired_gaps
from repro.statistics.bootstrap import paired_bootstrap, percentile_interval

ROWS = [
    {"name": "ants", "family": "insects", "num_queries": 120},
    {"name": "oaks", "family": "trees", "num_queries": 80},
    {"name": "bees", "family": "insects", "num_queries": 200},
]
RNG = np.random.default_rng(0)
FIRST_Q, SECOND_Q = RNG.random(400).astype(np.float32), RNG.random(400).astype(np.float32) * 0.9
PARTS = {"ants": slice(0, 120), "oaks": slice(120, 200), "bees": slice(200, 400)}


def test_a_familys_difference_is_the_mean_of_its_collections() -> None:
    found = paired_gaps(FIRST_Q, SECOND_Q, ROWS)
    own = {name: float((FIRST_Q - SECOND_Q)[part].mean()) for name, part in PARTS.items()}
    for name, value in own.items():
        assert found[name].difference == pytest.approx(value, abs=1e-6)
    assert found["insects"].difference == pytest.approx((own["ants"] + own["bees"]) / 2, abs=1e-6)
    assert found["trees"].difference == pytest.approx(own["oaks"], abs=1e-6)
    assert found["mean"].difference == pytest.approx(sum(own.values()) / 3, abs=1e-6)
    assert group_datasets(ROWS) == {
        "ants": [0],
        "oaks": [1],
        "bees": [2],
        "insects": [0, 2],
        "trees": [1],
        "mean": [0, 1, 2],
    }


def test_a_collections_interval_is_that_of_scipy() -> None:
    found = paired_gaps(FIRST_Q, SECOND_Q, ROWS)["bees"]
    pair = (FIRST_Q[PARTS["bees"]], SECOND_Q[PARTS["bees"]])
    expected = bootstrap(pair, lambda a, b, axis=-1: (a - b).mean(axis), paired=True, method="percentile", rng=1)
    low, high = map(float, expected.confidence_interval)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_the_means_interval_is_that_of_resampling_within_collections() -> None:
    found = paired_gaps(FIRST_Q, SECOND_Q, ROWS)["mean"]
    strata_Q = np.repeat(np.arange(3), [row["num_queries"] for row in ROWS])
    low, high = percentile_interval(paired_bootstrap(FIRST_Q, SECOND_Q, strata_Q))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1 * (high - low))
    assert found.as_metrics("x/mean") == {
        "x/mean/difference": found.difference,
        "x/mean/low": found.low,
        "x/mean/high": found.high,
    }


def test_collections_of_equal_size_are_resampled_by_themselves() -> None:
    rows = [{"name": name, "family": "f", "num_queries": 100} for name in "ab"]
    found = paired_gaps(np.tile(FIRST_Q[:100], 2), np.tile(SECOND_Q[:100], 2), rows)
    apart = np.corrcoef(found["a"].samples_R, found["b"].samples_R)[0, 1]
    assert abs(apart) < 0.1, "one draw for both would make the family's interval as wide as a collection's"


def test_equal_rankings_differ_by_nothing() -> None:
    found = paired_gaps(FIRST_Q, FIRST_Q, ROWS)["mean"]
    assert (found.difference, found.low, found.high) == (0.0, 0.0, 0.0)


def test_queries_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ValueError, match="399 queries do not pair up with 400"):
        paired_gaps(FIRST_Q, SECOND_Q[:-1], ROWS)
