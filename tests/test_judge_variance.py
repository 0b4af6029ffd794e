"""Seeds are the unit: t-tests as scipy has them, variances moderated as Smyth's, intervals that agree with verdicts."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import polygamma
from statsmodels.stats.anova import AnovaRM

from repro.claims.estimate import of_seeds
from repro.claims.judge import interval_of
from repro.claims.variance import Pool, Prior, fit_prior, inverse_trigamma, shared_variance
from repro.claims.varies import best_differs, interaction_of, interaction_test, query_noise
from repro.records.store import Record
from repro.spec import Unit, base, grid

POINTS = Unit("points", 100.0)


@pytest.mark.parametrize("num_seeds", [2, 3, 8])
def test_seeds_alone_are_a_t_test(num_seeds: int) -> None:
    values = np.random.default_rng(num_seeds).normal(0.3, 1, num_seeds)
    found = of_seeds(values, POINTS, moderated=None, shared=0.0, shared_df=1)
    theirs = stats.ttest_1samp(values, 0.1)
    assert 2 * min(found.above(0.1), found.below(0.1)) == pytest.approx(theirs.pvalue)
    assert found.interval(0.05) == pytest.approx(tuple(theirs.confidence_interval(0.95)))


def test_two_one_sided_tests_agree_with_the_interval() -> None:
    values = np.random.default_rng(1).normal(0.0, 1, 6)
    found = of_seeds(values, POINTS, moderated=None, shared=0.0, shared_df=1)
    low, high = found.interval(0.05) or (0.0, 0.0)
    delta = max(-low, high)  # the interval just fits
    assert found.inside(delta) == pytest.approx(0.05) and found.inside(delta * 1.01) < 0.05 < found.inside(delta * 0.99)
    sides = [stats.ttest_1samp(values, -1.5, alternative="greater"), stats.ttest_1samp(values, 1.5, alternative="less")]
    assert found.inside(1.5) == pytest.approx(2 * max(side.pvalue for side in sides))


def test_a_variance_is_moderated_by_hand() -> None:
    prior = Prior(variance=4.0, df=6.0, pooled_df=100.0)
    assert prior.moderate(1.0, 2) == (pytest.approx((6 * 4 + 2 * 1) / 8), 8)
    assert prior.moderate(0.0, 0) == (pytest.approx(4.0), 6), "one seed: the prior alone"
    assert Prior(4.0, 6.0, 5.0).moderate(1.0, 2)[1] == 5, "no more degrees of freedom than the pool has"


def test_the_inverse_of_the_trigamma_function() -> None:
    for value in (0.01, 0.5, 1.6449, 30.0):
        assert float(polygamma(1, inverse_trigamma(value))) == pytest.approx(value)
    assert inverse_trigamma(math.pi**2 / 6) == pytest.approx(1.0), "trigamma(1) is pi²/6"


def test_a_prior_is_found_again_and_never_firmer_than_the_truth() -> None:
    rng = np.random.default_rng(2)
    variances = 4.0 * 8 / rng.chisquare(8, 4000)  # 8 degrees of freedom around 4
    prior = fit_prior([list(rng.normal(0, math.sqrt(variance), 4)) for variance in variances])
    assert prior is not None and prior.variance == pytest.approx(4.0, rel=0.1)
    assert 5 < prior.df < 8.8 and prior.pooled_df == 12000


def test_nine_configurations_are_no_pool() -> None:
    groups = [list(row) for row in np.random.default_rng(3).normal(size=(9, 3))]
    assert fit_prior(groups) is None and fit_prior([*groups, [1.0, 2.0, 4.0]]) is not None


def test_a_pool_takes_the_replicates_of_one_suite() -> None:
    runs = grid(base("desk"), num_warmup_steps=tuple(range(1, 13)), seed=(0, 1, 2))
    rng = np.random.default_rng(4)
    made = [Record("", run, {"desk/mean/ndcg_at_10": rng.normal(0, 0.01)}, {}, Path()) for run in runs]
    prior = Pool(made).prior("desk", (("{suite}/mean/ndcg_at_10", 1.0),))
    assert prior is not None and prior.variance == pytest.approx(1e-4, rel=0.7)
    assert Pool(made).prior("planted", (("{suite}/mean/ndcg_at_10", 1.0),)) is None


def test_what_queries_leave_is_what_seeds_share() -> None:
    """Expected mean squares: the shared part is found, the part that each seed draws anew is not."""
    rng, found, strata = np.random.default_rng(5), [], np.repeat([0, 1], [50, 25])
    for _ in range(300):
        shared, own = rng.normal(0, 2, 75), rng.normal(0, 3, (4, 75))
        found.append(shared_variance(shared + own, strata)[0])
    assert np.mean(found) == pytest.approx((4 / 50 + 4 / 25) / 4, rel=0.1)
    assert shared_variance(np.ones((3, 75)), strata) == (0, math.inf)


def test_queries_of_two_datasets_are_welchs_test() -> None:
    """One seed: the mean of two datasets' means is half the difference of one and of the other turned over."""
    rng = np.random.default_rng(11)
    few, many = rng.normal(0.4, 3, 7), rng.normal(0.1, 0.5, 40)
    shared, df = shared_variance(np.concatenate([few, many])[None], np.repeat([0, 1], [7, 40]))
    found = of_seeds(
        np.array([(few.mean() + many.mean()) / 2]), POINTS, moderated=(0.0, math.inf), shared=shared, shared_df=df
    )
    theirs = stats.ttest_ind(few, -many, equal_var=False)
    assert found.df == pytest.approx(theirs.df) and found.df < 7
    assert 2 * min(found.above(0), found.below(0)) == pytest.approx(theirs.pvalue)
    assert found.interval(0.05) == pytest.approx(tuple(end / 2 for end in theirs.confidence_interval(0.95)))


