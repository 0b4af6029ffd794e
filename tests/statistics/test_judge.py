"""Verdicts of claims and bootstrap intervals against scipy, statsmodels and arithmetic, and the published verdicts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from repro.cli.figures import FRONT_PICTURE, FRONT_SCALE
from repro.records.store import Record, write_record
from repro.report.artefacts import load_records
from repro.report.gallery import list_rows
from repro.report.tables import format_in_unit
from repro.spec import TRAINED, Claim, Figure, Run, base, by_scale, grid, term
from repro.spec.registry import artefacts, experiments
from repro.statistics.contrasts import find_runs
from repro.statistics.judge import (
    WORDS,
    Comparison,
    Judgement,
    _points_by_dataset,
    choose_word,
    compare,
    is_early,
    judge_all,
)
from repro.statistics.units import load_units, read_metric, stratified_mean
from repro.text import MINUS
from tests.published import judge_published

NDCG = "{suite}/mean/ndcg_at_10"
SEEDS = (1, 2, 3, 4, 5)
DATASETS = [{"name": "a", "family": "f", "num_queries": 40}, {"name": "b", "family": "g", "num_queries": 10}]
NOISE = (0.011, -0.007, 0.004, -0.002, 0.009)
CLEAR_GAINS = [0.05 + noise for noise in NOISE]  # their mean is 0.053
ORIGIN = {"source": "here", "because": "a test"}


def make_order(id: str = "X.a", better: str = "domain", worse: str = "random", **fields: object) -> Claim:
    pairs = [(term(NDCG, sampler=better), term(NDCG, sampler=worse))]
    return Claim.order(id, "one beats another", pairs=pairs, **ORIGIN, **fields)  # type: ignore[arg-type]


def write_on_machines(folder: Path, *machines: dict[str, str]) -> list[Record]:
    """Write the records of two samplers with clear gains, whose arms ran on these machines."""
    records = []
    for seed, gain in zip(SEEDS, CLEAR_GAINS, strict=True):
        for sampler, score, machine in zip(("random", "domain"), (0.5, 0.5 + gain), machines, strict=True):
            run = base("desk", sampler=sampler, seed=seed)
            record = write_scored(folder, run, score)
            records.append(replace(record, provenance={**record.provenance, "machine": machine}))
    return records


def make_trend(**fields: object) -> Claim:
    return Claim.trend("X.t", "", over=term(NDCG), axis="batch_size", **ORIGIN, **fields)  # type: ignore[arg-type]


def write_scored(folder: Path, run: Run, score: float, *, made: str = "", **metrics: float) -> Record:
    """Write a record of two collections with this mean score, which differ by 0.1."""
    scores = {"mean": score, "a": score + 0.05, "b": score - 0.05, "f": score + 0.05, "g": score - 0.05}
    named = {f"desk/{name}/ndcg_at_10": value for name, value in scores.items()} | {"train/loss": 1.0}
    provenance = {"suite": {"datasets": DATASETS}} | ({"made": made} if made else {})
    return write_record(folder, run, metrics=named | metrics, arrays={}, provenance=provenance)


def write_pairs(folder: Path, gains: Sequence[float], seeds: Sequence[int] = SEEDS, made: str = "") -> list[Record]:
    """Write records of two samplers whose differences by seed are known."""
    records = []
    for seed, gain in zip(seeds, gains, strict=True):
        level = 0.5 + 0.03 * seed
        for sampler, score in (("random", level), ("domain", level + gain)):
            records.append(write_scored(folder, base("desk", sampler=sampler, seed=seed), score, made=made))
    return records


@pytest.fixture
def records(tmp_path: Path) -> list[Record]:
    """Records of two samplers, of which one clearly scores above the other."""
    return write_pairs(tmp_path, CLEAR_GAINS)


def judge_claims(
    claims: Sequence[Claim], records: Sequence[Record], runs: Sequence[Run] = (), **options: object
) -> list[Judgement]:
    """Judge claims at desk. Without runs, those of the records are declared."""
    declared = list(runs) or [record.run for record in records]
    return judge_all(claims, "desk", declared, records, **options)  # type: ignore[arg-type]


def judge(claim: Claim, records: Sequence[Record], runs: Sequence[Run] = (), **options: object) -> Judgement:
    (judgement,) = judge_claims([claim], records, runs, **options)
    return judgement


def test_interval_equals_scipys_paired_t(tmp_path: Path) -> None:
    gains = np.array(NOISE) + 0.02
    judgement = judge(make_order(), write_pairs(tmp_path, gains.tolist()))
    (comparison,) = judgement.comparisons
    low, high = stats.ttest_rel(0.5 + gains, np.full(5, 0.5)).confidence_interval(0.95)
    assert (comparison.effect, comparison.low, comparison.high) == pytest.approx((gains.mean(), low, high))
    assert comparison.by_seed == pytest.approx(gains)
    assert (judgement.word, judgement.seeds, judgement.num_runs) == ("HOLDS", SEEDS, 10)


INTERVALS = [(-0.02, -0.015), (-0.012, -0.007), (-0.009, -0.004), (-0.009, 0.009), (-0.001, 0.004), (0.001, 0.004),
             (0.005, 0.02), (0.011, 0.02)]  # fmt: skip
EQUIVALENCE = Claim.equivalence("X.e", "", pairs=[(term(NDCG), term(NDCG))], delta=0.01, **ORIGIN)
VALUE = Claim.value("X.v", "", expected={term(NDCG): 0.5}, margin=0.01, **ORIGIN)


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (make_order(), "DIFFERS DIFFERS DIFFERS OPEN OPEN HOLDS HOLDS HOLDS"),
        (make_order(delta=0.005), "DIFFERS DIFFERS DIFFERS OPEN SMALL HOLDS HOLDS HOLDS"),
        (make_order(margin=0.01), "DIFFERS DIFFERS DIFFERS DIFFERS DIFFERS DIFFERS OPEN HOLDS"),
        (make_order(margin=-0.01), "DIFFERS OPEN HOLDS HOLDS HOLDS HOLDS HOLDS HOLDS"),
        (make_trend(sign=-1, margin=0.01), "HOLDS OPEN DIFFERS DIFFERS DIFFERS DIFFERS DIFFERS DIFFERS"),
        (EQUIVALENCE, "DIFFERS OPEN HOLDS HOLDS HOLDS HOLDS OPEN DIFFERS"),
        (VALUE, "DIFFERS OPEN HOLDS HOLDS HOLDS HOLDS OPEN DIFFERS"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_word_follows_from_interval(claim: Claim, words: str) -> None:
    """The words are those of each of INTERVALS, in this order."""
    comparisons = [Comparison((low + high) / 2, low, high) for low, high in INTERVALS]
    assert [choose_word(claim, [comparison]) for comparison in comparisons] == words.split()


def test_small_effects_are_named(tmp_path: Path) -> None:
    """A claim HOLDS (small) if its interval is also inside ±δ. A small opposite effect does not differ."""
    records = write_pairs(tmp_path, [gain / 10 + 0.003 for gain in NOISE])
    small, large = judge_claims([make_order(delta=0.01), make_order("X.b", delta=0.003)], records)
    assert (small.word, small.verdict, large.verdict) == ("HOLDS", "HOLDS (small)", "HOLDS")
    opposite = write_pairs(tmp_path / "opposite", [-0.001 * gain for gain in (2.0, 2.2, 1.9, 2.1, 2.0)])
    assert [judge(make_order(delta=delta), opposite).word for delta in (None, 0.005)] == ["DIFFERS", "SMALL"]


def test_several_comparisons_must_all_hold(records: list[Record]) -> None:
    (pair,) = make_order().pairs  # type: ignore[attr-defined]
    both, mixed = (replace(make_order(), pairs=(pair, other)) for other in (pair, pair[::-1]))
    assert judge(both, records).word == "HOLDS"
    judgement = judge(mixed, records)
    assert judgement.word == "DIFFERS"
    assert [comparison.effect for comparison in judgement.comparisons] == pytest.approx([0.053, -0.053])


def test_fewer_seeds_than_declared_are_tentative(records: list[Record]) -> None:
    runs = [record.run for record in records]
    four_seeds = judge(make_order(), records[2:], runs)
    assert (four_seeds.word, four_seeds.note) == ("tentative", "4 of 5 declared seeds")
    assert four_seeds.seeds == (2, 3, 4, 5)
    assert four_seeds.comparisons[0].low is not None
    single_seed = judge(make_order(), records[:2], runs)
    assert (single_seed.word, single_seed.comparisons[0].low) == ("tentative", None)
    assert judge(make_order(), [], runs).word == "not run"


def test_arms_of_mixed_precision_are_tentative(tmp_path: Path) -> None:
    cpu, gpu = {"device": "x86_64", "dtype": "float32"}, {"device": "H200", "dtype": "float32"}
    words = {}
    for name, machines in {
        "one": (cpu, cpu),
        "device": (cpu, gpu),
        "precision": (gpu, gpu | {"dtype": "bfloat16"}),
    }.items():
        judged = judge(make_order(), write_on_machines(tmp_path / name, *machines))
        words[name] = judged.word, judged.note
    assert words["one"] == ("HOLDS", "")
    assert words["device"][0] == "HOLDS" and "H200, x86_64" in words["device"][1]
    assert words["precision"][0] == "tentative" and "bfloat16, float32" in words["precision"][1]


def test_only_declared_seeds_judge(tmp_path: Path) -> None:
    """Seeds of other claims are not used. A scale may declare its own seeds."""
    records = write_pairs(tmp_path, (*NOISE, 0.001), (*SEEDS, 9))
    judgement = judge(make_order(seeds=by_scale({"desk": (1, 9)})), records)
    assert judgement.seeds == (1, 9) and judgement.effect == pytest.approx((NOISE[0] + 0.001) / 2)
    assert make_order(seeds=by_scale({"lab": (1, 9)})).declared_seeds("desk") == SEEDS


@pytest.mark.parametrize(
    ("made", "word"), [("2026-11-21T23:59:59+00:00", "tentative"), ("2026-11-22T00:00:00+00:00", "HOLDS")]
)
def test_older_records_do_not_judge(tmp_path: Path, made: str, word: str) -> None:
    records = write_pairs(tmp_path, CLEAR_GAINS, made=made)
    assert judge(make_order(stated="2026-11-22"), records).word == word
    assert judge(make_order(), records).word == "HOLDS"


def test_first_commit_dates_records(tmp_path: Path, records: list[Record]) -> None:
    """A record without a time is dated by the commit that published it."""
    (tmp_path / "FIRST_COMMITS").write_text(f"2026-11-21  {records[0].id}\n")
    judgement = judge(make_order(stated="2026-11-22"), records)
    assert (judgement.word, judgement.note) == ("tentative", "1 of 5 seeds older than the claim")


def test_interaction_is_difference_of_differences(tmp_path: Path) -> None:
    runs = grid(base("desk"), batch_size=(32, 512), sampler=("random", "domain"), seed=SEEDS)
    gains = {("domain", 32): 0.06, ("domain", 512): 0.01}
    records = []
    for run in runs:
        gain = gains.get((run.sampler, run.batch_size), 0) * (1 + run.seed / 10)
        records.append(write_scored(tmp_path, run, 0.5 + gain))
    of, above = (
        (term(NDCG, sampler="domain", batch_size=size), term(NDCG, sampler="random", batch_size=size))
        for size in (32, 512)
    )
    judgement = judge(Claim.interaction("X.i", "", of=of, above=above, **ORIGIN), records)
    assert judgement.comparisons[0].by_seed == pytest.approx([0.05 * (1 + seed / 10) for seed in SEEDS])


def test_trend_is_slope_per_doubling(tmp_path: Path) -> None:
    runs = grid(base("desk"), batch_size=(64, 128, 512), seed=SEEDS)
    scores = {run: 0.5 + 0.01 * ((run.batch_size * 7 + run.seed * 13) % 11) for run in runs}
    records = [write_scored(tmp_path, run, score) for run, score in scores.items()]
    slopes = [np.polyfit([6, 7, 9], [scores[run] for run in runs if run.seed == seed], 1)[0] for seed in SEEDS]
    assert judge(make_trend(sign=1), records).comparisons[0].by_seed == pytest.approx(slopes)
    two_sizes = [record for record in records if record.run.batch_size < 500]
    assert judge(make_trend(sign=1), two_sizes).word == "not run"


def test_seedless_references_use_query_bootstrap(tmp_path: Path) -> None:
    """The interval is close to that of scipy's bootstrap, which resamples within each collection."""
    rng = np.random.default_rng(5)
    datasets = [DATASETS[0], DATASETS[1] | {"num_queries": 30}]
    scores = {name: rng.uniform(0.3, 0.7, 70).astype(np.float32) for name in ("bm25", "surrogate")}
    records = []
    for name, values in scores.items():
        means = [float(values[:40].mean(dtype=np.float64)), float(values[40:].mean(dtype=np.float64))]
        named = dict(zip(("a", "b", "f", "g", "mean"), (*means, *means, sum(means) / 2), strict=True))
        metrics = {f"desk/{name}/ndcg_at_10": value for name, value in named.items()}
        run, provenance = base("desk", architecture=name), {"suite": {"datasets": datasets}}
        records.append(write_record(tmp_path, run, metrics=metrics, arrays={"desk": values}, provenance=provenance))
    pairs = [(term(NDCG, architecture="bm25"), term(NDCG, architecture="surrogate"))]
    judgement = judge(Claim.order("X.b", "", pairs=pairs, **ORIGIN), records)
    differences = scores["bm25"].astype(float) - scores["surrogate"]
    expected = stats.bootstrap(
        (differences[:40], differences[40:]),
        lambda a, b, axis: (a.mean(axis) + b.mean(axis)) / 2,
        n_resamples=20_000, method="percentile", rng=0, vectorized=True,
    ).confidence_interval  # fmt: skip
    assert judgement.seeds == ()
    assert judgement.effect == pytest.approx((differences[:40].mean() + differences[40:].mean()) / 2)
    (comparison,) = judgement.comparisons
    assert (comparison.low, comparison.high) == pytest.approx((expected.low, expected.high), abs=0.003)


