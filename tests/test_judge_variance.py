"""Seeds are the unit: t-tests as scipy has them, variances moderated as Smyth's, intervals that agree with verdicts."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import polygamma

from repro.claims.calibration import SimulatedRecord
from repro.claims.contrasts import Contrast, contrasts_of, estimate, prior_of
from repro.claims.estimate import Estimate, of_seeds
from repro.claims.evidence import Evidence, evidence_for
from repro.claims.judge import judge_all, measure, p_values
from repro.claims.levels import interval_for, interval_of, up_to_the_bar
from repro.claims.variance import Pool, Prior, fit_prior, inverse_trigamma, shared_variance, variance_of
from repro.claims.varies import leads_of
from repro.records.store import Record
from repro.report.needed import needed_words
from repro.spec import Claim, Unit, base, grid, term

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


@pytest.mark.parametrize("sign", [1, -1])
def test_what_several_comparisons_say_is_said_by_t_tests_and_one_that_differs_is_corrected_for_their_number(
    sign: int,
) -> None:
    values = np.random.default_rng(21).normal([[2.5], [0.5], [-1.5]], 1, (3, 6))
    found = [of_seeds(one, POINTS, moderated=None, shared=0.0, shared_df=1) for one in values]
    said = {"says": "s", "source": "s", "because": "b"}
    directed = Claim.trend("X.t", over=term("m"), axis="seed", sign=sign, margin=0.1, delta=0.9, **said)
    alike = Claim.equivalence("X.e", pairs=[(term("m"), term("m", seed=1))], delta=0.9, **said)

    def p(bar: float, side: str, turned: int = sign) -> np.ndarray:
        return np.array([stats.ttest_1samp(turned * one, bar, alternative=side).pvalue for one in values])

    within = 2 * np.maximum(p(-0.9, "greater"), p(0.9, "less")).max()
    beyond = 2 * 3 * np.minimum(p(0.9, "greater"), p(-0.9, "less")).min()
    expected = {"HOLDS": 2 * p(0.1, "greater").max(), "DIFFERS": 2 * 3 * p(0.1, "less").min(), "NO EFFECT": within}
    assert p_values(directed, found) == pytest.approx({name: min(1, value) for name, value in expected.items()})
    assert p_values(alike, found) == pytest.approx({"HOLDS": min(1, within), "DIFFERS": min(1, beyond)})


@pytest.mark.parametrize(("axis", "shift"), [("batch_size", 0), ("num_hard_negatives", 1)])
def test_a_trend_is_the_mean_slope_of_its_groups_on_log2_of_the_axis_or_of_one_more_where_it_has_a_zero(
    axis: str, shift: int
) -> None:
    values = {"batch_size": (32, 128, 512), "num_hard_negatives": (0, 1, 6)}[axis]
    runs = grid(base("desk"), **{axis: values, "max_tokens": (16, 32), "num_warmup_steps": (1, 2)})
    of = {run: float(y) for run, y in zip(runs, np.random.default_rng(22).normal(size=12), strict=True)}
    claim = Claim.trend(
        "X.t", over=term("m"), axis=axis, within="max_tokens", sign=1, says="s", source="s", because="b"
    )
    (found,) = contrasts_of(claim, SimpleNamespace(systems={claim.over: runs}))
    slopes = []
    for length in (16, 32):
        own = [run for run in runs if run.max_tokens == length]
        x, y = [np.log2(getattr(run, axis) + shift) for run in own], [of[run] for run in own]
        slopes.append(stats.linregress(x, y).slope)
    assert sum(weight * of[run] for (run, _), weight in found.weights.items()) == pytest.approx(np.mean(slopes))


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
    prior = fit_prior(variance_of(list(rng.normal(0, math.sqrt(variance), 4))) for variance in variances)
    assert prior is not None and prior.variance == pytest.approx(4.0, rel=0.1)
    assert 5 < prior.df < 8.8 and prior.pooled_df == 12000


def test_nine_configurations_are_no_pool() -> None:
    variances = [variance_of(list(row)) for row in np.random.default_rng(3).normal(size=(9, 3))]
    assert fit_prior(variances) is None and fit_prior([*variances, variance_of([1.0, 2.0, 4.0])]) is not None
    assert fit_prior([*variances, variance_of([1.0])]) is None, "one seed has no variance"


def test_a_pool_takes_the_replicates_of_one_suite() -> None:
    runs = grid(base("desk"), num_warmup_steps=tuple(range(1, 13)), seed=(0, 1, 2))
    rng = np.random.default_rng(4)
    made = [Record("", run, {"desk/mean/ndcg_at_10": rng.normal(0, 0.01)}, {}, Path()) for run in runs]
    prior = Pool(made).prior("desk", (("{suite}/mean/ndcg_at_10", 1.0),))
    assert prior is not None and prior.variance == pytest.approx(1e-4, rel=0.7)
    assert Pool(made).prior("planted", (("{suite}/mean/ndcg_at_10", 1.0),)) is None


def test_a_training_that_is_scored_in_several_ways_counts_once_in_a_pool() -> None:
    """Else the pool would seem to know its variances several times as well as it does."""
    rng, ndcg = np.random.default_rng(4), "{suite}/mean/ndcg_at_10"
    runs = grid(base("desk"), num_warmup_steps=tuple(range(1, 13)), seed=(0, 1, 2))
    made = [Record("", run, {"desk/mean/ndcg_at_10": rng.normal(0, 0.01)}, {}, Path()) for run in runs]
    again = [replace(one, run=replace(one.run, test_contexts=way)) for one in made for way in ("wrong", "null")]
    once = Pool(made).prior("desk", ((ndcg, 1.0),))
    assert once is not None and once.pooled_df == 24
    assert Pool([*made, *again]).prior("desk", ((ndcg, 1.0),)) == Prior(
        pytest.approx(once.variance), pytest.approx(once.df), 24
    )
    apart = [replace(one, metrics={name: 3 * value for name, value in one.metrics.items()}) for one in again]
    both = Pool([*made, *apart]).prior("desk", ((ndcg, 1.0),))
    assert both is not None and both.variance == pytest.approx((1 + 9 + 9) / 3 * once.variance), "a mean over the ways"


def test_the_prior_of_a_contrast_is_that_of_one_run_times_the_sum_of_its_squared_weights() -> None:
    rng, ndcg = np.random.default_rng(4), "{suite}/mean/ndcg_at_10"
    runs = grid(base("desk"), num_warmup_steps=tuple(range(1, 13)), seed=(0, 1, 2))
    pool = Pool([Record("", run, {"desk/mean/ndcg_at_10": rng.normal(0, 0.01)}, {}, Path()) for run in runs])
    one = pool.prior("desk", ((ndcg, 1.0),))
    compared = zip(grid(base("desk"), batch_size=(32, 64, 128)), (0.5, 0.5, -1.0), strict=True)
    found = prior_of(Contrast({(run, ndcg): weight for run, weight in compared}, POINTS), pool)
    assert one is not None and found == Prior(pytest.approx(1.5 * one.variance), one.df, one.pooled_df)


def test_numbers_of_one_run_have_the_prior_of_their_weighted_sum() -> None:
    numbers = np.random.default_rng(5).normal(0, 0.01, (12, 3, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    runs = grid(base("desk"), num_warmup_steps=tuple(range(1, 13)), seed=(0, 1, 2))
    made = [
        Record("", run, {"a": a, "b": b}, {}, Path()) for run, (a, b) in zip(runs, numbers.reshape(-1, 2), strict=True)
    ]
    found = prior_of(Contrast({(base("desk"), "a"): 2.0, (base("desk"), "b"): -1.0}, POINTS), Pool(made))
    expected = fit_prior(variance_of(list(group @ [2.0, -1.0])) for group in numbers)
    assert expected is not None and found == Prior(*map(pytest.approx, (expected.variance, expected.df, 24)))


PAIR = {"contextual": 1.0, "biencoder": -1.0}


def one_seed_beside(values_S: np.ndarray, own: float) -> Estimate:
    """Return what seed 9 says of a difference of two models, beside so many other seeds in the published records."""
    differences = {9: own, **dict(enumerate(values_S))}
    made = [
        SimulatedRecord("", base("desk", architecture=name, seed=seed), {"train/loss": loss}, {}, Path())
        for seed, difference in differences.items()
        for name, loss in (("contextual", 1.0 + difference), ("biencoder", 1.0))
    ]
    systems = {name: base("desk", architecture=name) for name in PAIR}
    own_ones = {systems[one.run.architecture]: {9: one} for one in made if one.run.seed == 9}
    contrast = Contrast({(systems[name], "train/loss"): weight for name, weight in PAIR.items()}, POINTS)
    return estimate(contrast, Evidence({}, own_ones, (9,), False), Pool(made))


def test_one_seed_is_judged_with_the_spread_of_the_same_comparison_over_the_published_seeds_but_its_own() -> None:
    values_S = np.array([0.1, 0.4, 0.2, 0.3, 0.6])
    found = one_seed_beside(values_S, 0.25)
    assert (found.effect, found.df) == (pytest.approx(0.25), 4)
    assert found.error == pytest.approx(values_S.std(ddof=1))
    assert "one seed, judged with the published spread" in found.note
    alone = one_seed_beside(values_S[:1], 0.25)
    assert not alone.is_known, "one other seed has no spread"


def test_one_seed_beside_published_ones_errs_as_often_as_it_is_set_to() -> None:
    rng = np.random.default_rng(3)
    drawn = [one_seed_beside(rng.normal(0, 1, 5), float(rng.normal(0, 1))) for _ in range(1000)]
    false = sum(2 * min(found.above(0.0), found.below(0.0)) < 0.05 for found in drawn)
    assert 20 < false < stats.binom.isf(0.001, 1000, 0.05)


def halves(values_SQ: np.ndarray, first: int) -> list[np.ndarray]:
    """What the units of two datasets add to the mean of both."""
    return [values_SQ[:, :first] / 2, values_SQ[:, first:] / 2]


def test_what_queries_leave_is_what_seeds_share() -> None:
    """Expected mean squares: the shared part is found, the part that each seed draws anew is not."""
    rng, found = np.random.default_rng(5), []
    for _ in range(300):
        shared, own = rng.normal(0, 2, 75), rng.normal(0, 3, (4, 75))
        found.append(shared_variance(halves(shared + own, 50))[0])
    assert np.mean(found) == pytest.approx((4 / 50 + 4 / 25) / 4, rel=0.1)
    assert shared_variance(halves(np.ones((3, 75)), 50)) == (0, math.inf)


def test_where_seeds_leave_nearly_all_of_it_the_whole_stands_for_what_units_leave() -> None:
    rng, swapped = np.random.default_rng(4), 0
    for _ in range(200):
        values_SQ = rng.normal(0, 1, (4, 5))
        variance, df = shared_variance([values_SQ])
        whole = values_SQ.mean(axis=0).var(ddof=1) / 5
        assert df >= 3 or not variance
        if variance and df == pytest.approx(4):
            swapped += variance == pytest.approx(whole)
    assert swapped > 20


def test_queries_of_two_datasets_are_welchs_test() -> None:
    """One seed: the mean of two datasets' means is half the difference of one and of the other turned over."""
    rng = np.random.default_rng(11)
    few, many = rng.normal(0.4, 3, 7), rng.normal(0.1, 0.5, 40)
    shared, df = shared_variance(halves(np.concatenate([few, many])[None], 7))
    found = of_seeds(
        np.array([(few.mean() + many.mean()) / 2]), POINTS, moderated=(0.0, math.inf), shared=shared, shared_df=df
    )
    theirs = stats.ttest_ind(few, -many, equal_var=False)
    assert found.shared_df == pytest.approx(theirs.df) and found.shared_df < 7
    assert 2 * min(found.above(0), found.below(0)) == pytest.approx(theirs.pvalue)
    assert found.interval(0.05) == pytest.approx(tuple(end / 2 for end in theirs.confidence_interval(0.95)))


