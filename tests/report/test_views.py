"""Tables as text, Markdown, LaTeX and CSV: number formats, missing values, terminals and ledgers."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from repro.records.store import Record, write_record
from repro.report.formats import as_csv, as_latex, as_markdown, render
from repro.report.markdown_pages import make_headlines_view, replace_block
from repro.report.scores import make_scores_view
from repro.report.tables import (
    format_cell,
    format_no_records_note,
    format_summary_line,
    make_claims_view,
    make_exhibit_view,
    make_table_view,
    sort_judgements,
)
from repro.report.view import SPREAD_NOTE, View, format_mean
from repro.spec import Claim, Column, Exhibit, Row, Run, Table, Unit, base, grid, pick
from repro.spec.identity import run_id
from repro.spec.registry import experiments, load_front_page
from repro.statistics.judge import Comparison, Judgement
from repro.storage.paths import get_local_records
from repro.text import format_number, format_seconds
from tests.hand_made import write_scores

NDCG = Column(label="NDCG@10", value="{suite}/mean/ndcg_at_10", factor=100)
TABLE = Table(
    name="tableX",
    caption="a caption",
    columns=(Column(label="batch", value="batch_size", decimals=0), NDCG),
    rows=(
        Row(label="random", runs=pick(sampler="random"), paper={"NDCG@10": 59.9}),
        Row(label="domain", runs=pick(sampler="domain")),
        Row(label="· wrong", runs=pick(sampler="domain"), context="wrong"),
    ),
)
RUNS = grid(base("desk"), sampler=("random", "domain"), seed=(0, 1, 2))


def write_metrics(folder: Path, run: Run, **metrics: float) -> Record:
    return write_record(folder, run, metrics=metrics, arrays={}, provenance={})


def write_score_record(folder: Path, run: Run, score: float) -> Record:
    return write_metrics(folder, run, **{"desk/mean/ndcg_at_10": score, "desk+wrong/mean/ndcg_at_10": score / 2})


def test_numbers_are_formatted_for_readers() -> None:
    """A missing number is a dash, zero has no minus, and thousands are grouped except in CSV."""
    assert (format_number(1.25, 1), format_number(None), format_number(-0.04, 1)) == ("1.2", "–", "0.0")
    assert (format_mean([], 1), format_mean([0.5], 1), format_mean([1.0, 3.0], 1)) == ("–", "0.5", "2.0 ± 1.4")
    assert (format_number(1234567, 0), format_number(-12345.6)) == ("1\u202f234\u202f567", "−12\u202f345.6")
    view = View("t", ("", "pairs"), (("all", format_number(-1234567, 0)),))
    assert as_csv(view).splitlines()[1] == "all,-1234567" and r"all & $-$1\,234\,567 \\" in as_latex(view)
    durations = [format_seconds(seconds) for seconds in (None, 3, 600, 36000, 3600 * 670_302.9)]
    assert durations == ["", "3 s", "10 min", "10.0 h", "76 years"]


def test_table_shows_paper_published_yours(tmp_path: Path) -> None:
    published = [write_score_record(tmp_path, run, 0.5 + run.seed / 100) for run in RUNS]
    yours = [write_score_record(tmp_path / "mine", RUNS[0], 0.25)]
    view = make_table_view(TABLE, RUNS, published, yours)
    assert view.rows == (
        ("random", "paper", "", "–", "59.9"),
        ("", "published", "3/3", "128", "51.0 ± 1.0"),
        ("", "yours", "1/3", "128", "25.0"),
        ("domain", "published", "3/3", "128", "51.0 ± 1.0"),
        ("· wrong", "published", "3/3", "", "25.5 ± 0.5"),
    ), "a reader's command did not run the other rows"
    assert view.notes == (SPREAD_NOTE,) and make_table_view(TABLE, RUNS, [], yours).notes == ()
    printed = make_table_view(TABLE, RUNS, [], [])
    assert [row[1] for row in printed.rows] == ["paper"] and printed.notes == (
        format_no_records_note("tableX", "desk"),
    )


def test_published_row_counts_its_seeds(tmp_path: Path) -> None:
    """If a row's runs differ only in their seeds, it shows the available ones. Any other row is complete or a dash."""
    published = [write_score_record(tmp_path, run, 0.5) for run in RUNS if (run.sampler, run.seed) != ("random", 1)]
    rows = make_table_view(TABLE, RUNS, published, []).rows
    assert rows[1:3] == (
        ("", "published", "2/3", "128", "50.0 ± 0.0"),
        ("domain", "published", "3/3", "128", "50.0 ± 0.0"),
    )
    table = replace(TABLE, rows=(Row(label="any sampler", runs=pick()),))
    assert make_table_view(table, RUNS, published, []).rows == (("any sampler", "published", "5/6", "–", "–"),)


