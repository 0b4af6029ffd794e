"""Which records judge a claim, and what must change a verdict: seeds, labels, a model that ignores its context."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom
from statsmodels.stats.power import TTestPower

from repro.claims.calibration import Cell, simulate
from repro.claims.correlation import Point, correlate
from repro.claims.estimate import Estimate, of_seeds
from repro.claims.evidence import evidence_for, looks_at
from repro.claims.judge import CLEAR_OF_BAR, judge_all, p_values
from repro.claims.levels import share_of_look
from repro.claims.looks import LooksCell, simulate_looks
from repro.claims.needs import (
    MOST_SEEDS,
    POWER,
    detectable_gap,
    least,
    need_of,
    need_of_leads,
    power_of,
    power_of_claim,
    units_needed,
)
from repro.claims.variance import Pool
from repro.records.store import Record, write_record
from repro.report.needed import needed_words
from repro.report.view import format_seconds
from repro.spec import ByScale, Claim, Run, Unit, base, by_scale, grid, term

NDCG = "{suite}/mean/ndcg_at_10"
SAID = {"says": "as claimed", "source": "here", "because": "a test"}
DOMAIN, RANDOM = term(NDCG, sampler="domain"), term(NDCG, sampler="random")
ORDER = Claim.order("X.a", pairs=[(DOMAIN, RANDOM)], **SAID)
CONTEXT = Claim.order(
    "X.c", pairs=[(term("desk/mean/ndcg_at_10"), term("desk+wrong/mean/ndcg_at_10"))], stated="2026-11-22", **SAID
)


def record(folder: Path, run: Run, gain: float, wrong: float = 0.0) -> Record:
    """A record whose scores are a level of the query, a gain and noise of the seed."""
    level = np.random.default_rng(7).uniform(0.3, 0.7, 300)
    own = np.random.default_rng([run.seed, run.num_warmup_steps, ord(run.sampler[0])])
    scores = (level + gain + own.normal(0, 0.003) + own.normal(0, 0.02, 300)).astype(np.float32)
    arrays = {"desk": scores, "desk+wrong": scores + np.float32(wrong)}
    metrics = {f"{suite}/mean/ndcg_at_10": float(values.mean()) for suite, values in arrays.items()}
    datasets = [{"name": "a", "family": "f", "num_queries": 300}]
    return write_record(folder, run, metrics=metrics, arrays=arrays, provenance={"suite": {"datasets": datasets}})


def two_samplers(folder: Path, gain: float, seeds: Sequence[int], scale: str = "desk") -> list[Record]:
    runs = grid(base(scale), sampler=("random", "domain"), seed=tuple(seeds))
    return [record(folder, run, gain if run.sampler == "domain" else 0.0) for run in runs]


def pool(folder: Path) -> Pool:
    runs = grid(base("desk"), num_warmup_steps=tuple(range(1, 31)), seed=(0, 1, 2))
    return Pool([record(folder, run, 0.0) for run in runs])


def verdict(claim: Claim, made: Sequence[Record], **said: object) -> str:
    (judged,) = judge_all([claim], "desk", [one.run for one in made], made, **said)  # type: ignore[arg-type]
    return judged.verdict


def test_one_seed_is_judged_with_the_published_spread_or_not_at_all(tmp_path: Path) -> None:
    made, published = two_samplers(tmp_path / "mine", 0.05, [0]), pool(tmp_path)
    (alone,) = judge_all([ORDER], "desk", [r.run for r in made], made)
    assert (alone.verdict, alone.low) == ("UNDECIDED", None) and "one seed, and no published spread" in alone.note
    (judged,) = judge_all([ORDER], "desk", [r.run for r in made], made, pool=published)
    assert judged.verdict == "HOLDS" and "one seed, judged with the published spread" in judged.note
    small = two_samplers(tmp_path / "small", 0.004, [0])
    assert verdict(ORDER, small, pool=published) == "UNDECIDED", "a gain of one deviation is no verdict"


def test_seeds_that_were_looked_at_do_not_judge(tmp_path: Path) -> None:
    claim = replace(ORDER, seen_seeds=(0, 1, 2), version=2)
    seen, fresh = two_samplers(tmp_path, 0.05, [0, 1, 2]), two_samplers(tmp_path, -0.05, [3, 4, 5])
    wanted = [one.run for one in (*seen, *fresh)]
    (before,) = judge_all([claim], "desk", wanted, seen)
    assert (before.verdict, before.is_post_hoc, before.num_seeds) == ("HOLDS", True, 3)
    assert before.note.startswith("post hoc")
    (after,) = judge_all([claim], "desk", wanted, [*seen, *fresh])
    assert (after.verdict, after.is_post_hoc, after.num_seeds) == ("DIFFERS", False, 3)
    (without,) = judge_all([claim], "desk", wanted, fresh)
    assert without.verdict == "DIFFERS", "seeds that do not judge need no records"
    one_fresh = [one for one in fresh if one.run.seed == 3]
    (early,) = judge_all([claim], "desk", wanted, [*seen, *one_fresh])
    assert early.verdict == "NOT RUN", "one of three fresh seeds is not all of them"


def test_records_of_other_claims_that_are_not_there_yet_decide_nothing(tmp_path: Path) -> None:
    """Claims that wait for records count among those that share the error, as they will once they have them."""
    usual, later = ({"num_warmup_steps": steps} for steps in (base("desk").num_warmup_steps, 5))
    order, other = (
        Claim.order("X.a", pairs=[(term(NDCG, sampler="domain", **which), RANDOM)], **SAID) for which in (usual, later)
    )
    claims = [order, *(replace(other, id=id) for id in ("X.b", "X.c", "Y.a"))]
    gains = [step / 2000 for step in range(1, 20)]
    told = []
    for gain in gains:
        made = two_samplers(tmp_path / f"{gain}", gain, range(6))
        changed = [replace(one.run, **later) for one in made if one.run.sampler == "domain"]
        others = [record(tmp_path / f"{gain}", run, 0.0) for run in changed]
        wanted = [one.run for one in (*made, *others)]
        complete, waiting, alone = (
            judge_all(which, "desk", wanted, there)[0]
            for which, there in ((claims, [*made, *others]), (claims, made), ([order], made))
        )
        assert (complete.verdict, complete.low) == (waiting.verdict, waiting.low)
        assert (complete.level, alone.level) == (pytest.approx(0.05 / 3), 0.05)
        told.append((waiting.verdict, alone.verdict))
    assert ("UNDECIDED", "HOLDS") in told, "one of three claims is held to more than one alone"


def test_at_another_scale_than_desk_no_seed_had_been_looked_at(tmp_path: Path) -> None:
    claim = replace(ORDER, seen_seeds=(0, 1, 2), version=2)
    at_lab = two_samplers(tmp_path, 0.05, [1, 2, 3], scale="lab")
    (judged,) = judge_all([claim], "lab", [one.run for one in at_lab], at_lab)
    assert (judged.verdict, judged.is_post_hoc, judged.num_seeds) == ("HOLDS", False, 3)


def test_of_comparisons_on_the_wrong_side_the_worst_is_told(tmp_path: Path) -> None:
    runs = grid(base("desk"), sampler=("random", "domain"), num_warmup_steps=(5, 6, 7), seed=(0, 1, 2))
    gains = {5: 0.02, 6: -0.001, 7: -0.1}
    made = [record(tmp_path, run, gains[run.num_warmup_steps] * (run.sampler == "domain")) for run in runs]
    pairs = [
        (term(NDCG, sampler="domain", num_warmup_steps=steps), term(NDCG, sampler="random", num_warmup_steps=steps))
        for steps in gains
    ]
    (judged,) = judge_all([Claim.order("X.a", pairs=pairs, **SAID)], "desk", runs, made)
    assert judged.verdict == "DIFFERS" and judged.effect == pytest.approx(-0.1, abs=0.01)
    (within,) = judge_all([Claim.equivalence("X.b", pairs=pairs, delta=0.0005, **SAID)], "desk", runs, made)
    assert within.verdict == "DIFFERS" and within.effect == pytest.approx(-0.1, abs=0.01)


def test_a_seed_that_goes_makes_a_claim_not_run(tmp_path: Path) -> None:
    made = two_samplers(tmp_path, 0.05, [0, 1, 2])
    assert verdict(ORDER, made) == "HOLDS"
    (judged,) = judge_all([ORDER], "desk", [r.run for r in made], [r for r in made if r.run.seed != 1])
    assert judged.verdict == "NOT RUN"


def test_labels_that_are_exchanged_turn_the_verdict(tmp_path: Path) -> None:
    made = two_samplers(tmp_path, 0.05, [0, 1, 2])
    other = {"random": "domain", "domain": "random"}
    turned = [replace(one, run=replace(one.run, sampler=other[one.run.sampler])) for one in made]
    assert (verdict(ORDER, made), verdict(ORDER, turned)) == ("HOLDS", "DIFFERS")
    mixed = [one if one.run.seed != 1 else two for one, two in zip(made, turned, strict=True)]
    assert verdict(ORDER, mixed) == "UNDECIDED"


def test_a_model_that_ignores_its_context_holds_no_claim_about_context(tmp_path: Path) -> None:
    runs = grid(base("desk"), seed=(0, 1, 2))
    reads, ignores = (
        [record(tmp_path / name, run, 0.0, wrong) for run in runs] for name, wrong in (("r", -0.05), ("i", 0.0))
    )
    assert (verdict(CONTEXT, reads), verdict(CONTEXT, ignores)) == ("HOLDS", "UNDECIDED")
    assert verdict(replace(CONTEXT, delta=0.01), ignores) == "NO EFFECT"


@pytest.mark.parametrize(("gain", "expected"), [(0.0, "HOLDS"), (0.05, "DIFFERS"), (0.012, "UNDECIDED")])
def test_equivalence_is_what_holds(tmp_path: Path, gain: float, expected: str) -> None:
    claim = Claim.equivalence("X.e", pairs=[(DOMAIN, RANDOM)], delta=0.012, **SAID)
    assert verdict(claim, two_samplers(tmp_path, gain, range(6))) == expected


def test_a_trend_is_a_slope_a_doubling_and_only_where_it_is_meant(tmp_path: Path) -> None:
    runs = grid(base("desk"), num_warmup_steps=(1, 2, 4, 8), seed=(0, 1, 2))
    made = [record(tmp_path, run, 0.02 * np.log2(run.num_warmup_steps)) for run in runs]
    claim = Claim.trend("X.t", over=term(NDCG), axis="num_warmup_steps", sign=1, **SAID)
    (judged,) = judge_all([claim], "desk", runs, made)
    assert judged.verdict == "HOLDS" and judged.effect == pytest.approx(0.02, abs=0.005)
    assert (judged.unit.name, claim.bar) == ("points/doubling", "> 0")
    assert verdict(replace(claim, sign=-1), made) == "DIFFERS"
    late = replace(claim, only=lambda run: run.num_warmup_steps > 4)
    assert verdict(late, made) == "NOT RUN"


def test_a_verdict_and_its_printed_interval_never_contradict(tmp_path: Path) -> None:
    made = two_samplers(tmp_path, 0.006, range(5))
    claims = [replace(ORDER, id=f"X.{n}", margin=margin) for n, margin in enumerate((-0.02, 0.0, 0.003, 0.02))]
    for judged in judge_all(claims, "desk", [r.run for r in made], made):
        assert judged.low is not None and judged.high is not None and isinstance(judged.claim, type(ORDER))
        assert judged.verdict != "HOLDS" or judged.low >= judged.claim.margin
        assert judged.verdict != "DIFFERS" or judged.high <= judged.claim.margin
        assert judged.level == pytest.approx(0.05 / 4)


def in_common(folder: Path, runs: Sequence[Run], metric: str) -> list[Record]:
    """Records whose number is mostly the chance of a seed and its batches, and a little of the run's own."""
    made = []
    for run in runs:
        common = np.random.default_rng([run.seed, run.batch_size, run.num_warmup_steps]).normal(0, 0.05)
        own = np.random.default_rng([run.seed, run.num_first_stage_layers, run.num_epochs or 0]).normal(0, 0.0005)
        is_deep = run.architecture == "contextual" and run.num_first_stage_layers == 2
        gain = 0.01 * (is_deep or run.num_epochs == 8)
        metrics = {metric: 0.5 + common + own + gain}
        made.append(write_record(folder, run, metrics=metrics, arrays={}, provenance={}))
    return made


