"""Verdicts of claims and bootstrap intervals against scipy, statsmodels and arithmetic, and the published verdicts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from experiments.e01_table1 import TABLE
from repro.records.store import Record, write_record
from repro.report.artefacts import load_records
from repro.report.gallery import list_gain_rows
from repro.report.tables import format_in_unit
from repro.spec import Claim, Identity, Run, base, by_scale, grid, term
from repro.spec.registry import experiments, find_experiment
from repro.statistics.bootstrap import paired_bootstrap, percentile_interval
from repro.statistics.judge import WORDS, Comparison, Judgement, choose_word, is_early, judge_all
from repro.statistics.units import load_units, read_metric, stratified_mean

NDCG = "{suite}/mean/ndcg_at_10"
SEEDS = (1, 2, 3, 4, 5)
DATASETS = [{"name": "a", "family": "f", "num_queries": 40}, {"name": "b", "family": "g", "num_queries": 10}]
NOISE = (0.011, -0.007, 0.004, -0.002, 0.009, 0.001)


def make_order(id: str = "X.a", better: str = "domain", worse: str = "random", **fields: object) -> Claim:
    pairs = [(term(NDCG, sampler=better), term(NDCG, sampler=worse))]
    return Claim.order(id, "one beats another", pairs=pairs, source="here", because="a test", **fields)  # type: ignore[arg-type]


def write_scored(folder: Path, run: Run, score: float, *, made: str = "", **metrics: float) -> Record:
    """Write a record of two collections with this mean score, which differ by 0.1."""
    found = {"mean": score, "a": score + 0.05, "b": score - 0.05, "f": score + 0.05, "g": score - 0.05}
    named = {f"desk/{name}/ndcg_at_10": value for name, value in found.items()} | {"train/loss": 1.0}
    provenance = {"suite": {"datasets": DATASETS}} | ({"made": made} if made else {})
    return write_record(folder, run, metrics=named | metrics, arrays={}, provenance=provenance)


def write_pairs(folder: Path, gains: Sequence[float], seeds: Sequence[int] = SEEDS, made: str = "") -> list[Record]:
    """Write records of two samplers whose differences by seed are known."""
    found = []
    for seed, gain in zip(seeds, gains, strict=True):
        level = 0.5 + 0.03 * seed
        for sampler, score in (("random", level), ("domain", level + gain)):
            found.append(write_scored(folder, base("desk", sampler=sampler, seed=seed), score, made=made))
    return found


def judge(
    claims: Claim | list[Claim], made: Sequence[Record], runs: Sequence[Run] = (), **more: object
) -> list[Judgement]:
    wanted = list(runs) or [one.run for one in made]
    return judge_all(claims if isinstance(claims, list) else [claims], "desk", wanted, made, **more)  # type: ignore[arg-type]


def test_interval_equals_scipys_paired_t(tmp_path: Path) -> None:
    gains = np.array(NOISE[:5]) + 0.02
    (judged,) = judge(make_order(), write_pairs(tmp_path, gains.tolist()))
    (one,) = judged.comparisons
    low, high = stats.ttest_rel(0.5 + gains, np.full(5, 0.5)).confidence_interval(0.95)
    assert (one.effect, one.low, one.high) == pytest.approx((gains.mean(), low, high))
    assert one.by_seed == pytest.approx(gains)
    assert (judged.word, judged.seeds, judged.num_runs) == ("HOLDS", SEEDS, 10)


@pytest.mark.parametrize(
    ("low", "high", "fields", "word"),
    [
        (0.001, 0.004, {}, "HOLDS"),
        (-0.001, 0.004, {}, "OPEN"),
        (-0.004, -0.001, {}, "DIFFERS"),
        (-0.001, 0.004, {"delta": 0.005}, "SMALL"),
        (0.001, 0.004, {"delta": 0.005}, "HOLDS"),
        (-0.001, 0.006, {"delta": 0.005}, "OPEN"),
        (0.011, 0.02, {"margin": 0.01}, "HOLDS"),
        (0.001, 0.009, {"margin": 0.01}, "DIFFERS"),
        (-0.009, 0.02, {"margin": -0.01}, "HOLDS"),
    ],
)
def test_word_follows_from_interval(low: float, high: float, fields: dict[str, float], word: str) -> None:
    claim = Claim.order("X.a", "", pairs=[(term(NDCG), term(NDCG))], source="", because="", **fields)  # type: ignore[arg-type]
    assert choose_word(claim, [Comparison((low + high) / 2, low, high)]) == word


def test_falling_trend_holds_below_threshold() -> None:
    claim = Claim.trend("X.t", "", over=term(NDCG), axis="batch_size", sign=-1, margin=0.01, source="", because="")
    words = [choose_word(claim, [Comparison(0, low, low + 0.005)]) for low in (-0.02, -0.012, -0.009)]
    assert words == ["HOLDS", "OPEN", "DIFFERS"]


def test_equivalence_and_value_use_both_bounds() -> None:
    same = Claim.equivalence("X.e", "", pairs=[(term(NDCG), term(NDCG))], delta=0.01, source="", because="")
    value = Claim.value("X.v", "", expected={term(NDCG): 0.5}, margin=0.01, source="", because="")
    ends = [(-0.009, 0.009), (-0.011, 0.009), (0.005, 0.02), (0.011, 0.02), (-0.02, -0.011)]
    for claim in (same, value):
        words = [choose_word(claim, [Comparison(0, *each)]) for each in ends]
        assert words == ["HOLDS", "OPEN", "OPEN", "DIFFERS", "DIFFERS"]


def test_small_needs_every_interval_inside(tmp_path: Path) -> None:
    """A claim HOLDS (small) if its interval is also inside ±δ."""
    made = write_pairs(tmp_path, [gain / 10 + 0.003 for gain in NOISE[:5]])
    small, large = judge([make_order(delta=0.01), make_order("X.b", delta=0.003)], made)
    assert (small.word, small.verdict, large.verdict) == ("HOLDS", "HOLDS (small)", "HOLDS")


def test_several_comparisons_must_all_hold(tmp_path: Path) -> None:
    made = write_pairs(tmp_path, [0.05 + gain for gain in NOISE[:5]])
    (good,) = make_order().pairs  # type: ignore[attr-defined]
    mixed = replace(make_order(), pairs=(good, good[::-1]))
    judged = judge([replace(make_order(), pairs=(good, good)), mixed], made)
    assert [one.word for one in judged] == ["HOLDS", "DIFFERS"]
    assert [one.effect for one in judged[1].comparisons] == pytest.approx([0.053, -0.053])


def test_fewer_seeds_than_declared_are_tentative(tmp_path: Path) -> None:
    made = write_pairs(tmp_path, [0.05 + gain for gain in NOISE[:5]])
    runs = [one.run for one in made]
    (judged,) = judge(make_order(), made[2:], runs)
    assert (judged.word, judged.seeds, judged.note) == ("tentative", (2, 3, 4, 5), "4 of 5 declared seeds")
    assert judged.comparisons[0].low is not None
    (one,) = judge(make_order(), made[:2], runs)
    assert (one.word, one.comparisons[0].low) == ("tentative", None)
    assert judge(make_order(), [], runs)[0].word == "not run"


def test_only_declared_seeds_judge(tmp_path: Path) -> None:
    """Seeds of other claims are not used. A scale may declare its own seeds."""
    made = write_pairs(tmp_path, NOISE, (*SEEDS, 9))
    (judged,) = judge(make_order(seeds=by_scale({"desk": (1, 9)})), made)
    assert judged.seeds == (1, 9) and judged.effect == pytest.approx((NOISE[0] + NOISE[5]) / 2)
    assert make_order(seeds=by_scale({"lab": (1, 9)})).declared_seeds("desk") == SEEDS


@pytest.mark.parametrize(
    ("made", "word"), [("2026-11-21T23:59:59+00:00", "tentative"), ("2026-11-22T00:00:00+00:00", "HOLDS")]
)
def test_older_records_do_not_judge(tmp_path: Path, made: str, word: str) -> None:
    found = write_pairs(tmp_path, [0.05 + gain for gain in NOISE[:5]], made=made)
    assert judge(make_order(stated="2026-11-22"), found)[0].word == word
    assert judge(make_order(), found)[0].word == "HOLDS"


def test_first_commit_dates_records_without_time(tmp_path: Path) -> None:
    found = write_pairs(tmp_path, [0.05 + gain for gain in NOISE[:5]])
    (tmp_path / "FIRST_COMMITS").write_text(f"2026-11-21  {found[0].id}\n")
    (judged,) = judge(make_order(stated="2026-11-22"), found)
    assert (judged.word, judged.note) == ("tentative", "1 of 5 seeds older than the claim")


def test_interaction_is_difference_of_differences(tmp_path: Path) -> None:
    runs = grid(base("desk"), batch_size=(32, 512), sampler=("random", "domain"), seed=SEEDS)
    gains = {("domain", 32): 0.06, ("domain", 512): 0.01}
    scores = {run: 0.5 + gains.get((run.sampler, run.batch_size), 0) * (1 + run.seed / 10) for run in runs}
    made = [write_scored(tmp_path, run, score) for run, score in scores.items()]
    of, above = (
        (term(NDCG, sampler="domain", batch_size=size), term(NDCG, sampler="random", batch_size=size))
        for size in (32, 512)
    )
    (judged,) = judge(Claim.interaction("X.i", "", of=of, above=above, source="", because=""), made)
    assert judged.comparisons[0].by_seed == pytest.approx([0.05 * (1 + seed / 10) for seed in SEEDS])


def test_trend_is_slope_per_doubling(tmp_path: Path) -> None:
    runs = grid(base("desk"), batch_size=(64, 128, 512), seed=SEEDS)
    scores = {run: 0.5 + 0.01 * ((run.batch_size * 7 + run.seed * 13) % 11) for run in runs}
    made = [write_scored(tmp_path, run, score) for run, score in scores.items()]
    claim = Claim.trend("X.t", "", over=term(NDCG), axis="batch_size", sign=1, source="", because="")
    slopes = [np.polyfit([6, 7, 9], [scores[run] for run in runs if run.seed == seed], 1)[0] for seed in SEEDS]
    (judged,) = judge(claim, made)
    assert judged.comparisons[0].by_seed == pytest.approx(slopes)
    (two_sizes,) = judge(claim, [one for one in made if one.run.batch_size < 500])
    assert two_sizes.word == "not run"


def test_seedless_references_use_query_bootstrap(tmp_path: Path) -> None:
    """The interval is close to that of scipy's bootstrap, which resamples within each collection."""
    rng = np.random.default_rng(5)
    scores = {name: rng.uniform(0.3, 0.7, 50).astype(np.float32) for name in ("bm25", "surrogate")}
    made = []
    for name, values in scores.items():
        means = [float(values[:40].mean(dtype=np.float64)), float(values[40:].mean(dtype=np.float64))]
        named = dict(zip(("a", "b", "f", "g", "mean"), (*means, *means, sum(means) / 2), strict=True))
        metrics = {f"desk/{name}/ndcg_at_10": value for name, value in named.items()}
        run, provenance = base("desk", architecture=name), {"suite": {"datasets": DATASETS}}
        made.append(write_record(tmp_path, run, metrics=metrics, arrays={"desk": values}, provenance=provenance))
    pairs = [(term(NDCG, architecture="bm25"), term(NDCG, architecture="surrogate"))]
    (judged,) = judge(Claim.order("X.b", "", pairs=pairs, source="", because=""), made)
    differences = scores["bm25"].astype(float) - scores["surrogate"]
    reference = stats.bootstrap(
        (differences[:40], differences[40:]),
        lambda a, b, axis: (a.mean(axis) + b.mean(axis)) / 2,
        n_resamples=20_000, method="percentile", rng=0, vectorized=True,
    ).confidence_interval  # fmt: skip
    (one,) = judged.comparisons
    assert judged.seeds == () and one.effect == pytest.approx((differences[:40].mean() + differences[40:].mean()) / 2)
    assert (one.low, one.high) == pytest.approx((reference.low, reference.high), abs=0.003)