def make_correlation(**fields: object) -> Claim:
    x, y = term("train/loss"), term(NDCG)
    return Claim.correlation("X.r", "", x=x, y=y, points="runs", sign=1, **ORIGIN, **fields)  # type: ignore[arg-type]


def test_correlation_needs_five_settings(tmp_path: Path) -> None:
    losses = {8: 1.0, 16: 1.4, 32: 1.1, 64: 1.9, 128: 1.6}
    scores = {8: 0.1, 16: 0.3, 32: 0.2, 64: 0.5, 128: 0.6}
    records = [
        write_scored(tmp_path, run, scores[run.batch_size], **{"train/loss": losses[run.batch_size]})
        for run in grid(base("desk"), batch_size=tuple(losses), seed=SEEDS)
    ]
    expected = stats.pearsonr(list(losses.values()), list(scores.values()))
    interval = expected.confidence_interval(0.95)
    assert interval.low > 0
    judgement = judge(make_correlation(), records)
    (comparison,) = judgement.comparisons
    assert (comparison.effect, comparison.low, comparison.high) == pytest.approx((expected.statistic, *interval))
    assert judgement.word == "HOLDS"
    four_settings = [record for record in records if record.run.batch_size > 8]
    assert judge(make_correlation(), four_settings).word == "descriptive"
    assert judge(make_correlation(within="sampler"), records).effect == pytest.approx(expected.statistic)
    constant = [
        write_scored(tmp_path / "constant", record.run, 0.1 + record.run.batch_size / 200) for record in records
    ]
    assert judge(make_correlation(), constant).comparisons == (Comparison(0.0),), "one side does not vary"