def test_what_is_known_of_queries_is_as_uncertain_as_its_degrees_of_freedom_say() -> None:
    """A variance with so many degrees of freedom has twice its square over them as its own variance."""
    rng, strata = np.random.default_rng(13), np.repeat([0, 1], [40, 20])
    drawn = (rng.normal(0, 2, 60) + rng.normal(0, 1.5, (3, 60)) for _ in range(2000))
    found, df = np.array([shared_variance(scores, strata) for scores in drawn]).T
    assert np.median(df) == pytest.approx(2 * found.mean() ** 2 / found.var(), rel=0.15)
    assert np.median(df) < 45, "58 are free: seeds and the smaller dataset take some of them"


def test_an_interaction_is_statsmodels_anova() -> None:
    scores = np.random.default_rng(6).normal(size=(5, 4, 3))
    scores[:, 1, 2] += 4
    rows = [
        {"seed": s, "dataset": d, "setting": k, "score": scores[s, d, k]}
        for s in range(5)
        for d in range(4)
        for k in range(3)
    ]
    table = AnovaRM(pd.DataFrame(rows), "score", "seed", within=["dataset", "setting"]).fit().anova_table
    found = interaction_test(scores)
    assert found.words.endswith(f"= {table.loc['dataset:setting', 'F Value']:.2f}")
    assert found.p_value >= table.loc["dataset:setting", "Pr > F"], "Box's epsilon only makes it stricter"


def test_what_setting_and_dataset_add_is_no_interaction() -> None:
    rows, columns = np.arange(4.0)[None, :, None], np.array([3.0, 1.0, 2.0])[None, None]
    assert np.allclose(interaction_of(rows + columns + np.zeros((3, 4, 3))), 0)
    crossed = np.zeros((3, 2, 2)) + np.array([[1.0, 0.0], [0.0, 1.0]])
    assert best_differs(crossed) and not best_differs(np.zeros((3, 2, 2)) + np.array([[1.0, 0.0], [2.0, 0.0]]))


def query_scores(rng: np.random.Generator, num_seeds: int) -> list[np.ndarray]:
    """Scores of four datasets (S, Q, 3 settings): nothing but what queries leave, most of it shared by the seeds."""
    shape = (30, 3)
    return [rng.normal(0, 3, shape) + rng.normal(0, 1, (num_seeds, *shape)) for _ in range(4)]


def test_the_same_queries_again_are_no_interaction_of_dataset_and_setting() -> None:
    rng, alone, beside = np.random.default_rng(8), 0, 0
    for _ in range(200):
        parts = query_scores(rng, 5)
        table = np.stack([part.mean(axis=1) for part in parts], axis=1)
        noise = [query_noise(part, np.zeros(30)) for part in parts]
        alone += interaction_test(table).p_value <= 0.05
        beside += interaction_test(table, noise).p_value <= 0.05
    assert alone > 100, "seeds alone take the noise of queries for a result"
    assert beside <= 200 * (0.05 + 3 * math.sqrt(0.05 * 0.95 / 200))


def test_what_queries_leave_in_a_row_of_settings_is_found_by_drawing_them_again() -> None:
    rng = np.random.default_rng(9)
    found = np.mean([query_noise(query_scores(rng, 4)[0], np.zeros(30)).size for _ in range(300)])
    assert found == pytest.approx(2 * 9 / 30, rel=0.05), "two free of three settings; the seeds' own part is taken off"
    values = rng.normal(size=(1, 30, 3))
    whole, halves = query_noise(values, np.zeros(30)), query_noise(values, np.repeat([0, 1], 15))
    assert (whole.df, halves.df) == (29, 28) and halves.size == pytest.approx(whole.size, rel=0.2)


def test_the_upper_end_of_the_weakest_of_many_is_corrected_for_their_number() -> None:
    """The weakest of ten equal effects is low by choice: its interval must reach the truth all the same."""
    rng, below, number = np.random.default_rng(10), 0, 600
    for _ in range(number):
        found = [of_seeds(v, POINTS, moderated=None, shared=0.0, shared_df=1) for v in rng.normal(size=(10, 5))]
        _, high = interval_of(min(found, key=lambda one: one.effect / one.error), 0.05, 10)
        below += high is not None and high < 0
    assert below / number <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / number)
