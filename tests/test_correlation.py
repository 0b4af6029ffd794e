"""Correlation claims: Pearson's r as scipy has it, units drawn as they are said to be, verdicts that are known."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from repro.claims import judge_all
from repro.correlation import Point, correlate, draw_units, weighted_pearson
from repro.spec import Claim, Run, Term, base, grid, term
from repro.store import Record, write_record

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


def test_r_is_scipys_and_its_weighted_form_repeats_points() -> None:
    x, y = np.random.default_rng(1).normal(size=(2, 30)) + 1e6
    counts = np.random.default_rng(2).multinomial(30, np.full(30, 1 / 30), 20).astype(float)
    found = weighted_pearson(x, y, counts)
    for weights, r in zip(counts.astype(int), found, strict=True):
        assert r == pytest.approx(stats.pearsonr(np.repeat(x, weights), np.repeat(y, weights)).statistic, abs=1e-6)


def test_the_bootstrap_interval_is_close_to_scipys() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=80)
    y = 0.6 * x + rng.normal(size=80)
    found, samples = correlate(points(x, y), num_samples=4000)
    theirs = stats.bootstrap(
        (x, y),
        lambda a, b: stats.pearsonr(a, b).statistic,
        paired=True,
        n_resamples=2000,
        method="percentile",
        vectorized=False,
        rng=np.random.default_rng(4),
    ).confidence_interval
    assert found == pytest.approx(stats.pearsonr(x, y).statistic)
    assert np.quantile(samples, [0.025, 0.975]) == pytest.approx([theirs.low, theirs.high], abs=0.04)


def test_groups_have_one_vote_each_and_offsets_between_them_say_nothing() -> None:
    rng = np.random.default_rng(5)
    one, two = rng.normal(size=(2, 40)), rng.normal(size=(2, 10)) + 50  # together r is near 1, inside each near 0
    found, _ = correlate(points(*one, "a") + points(*two, "b"), num_samples=10)
    assert found == pytest.approx((stats.pearsonr(*one).statistic + stats.pearsonr(*two).statistic) / 2)


def test_points_of_a_unit_are_drawn_together_and_datasets_alike_for_all_systems() -> None:
    values = np.arange(12.0)
    counts = draw_units(points(values, values, "a", NAMES) + points(values, values, "b", NAMES), 50, 0)
    assert np.array_equal(counts[:, :12], counts[:, 12:]) and (counts.sum(axis=1) == 24).all()
    apart = draw_units(points(values, values, "a") + points(values, values, "b"), 50, 0)
    assert not np.array_equal(apart[:, :12], apart[:, 12:])
    assert (apart[:, :12].sum(axis=1) == 12).all(), "units are drawn inside their group"


def test_two_points_are_no_correlation() -> None:
    with pytest.raises(ValueError, match="a correlation takes 3 points"):
        correlate(points(np.arange(2.0), np.arange(2.0)), num_samples=10)


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
    rows = [{"name": dataset, "family": "f", "num_queries": 1} for dataset in NAMES]
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
    assert judged.effect == pytest.approx(-stats.pearsonr(far, means - reference).statistic)


def test_an_unknown_kind_of_point_is_refused() -> None:
    with pytest.raises(ValueError, match="points='queries' is unknown; choose one of"):
        Claim.correlation("X", "", x=term("a"), y=term("b"), points="queries", sign=1, source="", because="")