def test_what_is_known_of_queries_is_as_uncertain_as_its_degrees_of_freedom_say() -> None:
    """A variance with so many degrees of freedom has twice its square over them as its own variance."""
    rng = np.random.default_rng(13)
    drawn = (rng.normal(0, 2, 60) + rng.normal(0, 1.5, (3, 60)) for _ in range(2000))
    found, df = np.array([shared_variance(halves(scores, 40)) for scores in drawn]).T
    assert np.median(df) == pytest.approx(2 * found.mean() ** 2 / found.var(), rel=0.15)
    assert np.median(df) < 45, "58 are free: seeds and the smaller dataset take some of them"


def by_dataset(rng: np.random.Generator, gains_KD: list[list[float]], num_seeds: int) -> list[Record]:
    """Records of a few widths on datasets of 200 queries, which gain as told and share their queries' noise."""
    number = len(gains_KD[0])
    told = {"suite": {"datasets": [{"name": f"set{d}", "family": "f", "num_queries": 200} for d in range(number)]}}
    found = []
    for width, gains_D in zip((32, 64, 128), gains_KD, strict=True):
        shared = rng.normal(0, 0.05, (number, 200)) + np.array(gains_D)[:, None]
        for seed in range(num_seeds):
            scores = shared + rng.normal(0, 0.004, (number, 1)) + rng.normal(0, 0.02, (number, 200))
            metrics = {f"desk/set{d}/ndcg_at_10": float(scores[d].mean()) for d in range(number)}
            run = base("desk", batch_size=width, seed=seed)
            made = SimulatedRecord(f"{width}-{seed}", run, metrics, told, Path(), {}, scores.ravel())
            found.append(made)
    return found