def test_correlation_over_datasets_subtracts_on_both_sides() -> None:
    """Only datasets with the ending of the metric are points."""
    scores = {"gain": (5, 9, 1), "other": (1, 2, 7), "x": (4, 3, 0), "less": (2, 2, 9)}
    names = ("a-summary", "b-summary", "b-name")
    metrics = {f"{kind}/{name}": value for kind, row in scores.items() for name, value in zip(names, row, strict=True)}
    record = SimpleNamespace(run=base("desk"), metrics=metrics, datasets=[{"name": each} for each in names])
    gain, other, x, less = (term(f"{kind}/*-summary") for kind in scores)
    claim = Claim.correlation("X.d", "", x=x, y=gain, minus=other, x_minus=less, points="datasets", sign=1, **ORIGIN)  # type: ignore[arg-type]
    evidence: Any = SimpleNamespace(
        systems={key: ["system"] for key in claim.terms}, get_records=lambda system: [record]
    )
    assert _points_by_dataset(claim, evidence) == [[(4 - 2, 5 - 1), (3 - 2, 9 - 2)]]


def test_headline_words_need_p_after_holm(tmp_path: Path) -> None:
    """The headline claims of a scale are one family. A claim without records has p = 1."""
    gains = [0.02, 0.021, 0.006, 0.03, 0.003]
    records = write_pairs(tmp_path, gains)
    runs = [*(record.run for record in records), *grid(base("desk"), sampler="cluster", cluster_size=64, seed=SEEDS)]
    without_records = make_order("X.w", better="cluster", headlines=("desk",))
    claims = [make_order(headlines=("desk",)), without_records, make_order("X.c"), replace(without_records, id="X.z")]
    headline, _, other, _ = judge_claims(claims, records, runs)
    p = stats.ttest_1samp(gains, 0).pvalue
    assert 0.05 / 3 < p < 0.05
    assert headline.p == pytest.approx(multipletests([p, 1, 1], method="holm")[1][0])
    assert (headline.word, other.word, other.p) == ("OPEN", "HOLDS", None)