def test_measures_of_training_are_paired_where_models_see_the_same_batches(tmp_path: Path) -> None:
    """Else the spread of easy and hard batches over seeds, which is in the pool, would hide any difference."""
    many = grid(base("desk"), num_warmup_steps=tuple(range(1, 31)), seed=(0, 1, 2))
    published = Pool(in_common(tmp_path, many, "train/accuracy"))
    runs = grid(base("desk", architecture="contextual"), num_first_stage_layers=(1, 2), seed=(0, 1, 2))
    made = in_common(tmp_path, runs, "train/accuracy")
    deep, shallow = (term("train/accuracy", num_first_stage_layers=depth) for depth in (2, 1))
    paired = Claim.order("X.a", pairs=[(deep, shallow)], **SAID)
    assert verdict(paired, made, pool=published) == "HOLDS"
    other = [
        replace(one, run=replace(one.run, batch_size=64)) if one.run.num_first_stage_layers > 1 else one for one in made
    ]
    assert verdict(paired, other, pool=published) == "UNDECIDED", "other batches have nothing in common"


def test_second_phases_are_paired_where_they_go_on_from_the_same_first(tmp_path: Path) -> None:
    score = "desk/mean/ndcg_at_10"
    many = grid(base("desk"), num_warmup_steps=tuple(range(1, 31)), seed=(0, 1, 2))
    published = Pool(in_common(tmp_path, many, score))
    first: dict[str, object] = {"pretraining_corpus": "wheels", "num_pretraining_steps": 100, "num_steps": None}
    runs = grid(base("desk", **{**first, "num_epochs": 1}), num_epochs=(1, 8), seed=(0, 1, 2))
    made = in_common(tmp_path, runs, score)
    claim = Claim.order("X.a", pairs=[(term(score, num_epochs=8), term(score, num_epochs=1))], **SAID)
    assert verdict(claim, made, pool=published) == "HOLDS"
    alone = [replace(one, run=replace(one.run, pretraining_corpus=None, num_pretraining_steps=None)) for one in made]
    assert verdict(claim, alone, pool=published) == "UNDECIDED"


