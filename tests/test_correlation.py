"""Correlation claims: Pearson's r and its p-value as scipy has them, units counted as said, known verdicts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from repro.claims.correlation import Point, correlate
from repro.claims.judge import judge_all
from repro.records.store import Record, write_record
from repro.spec import Claim, Run, Term, base, grid, term

QUALITY, HARD = "{suite}/mean/ndcg_at_10", "train/difficulty"
OVER_RUNS = Claim.correlation(
    "X.r",
    "harder is better",
    x=term(HARD),
    y=term(QUALITY),
    points="runs",
    within="batch_size",
    sign=1,
    source="here",
    because="a test",
)
NAMES = tuple(f"set{n}" for n in range(12))


def points(x: np.ndarray, y: np.ndarray, group: str = "", units: tuple[str, ...] = ()) -> list[Point]:
    names = units or tuple(f"{group}{n}" for n in range(len(x)))
    return [Point(float(a), float(b), group, unit) for a, b, unit in zip(x, y, names, strict=True)]


@pytest.mark.parametrize("number", [5, 8, 30])
def test_r_is_scipys_and_its_p_value_too(number: int) -> None:
    x, y = np.random.default_rng(1).normal(size=(2, number)) + 1e6
    found, theirs = correlate(points(x, y), 3), stats.pearsonr(x, y)
    assert found.effect == pytest.approx(theirs.statistic)
    assert 2 * min(found.above(0.0), found.below(0.0)) == pytest.approx(theirs.pvalue)
    low, high = found.interval(theirs.pvalue) or (0.0, 0.0)
    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-6), "interval and test agree"


def test_the_interval_of_r_is_near_fishers_where_points_are_many() -> None:
    x = np.random.default_rng(2).normal(size=300)
    y = x + np.random.default_rng(3).normal(size=300)
    theirs = stats.pearsonr(x, y).confidence_interval(0.95)
    assert correlate(points(x, y), 3).interval(0.05) == pytest.approx(tuple(theirs), abs=2e-3)


@pytest.mark.parametrize(("rho", "level"), [(0.0, 0.05), (0.0, 0.0125), (0.5, 0.0125), (0.9, 0.05)])
def test_an_interval_of_six_points_covers_as_often_as_it_says(rho: float, level: float) -> None:
    rng, missed, number = np.random.default_rng(4), 0, 4000
    for _ in range(number):
        x, own = rng.normal(size=(2, 6))
        low, high = correlate(points(x, rho * x + np.sqrt(1 - rho**2) * own), 3).interval(level) or (0.0, 0.0)
        missed += not low <= rho <= high
    assert missed / number <= level + 3 * np.sqrt(level * (1 - level) / number)


def test_groups_have_one_vote_each_and_offsets_between_them_say_nothing() -> None:
    rng = np.random.default_rng(5)
    one, two = rng.normal(size=(2, 40)), rng.normal(size=(2, 10)) + 50  # together r is near 1, inside each near 0
    found = correlate(points(*one, "a") + points(*two, "b"), 3)
    assert found.effect == pytest.approx((stats.pearsonr(*one).statistic + stats.pearsonr(*two).statistic) / 2)
    assert 1 / (found.df + 1) == pytest.approx((1 / 39 + 1 / 9) / 4), "the variances of two independent r, averaged"


def test_systems_scored_on_the_same_datasets_are_no_further_evidence() -> None:
    x, y = np.random.default_rng(6).normal(size=(2, 12))
    once, twice = points(x, y, "a", NAMES), points(x, y, "a", NAMES) + points(x, y, "b", NAMES)
    assert correlate(twice, 3).df == pytest.approx(correlate(once, 3).df) == 10


def test_a_family_of_datasets_counts_once() -> None:
    x, y = np.random.default_rng(6).normal(size=(2, 12))
    families = tuple(f"family{n // 2}" for n in range(12))
    assert correlate(points(x, y, "a", families), 3).df == pytest.approx(6 - 2)


def test_four_points_are_no_correlation() -> None:
    found = correlate(points(np.arange(4.0), np.arange(4.0)), 3)
    assert not found.is_known and found.note == "too few points: 4 where a correlation takes 5"


def run_records(folder: Path, slope: float) -> list[Record]:
    runs = grid(base("desk"), batch_size=(64, 512), num_warmup_steps=tuple(range(1, 9)), seed=(0, 1))
    made = []
    for run in runs:
        hard = run.num_warmup_steps / 10
        level = 0.5 * (run.batch_size == 512) + slope * hard + 0.002 * np.sin(9 * hard + run.seed)
        metrics = {"desk/mean/ndcg_at_10": level, "train/difficulty": hard}
        made.append(write_record(folder, run, metrics=metrics, arrays={}, provenance={}))
    return made


@pytest.mark.parametrize(("slope", "verdict"), [(0.1, "HOLDS"), (-0.1, "DIFFERS"), (0.0, "UNDECIDED")])
def test_a_correlation_over_runs_is_judged_inside_each_group(tmp_path: Path, slope: float, verdict: str) -> None:
    made = run_records(tmp_path, slope)
    (judged,) = judge_all([OVER_RUNS], "desk", [r.run for r in made], made)
    assert judged.verdict == verdict and (judged.num_seeds, judged.num_runs) == (2, 32)
    (missing,) = judge_all([OVER_RUNS], "desk", [r.run for r in made], made[1:])
    assert missing.verdict == "NOT RUN"


def dataset_record(folder: Path, run: Run, scores: np.ndarray, name: str) -> Record:
    rows = [{"name": one, "family": f"family {number // 2}", "num_queries": 1} for number, one in enumerate(NAMES)]
    metrics = {f"desk/{dataset}/{name}": float(value) for dataset, value in zip(NAMES, scores, strict=True)}
    return write_record(folder, run, metrics=metrics, arrays={}, provenance={"suite": {"datasets": rows}})


@pytest.mark.parametrize(("slope", "verdict"), [(-0.2, "HOLDS"), (0.2, "DIFFERS")])
def test_a_correlation_over_datasets_takes_a_reference_away(tmp_path: Path, slope: float, verdict: str) -> None:
    far, reference = np.linspace(1, 2, 12), np.random.default_rng(6).uniform(size=12)
    counted = base("desk", measure="divergence", architecture="none")
    lexical = base("desk", architecture="bm25")
    made = [
        dataset_record(tmp_path, counted, far, "idf_divergence"),
        dataset_record(tmp_path, lexical, reference, "ndcg_at_10"),
    ]
    for seed in (0, 1):
        scores = reference + slope * far + 0.01 * np.random.default_rng(seed).normal(size=12)
        made.append(dataset_record(tmp_path, base("desk", seed=seed), scores, "ndcg_at_10"))
    score = "{suite}/*/ndcg_at_10"
    neural: Term = term(score, architecture="biencoder")
    claim = Claim.correlation(
        "X.d",
        "the further, the worse",
        x=term("{suite}/*/idf_divergence", measure="divergence"),
        y=neural,
        minus=term(score, architecture="bm25"),
        points="datasets",
        sign=-1,
        source="here",
        because="a test",
    )
    (judged,) = judge_all([claim], "desk", [r.run for r in made], made)
    assert judged.verdict == verdict and judged.effect is not None
    means = np.mean([[r.metrics[f"desk/{name}/ndcg_at_10"] for name in NAMES] for r in made[2:]], axis=0)
    assert judged.effect == pytest.approx(stats.pearsonr(far, means - reference).statistic)
    (by_family,) = judge_all([replace(claim, blocks="family")], "desk", [r.run for r in made], made)
    assert [one.estimate and one.estimate.df for one in (judged, by_family)] == pytest.approx([12 - 2, 6 - 2])


def test_an_unknown_kind_of_point_is_refused() -> None:
    with pytest.raises(ValueError, match="points='queries' is unknown; choose one of"):
        Claim.correlation("X", "", x=term("a"), y=term("b"), points="queries", sign=1, source="", because="")