def test_tentative_headlines_have_p_of_one(tmp_path: Path) -> None:
    """A headline claim that lacks seeds does not relax the correction of the others, however clear its effect."""
    gains = [0.02, 0.021, 0.006, 0.03, 0.003]
    records = write_pairs(tmp_path, gains)
    tentative = make_order("X.w", headlines=("desk",), seeds=(*SEEDS, 6), sign=-1, margin=0.5)
    judged, other = judge_claims([make_order(headlines=("desk",)), tentative], records)
    assert other.word == "tentative" and other.max_p < 0.001
    p = stats.ttest_1samp(gains, 0).pvalue
    assert (judged.p, other.p) == pytest.approx(tuple(multipletests([p, 1], method="holm")[1]))
    assert judged.word == "OPEN" and p < 0.05 < 2 * p


def test_headline_differs_by_one_comparison(tmp_path: Path, records: list[Record]) -> None:
    """The other comparison may be unclear. The p of the clear one counts twice, because either could have differed."""
    for seed, noise in zip(SEEDS, NOISE, strict=True):
        run = base("desk", sampler="cluster", cluster_size=64, seed=seed)
        records.append(write_scored(tmp_path, run, 0.5 + 0.03 * seed + noise - 0.003))
    pairs = [(term(NDCG, sampler="random"), term(NDCG, sampler=name)) for name in ("cluster", "domain")]
    claim = Claim.order("X.a", "one beats two", pairs=pairs, headlines=("desk",), **ORIGIN)  # type: ignore[arg-type]
    judged = judge(claim, records)
    assert judged.word == "DIFFERS" and judged.max_p > 0.9
    assert judged.p == pytest.approx(2 * stats.ttest_1samp(CLEAR_GAINS, 0).pvalue)