VARIES = Claim.varies(
    "X.v", "the best width differs", over=term("{suite}/*/ndcg_at_10"), axis="batch_size", source="here", because="test"
)


def test_the_best_setting_differs_where_two_datasets_have_leaders_of_their_own() -> None:
    rng = np.random.default_rng(6)
    made = by_dataset(rng, [[0, 0, 0], [0.05, 0, -0.05], [-0.05, 0, 0.05]], 5)
    (judged,) = judge_all([VARIES], "desk", [one.run for one in made], made)
    assert judged.verdict == "HOLDS" and judged.effect == pytest.approx(0.05, abs=0.02)
    assert judged.note == "on set0 64 against 32; on set2 128 against 32"
    (low, high) = (judged.low or 0.0, judged.high or 0.0)
    assert 0 < low < judged.effect < high


def test_two_leaders_are_held_to_as_many_ways_as_there_are_to_a_false_one() -> None:
    """Three datasets, on each of which any of the two widths that are not best may lead falsely: six ways."""
    made = by_dataset(np.random.default_rng(6), [[0, 0, 0], [0.01, 0, -0.01], [-0.01, 0, 0.01]], 5)
    evidence = evidence_for(VARIES, [one.run for one in made], {one.run: one for one in made})
    leads = leads_of(VARIES, evidence, Pool())
    assert 0 < leads.stronger.p_value <= leads.weaker.p_value == leads.weaker.found.above(0.0)
    assert (leads.weaker.dataset, leads.weaker.setting) != (leads.stronger.dataset, leads.stronger.setting)
    assert measure(VARIES, evidence, Pool()).p_values == {"HOLDS": pytest.approx(6 * leads.weaker.p_value)}
    (judged,) = judge_all([VARIES], "desk", [one.run for one in made], made)
    assert (judged.low, judged.high) == pytest.approx(leads.weaker.found.interval(2 * 0.05 / 6))


