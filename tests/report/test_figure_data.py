"""The rows of a figure equal the records, point by point. Missing values stay empty. Own pictures draw what they got."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from repro.records.store import Record, write_record
from repro.report.figure_data import describe_claim_seeds, list_figure_rows, make_figure_view
from repro.report.names import format_title
from repro.spec import Figure, Row, Run, base, grid, pick
from repro.spec.registry import artefacts, find_experiment

NDCG = "{suite}/mean/ndcg_at_10"
LINES = Figure(
    name="figureX",
    caption="a caption",
    kind="lines",
    x="batch_size",
    y=NDCG,
    x_label="batch size (pairs)",
    y_label="NDCG@10 (points)",
    factor=100,
    series=(
        Row(label="own", runs=pick(sampler="random")),
        Row(label="null", runs=pick(sampler="random"), context="null"),
        Row(label="BM25", runs=pick(architecture="bm25")),
        Row(label="lab only", runs=pick(sampler="random"), scales=("lab",)),
    ),
)
POINTS = replace(LINES, points="{suite}/*/ndcg_at_10", x="part1", y="value", series=LINES.series[:1])
DATASETS = [{"name": name, "family": "f", "num_queries": 1} for name in ("a", "b")]
SEEDS_DRAWN = {(3, 4, 5, 6): "", (0, 3, 4, 5, 6): "claims use some of them", (0, 3): "claims use other seeds", (): ""}
RUNS = (base("desk", architecture="bm25", sampler="domain"), *grid(base("desk"), batch_size=(64, 128), seed=(0, 1)))


def write_scored(folder: Path, run: Run, **more_metrics: float) -> Record:
    score = run.batch_size / 1000 + run.seed / 100
    metrics = {f"desk/{name}/ndcg_at_10": score + n / 4 for n, name in enumerate(("mean", "f", "a", "b"))}
    metrics |= {"desk+null/mean/ndcg_at_10": score / 2, "train/loss": 1.0 + run.seed}
    provenance = {"suite": {"datasets": DATASETS}}
    return write_record(folder, run, metrics=metrics | more_metrics, arrays={}, provenance=provenance)


@pytest.fixture
def records(tmp_path: Path) -> list[Record]:
    return [write_scored(tmp_path, run) for run in RUNS]


def test_each_record_gives_a_row(records: list[Record]) -> None:
    rows = list_figure_rows(LINES, RUNS, records)
    own = [row for row in rows if row["series"] == "own"]
    assert [(row["batch_size"], row["seed"], row[NDCG]) for row in own] == [
        (64, 0, pytest.approx(6.4)),
        (64, 1, pytest.approx(7.4)),
        (128, 0, pytest.approx(12.8)),
        (128, 1, pytest.approx(13.8)),
    ]
    assert [row[NDCG] for row in rows if row["series"] == "null"] == pytest.approx([3.2, 3.7, 6.4, 6.9])
    assert {row["series"] for row in rows} == {"own", "null", "BM25"}
    assert own[0]["record"] == records[1].id
    assert [row["batch_size"] for row in rows if row["series"] == "BM25"] == [None], "BM25 has no training axis"


def test_points_are_datasets(records: list[Record]) -> None:
    rows = list_figure_rows(POINTS, RUNS, records[:2])
    assert [(row["part1"], row["value"]) for row in rows] == [("a", pytest.approx(56.4)), ("b", pytest.approx(81.4))]
    families = list_figure_rows(replace(POINTS, points="{suite}/{family}/ndcg_at_10"), RUNS, records[:2])
    assert [row["part1"] for row in families] == ["f"]


def test_axis_may_be_another_metric(tmp_path: Path) -> None:
    far = write_scored(tmp_path, RUNS[0], **{"desk/a/far": 0.25, "desk/b/far": 0.75})
    near = write_scored(tmp_path, RUNS[1])
    bm25 = pick(architecture="bm25")
    less_bm25 = replace(POINTS.series[0], minus=Row(label="BM25", runs=bm25))
    figure = replace(POINTS, x="{suite}/{part1}/far", x_of=bm25, series=(less_bm25,))
    rows = list_figure_rows(figure, RUNS, [far, near])
    assert [row[figure.x] for row in rows] == [0.25, 0.75]
    expected = 100 * (near.metrics["desk/a/ndcg_at_10"] - far.metrics["desk/a/ndcg_at_10"])
    assert [row["value"] for row in rows] == pytest.approx([expected, expected])
    assert list_figure_rows(figure, RUNS, [near]) == []
    with pytest.raises(ValueError, match="x_of selects 2 records"):
        list_figure_rows(replace(figure, x_of=pick(batch_size=(RUNS[0].batch_size, 64))), RUNS, [far, near])


def test_series_is_subtracted_by_seed_and_place(records: list[Record]) -> None:
    """A null context has half of the score. A seed or a place without the other series has no difference."""
    own, null = LINES.series[:2]
    figure = replace(
        LINES, series=(replace(own, minus=null), replace(own, minus=Row(label="64", runs=pick(batch_size=64))))
    )
    rows = list_figure_rows(figure, RUNS, records)
    assert [row[NDCG] for row in rows] == pytest.approx([3.2, 3.7, 6.4, 6.9, 0, 0])
    assert {row["batch_size"] for row in rows[4:]} == {64}
    second_seed = replace(null, runs=pick(sampler="random", seed=1))
    rows = list_figure_rows(replace(LINES, series=(replace(own, minus=second_seed),)), RUNS, records)
    assert [(row["seed"], row[NDCG]) for row in rows] == [(1, pytest.approx(3.7)), (1, pytest.approx(6.9))]
    twice = replace(LINES, x="train/loss", series=(replace(own, minus=null),))
    with pytest.raises(ValueError, match="'null' has two values at"):
        list_figure_rows(twice, RUNS, records)


def test_paired_lines_start_at_zero(records: list[Record]) -> None:
    """A seed is shown less its value at the first x, also in the table. Without one it is left out."""
    figure = replace(LINES, is_paired=True, series=LINES.series[:1])
    rows = list_figure_rows(figure, RUNS, [record for record in records if record.run != RUNS[2]])
    assert [(row["batch_size"], row["seed"], row[NDCG]) for row in rows] == [(64, 0, 0.0), (128, 0, pytest.approx(6.4))]
    view = make_figure_view(figure, RUNS, records, [])
    assert [row[-1] for row in view.rows] == ["0.0 ± 0.0", "6.4 ± 0.0"]


def test_subtracted_record_has_every_part(tmp_path: Path) -> None:
    bm25 = write_scored(tmp_path, RUNS[0])
    model = write_scored(tmp_path, RUNS[1], **{"desk/c/ndcg_at_10": 0.5})
    figure = replace(POINTS, series=(replace(POINTS.series[0], minus=LINES.series[2]),))
    with pytest.raises(ValueError, match=r"no value to subtract from 'own' at .*'c'"):
        list_figure_rows(figure, RUNS, [bm25, model])


def test_claims_may_use_some_of_the_drawn_seeds() -> None:
    """F5.a is judged on seeds 3 to 6."""
    figure = find_experiment("figure5").artefacts[0]
    notes = {seeds: describe_claim_seeds(figure, "desk", [{"seed": seed} for seed in seeds]) for seeds in SEEDS_DRAWN}
    assert notes == SEEDS_DRAWN


@pytest.mark.parametrize(("kind", "parts", "name"), [("scatter", (), "dataset"), ("own", ("route",), "route")])
def test_coinciding_points_keep_names(kind: str, parts: tuple[str, ...], name: str, tmp_path: Path) -> None:
    record = write_scored(tmp_path, RUNS[1], **{"desk/a/far": 0.5, "desk/b/far": 0.5})
    figure = replace(POINTS, kind=kind, x="{suite}/{part1}/far", x_label="far", parts=parts)
    view = make_figure_view(figure, RUNS, [record], [])
    assert view.header == ("series", "far", name, "origin", "seeds", "NDCG@10 (points)")
    assert [(row[1], row[2], row[-1]) for row in view.rows] == [("0.5", "a", "56.4"), ("0.5", "b", "81.4")]


def test_missing_metric_is_named(records: list[Record]) -> None:
    with pytest.raises(ValueError, match=f"{records[1].id}.json has no 'train/pace'"):
        list_figure_rows(replace(LINES, x="train/pace", series=LINES.series[:1]), RUNS, records)


def test_missing_record_has_no_row(records: list[Record]) -> None:
    figure = replace(LINES, series=LINES.series[:1])
    view = make_figure_view(figure, RUNS, records[:3], [])
    assert view.header == ("series", "batch size (pairs)", "origin", "seeds", "NDCG@10 (points)")
    assert view.rows == (("own", "64", "published", "2/2", "6.9 ± 0.7"),)
    assert make_figure_view(figure, RUNS, [], []).rows == ()


def test_rows_are_ordered_and_unique(records: list[Record]) -> None:
    backwards = (*reversed(RUNS), *RUNS)
    assert list_figure_rows(LINES, backwards, records) == list_figure_rows(LINES, tuple(reversed(RUNS)), records)
    places = [row[:2] for row in make_figure_view(LINES, backwards, records, []).rows]
    assert places == [("own", "64"), ("own", "128"), ("null", "64"), ("null", "128"), ("BM25", "–")]
    datasets = make_figure_view(replace(POINTS, x_label="dataset"), RUNS, records[:2], []).rows
    assert [row[1] for row in datasets] == ["a", "b"]


FIGURES = [artefact for _, artefact in artefacts().values() if isinstance(artefact, Figure)]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_figures_have_title_and_caption(figure: Figure) -> None:
    assert figure.title and figure.name != figure.title and not re.search(r"(figure|table)\d", figure.title)
    has_interval = figure.kind in ("lines", "dots")
    is_described = "95 %" in figure.caption and " n " in figure.caption
    assert not has_interval or is_described, "the caption states the interval ('95 %') and the number of seeds (' n ')"


def test_artefacts_have_distinct_titles() -> None:
    titles = {name: format_title(*shown) for name, shown in artefacts().items()}
    assert len(set(titles.values())) == len(titles)
    assert titles["figure4"] == "Score with and without the filter, run by run"
    assert titles["table7"] == "Two phases"