def make_correlation(**fields: object) -> Claim:
    x, y = term("train/loss"), term(NDCG)
    return Claim.correlation("X.r", "", x=x, y=y, points="runs", sign=1, source="", because="", **fields)  # type: ignore[arg-type]


def test_correlation_needs_five_settings(tmp_path: Path) -> None:
    runs = grid(base("desk"), batch_size=(8, 16, 32, 64, 128), seed=SEEDS)
    losses = dict(zip((8, 16, 32, 64, 128), (1.0, 1.4, 1.1, 1.9, 1.6), strict=True))
    scores = dict(zip((8, 16, 32, 64, 128), (0.1, 0.3, 0.2, 0.5, 0.6), strict=True))
    made = [
        write_scored(tmp_path, run, scores[run.batch_size], **{"train/loss": losses[run.batch_size]}) for run in runs
    ]
    reference = stats.pearsonr(list(losses.values()), list(scores.values()))
    interval = reference.confidence_interval(0.95)
    (judged,) = judge(make_correlation(), made)
    (one,) = judged.comparisons
    assert (one.effect, one.low, one.high) == pytest.approx((reference.statistic, *interval))
    assert judged.word == ("HOLDS" if interval.low > 0 else "OPEN")
    few = [one for one in made if one.run.batch_size > 8]
    assert judge(make_correlation(), few)[0].word == "descriptive"
    assert judge(make_correlation(within="sampler"), made)[0].effect == pytest.approx(reference.statistic)