@pytest.mark.parametrize(
    "kind", ["order", "trend", "interaction", "correlation", "equivalence", "all", "family", "unpooled"]
)
def test_false_verdicts_are_rare_where_seeds_dominate(kind: str) -> None:
    """The committed experiment has every cell; here the one where the old judge was wrong in one of six trials."""
    found = simulate(Cell(kind, "none", 5, 3), 60, seed=1)
    assert found["false"] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60) and found["covered"] >= 0.86


def test_false_verdicts_that_settings_differ_are_rare_where_queries_dominate() -> None:
    """Eight seeds share their queries: a test over seeds alone was wrong in four of five trials."""
    for kind in ("varies", "uneven", "inside"):
        assert simulate(Cell(kind, "none", 0, 8), 60, seed=1)["false"] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)


def seeds_needed(gap: float, found: Estimate, level: float) -> int | None:
    """The least number of seeds that sees one gap."""
    return least(2, MOST_SEEDS, lambda number: power_of(gap, found, number, level) >= POWER)


def test_power_says_the_seeds_that_a_t_test_needs(tmp_path: Path) -> None:
    made = two_samplers(tmp_path, 0.002, [0, 1, 2])
    (judged,) = judge_all([ORDER], "desk", [r.run for r in made], made)
    found, level = judged.estimate, judged.level or 0.05
    assert judged.verdict == "UNDECIDED" and found is not None and judged.detectable is not None
    again = seeds_needed(judged.detectable, replace(found, shared=0.0), level)
    assert again is not None and again <= 3, "an effect that three seeds see takes no more than three"
    plain = replace(found, deviation=0.62, shared=0.0, df=2)
    assert [seeds_needed(gap, plain, 0.05) for gap in (0.5, 1.0, 1.4, 2.5)] == [15, 6, 4, 3]