def test_cell_is_mean_of_complete_metrics(tmp_path: Path) -> None:
    """A cell may show a part of a metric. It is a dash if one record lacks the metric."""
    record = write_metrics(tmp_path, RUNS[0], **{"desk/mean/ndcg_at_10": 0.5, "train/packages/num_pairs": 7.0})
    incomplete = write_metrics(tmp_path, RUNS[1], other=1.0)
    assert format_cell(NDCG, TABLE.rows[0], [record]) == "50.0"
    assert format_cell(NDCG, TABLE.rows[0], [record, incomplete]) == "–"
    column = Column(label="pairs", value="train/{part}/num_pairs", decimals=0)
    cells = [format_cell(column, Row(label="", runs=pick(), part=part), [record]) for part in ("packages", "modules")]
    assert cells == ["7", "–"]


def test_exhibit_shows_record_rows(tmp_path: Path) -> None:
    exhibit = Exhibit(name="table3", caption="c", columns=("text", "score", "note"), runs=pick(seed=1), rows="near")
    exhibits = {"near": [{"text": "<b>a</b>", "score": 0.5}]}
    records = [write_record(tmp_path, run, metrics={}, arrays={}, provenance={}, exhibits=exhibits) for run in RUNS[:2]]
    view = make_exhibit_view(exhibit, RUNS, records)
    assert view.rows == (("<b>a</b>", "0.500", "–"),) and view.notes == (f"from record {records[1].id}",)
    without = make_exhibit_view(exhibit, RUNS, records[:1])
    assert without.rows == () and without.notes == (format_no_records_note("table3", "desk"),)


NASTY = r"a|b & 50 % _x_ {y} #1 $2 ~ ^ \cmd < > ± – → <script>"


def test_special_characters_survive_markdown_and_csv() -> None:
    view = View("title", ("a|b", "c&d"), (("x|y", NASTY),), ("a note",))
    text = as_markdown(view)
    assert "| x\\|y | a\\|b & 50 %" in text and text.endswith("a note\n") and "<" not in text
    assert list(csv.reader(io.StringIO(as_csv(view)))) == [["a|b", "c&d"], ["x|y", NASTY]]


def test_csv_has_unrounded_numbers() -> None:
    """Means and deviations have columns of their own. Text stays text, and a missing value is empty."""
    rows = (("007", format_mean([-1 / 3, 1.0], 1), format_mean([2.0], 1)), ("NA", format_mean([], 1), "–"))
    frame = pd.read_csv(io.StringIO(as_csv(View("t", ("name", "score", "one"), rows))), dtype={"name": str})
    assert list(frame.columns) == ["name", "score", "score sd", "one"]
    assert frame.loc[0, "score"] == pytest.approx(1 / 3) and frame.loc[0, "score sd"] == pytest.approx(4 / 3 / 2**0.5)
    assert frame.loc[0, "name"] == "007" and frame.loc[0, "one"] == 2.0 and frame.loc[1, ["score", "one"]].isna().all()