def test_headline_words_need_p_after_holm(tmp_path: Path) -> None:
    """The headline claims of a scale are one family. A claim without records has p = 1."""
    gains = [0.02, 0.021, 0.006, 0.03, 0.003]
    made = write_pairs(tmp_path, gains)
    runs = [*(one.run for one in made), *grid(base("desk"), sampler="cluster", cluster_size=64, seed=SEEDS)]
    waiting = make_order("X.w", better="cluster", headlines=("desk",))
    claims = [make_order(headlines=("desk",)), waiting, make_order("X.c"), replace(waiting, id="X.z")]
    first, _, other, _ = judge(claims, made, runs)
    p = stats.ttest_1samp(gains, 0).pvalue
    assert 0.05 / 3 < p < 0.05
    assert first.p == pytest.approx(multipletests([p, 1, 1], method="holm")[1][0])
    assert (first.word, other.word, other.p) == ("OPEN", "HOLDS", None)


def test_headlines_print_interval_over_collections(tmp_path: Path) -> None:
    """The interval is over collections, each with its mean over seeds."""
    made = []
    for seed in SEEDS:
        for sampler, gain in (("random", 0.0), ("domain", 0.04)):
            extra = {"desk/a/ndcg_at_10": 0.5 + gain, "desk/b/ndcg_at_10": 0.5 + gain / 2}
            made.append(write_scored(tmp_path, base("desk", sampler=sampler, seed=seed), 0.5 + 0.75 * gain, **extra))
    (judged,) = judge(make_order(headlines=("desk",)), made)
    expected = stats.ttest_1samp([0.04, 0.02], 0).confidence_interval(0.95)
    assert judged.comparisons[0].collections == pytest.approx(tuple(expected))