def test_seeds_that_draw_units_of_their_own_are_compared_in_all_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    level = {32: 0.5, 64: 0.4}
    runs = grid(base("desk"), batch_size=tuple(level), seed=(0, 1, 2))
    drawn = {run: np.full(10 + run.seed, level[run.batch_size]) + 1e-6 * np.arange(10 + run.seed) for run in runs}
    monkeypatch.setattr(SimulatedRecord, "arrays", property(lambda record: {"own/thing": drawn[record.run]}))
    made = [SimulatedRecord("", run, {"own/thing": float(drawn[run].mean())}, {}, Path(), {}, None) for run in runs]
    terms = term("own/thing", batch_size=32), term("own/thing", batch_size=64)
    claim = Claim.order("x.1", says="a", source="s", because="b", pairs=[terms])
    (judged,) = judge_all([claim], "desk", runs, made)
    assert judged.effect == pytest.approx(0.1)


def test_leads_that_are_not_seen_name_the_lead_that_their_seeds_would_have_seen() -> None:
    made = by_dataset(np.random.default_rng(6), [[0, 0, 0], [0.001, 0, -0.001], [-0.001, 0, 0.001]], 5)
    (judged,) = judge_all([VARIES], "desk", [one.run for one in made], made)
    assert judged.verdict == "UNDECIDED" and judged.seeds_needed is None and judged.detectable is not None
    assert needed_words(judged).endswith(f"; 5 would show {100 * judged.detectable:.2f} points beyond the bar")