def test_headlines_print_interval_over_collections(tmp_path: Path) -> None:
    """The interval is over collections, each with its mean over seeds."""
    records = []
    for run in grid(base("desk"), sampler=("random", "domain"), seed=SEEDS):
        gain = 0.04 if run.sampler == "domain" else 0.0
        metrics = {"desk/a/ndcg_at_10": 0.5 + gain, "desk/b/ndcg_at_10": 0.5 + gain / 2}
        records.append(write_scored(tmp_path, run, 0.5 + 0.75 * gain, **metrics))
    judgement = judge(make_order(headlines=("desk",)), records)
    expected = stats.ttest_1samp([0.04, 0.02], 0).confidence_interval(0.95)
    assert judgement.comparisons[0].collections == pytest.approx(tuple(expected))


def test_context_claim_shows_its_blind_comparison(tmp_path: Path, records: list[Record]) -> None:
    """Context-blind runs are only used by terms that name them. Without such runs there is no comparison."""
    claim = make_order(blind=term(NDCG, sampler="domain", sequence_dropout=1.0))
    assert judge(claim, records).blind is None
    changes = {"architecture": "contextual", "sequence_dropout": 1.0, "test_contexts": "null"}
    blind_records = [
        write_scored(tmp_path, replace(record.run, **changes), read_metric(record, NDCG) - 0.01) for record in records
    ]
    judgement = judge(claim, [*records, *blind_records])
    assert judgement.effect == pytest.approx(0.053)
    assert judgement.blind is not None and judgement.blind.effect == pytest.approx(0.01)