def test_context_claim_shows_its_blind_comparison(tmp_path: Path) -> None:
    """Context-blind runs are only used by terms that name them. Without such runs there is no comparison."""
    made = write_pairs(tmp_path, [0.05 + gain for gain in NOISE[:5]])
    of_blind = term(NDCG, sampler="domain", sequence_dropout=1.0)
    claim = make_order(blind=of_blind)
    assert judge(claim, made)[0].blind is None
    changes = {"architecture": "contextual", "sequence_dropout": 1.0, "test_contexts": "null"}
    blind = [write_scored(tmp_path, replace(one.run, **changes), read_metric(one, NDCG) - 0.01) for one in made]
    (judged,) = judge(claim, [*made, *blind])
    assert judged.effect == pytest.approx(0.053)
    assert judged.blind is not None and judged.blind.effect == pytest.approx(0.01)


def test_own_number_comes_without_word(tmp_path: Path) -> None:
    made = write_pairs(tmp_path / "published", [0.05 + gain for gain in NOISE[:5]])
    yours = write_pairs(tmp_path / "yours", [0.02], (0,))
    (judged,) = judge(make_order(), made, [one.run for one in (*made, *yours)], yours=yours)
    assert judged.yours == pytest.approx((0.02,)) and judged.effect == pytest.approx(0.053)
    assert judge(make_order(), made, yours=yours[:1])[0].yours == ()