@pytest.mark.parametrize("num_claims", [1, 4, 8, 12])
def test_two_seeds_see_the_gap_that_is_said_however_many_claims_there_are(num_claims: int) -> None:
    plain, level = Estimate(0.0, 1.0, 1, Unit("points"), 2, deviation=1.0), 0.05 / num_claims
    assert power_of(detectable_gap(plain, 2, level), plain, 2, level) == pytest.approx(0.8, abs=5e-3)


@pytest.mark.parametrize(("gap", "number", "level"), [(0.3, 12, 0.05), (1.0, 5, 0.0125), (3.0, 8, 0.05)])
def test_power_is_statsmodels(gap: float, number: int, level: float) -> None:
    plain = Estimate(0.0, 1.0, 2, Unit("points"), 3, deviation=1.0)
    theirs = TTestPower().power(gap, number, level / 2, alternative="larger")
    assert power_of(gap, plain, number, level) == pytest.approx(theirs, abs=1e-6)
    seen = detectable_gap(plain, number, level)
    assert power_of(seen, plain, number, level) == pytest.approx(0.8, abs=5e-3)


def test_two_leads_of_the_size_that_is_said_are_both_seen_four_times_in_five() -> None:
    weaker, stronger = (Estimate(effect, 1 / 5**0.5, 4, Unit("r"), 5, deviation=1.0) for effect in (0.01, 0.02))
    need = need_of_leads([weaker, stronger], 0.01, 0.01)
    assert need.num_seeds is None and need.detectable is not None
    of_one = TTestPower().power(need.detectable, 5, 0.005, alternative="larger")
    assert of_one**2 == pytest.approx(0.8, abs=5e-3)