CLAIMS: dict[str, Claim] = {claim.id: claim for experiment in experiments() for claim in experiment.claims}
POINTS, NATS = Unit("points", 100.0, 2), Unit("nats", 1.0, 2)


def make_judgement(id: str, verdict: str, effect: float | None = None, unit: Unit = POINTS) -> Judgement:
    """Return a judgement whose interval is the effect ± 0.001."""
    if effect is None:
        return Judgement(CLAIMS[id], verdict, "desk")
    return Judgement(CLAIMS[id], verdict, "desk", (Comparison(effect, effect - 0.001, effect + 0.001),), unit)


def test_ledger_starts_with_differences() -> None:
    words = ("not run", "HOLDS", "other scale", "OPEN", "DIFFERS", "HOLDS")
    ordered = sort_judgements(make_judgement("T1.b", word) for word in words)
    verdicts = [judgement.verdict for judgement in ordered]
    assert verdicts == ["DIFFERS", "OPEN", "HOLDS", "HOLDS", "not run", "other scale"]
    assert format_summary_line(ordered) == "6 claims: 1 DIFFERS, 1 OPEN, 2 HOLDS, 1 not run, 1 other scale"
    tiny = make_judgement("T1.b", "OPEN", -1e-5)
    assert make_claims_view([tiny]).rows[0][2:4] == ("+0.00", "(−0.10 to +0.10)")


def test_block_is_replaced_between_markers(tmp_path: Path) -> None:
    path, start, end = tmp_path / "R.md", "<!-- table1 -->", "<!-- table1 end -->"
    text = replace_block(path, f"before\n{start}\nold\n{end}\nafter\n", "table1", "fresh\n")
    assert text == f"before\n{start}\n\nfresh\n\n{end}\nafter\n"
    with pytest.raises(ValueError, match="once each"):
        replace_block(path, "no markers", "table1", "")