def test_a_setting_that_is_unevenly_worse_is_no_other_best_one() -> None:
    """Datasets and settings interact beyond any doubt, and noise alone would name another leader somewhere."""
    rng, held = np.random.default_rng(8), 0
    for _ in range(60):
        made = by_dataset(rng, [[0.002, 0.002, 0.002], [0, 0, 0], [0, -0.1, -0.2]], 5)
        (judged,) = judge_all([VARIES], "desk", [one.run for one in made], made)
        held += judged.verdict == "HOLDS"
    assert held <= 60 * (0.05 + 3 * math.sqrt(0.05 * 0.95 / 60))


def test_queries_that_the_mean_and_one_dataset_have_in_common_are_counted_once() -> None:
    """A mean less one of its two datasets is half the difference of the two, queries and all."""
    rng = np.random.default_rng(9)
    made = [one for one in by_dataset(rng, [[0, 0], [0.01, 0.03], [0, 0]], 3) if one.run.batch_size < 128]
    for one in made:
        one.metrics["desk/mean/ndcg_at_10"] = (
            one.metrics["desk/set0/ndcg_at_10"] + one.metrics["desk/set1/ndcg_at_10"]
        ) / 2
    mean, one, other = (
        (term(f"{{suite}}/{name}/ndcg_at_10", batch_size=64), term(f"{{suite}}/{name}/ndcg_at_10", batch_size=32))
        for name in ("mean", "set0", "set1")
    )
    said = {"says": "more", "source": "here", "because": "test"}
    claims = [
        Claim.interaction("X.i", of=mean, above=one, **said),
        Claim.interaction("X.j", of=other, above=one, **said),
    ]
    inside, whole = (found.estimate for found in judge_all(claims, "desk", [r.run for r in made], made))
    assert inside is not None and whole is not None and inside.shared > 0
    assert (2 * inside.effect, 4 * inside.shared) == (pytest.approx(whole.effect), pytest.approx(whole.shared))


def test_an_error_of_two_parts_is_howes_and_each_alone_is_its_t_test() -> None:
    both = Estimate(2.0, math.sqrt(0.5 + 0.3), 2, POINTS, 3, shared=0.3, shared_df=60)
    half = math.sqrt(0.5 * stats.t.ppf(0.975, 2) ** 2 + 0.3 * stats.t.ppf(0.975, 60) ** 2)
    assert both.interval(0.05) == (pytest.approx(2 - half), pytest.approx(2 + half))
    for bar in (2 - half, 2 + half, 1.9, -3.0):
        p = both.above(bar)
        assert both.half(min(p, 1 - p)) == pytest.approx(abs(2 - bar), rel=1e-6)
    assert both.above(2 - half) == pytest.approx(0.025) and both.below(2 + half) == pytest.approx(0.025)
    queries = Estimate(2.0, math.sqrt(0.3), math.inf, POINTS, 1, shared=0.3, shared_df=60)
    assert queries.above(1.0) == pytest.approx(float(stats.t.sf(1 / math.sqrt(0.3), 60)))