def test_open_claim_has_80_percent_power(tmp_path: Path) -> None:
    gains = [0.02, -0.01, 0.03, -0.02, 0.01]
    (judged,) = judge(make_order(), write_pairs(tmp_path, gains))
    needed = judged.estimate_seeds()
    size = np.mean(gains) / np.std(gains, ddof=1)
    assert judged.word == "OPEN" and needed is not None
    powers = [TTestPower().power(size, number, 0.05) for number in (needed - 1, needed)]
    assert powers[0] < 0.8 <= powers[1]


def test_descriptive_claim_has_no_word(tmp_path: Path) -> None:
    (judged,) = judge(make_order(descriptive="a reason"), write_pairs(tmp_path, [0.05 + gain for gain in NOISE[:5]]))
    assert (judged.word, judged.note) == ("descriptive", "a reason") and judged.comparisons[0].low is not None


def test_best_setting_is_counted_per_dataset(tmp_path: Path) -> None:
    runs = grid(base("desk"), batch_size=(64, 128), seed=SEEDS)
    best = {
        64: {"desk/a/ndcg_at_10": 0.6, "desk/b/ndcg_at_10": 0.2},
        128: {"desk/a/ndcg_at_10": 0.5, "desk/b/ndcg_at_10": 0.4},
    }
    made = [write_scored(tmp_path, run, 0.4, **best[run.batch_size]) for run in runs]
    over = term("{suite}/*/ndcg_at_10")
    (judged,) = judge(Claim.varies("X.v", "", over=over, axis="batch_size", source="", because=""), made)
    assert (judged.word, judged.note) == ("descriptive", "best batch_size: 64 on 1, 128 on 1 of 2 datasets")


def test_scale_that_cannot_judge_is_named(tmp_path: Path) -> None:
    made = write_pairs(tmp_path, NOISE[:5])
    value = Claim.value("X.v", "", expected={term(NDCG, sampler="random"): 0.5}, margin=0.02, source="", because="")
    absent = replace(make_order("X.d"), pairs=((term("{suite}/arguana/ndcg_at_10", sampler="random"),) * 2,))
    judged = judge([value, make_order("X.s", scales=("lab", "small")), absent], made)
    assert [(one.word, one.note) for one in judged] == [
        ("other scale", "small or large"),
        ("other scale", "lab or small"),
        ("other scale", "the suite desk has no dataset arguana"),
    ]
    assert judge_all([make_order()], "smoke", [], [])[0].word == "other scale"