def test_own_number_comes_without_word(tmp_path: Path, records: list[Record]) -> None:
    yours = write_pairs(tmp_path / "yours", [0.02], (0,))
    runs = [record.run for record in (*records, *yours)]
    judgement = judge(make_order(), records, runs, yours=yours)
    assert judgement.yours == pytest.approx((0.02,)) and judgement.effect == pytest.approx(0.053)
    assert judge(make_order(), records, yours=yours[:1]).yours == ()


def test_printed_value_is_subtracted(records: list[Record]) -> None:
    claim = Claim.value("X.v", "", expected={term(NDCG, sampler="random"): 0.5}, margin=0.2, **ORIGIN)
    by_run = {record.run: record for record in records}
    evidence = find_runs(claim, claim.terms, by_run).collect(SEEDS, by_run)
    ((comparison,), _) = compare(claim, evidence)
    assert comparison.by_seed == pytest.approx([0.03 * seed for seed in SEEDS])


def test_descriptive_claim_has_no_word(records: list[Record]) -> None:
    judgement = judge(make_order(descriptive="a reason"), records)
    assert (judgement.word, judgement.note) == ("descriptive", "a reason")
    assert judgement.comparisons[0].low is not None


def test_scale_that_cannot_judge_is_named(records: list[Record]) -> None:
    value = Claim.value("X.v", "", expected={term(NDCG, sampler="random"): 0.5}, margin=0.02, **ORIGIN)
    absent = replace(make_order("X.d"), pairs=((term("{suite}/arguana/ndcg_at_10", sampler="random"),) * 2,))
    judgements = judge_claims([value, make_order("X.s", scales=("lab", "small")), absent], records)
    assert {judgement.word for judgement in judgements} == {"other scale"}
    notes = [judgement.note for judgement in judgements]
    assert notes == ["small or large", "lab or small", "the suite desk has no dataset arguana"]
    assert judge_all([make_order()], "smoke", [], [])[0].word == "other scale"
    misspelt = replace(make_order(), pairs=((term("{suite}/mean/ndgc_at_10", sampler="random"),) * 2,))
    with pytest.raises(ValueError, match=r"claim X\.a: record .* did you mean 'desk/mean/ndcg_at_10'"):
        judge(misspelt, records)


def test_logarithm_makes_ratios(tmp_path: Path) -> None:
    """A difference of `log2` metrics is a ratio. A metric of 0 has no logarithm."""
    records = []
    for run in grid(base("desk"), sampler=("random", "domain"), seed=SEEDS):
        metrics = {"train/speed": 400.0 if run.sampler == "random" else 100.0, "train/none": 0.0}
        records.append(write_scored(tmp_path, run, 0.5, **metrics))
    pairs = [(term("log2 train/speed", sampler="random"), term("log2 train/speed", sampler="domain"))]
    judgement = judge(Claim.order("X.l", "", pairs=pairs, margin=1, **ORIGIN), records)
    assert (judgement.word, judgement.unit.name) == ("HOLDS", "doublings")
    assert judgement.effect == pytest.approx(2)
    with pytest.raises(ValueError, match=r"'train/none' = 0\.0, which has no logarithm"):
        read_metric(records[0], "log2 train/none")
    assert load_units(records[0], "train/speed")[0].tolist() == [400.0]


def test_parts_count_once_in_intervals(records: list[Record]) -> None:
    """The interval over queries is that of the mean in the record, in which two forums are one dataset."""
    parts = {"news": "", "forum-a": "forum", "forum-b": "forum"}
    datasets = [{"name": name, "family": "", "num_queries": 4, "part_of": part} for name, part in parts.items()]
    record = replace(records[0], provenance={"suite": {"datasets": datasets}})
    vars(record)["arrays"] = {"desk": np.repeat(np.float32([0.75, 0.5, 0.25]), 4)}
    assert stratified_mean(*load_units(record, NDCG)) == pytest.approx((0.75 + (0.5 + 0.25) / 2) / 2)
    assert stratified_mean(*load_units(record, "{suite}/forum-a/ndcg_at_10")) == 0.5