@pytest.mark.parametrize("columns", ["", "40", "80", "200"])
def test_terminal_breaks_no_number(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words are folded to COLUMNS. A wider table sticks out. A pipe without COLUMNS is wide. Markup in data is text."""
    monkeypatch.setenv("COLUMNS", columns)
    scores = {f"row {row}": tuple(f"{row}{n}.5 ± 0.{n}" for n in range(10, 14)) for row in range(3)}
    header = ("", "origin", "statement", *(f"column {n} of many" for n in range(4)))
    rows = tuple((name, "published", "word " * 20, *cells) for name, cells in scores.items())
    render(View("[bold]title[/bold]", header, rows, align="lllrrrr"))
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "[bold]title[/bold]"
    for name, cells in scores.items():
        (line,) = (line for line in lines if line.split("published")[0].strip() == name)
        assert all(cell in line for cell in cells)
    is_wide = columns in ("", "200")
    assert (max(map(len, lines)) <= int(columns or 200)) == any("word " * 19 in line for line in lines) == is_wide


def test_headlines_have_effects_per_scale() -> None:
    """Each cell has one comparison: that of the first judged claim, or the one that is named, as in "T1.d/2"."""
    effects = tuple(Comparison(effect, effect - 0.001, effect + 0.001) for effect in (0.0013, 0.0014, 0.0012))
    at_desk = [
        make_judgement("T1.b", "HOLDS", 0.0146),
        make_judgement("WH.a", "OPEN", 0.34, NATS),
        make_judgement("P.b", "HOLDS", 0.5),
        make_judgement("D.a", "tentative", 0.0094),
        Judgement(CLAIMS["T1.d"], "HOLDS", "desk", effects, POINTS),
    ]
    at_lab = [make_judgement("T1.b", "other scale")]
    view = make_headlines_view({"desk": at_desk, "lab": at_lab}, "CLAIMS.md")
    assert view.header == ("", "paper", "desk", "lab")
    names = [headline["claims"][0] for headline in load_front_page()["headline"]]
    by_claim = dict(zip(names, view.rows, strict=True))
    assert by_claim["T1.b"][1:] == ("+1.8", "[+1.46](CLAIMS.md#T1.b) (+1.36 to +1.56)", "–")
    assert by_claim["WH.a"][2] == "[+0.34](CLAIMS.md#WH.a) (+0.34 to +0.34) nats OPEN"
    both = [by_claim[f"T1.d/{number}"][2] for number in (1, 2)]
    assert both == ["[+0.13](CLAIMS.md#T1.d) (+0.03 to +0.23)", "[+0.14](CLAIMS.md#T1.d) (+0.04 to +0.24)"]
    assert by_claim["T1.c"][2] == "–"
    assert by_claim["D.a"][2] == "[+0.94](CLAIMS.md#D.a) (+0.84 to +1.04) tentative"
    (ledger,) = make_claims_view(at_desk[:1]).rows
    assert ledger[2] in by_claim["T1.b"][2], "the ledger has the same number"


def write_score(run: Run, score: float) -> None:
    """Write the local record of a run with this score on its one dataset."""
    write_scores(get_local_records(), run, np.full(4, score, np.float32))


def test_grid_shows_mean_per_setting() -> None:
    runs = grid(base("desk", batch_size=64), learning_rate=(0.001, 0.002), seed=(7, 8))
    for run, score in zip(runs, (0.5, 0.25, 0.75, 0.75), strict=True):
        write_score(run, score)
    bm25, missing = base("desk", architecture="bm25", num_pairs=None), base("desk", batch_size=64, seed=9)
    write_score(bm25, 0.125)
    view = make_scores_view([*runs, bm25, missing])
    assert view.header[:5] == ("run", "model", "seed", "learning_rate", "mean")
    assert [row[1:5] for row in view.rows] == [
        ("biencoder", "7", "0.001", "50.0"),
        ("biencoder", "8", "0.001", "25.0"),
        ("biencoder", "7", "0.002", "75.0"),
        ("biencoder", "8", "0.002", "75.0"),
        ("BM25", "", "", "12.5"),
        ("biencoder", "", "0.001", "37.5 ± 17.7"),
        ("biencoder", "", "0.002", "75.0 ± 0.0"),
    ]
    assert [row[0] for row in view.rows[5:]] == ["2 seeds", "2 seeds"] and "±" in view.notes[-1]
    # a program reads one run per row, and numbers in their columns
    rows = make_scores_view([*runs, bm25], is_for_programs=True).rows
    assert [row[0] for row in rows] == [run_id(run) for run in (*runs, bm25)]
    assert [float(row[4]) for row in rows] == [50, 25, 75, 75, 12.5]


def test_variants_have_their_rows() -> None:
    """A run scored under the null context only has its own line. Runs without NDCG@10 have a note instead."""
    blind = base("desk", architecture="contextual", sequence_dropout=1.0, test_contexts="null")
    batches, cascade, widths = (base("desk", measure=measure) for measure in ("batches", "cascade", "widths"))
    score = {"desk/mean/ndcg_at_10": 0.5, "desk+width8/mean/ndcg_at_10": 0.25, "desk+width8/mean/mflops": 3.0}
    metrics = {
        blind: {f"desk+null/{name}/ndcg_at_10": 0.5 for name in ("a", "mean")},
        batches: {"purity": 0.5},
        cascade: {"desk+width8/mean/accuracy": 0.5},
        widths: score,
    }
    for run, values in metrics.items():
        write_record(get_local_records(), run, metrics=values, arrays={}, provenance={"suite": {"datasets": []}})
    view = make_scores_view(list(metrics))
    rows = [(row[1], row[-1]) for row in view.rows]
    assert rows == [("contextual, null context", "50.0"), ("biencoder", "50.0"), ("· width8", "25.0")]
    [note] = view.notes
    assert note.startswith("2 runs") and "batches, cascade" in note