def test_misspelt_metric_names_claim(tmp_path: Path) -> None:
    made = write_pairs(tmp_path, NOISE[:5])
    misspelt = replace(make_order(), pairs=((term("{suite}/mean/ndgc_at_10", sampler="random"),) * 2,))
    with pytest.raises(ValueError, match=r"claim X\.a: record .* did you mean 'desk/mean/ndcg_at_10'"):
        judge(misspelt, made)


def test_logarithm_makes_ratios(tmp_path: Path) -> None:
    """A difference of `log2` metrics is a ratio. A metric of 0 has no logarithm."""
    speeds = {"random": 400.0, "domain": 100.0}
    runs = grid(base("desk"), sampler=("random", "domain"), seed=SEEDS)
    made = [write_scored(tmp_path, run, 0.5, **{"train/speed": speeds[run.sampler], "train/none": 0.0}) for run in runs]
    pairs = [(term("log2 train/speed", sampler="random"), term("log2 train/speed", sampler="domain"))]
    (judged,) = judge(Claim.order("X.l", "", pairs=pairs, margin=1, source="", because=""), made)
    assert (judged.word, judged.unit.name) == ("HOLDS", "doublings") and judged.effect == pytest.approx(2)
    with pytest.raises(ValueError, match=r"'train/none' = 0\.0, which has no logarithm"):
        read_metric(made[0], "log2 train/none")
    assert load_units(made[0], "train/speed")[0].tolist() == [400.0]


def test_identity_needs_no_records() -> None:
    claims = [Claim.identity("X.i", "", holds=lambda: (True, "2"), source="", because="")]
    claims.append(Claim.identity("X.j", "", holds=lambda: (False, "3"), source="", because=""))
    assert [(one.word, one.note) for one in judge_all(claims, "small", [], [])] == [("HOLDS", "2"), ("DIFFERS", "3")]


def test_single_stratum_matches_scipy() -> None:
    rng = np.random.default_rng(0)
    better, worse = rng.normal(0.3, 1, 200), rng.normal(0, 1, 200)
    samples = paired_bootstrap(better, worse, np.zeros(200, int), num_samples=5000)
    reference = stats.bootstrap((better - worse,), np.mean, n_resamples=5000, method="percentile", rng=1)
    assert samples.std() == pytest.approx(reference.standard_error, rel=0.05)
    assert tuple(percentile_interval(samples)) == pytest.approx(tuple(reference.confidence_interval), abs=0.02)


def test_strata_weigh_the_same() -> None:
    rng = np.random.default_rng(1)
    strata = np.repeat([0, 1, 2], [400, 40, 4])
    gap = rng.normal(strata.astype(float), 1)
    samples = paired_bootstrap(gap, np.zeros(444), strata, num_samples=4000)
    parts = [gap[strata == name] for name in range(3)]
    assert stratified_mean(gap, strata) == pytest.approx(np.mean([part.mean() for part in parts]))
    assert samples.mean() == pytest.approx(stratified_mean(gap, strata), abs=0.02)
    assert samples.std() == pytest.approx(np.sqrt(sum(part.var() / len(part) for part in parts)) / 3, rel=0.06)


def test_shared_difficulty_cancels() -> None:
    hard = np.random.default_rng(2).normal(size=100) * 50
    np.testing.assert_allclose(paired_bootstrap(hard + 1, hard, np.arange(100) % 5), 1, atol=1e-9)


def test_seed_fixes_the_draw() -> None:
    a, b, c = (np.random.default_rng(n).normal(size=60) for n in range(3))
    strata = np.arange(60) % 3
    direct = paired_bootstrap(a, c, strata)
    np.testing.assert_allclose(direct, paired_bootstrap(a, b, strata) + paired_bootstrap(b, c, strata))