def test_a_correlation_needs_points_and_as_many_as_tables_say() -> None:
    assert [units_needed(r, 0.0, 0.05) for r in (0.1, 0.3, 0.5)] == [783, 85, 30], "Cohen (1988), table 3.4.1"
    assert units_needed(0.01, 0.0, 0.05) is None and units_needed(-0.99, 0.0, 0.05) == 5


@pytest.mark.parametrize(("effects", "is_found"), [((1.0, 1.0, 1.0), "HOLDS"), ((1.0, -1.0, 1.0), "DIFFERS")])
def test_a_claim_of_several_comparisons_is_decided_as_often_as_its_seeds_promise(
    effects: tuple[float, ...], is_found: str
) -> None:
    claim = Claim.order("X.p", pairs=[(DOMAIN, RANDOM)] * 3, **SAID)
    planned = [Estimate(effect, 1.0, 2, Unit("points"), 3, deviation=1.0) for effect in effects]
    number = need_of(claim, planned, min(planned, key=lambda one: one.effect), 0.05, 0.05).num_seeds
    assert number is not None
    rng, found = np.random.default_rng(12), 0
    for _ in range(400):
        drawn = rng.normal(0, 1, (3, number)) + np.array(effects)[:, None]
        seen = [of_seeds(values, Unit("points"), moderated=None, shared=0.0, shared_df=1) for values in drawn]
        found += p_values(claim, seen)[is_found] <= 0.05
    assert 0.74 <= found / 400 <= 0.93