def test_three_seeds_that_agree_by_luck_are_no_proof() -> None:
    """Degrees of freedom read off the parts gave one false verdict in five here."""
    rng, false, number = np.random.default_rng(14), 0, 4000
    for seeds in rng.normal(size=(number, 3)):
        shared, df = 0.04 * rng.chisquare(60) / 60, 60.0
        found = of_seeds(seeds + rng.normal(0, 0.2), POINTS, moderated=None, shared=shared, shared_df=df)
        false += min(found.above(0), found.below(0)) <= 0.0025
    assert false / number <= 0.005 + 3 * math.sqrt(0.005 / number)


def test_both_ends_are_corrected_where_the_furthest_of_several_is_told() -> None:
    rng, outside, number = np.random.default_rng(15), 0, 1000
    for _ in range(number):
        found = [of_seeds(v, POINTS, moderated=None, shared=0.0, shared_df=1) for v in rng.normal(2, 1, size=(4, 5))]
        low, high = interval_of(max(found, key=lambda one: one.below(1.0)), 0.05, 4, is_directed=False)
        outside += not (low or 0.0) <= 2 <= (high or 0.0)
    assert outside / number <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / number)


def test_the_upper_end_of_the_weakest_of_many_is_corrected_for_their_number() -> None:
    """The weakest of ten equal effects is low by choice: its interval must reach the truth all the same."""
    rng, below, number = np.random.default_rng(10), 0, 600
    for _ in range(number):
        found = [of_seeds(v, POINTS, moderated=None, shared=0.0, shared_df=1) for v in rng.normal(size=(10, 5))]
        _, high = interval_of(min(found, key=lambda one: one.effect / one.error), 0.05, 10)
        below += high is not None and high < 0
    assert below / number <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / number)


@pytest.mark.parametrize(
    ("sign", "verdict", "low", "high", "expected"),
    [
        (1, "HOLDS", -0.2, 0.3, (0.1, 0.3)),
        (1, "DIFFERS", -0.2, 0.3, (-0.2, 0.1)),
        (-1, "HOLDS", -0.3, 0.2, (-0.3, -0.1)),
        (-1, "DIFFERS", -0.3, 0.2, (-0.1, 0.2)),
        (1, "HOLDS", 0.2, 0.3, (0.2, 0.3)),
        (-1, "HOLDS", -0.3, -0.2, (-0.3, -0.2)),
    ],
)
def test_an_interval_ends_at_the_bar_on_the_side_of_its_verdict(
    sign: int, verdict: str, low: float, high: float, expected: tuple[float, float]
) -> None:
    said = {"says": "s", "source": "s", "because": "b"}
    claim = Claim.trend("X.t", over=term("m"), axis="seed", sign=sign, margin=0.1, **said)
    assert up_to_the_bar(claim, verdict, low, high) == expected


def test_an_interval_does_not_go_past_the_delta_within_which_holm_finds_no_effect() -> None:
    claim = Claim.order("X.n", pairs=[(term("m"), term("m", seed=1))], delta=0.005, says="s", source="s", because="b")
    found = Estimate(0.0, 0.0023, 20, Unit("points"), 6)
    assert found.inside(0.005) < 0.05
    assert interval_for(claim, "NO EFFECT", found, 0.025, 1) == (-0.005, 0.005, True)
    low, high, is_cut = interval_for(claim, "UNDECIDED", found, 0.025, 1)
    assert (low or 0) < -0.005 and (high or 0) > 0.005 and not is_cut
