"""Every verdict is reached, from hand-made records whose answer is known; nothing that is missing becomes a number."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from repro.claims.judge import judge_all
from repro.claims.units import units, value_of
from repro.records.store import Record, write_record
from repro.spec import Claim, Run, base, grid, pick, term

NDCG = "{suite}/mean/ndcg_at_10"
RANDOM, CLUSTER = pick(sampler="random"), pick(sampler="domain")
BETTER = Claim.order(
    "X.a",
    "domain beats random",
    pairs=[(term(NDCG, sampler="domain"), term(NDCG, sampler="random"))],
    source="here",
    because="a test",
)
DATASETS = [{"name": "a", "family": "f", "num_queries": 400}, {"name": "b", "family": "g", "num_queries": 100}]


def metrics_of(scores: np.ndarray) -> dict[str, float]:
    """The means of two datasets, their families, and the mean over both."""
    means = {"a": float(scores[:400].mean()), "b": float(scores[400:].mean())}
    means |= {"f": means["a"], "g": means["b"], "mean": (means["a"] + means["b"]) / 2}
    return {f"desk/{name}/ndcg_at_10": value for name, value in means.items()}


def record(folder: Path, run: Run, gain: float, noise: float = 0.05) -> Record:
    """A record whose scores lie `gain` above a level that depends on the query alone."""
    level = np.random.default_rng(7).uniform(0.3, 0.7, 500)
    own = np.random.default_rng([run.seed, ord(run.sampler[0])]).normal(gain, noise, 500)
    scores = (level + own).astype(np.float32)
    return write_record(
        folder,
        run,
        metrics=metrics_of(scores) | {"train/loss": float(np.float32(gain))},
        arrays={"desk": scores, "train/loss": np.full(10, gain, np.float32)},
        provenance={"suite": {"datasets": DATASETS}},
    )


def records(folder: Path, gain: float, seeds: Sequence[int] = (0, 1, 2)) -> list[Record]:
    runs = grid(base("desk"), sampler=("random", "domain"), seed=tuple(seeds))
    return [record(folder, run, gain if run.sampler == "domain" else 0.0) for run in runs]


@pytest.mark.parametrize(("gain", "verdict"), [(0.05, "HOLDS"), (-0.05, "DIFFERS"), (0.0005, "UNDECIDED")])
def test_an_order_is_judged_by_its_interval(tmp_path: Path, gain: float, verdict: str) -> None:
    made = records(tmp_path, gain)
    (judged,) = judge_all([BETTER], "desk", [r.run for r in made], made)
    assert judged.verdict == verdict
    assert judged.effect == pytest.approx(gain, abs=0.01)
    assert judged.low is not None and judged.high is not None and judged.low < judged.effect < judged.high
    assert (judged.num_seeds, judged.num_runs) == (3, 6)


@pytest.mark.parametrize(
    ("at_small", "at_large", "verdict"), [(0.06, 0.01, "HOLDS"), (0.01, 0.06, "DIFFERS"), (0.05, 0.05, "UNDECIDED")]
)
def test_an_interaction_compares_two_gains(tmp_path: Path, at_small: float, at_large: float, verdict: str) -> None:
    runs = grid(base("desk"), batch_size=(32, 512), sampler=("random", "domain"), seed=(0, 1, 2))
    gains = {("domain", 32): at_small, ("domain", 512): at_large}
    made = [record(tmp_path, run, gains.get((run.sampler, run.batch_size), 0.0) + run.batch_size / 1e4) for run in runs]
    of, above = (
        (term(NDCG, sampler="domain", batch_size=size), term(NDCG, sampler="random", batch_size=size))
        for size in (32, 512)
    )
    claim = Claim.interaction("X.i", "domains help most", of=of, above=above, source="here", because="a test")
    (judged,) = judge_all([claim], "desk", runs, made)
    assert judged.verdict == verdict
    assert judged.effect == pytest.approx(at_small - at_large, abs=0.01)
    assert (judged.num_seeds, judged.num_runs) == (3, 12)
    assert judge_all([claim], "desk", runs, made[1:])[0].verdict == "NOT RUN"


def test_a_margin_moves_the_bar(tmp_path: Path) -> None:
    made = records(tmp_path, 0.05)
    wanted = [r.run for r in made]
    assert judge_all([replace(BETTER, margin=0.10)], "desk", wanted, made)[0].verdict == "DIFFERS"
    assert judge_all([replace(BETTER, margin=0.05)], "desk", wanted, made)[0].verdict == "UNDECIDED"


def test_one_missing_record_makes_a_claim_not_run(tmp_path: Path) -> None:
    made = records(tmp_path, 0.05)
    wanted = [r.run for r in made]
    for gone in made:
        (judged,) = judge_all([BETTER], "desk", wanted, [r for r in made if r is not gone])
        assert judged.verdict == "NOT RUN" and judged.effect is None
        assert judged.note.startswith("1 of 3 runs with sampler=")


def test_smoke_says_nothing_of_the_paper(tmp_path: Path) -> None:
    assert judge_all([BETTER], "smoke", [], [])[0].verdict == "WRONG SCALE"


def test_printed_values_are_judged_only_at_the_papers_scales(tmp_path: Path) -> None:
    expected = {term(NDCG, sampler="random"): 0.5}
    claim = Claim.value("X.v", "0.5 is printed", expected=expected, margin=0.02, source="here", because="a test")
    made = records(tmp_path, 0.05)
    assert judge_all([claim], "desk", [r.run for r in made], made)[0].verdict == "WRONG SCALE"
    small = [replace(r, run=replace(r.run, scale="small")) for r in made]
    assert judge_all([claim], "small", [r.run for r in small], small)[0].verdict == "HOLDS"
    off = replace(claim, expected=dict.fromkeys(claim.expected, 0.6))
    assert judge_all([off], "small", [r.run for r in small], small)[0].verdict == "DIFFERS"


def test_all_comparisons_of_a_claim_must_hold_and_the_weakest_is_shown(tmp_path: Path) -> None:
    made = records(tmp_path, 0.05)
    good, bad = BETTER.pairs[0], (BETTER.pairs[0][1], BETTER.pairs[0][0])
    (judged,) = judge_all([replace(BETTER, pairs=(good, bad))], "desk", [r.run for r in made], made)
    assert judged.verdict == "DIFFERS" and judged.effect is not None and judged.effect < 0


def test_claims_of_one_artefact_share_their_error(tmp_path: Path) -> None:
    made = records(tmp_path, 0.05)
    wanted = [r.run for r in made]
    alone = judge_all([BETTER], "desk", wanted, made)[0]
    many = judge_all([replace(BETTER, id=f"X.{n}") for n in range(20)], "desk", wanted, made)[0]
    assert many.low is not None and alone.low is not None and many.low < alone.low


def test_a_trend_follows_its_axis(tmp_path: Path) -> None:
    runs = grid(base("desk"), batch_size=(64, 128, 256, 512), seed=(0, 1))
    made = [record(tmp_path, run, run.batch_size / 5000) for run in runs]
    claim = Claim.trend(
        "X.t", "larger is better", over=term(NDCG), axis="batch_size", sign=1, source="here", because="a test"
    )
    assert judge_all([claim], "desk", runs, made)[0].verdict == "HOLDS"
    assert judge_all([replace(claim, sign=-1)], "desk", runs, made)[0].verdict == "DIFFERS"


def test_an_identity_needs_no_records() -> None:
    true = Claim.identity("X.i", "1 + 1 = 2", holds=lambda: (1 + 1 == 2, "2"), source="here", because="arithmetic")
    false = Claim.identity("X.j", "1 + 1 = 3", holds=lambda: (1 + 1 == 3, "2"), source="here", because="arithmetic")
    assert [judged.verdict for judged in judge_all([true, false], "small", [], [])] == ["HOLDS", "DIFFERS"]


def test_units_are_what_the_metric_is_the_mean_of(tmp_path: Path) -> None:
    made = record(tmp_path, base("desk"), 0.0)
    values, strata = units(made, "{suite}/g/ndcg_at_10")
    assert len(values) == 100 and set(strata) == {1}
    assert np.array_equal(units(made, "train/loss")[0], np.zeros(10))
    with pytest.raises(ValueError, match="keeps no values behind 'lab/mean/ndcg_at_10'"):
        units(made, "lab/mean/ndcg_at_10")


def test_a_measure_whose_queries_are_not_kept_is_one_number_of_its_seed(tmp_path: Path) -> None:
    """Three seeds of recall, half a point apart, ten points above three others: a t test over seeds decides."""
    recall = "{suite}/mean/recall_at_100"
    made = []
    for run in grid(base("desk"), sampler=("random", "domain"), seed=(0, 1, 2)):
        level = 0.7 + 0.1 * (run.sampler == "domain") + 0.005 * run.seed
        scores = np.full(500, 0.5, np.float32)
        metrics = {**metrics_of(scores), "desk/mean/recall_at_100": level}
        suite = {"suite": {"datasets": DATASETS}}
        made.append(write_record(tmp_path, run, metrics=metrics, arrays={"desk": scores}, provenance=suite))
    assert units(made[0], recall)[0].tolist() == [0.7]
    claim = replace(BETTER, pairs=((term(recall, sampler="domain"), term(recall, sampler="random")),))
    judged = judge_all([claim], "desk", [one.run for one in made], made)[0]
    assert judged.verdict == "HOLDS" and judged.effect == pytest.approx(0.1)


def test_systems_that_no_seed_moves_are_compared_by_a_t_test_over_queries(tmp_path: Path) -> None:
    rng, told = np.random.default_rng(5), {"suite": {"datasets": [{"name": "a", "family": "f", "num_queries": 60}]}}
    scores, made = {name: rng.uniform(0.3, 0.7, 60).astype(np.float32) for name in ("bm25", "surrogate")}, []
    for name, values in scores.items():
        metrics, run = {"desk/mean/ndcg_at_10": float(values.mean())}, base("desk", architecture=name)
        made.append(write_record(tmp_path, run, metrics=metrics, arrays={"desk": values}, provenance=told))
    claim = replace(BETTER, pairs=((term(NDCG, architecture="bm25"), term(NDCG, architecture="surrogate")),))
    (judged,) = judge_all([claim], "desk", [one.run for one in made], made)
    theirs = stats.ttest_rel(*(values.astype(np.float64) for values in scores.values())).confidence_interval(0.95)
    assert (judged.low, judged.high) == pytest.approx(tuple(theirs))


def test_steps_of_a_training_are_no_sample_and_its_measures_a_t_test_over_seeds(tmp_path: Path) -> None:
    rng, made, levels = np.random.default_rng(6), [], dict[tuple[str, int], float]()
    for run in grid(base("desk"), sampler=("random", "domain"), seed=(0, 1, 2)):
        values = rng.normal(0.5, 0.3, 40).astype(np.float32)
        levels[run.sampler, run.seed] = level = float(values.mean(dtype=np.float64))
        told = {"metrics": {"train/loss": level}, "arrays": {"train/loss": values}, "provenance": {}}
        made.append(write_record(tmp_path, run, **told))
    claim = replace(BETTER, pairs=((term("train/loss", sampler="domain"), term("train/loss", sampler="random")),))
    (judged,) = judge_all([claim], "desk", [one.run for one in made], made)
    theirs = stats.ttest_1samp([levels["domain", seed] - levels["random", seed] for seed in (0, 1, 2)], 0)
    assert (judged.low, judged.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))


def test_a_ratio_is_a_difference_of_logarithms(tmp_path: Path) -> None:
    speeds = {"random": 400.0, "domain": 100.0}
    made = [
        write_record(
            tmp_path, run, metrics={"train/pairs_per_second": speeds[run.sampler] + run.seed}, arrays={}, provenance={}
        )
        for run in grid(base("desk"), sampler=("random", "domain"), seed=(0, 1, 2))
    ]
    speed = "log2 train/pairs_per_second"
    claim = Claim.order(
        "X.s", "four times", pairs=[(term(speed, sampler="random"), term(speed, sampler="domain"))], margin=1.0,
        source="here", because="twice",
    )  # fmt: skip
    (judged,) = judge_all([claim], "desk", [r.run for r in made], made)
    assert (judged.verdict, judged.unit.name) == ("HOLDS", "doublings")
    assert judged.effect == pytest.approx(2.0, abs=0.05)


def test_values_behind_a_ratio_are_their_logarithms_to_first_order(tmp_path: Path) -> None:
    values = (4 + 1e-3 * np.random.default_rng(3).normal(size=50)).astype(np.float32)
    metrics = {"spread/within": float(values.mean(dtype=np.float64))}
    made = write_record(tmp_path, base("desk"), metrics=metrics, arrays={"spread/within": values}, provenance={})
    found, strata = units(made, "log2 spread/within")
    np.testing.assert_allclose(found, np.log2(values.astype(np.float64)), atol=1e-6)
    assert found.mean() == pytest.approx(value_of(made, "log2 spread/within"), abs=1e-9) and not strata.any()


def test_a_number_that_has_no_logarithm_is_refused_with_its_name(tmp_path: Path) -> None:
    where = {"arrays": {"spread/within": np.zeros(4, np.float32)}, "provenance": {}}
    kept = write_record(tmp_path / "a", base("desk"), metrics={"spread/within": 0.0}, **where)
    alone = write_record(tmp_path / "b", base("desk"), metrics={"spread/within": 0.0}, arrays={}, provenance={})
    for of in (lambda made: units(made, "log2 spread/within"), lambda made: value_of(made, "log2 spread/within")):
        for made in (kept, alone):
            with pytest.raises(ValueError, match=r"has 'spread/within' = 0\.0, of which there is no ratio; .* above 0"):
                of(made)


def test_a_misspelt_metric_is_an_error_that_names_claim_and_metric(tmp_path: Path) -> None:
    made, misspelt = records(tmp_path, 0.05), "{suite}/mean/ndgc_at_10"
    claim = replace(BETTER, pairs=((term(misspelt, sampler="domain"), term(misspelt, sampler="random")),))
    says = rf"claim {claim.id}: record .* has no metric 'desk/mean/ndgc_at_10', did you mean 'desk/mean/ndcg_at_10'"
    with pytest.raises(ValueError, match=says):
        judge_all([claim], "desk", [r.run for r in made], made)


def test_a_dataset_that_a_suite_lacks_is_no_number_and_cannot_be_judged(tmp_path: Path) -> None:
    made = records(tmp_path, 0.05)
    absent = "{suite}/arguana/ndcg_at_10"
    claim = replace(BETTER, pairs=((term(absent, sampler="domain"), term(absent, sampler="random")),))
    wanted = [r.run for r in made]
    (judged,) = judge_all([claim], "desk", wanted, made)
    assert (judged.verdict, judged.note) == ("WRONG SCALE", "the suite desk has no dataset arguana")
    assert judge_all([claim], "desk", wanted, made[1:])[0].verdict == "NOT RUN"


def test_an_order_without_pairs_is_refused_where_it_is_stated() -> None:
    with pytest.raises(ValueError, match=r"claim x\.a: pairs=\(\)"):
        Claim.order("x.a", "nothing is compared", pairs=[], source="§1", because="-")