def test_an_equivalence_is_shown_as_often_as_its_seeds_promise() -> None:
    claim = Claim.equivalence("X.q", pairs=[(DOMAIN, RANDOM)], delta=1.0, **SAID)
    planned = Estimate(0.0, 1.0, 2, Unit("points"), 3, deviation=1.0)
    number = need_of(claim, [planned], planned, 0.05, 0.05).num_seeds
    assert number is not None
    drawn = np.random.default_rng(13).normal(0, 1, (600, number))
    seen = [of_seeds(values, Unit("points"), moderated=None, shared=0.0, shared_df=1) for values in drawn]
    assert 0.76 <= np.mean([one.inside(1.0) <= 0.05 for one in seen]) <= 0.9


def test_a_fresh_seed_that_is_missing_is_not_passed_over(tmp_path: Path) -> None:
    made = two_samplers(tmp_path, 0.05, [0, 1, 2, 3, 4, 5])
    restated = replace(ORDER, seen_seeds=(0, 1, 2), stated="2026-11-22", version=2)
    wanted = [one.run for one in made]
    (whole,) = judge_all([restated], "desk", wanted, made)
    (lacking,) = judge_all([restated], "desk", wanted, [one for one in made if one.run.seed != 4])
    assert (whole.verdict, whole.num_seeds, whole.is_post_hoc) == ("HOLDS", 3, False)
    assert lacking.verdict == "NOT RUN"


def test_all_further_looks_together_have_no_more_than_half_of_the_level() -> None:
    assert share_of_look(1) == 1.0
    assert [share_of_look(number) for number in (2, 3, 4)] == pytest.approx([1 / 6, 1 / 12, 1 / 20])
    assert 0.49 < sum(share_of_look(number) for number in range(2, 200)) <= 0.5


@pytest.mark.parametrize("noise", [0, 5])
def test_a_claim_that_is_looked_at_until_it_is_decided_errs_no_more_often_than_at_one_look(noise: int) -> None:
    found = simulate_looks(LooksCell("none", noise, 3), 400, 5)
    assert found["looks"] > 2, "without effect most claims stay open, and are looked at again"
    assert found["false"] * 400 <= binom.isf(0.001, 400, 0.05) and found["covered"] >= 0.93


def test_a_second_look_takes_a_sixth_of_the_level_and_says_so(tmp_path: Path) -> None:
    made = two_samplers(tmp_path, 0.012, [0, 1, 2, 3])
    (once,) = judge_all([ORDER], "desk", [one.run for one in made], made)
    (twice,) = judge_all([replace(ORDER, num_looks=2)], "desk", [one.run for one in made], made)
    assert (once.level, twice.level) == (0.05, pytest.approx(0.05 / 6)) and twice.note == "look 2, as seeds were added"
    assert (twice.low or 0) < (once.low or 0) < (once.high or 0) < (twice.high or 0)


def test_a_second_look_holds_where_its_wider_interval_says_so(tmp_path: Path) -> None:
    claims, told = [replace(ORDER, num_looks=looks) for looks in (1, 2)], []
    for gain in np.arange(0.001, 0.02, 0.001):
        made = two_samplers(tmp_path / f"{gain}", gain, [0, 1, 2, 3])
        found = [judge_all([claim], "desk", [one.run for one in made], made)[0] for claim in claims]
        assert all((one.verdict == "HOLDS") == ((one.low or 0) > 0) for one in found)
        told.append([one.verdict for one in found])
    assert ["HOLDS", "UNDECIDED"] in told, "some gain is enough for one look and too little for two"


@pytest.mark.parametrize(("num_looks", "desk", "lab"), [(2, 2, 1), (by_scale({"lab": 2}), 1, 2), (1, 1, 1)])
def test_looks_are_counted_at_the_scale_where_seeds_were_added(num_looks: int | ByScale, desk: int, lab: int) -> None:
    claim = replace(ORDER, num_looks=num_looks)
    assert (looks_at(claim, "desk"), looks_at(claim, "lab")) == (desk, lab)