def test_intervals_cover_the_truth() -> None:
    strata, truth, hits = np.repeat([0, 1], [60, 30]), 0.2, 0
    for trial in range(300):
        rng = np.random.default_rng(trial)
        shared = rng.normal(size=90)
        better, worse = shared + rng.normal(truth, 1, 90), shared + rng.normal(0, 1, 90)
        low, high = percentile_interval(paired_bootstrap(better, worse, strata, num_samples=300, seed=trial))
        hits += low <= truth <= high
    assert 0.90 <= hits / 300 <= 0.98


def test_unpaired_units_are_refused() -> None:
    with pytest.raises(ValueError, match="units do not pair up"):
        paired_bootstrap(np.ones(3), np.ones(4), np.zeros(3))


EFFECTS = json.loads(Path(__file__).with_name("effects.json").read_text())
"""Printed effects and their seeds, by scale and claim, from before the current judge."""
RESTATED = {"T1.k", "F2.a", "F3.a", "F3.b", "F4.a", "F9.a", "F9.b", "F9.c", "F12.a"}
"""Claims that have compared something else since then."""


@cache
def judge_published(scale: str) -> dict[str, Judgement]:
    found = {}
    for experiment in experiments():
        runs = experiment.runs(scale)
        for one in judge_all(experiment.claims, scale, runs, load_records(runs, "published")):
            found[one.claim.id] = one
    return found


@pytest.mark.parametrize("scale", ["desk", "lab"])
def test_effects_did_not_move(scale: str) -> None:
    """Printed effects and seeds are the same as before. Claims over queries alone have no seeds now."""
    expected = {id: row for id, row in EFFECTS[scale].items() if id not in RESTATED}
    found = {id: judge_published(scale)[id] for id in expected}
    for id, one in found.items():
        effects, seeds = expected[id]
        assert [format_in_unit(c.effect, one.unit) for c in one.comparisons] == effects, id
        assert list(one.seeds) in ([], seeds), id


@pytest.mark.parametrize("scale", ["desk", "lab"])
def test_older_records_give_no_word(scale: str) -> None:
    """All records of a claim with a verdict were made on the day of its statement or later."""
    for experiment in experiments():
        records = load_records(experiment.runs(scale), "published")
        for claim in experiment.claims:
            one = judge_published(scale)[claim.id]
            if isinstance(claim, Identity) or one.word not in WORDS:
                continue
            assert claim.stated, f"{claim.id} has no date"
            matching = [
                r for r in records if any(term.runs.matches(r.run) for term in claim.terms) and claim.needs(r.run)
            ]
            early = {r.run.seed for r in matching if is_early(claim, r) and r.run.seed in one.seeds}
            early -= {r.run.seed for r in matching if r.run.architecture in ("bm25", "surrogate", "none")}
            assert not early, claim.id


def test_fitted_claims_are_tentative() -> None:
    at_desk, at_lab = judge_published("desk"), judge_published("lab")
    assert {at_desk[id].word for id in ("D.a", "D.b", "D.c", "D.d", "E.f")} | {at_lab["D.b"].word} == {"tentative"}


@pytest.mark.parametrize("scale", ["desk", "lab", "small", "large"])
def test_headlines_lie_in_one_experiment(scale: str) -> None:
    """Headlines form one Holm family, which is judged together."""
    found = [
        (experiment.number, c.id) for experiment in experiments() for c in experiment.claims if scale in c.headlines
    ]
    assert len({number for number, _ in found}) == 1 and 3 <= len(found) <= 5


def test_picture_shows_the_claims_number() -> None:
    """The gain of a row on the front page is the effect of its claim."""
    runs = find_experiment("table1").runs("desk")
    labels = {"T1.b": "contextual batches", "T1.c": "contextual architecture"}
    seeds = judge_published("desk")["T1.b"].seeds
    _, rows = list_gain_rows(TABLE, "NDCG@10", runs, load_records(runs, "published"), seeds)
    for id, label in labels.items():
        gains = [row["gain"] for row in rows if row["row"] == label]
        effect = judge_published("desk")[id].effect
        assert effect is not None and sum(gains) / len(gains) == pytest.approx(100 * effect)