EFFECTS = json.loads(Path(__file__).with_name("effects.json").read_text())
"""Printed effects and their seeds, by scale and claim, from before the current judge."""
RESTATED = {"T1.k", "F2.a", "F4.a", "F12.a", *(f"F{number}.{letter}" for number in (3, 9) for letter in "abcd")}
"""Claims that have compared something else since then."""


def judge_at(scale: str) -> dict[str, Judgement]:
    """Return the verdicts on all published claims at a scale, by id."""
    judged = (judge_published(experiment.number, scale) for experiment in experiments())
    return {judgement.claim.id: judgement for judgements in judged for judgement in judgements}


@pytest.mark.parametrize("scale", ["desk", "lab"])
def test_effects_did_not_move(scale: str) -> None:
    """Printed effects and seeds are the same as before. Claims over queries alone have no seeds now."""
    judged = judge_at(scale)
    for id in EFFECTS[scale].keys() - RESTATED:
        effects, seeds = EFFECTS[scale][id]
        judgement = judged[id]
        printed = [format_in_unit(each.effect, judgement.unit).replace(MINUS, "-") for each in judgement.comparisons]
        assert printed == effects, id
        assert list(judgement.seeds) in ([], seeds), id


@pytest.mark.parametrize("scale", ["desk", "lab"])
def test_older_records_give_no_word(scale: str) -> None:
    """All records of a claim with a verdict were made on the day of its statement or later."""
    for experiment in experiments():
        records = load_records(experiment.runs(scale), "published")
        for judgement in judge_published(experiment.number, scale):
            claim = judgement.claim
            if judgement.word not in WORDS:
                continue
            assert claim.stated, f"{claim.id} has no date"
            needed = [
                record
                for record in records
                if claim.needs(record.run) and any(term.runs.matches(record.run) for term in claim.terms)
            ]
            seeds_of_references = {record.run.seed for record in needed if record.run.architecture not in TRAINED}
            early_seeds = {record.run.seed for record in needed if is_early(claim, record)}
            assert not (early_seeds & {*judgement.seeds}) - seeds_of_references, claim.id


def test_fitted_claims_are_tentative() -> None:
    at_desk, at_lab = judge_at("desk"), judge_at("lab")
    assert {at_desk[id].word for id in ("D.a", "D.b", "D.c", "D.d", "E.f")} | {at_lab["D.b"].word} == {"tentative"}


def test_headline_has_a_direction() -> None:
    """Holm corrects p, which is that of one threshold."""
    with pytest.raises(
        ValueError, match=r"claim X\.e: a headline must have a direction, because its p is that of one threshold"
    ):
        replace(EQUIVALENCE, headlines=("desk",))


@pytest.mark.parametrize("scale", ["mini2", "desk", "lab", "small", "large"])
def test_headlines_lie_in_one_experiment(scale: str) -> None:
    """Headlines form one Holm family, which is judged together."""
    numbers = [
        experiment.number for experiment in experiments() for claim in experiment.claims if scale in claim.headlines
    ]
    assert len(set(numbers)) == 1 and 3 <= len(numbers) <= 5


def test_picture_shows_the_claims_number() -> None:
    """The bars of the front page, and the differences of two of them, are the effects of claims, on their seeds."""
    experiment, figure = artefacts()[FRONT_PICTURE]
    assert isinstance(figure, Figure)
    bars: dict[str, dict[int, float]] = {}
    for row in list_rows(experiment, figure, FRONT_SCALE):
        bars.setdefault(row["series"], {})[row["seed"]] = row[figure.y]
    biencoder, contextual, blind = (
        bars[f"{model}, one domain per batch"] for model in ("biencoder", "contextual", "context-blind")
    )
    clusters = bars["biencoder, clusters of 64 in a source"]
    pairs = {
        "SC.a": (clusters, dict.fromkeys(clusters, 0.0)),
        "PA.a": (contextual, biencoder),
        "PA.d": (blind, biencoder),
    }
    for id, (gains, others) in pairs.items():
        judged = judge_at(FRONT_SCALE)[id]
        assert set(gains) == set(others) == set(judged.seeds)
        differences = [gains[seed] - others[seed] for seed in gains]
        assert judged.effect is not None and np.mean(differences) == pytest.approx(100 * judged.effect)