def test_looks_and_seen_seeds_go_by_the_scale_of_the_records_not_by_the_one_that_is_asked_about(
    tmp_path: Path,
) -> None:
    """The planted corpus: runs of desk behind claims that are judged at lab, too."""
    made = two_samplers(tmp_path, 0.05, [0, 1, 2])
    by_run = {one.run: one for one in made}
    others = grid(base("lab"), sampler="cluster", cluster_size=64, seed=(0, 1, 2))
    claim = replace(ORDER, num_looks=2, seen_seeds=(0, 1, 2))
    found = evidence_for(claim, [*others, *by_run], by_run)
    assert (found.num_looks, found.is_post_hoc) == (2, True)
    at_lab = two_samplers(tmp_path / "lab", 0.05, [0, 1, 2], scale="lab")
    found = evidence_for(claim, [one.run for one in at_lab], {one.run: one for one in at_lab})
    assert (found.num_looks, found.is_post_hoc) == (1, False)


def test_a_comparison_that_was_chosen_on_its_seeds_waits_for_others(tmp_path: Path) -> None:
    chosen = replace(ORDER, seen_seeds=(0, 1, 2), is_chosen=True, stated="2026-11-22", version=2)
    seen, fresh = two_samplers(tmp_path, 0.05, [0, 1, 2]), two_samplers(tmp_path, 0.05, [3, 4, 5])
    assert verdict(chosen, seen) == "UNDECIDED" and verdict(chosen, [*seen, *fresh]) == "HOLDS"


def test_an_undecided_claim_names_what_would_decide_it(tmp_path: Path) -> None:
    made = two_samplers(tmp_path, 0.004, [0, 1, 2])
    timed = [replace(one, provenance={**one.provenance, "evaluation_seconds": 90.0}) for one in made]
    wanted = [one.run for one in made]
    (judged,) = judge_all([ORDER], "desk", wanted, timed)
    assert judged.verdict == "UNDECIDED" and judged.seeds_needed is not None
    more = judged.seeds_needed - 3
    assert judged.seconds_needed == pytest.approx(2 * 90.0 * more), "two runs a seed"
    assert needed_words(judged) == f"needs {more} more seeds, {format_seconds(180 * more)}"
    (again,) = judge_all([replace(ORDER, seen_seeds=(0, 1, 2))], "desk", wanted, timed)
    assert needed_words(again).startswith(f"needs {again.seeds_needed} fresh seeds, "), "seen seeds do not count"
    for one, num_looks in ((judged, 2), (again, 1)):
        assert one.level == 0.05 and one.seeds_needed is not None, (
            "planned at the level of the look that they will make"
        )
        powers = [
            power_of_claim(ORDER, one.estimates, one.seeds_needed - less, 0.05 * share_of_look(num_looks))
            for less in (0, 1)
        ]
        assert powers[0] >= POWER > powers[1]
    (second,) = judge_all([replace(ORDER, num_looks=2)], "desk", wanted, timed)
    assert second.seeds_needed is not None
    assert power_of_claim(ORDER, second.estimates, second.seeds_needed - 1, 0.05 / 12) < POWER
    nil = replace(judged, seeds_needed=None, detectable=0.009)
    assert needed_words(nil) == "needs more than 10000 seeds; 3 would show 0.90 points beyond the bar"
    assert needed_words(replace(judged, verdict="HOLDS")) == ""


def test_one_seed_that_nothing_is_known_of_asks_for_a_second(tmp_path: Path) -> None:
    (made,) = [one for one in two_samplers(tmp_path, 0.0, [0]) if one.run.sampler == "domain"]
    close = Claim.equivalence(
        "X.e", pairs=[(DOMAIN, term("{suite}/mean/recall_at_100", sampler="domain"))], delta=1.0, **SAID
    )
    with_recall = replace(made, metrics={**made.metrics, "desk/mean/recall_at_100": 0.5})
    (judged,) = judge_all([close], "desk", [made.run], [with_recall])
    assert (
        judged.verdict == "UNDECIDED" and needed_words(judged) == "needs a second seed, to know how much seeds differ"
    )


def test_a_bound_that_was_set_with_records_at_hand_says_nothing_on_these(tmp_path: Path) -> None:
    claim = replace(ORDER, delta=0.02, has_new_delta=True, seen_seeds=(0, 1, 2))
    seen, fresh = two_samplers(tmp_path, 0.0, [0, 1, 2]), two_samplers(tmp_path, 0.0, [3, 4, 5, 6, 7])
    wanted = [one.run for one in (*seen, *fresh)]
    (before,) = judge_all([claim], "desk", wanted, seen)
    assert before.verdict == "UNDECIDED" and "its δ waits for fresh seeds" in before.note
    assert needed_words(before).split()[2] == "fresh"
    assert verdict(replace(claim, has_new_delta=False), seen) == "NO EFFECT", "else nothing was held back"
    (after,) = judge_all([claim], "desk", wanted, [*seen, *fresh])
    assert (after.verdict, after.is_post_hoc, after.num_seeds) == ("NO EFFECT", False, 5)
    assert verdict(claim, two_samplers(tmp_path / "far", 0.05, [0, 1, 2])) == "HOLDS", "its order is judged as before"


@pytest.mark.parametrize(("gain", "is_clear"), [(0.05, True), (-0.05, True), (0.0, False)])
def test_an_effect_that_is_there_and_smaller_than_asked_for_is_told_beside_the_verdict(
    tmp_path: Path, gain: float, is_clear: bool
) -> None:
    made = two_samplers(tmp_path, gain, range(6))
    (judged,) = judge_all([replace(ORDER, delta=0.1)], "desk", [one.run for one in made], made)
    assert judged.verdict == "NO EFFECT"
    assert (CLEAR_OF_BAR in judged.note) == is_clear
    assert judged.low is not None and judged.high is not None
    assert (judged.low > 0 or judged.high < 0) == is_clear, "as its interval shows"


def test_what_is_told_beside_a_verdict_of_several_claims_is_what_the_interval_shows(tmp_path: Path) -> None:
    """Holm's level of a claim may be wider than that of its interval."""
    told = []
    for gain in np.linspace(0, 0.006, 26):
        made = two_samplers(tmp_path / f"{gain:.4f}", float(gain), range(6))
        claims = [replace(ORDER, delta=0.1), replace(ORDER, id=f"{ORDER.id}b", delta=0.1)]
        for one in judge_all(claims, "desk", [record.run for record in made], made):
            assert one.verdict == "NO EFFECT" and one.low is not None and one.high is not None
            told.append(CLEAR_OF_BAR in one.note)
            assert told[-1] == (one.low > 0 or one.high < 0), gain
    assert 0 < sum(told) < len(told)


def test_a_mean_over_groups_of_points_needs_fewer_of_them_in_each() -> None:
    """As many as see the correlation four times in five, counted on points that are drawn again."""
    alone, of_three = units_needed(0.5, 0.0, 0.05), units_needed(0.5, 0.0, 0.05, num_groups=3)
    assert (alone, of_three) == (30, 12)
    rng, seen = np.random.default_rng(14), 0
    for _ in range(400):
        x = rng.normal(size=(3, 12))
        y = 0.5 * x + np.sqrt(0.75) * rng.normal(size=x.shape)
        points = [Point(x[g, n], y[g, n], g, (g, n)) for g in range(3) for n in range(12)]
        found = correlate(points, 1)
        seen += 2 * found.above(0.0) <= 0.05
        assert found.num_groups == 3
    assert 0.74 <= seen / 400 <= 0.9
