"""Tables as text, Markdown, CSV and LaTeX: number formats, missing values, narrow terminals, ledgers and pivots."""

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from repro.cli.figures import render_pivot
from repro.cli.main import app
from repro.model.progress import make_encoding_reporter
from repro.records.store import Record, write_record
from repro.report.artefacts import judgements
from repro.report.figure_data import make_figure_view
from repro.report.formats import as_csv, as_markdown, render, render_line
from repro.report.latex import as_latex
from repro.report.markdown_pages import make_headlines_view, replace_block
from repro.report.names import format_title
from repro.report.pivot import make_pivot, make_pivot_view
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
from repro.report.view import NO_ROWS, SPREAD_NOTE, View, format_mean
from repro.spec import Claim, Column, Exhibit, Figure, Row, Run, Table, Unit, base, grid, pick, term
from repro.spec.artefact import MINUTES
from repro.spec.identity import run_id
from repro.spec.registry import artefacts, experiments, load_headlines
from repro.statistics.judge import Comparison, Judgement
from repro.storage.paths import get_local_records
from repro.text import format_number, format_seconds
from tests.commands import run_command
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


def test_missing_number_is_a_dash() -> None:
    assert (format_number(1.25, 1), format_number(None)) == ("1.2", "–")
    assert format_number(-0.04, 1) == "0.0", "zero has no minus"
    assert (format_mean([], 1), format_mean([0.5], 1), format_mean([1.0, 3.0], 1)) == ("–", "0.5", "2.0 ± 1.4")


def test_durations_use_readable_units() -> None:
    formatted = [format_seconds(seconds) for seconds in (None, 3, 600, 36000, 3600 * 670_302.9)]
    assert formatted == ["", "3 s", "10 min", "10.0 h", "76 years"]


def test_thousands_are_grouped_for_readers() -> None:
    assert (format_number(1234567, 0), format_number(-12345.6)) == ("1\u202f234\u202f567", "-12\u202f345.6")
    view = View("t", ("", "pairs"), (("all", format_number(1234567, 0)),))
    assert as_csv(view).splitlines()[1] == "all,1234567"
    assert r"1\,234\,567" in as_latex(view)


def test_table_shows_paper_published_yours(tmp_path: Path) -> None:
    published = [write_score_record(tmp_path, run, 0.5 + run.seed / 100) for run in RUNS]
    yours = [write_score_record(tmp_path / "mine", RUNS[0], 0.25)]
    view = make_table_view(TABLE, RUNS, published, yours)
    assert view.rows == (
        ("random", "paper", "", "–", "59.9"),
        ("", "published", "3/3", "128", "51.0 ± 1.0"),
        ("", "yours", "1/3", "128", "25.0"),
        ("domain", "published", "3/3", "128", "51.0 ± 1.0"),
        ("", "yours", "0/3", "–", "–"),
        ("· wrong", "published", "3/3", "", "25.5 ± 0.5"),
        ("", "yours", "0/3", "", "–"),
    )
    assert view.notes == (SPREAD_NOTE,) and make_table_view(TABLE, RUNS, [], yours).notes == ()


def test_published_row_counts_its_seeds(tmp_path: Path) -> None:
    """If a row's runs differ only in their seeds, it shows the available ones. Any other row is complete or a dash."""
    published = [write_score_record(tmp_path, run, 0.5) for run in RUNS if (run.sampler, run.seed) != ("random", 1)]
    yours = [write_score_record(tmp_path / "mine", run, 0.25) for run in RUNS[:2]]
    rows = make_table_view(TABLE, RUNS, published, yours).rows
    assert rows[1:3] == (("", "published", "2/3", "128", "50.0 ± 0.0"), ("", "yours", "2/3", "128", "25.0 ± 0.0"))
    assert rows[3] == ("domain", "published", "3/3", "128", "50.0 ± 0.0")
    table = replace(TABLE, rows=(Row(label="any sampler", runs=pick()),))
    assert make_table_view(table, RUNS, published, []).rows == (("any sampler", "published", "5/6", "–", "–"),)


def test_minutes_exclude_gpus(tmp_path: Path) -> None:
    """Minutes are processor time, also of two threads. Other programs do not count. A row without a CPU has a dash."""
    table = replace(TABLE, columns=(TABLE.columns[0], Column(label="minutes", value=MINUTES)))
    training = {"seconds": 900.0, "cpu_seconds": 1200.0}
    machines = {0: ("x86_64", 2), 1: ("NVIDIA H200", 1), 2: ("NVIDIA H200", 1)}
    records = []
    for run in RUNS:
        device, num_threads = ("NVIDIA H200", 1) if run.sampler == "domain" else machines[run.seed]
        machine = {"device": device, "num_threads": num_threads}
        provenance = {"training": training, "machine": machine}
        records.append(write_record(tmp_path, run, metrics={}, arrays={}, provenance=provenance))
    rows = make_table_view(table, RUNS, records, []).rows
    assert [row[4] for row in rows if row[1] == "published"][:2] == ["20.0", "–"]


def test_outdated_rows_are_skipped(tmp_path: Path) -> None:
    newer = replace(TABLE, columns=(Column(label="moved", value="moved/mean"),))
    published = [write_score_record(tmp_path, run, 0.5) for run in RUNS]
    yours = [write_metrics(tmp_path / "mine", RUNS[0], **{"moved/mean": 2.0})]
    view = make_table_view(newer, RUNS, published, yours)
    assert view.rows == (
        ("random", "paper", "", "–"),
        ("", "yours", "1/3", "2.0"),
        ("domain", "yours", "0/3", "–"),
        ("· wrong", "yours", "0/3", ""),
    )
    assert len(view.notes) == 1 and view.notes[0].startswith("3 rows have records older than these measures")


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


@pytest.mark.parametrize("format", ["text", "md", "latex"])
def test_empty_column_is_hidden(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (("a", "", "0/3", "–", ""), ("b", "", "1/3", "–", "–"))
    view = View("sparse", ("", "", "seeds", "score", "time"), rows)
    render(view, format)
    text = capsys.readouterr().out
    assert "–" not in text and "0/3" in text
    assert (r"\begin{tabular}{lr}" if format == "latex" else "Columns without a value are omitted: score, time") in text
    assert view.shown.header == ("", "seeds") and view.shown.shown == view.shown


@pytest.mark.parametrize("format", ["text", "md", "latex"])
def test_empty_table_has_no_header(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"caption": "c", "x_label": "seed", "y_label": "last loss"}
    figure = Figure(name="figure3", kind="lines", x="seed", y="train/loss", series=(), **labels)
    unprinted = replace(TABLE, rows=TABLE.rows[1:])
    for view in (make_figure_view(figure, RUNS, [], []), make_table_view(unprinted, RUNS, [], [])):
        assert view.rows == ()
        render(view, format)
        text = capsys.readouterr().out
        assert view.header[-1] not in text.replace(view.title, "") and "tabular" not in text and "---" not in text
        assert "No record has a row of it yet" in text
    render(View("empty", ("a", "b"), ()), format)
    assert NO_ROWS in capsys.readouterr().out


def test_printed_numbers_need_a_note() -> None:
    view = make_table_view(TABLE, RUNS, [], [])
    assert [row[1] for row in view.rows] == ["paper"] and view.notes == (format_no_records_note("tableX", "desk"),)


NASTY = r"a|b & 50 % _x_ {y} #1 $2 ~ ^ \cmd < > ± – → <script>"


def test_special_characters_survive_markdown_and_csv() -> None:
    view = View("title", ("a|b", "c&d"), (("x|y", NASTY),), ("a note",))
    text = as_markdown(view)
    assert "| x\\|y | a\\|b & 50 %" in text and text.endswith("a note\n") and "<" not in text
    assert list(csv.reader(io.StringIO(as_csv(view)))) == [["a|b", "c&d"], ["x|y", NASTY]]


def test_latex_has_every_cell() -> None:
    view = View(
        "a title\nof two lines", ("a|b", "c&d", "e"), (("x|y", NASTY, "1"), ("2\n3", "–", "4" * 50)), align="llr"
    )
    lines = as_latex(view).splitlines()
    assert lines[0] == "% a title of two lines"
    assert lines[1] == r"\begin{tabular}{lp{0.35\linewidth}p{0.35\linewidth}}"
    assert lines[-1] == r"\end{tabular}"
    body = [line for line in lines[2:-1] if line != r"\hline"]
    assert len(body) == 3 and all(line.endswith(r" \\") for line in body)
    for line in body:
        bare = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}", "", line)
        bare = re.sub(r"\$\\(pm|to|cdot)\$", "", bare)
        assert len(re.findall(r"(?<!\\)&", bare)) == 2
        assert not re.search(r"(?<!\\)[%$#_{}~^<>|]", bare), bare


def test_data_text_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    render(View("[bold]t[/bold]", ("a",), (("[/oops] :smile: [red]x",),)))
    text = capsys.readouterr().out
    assert "[/oops] :smile: [red]x" in text and "[bold]t[/bold]" in text


def make_unmeasured(verdict: str) -> Judgement:
    claim = Claim.order(
        f"X.{verdict}", "one beats two", pairs=[(term("a"), term("b"))], source="here", because="a test"
    )
    return Judgement(claim, verdict, "desk")


def test_ledger_starts_with_differences() -> None:
    ordered = sort_judgements(map(make_unmeasured, ("not run", "HOLDS", "other scale", "OPEN", "DIFFERS", "HOLDS")))
    verdicts = [judgement.verdict for judgement in ordered]
    assert verdicts == ["DIFFERS", "OPEN", "HOLDS", "HOLDS", "not run", "other scale"]
    assert format_summary_line(ordered) == "6 claims: 1 DIFFERS, 1 OPEN, 2 HOLDS, 1 not run, 1 other scale"


def test_effects_carry_their_sign() -> None:
    tiny = replace(make_unmeasured("OPEN"), comparisons=(Comparison(-1e-5, -0.012, 0.5),), unit=Unit("points", 100.0))
    (row,) = make_claims_view([tiny]).rows
    assert row[2:4] == ("+0.00", "(-1.20 to +50.00)")


def test_block_is_replaced_between_markers(tmp_path: Path) -> None:
    path, start, end = tmp_path / "R.md", "<!-- table1 -->", "<!-- table1 end -->"
    text = replace_block(path, f"before\n{start}\nold\n{end}\nafter\n", "table1", "fresh\n")
    assert text == f"before\n{start}\n\nfresh\n\n{end}\nafter\n"
    with pytest.raises(ValueError, match="once each"):
        replace_block(path, "no markers", "table1", "")


@pytest.fixture
def render_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[View | str, int], list[str]]:
    """Return a function that renders a view or a line on a terminal of some width. It returns the lines."""

    def render_lines(content: View | str, width: int) -> list[str]:
        monkeypatch.setattr("repro.report.formats.DEFAULT_WIDTH", width)
        (render_line if isinstance(content, str) else render)(content)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width
        return lines

    return render_lines


RenderAt = Callable[[View | str, int], list[str]]


@pytest.mark.parametrize("width", [100, 200])
def test_narrow_terminal_breaks_no_number(width: int, render_at: RenderAt) -> None:
    """A table that does not fit is printed in parts. The first part has the main column."""
    header = ("", "origin", *(f"column {n} of many" for n in range(11)), "NDCG@10")
    scores = {f"row {row}": [f"{row}{n}.5 ± 0.{n}" for n in range(10, 22)] for row in range(3)}
    lines = render_at(View("a title", header, tuple((name, "published", *scores[name]) for name in scores)), width)
    for name, expected in scores.items():
        own = [line for line in lines if line.split("published")[0].strip() == name]
        assert sorted(re.findall(r"\d+\.5 ± 0\.\d+", " ".join(own))) == expected
        assert own[0].rstrip().endswith(expected[-1]) and expected[0] in own[0]
        assert (len(own) == 1) == (width == 200)


@pytest.mark.parametrize(("width", "least"), [(40, 1), (60, 1), (80, 3)])
def test_narrow_terminals_get_fewer_columns(width: int, least: int, render_at: RenderAt) -> None:
    """Each row is on one line with its NDCG@10. Columns that are not shown are listed."""
    header = ("", "origin", "seeds", "batch", *(f"collection {n}" for n in range(4)), "NDCG@10")
    scores = {row: (*(f"{row}{n}.5 ± 0.1" for n in range(10, 14)), f"{row}5.2 ± 0.3") for row in range(1, 4)}
    rows = [(f"row number {row}", "published", "8/8", "128", *cells) for row, cells in scores.items()]
    lines = render_at(View("a title", header, tuple(rows)), width)
    for row in range(1, 4):
        (line,) = (line for line in lines if f"row number {row}" in line)
        assert f"{row}5.2 ± 0.3" in line and len(line.split()) >= least + 3
    shown = {name for name in header[1:] if any(name in line and "NDCG@10" in line for line in lines)}
    _, note = " ".join(" ".join(lines).split()).split("Not shown")
    assert "NDCG@10" in shown and {name for name in header[1:] if name in note} == {*header[1:]} - shown


CLAIMS: dict[str, Claim] = {claim.id: claim for experiment in experiments() for claim in experiment.claims}
POINTS, NATS = Unit("points", 100.0, 2), Unit("nats", 1.0, 2)


def make_judgement(id: str, verdict: str, effect: float | None = None, unit: Unit = POINTS) -> Judgement:
    """Return a judgement whose interval is the effect ± 0.001."""
    if effect is None:
        return Judgement(CLAIMS[id], verdict, "desk")
    return Judgement(CLAIMS[id], verdict, "desk", (Comparison(effect, effect - 0.001, effect + 0.001),), unit)


UNDECIDED = [make_judgement(claim, "other scale") for headline in load_headlines() for claim in headline["claims"]]


def test_sentences_have_numbers_per_scale() -> None:
    """Units other than points are named. Three comparisons are shown by their smallest and largest effect."""
    effects = tuple(Comparison(effect, effect - 0.001, effect + 0.001) for effect in (0.13, 0.14, 0.12))
    at_desk = {
        "T1.b": make_judgement("T1.b", "HOLDS", 0.0146),
        "E.a": make_judgement("E.a", "HOLDS", 0.34, NATS),
        "F4.a": make_judgement("F4.a", "not run"),
        "P.f": Judgement(CLAIMS["P.f"], "HOLDS", "desk", effects, POINTS),
    }
    others = [judgement for judgement in UNDECIDED if judgement.claim.id not in at_desk]
    view = make_headlines_view({"desk": [*at_desk.values(), *others], "lab": UNDECIDED})
    rows = {row[1]: row[2:] for row in view.rows}
    assert view.header == ("", "claim", "paper", "at `desk`", "at `lab`")
    assert list(rows) == [", ".join(headline["claims"]) for headline in load_headlines()]
    assert rows["T1.b, P.b"] == ("+1.8", "HOLDS: +1.46 (+1.36 to +1.56)", "–")
    assert rows["E.a"][1] == "HOLDS: +0.34 (+0.34 to +0.34) nats" and rows["F4.a"][1] == "–"
    assert rows["P.f"][1] == "HOLDS: +12.00 to +14.00 in 3 comparisons"
    (ledger,) = make_claims_view([at_desk["T1.b"]]).rows
    assert ledger[2] in rows["T1.b, P.b"][1], "the ledger has the same number"


def test_sentence_without_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="names T1"):
        make_headlines_view({"desk": UNDECIDED[1:], "lab": UNDECIDED[1:]})


@pytest.mark.usefixtures("judged_home")
@pytest.mark.parametrize("width", [80, 100, 200])
def test_ledger_fits_the_terminal(width: int, render_at: RenderAt) -> None:
    verdicts = sort_judgements(chain.from_iterable(judgements(experiment, "desk") for experiment in experiments()))
    view = make_claims_view(verdicts, width=width)
    lines = render_at(view, width)
    text = " ".join(" ".join(lines).split())
    for row in view.rows:
        (line,) = (line for line in lines if line.split()[:1] == [row[0]])
        numbers = [number for cell in row[:-1] for number in re.findall(r"[+-]\d+\.\d+", cell)]
        assert re.findall(r"[+-]\d+\.\d+", line) == numbers
        assert " ".join(row[-1].split()) in text
    assert render_at(format_summary_line(verdicts), width)


def test_artefact_list_can_be_searched(capsys: pytest.CaptureFixture[str]) -> None:
    app(["list"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    for name, (experiment, artefact) in artefacts().items():
        assert any(line.startswith(f"{name} ") and format_title(experiment, artefact) in line for line in lines), name


def test_narrow_title_uses_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    title = "figure12 at scale desk: a sentence that is much longer than the two columns of the table below it"
    render(View(title, ("", "n"), (("a", "1"),)))
    assert capsys.readouterr().out.splitlines()[0] == title


def write_score(run: Run, score: float) -> None:
    """Write the local record of a run with this score on its one dataset."""
    write_scores(get_local_records(), run, np.full(4, score, np.float32))


def test_grid_shows_mean_per_setting() -> None:
    runs = grid(base("desk", batch_size=64), learning_rate=(0.001, 0.002), seed=(7, 8))
    for run, score in zip(runs, (0.5, 0.25, 0.75, 0.75), strict=True):
        write_score(run, score)
    bm25 = base("desk", architecture="bm25", num_pairs=None)
    write_score(bm25, 0.125)
    view = make_scores_view([*runs, bm25])
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


def test_single_run_is_its_architecture() -> None:
    recorded, missing = grid(base("desk", batch_size=77), seed=(0, 1))
    write_score(recorded, 0.5)
    view = make_scores_view([recorded, missing])
    assert [row[1] for row in view.rows] == ["biencoder"] and not view.notes


def test_context_blind_run_has_its_name() -> None:
    """A run that is only scored under the null context has its own line in tables and pivots."""
    blind = base("desk", architecture="contextual", sequence_dropout=1.0, test_contexts="null")
    runs = grid(blind, learning_rate=(0.001, 0.002))
    others = [replace(run, batch_size=size) for run, size in zip(runs, (16, 64), strict=True)]
    for run, score in zip((*runs, *others), (0.5, 0.25, 0.75, 0.75), strict=True):
        metrics = {f"desk+null/{name}/ndcg_at_10": score for name in ("a", "mean")}
        write_record(get_local_records(), run, metrics=metrics, arrays={}, provenance={"suite": {"datasets": []}})
    name = "contextual, null context"
    assert [row[:2] for row in make_scores_view(runs).rows] == [(run_id(run), name) for run in runs]
    view = make_pivot_view(make_pivot([*runs, *others], "learning_rate", "batch_size"))
    assert sorted(cell for row in view.rows for cell in row[1:]) == ["25.0", "50.0", "75.0", "75.0", "–", "–"]


def test_runs_without_scores_are_counted() -> None:
    """A run without NDCG@10 has no row but a note. A variant that is no context is not called one."""
    batches, cascade, widths = (base("desk", measure=measure) for measure in ("batches", "cascade", "widths"))
    score = {"desk/mean/ndcg_at_10": 0.5, "desk+width8/mean/ndcg_at_10": 0.25, "desk+width8/mean/mflops": 3.0}
    for run, metrics in ((batches, {"purity": 0.5}), (cascade, {"desk+width8/mean/accuracy": 0.5}), (widths, score)):
        write_record(get_local_records(), run, metrics=metrics, arrays={}, provenance={"suite": {"datasets": []}})
    view = make_scores_view([batches, cascade, widths])
    assert [(row[1], row[-1]) for row in view.rows] == [("biencoder", "50.0"), ("· width8", "25.0")]
    [note] = view.notes
    assert note.startswith("2 runs") and "batches, cascade" in note


def test_pivot_shows_cell_means() -> None:
    """Rows and columns are sorted by value, cells are means over seeds, and a note counts excluded runs."""
    runs = grid(base("desk", batch_size=64), learning_rate=(0.002, 0.001), batch_size=(128, 16), seed=(7, 8))
    for number, run in enumerate(runs):
        write_score(run, number / 16)
    bm25 = base("desk", architecture="bm25", num_pairs=None)
    write_score(bm25, 0.125)
    view = make_pivot_view(make_pivot([*runs, bm25], "learning_rate", "batch_size"))
    assert view.header == ("batch_size", "learning_rate=0.001", "learning_rate=0.002")
    assert [[cell.split(" ")[0] for cell in row] for row in view.rows] == [
        ["16", "40.6", "15.6"],  # 100 / 16 × the mean of 6 and 7, and of 2 and 3
        ["128", "28.1", "3.1"],
    ]
    assert "seed" in view.notes[0] and "1 run" in view.notes[1]
    with pytest.raises(ValueError, match="temperature does not vary"):
        make_pivot_view(make_pivot(runs, "temperature", "batch_size"))
    with pytest.raises(ValueError, match="did you mean 'batch_size'"):
        make_pivot_view(make_pivot(runs, "batch_siz", "learning_rate"))


def test_pivot_names_averaged_architectures() -> None:
    """A cell over two architectures says so, and the architecture can be an axis."""
    runs = grid(
        base("desk"), architecture=("biencoder", "contextual"), learning_rate=(0.001, 0.002), batch_size=(16, 64)
    )
    for number, run in enumerate(runs):
        write_score(run, number / 16)
    view = make_pivot_view(make_pivot(runs, "learning_rate", "batch_size"))
    assert view.rows[0][1] == "12.5" and "mean over architecture" in view.notes[0]
    view = make_pivot_view(make_pivot(runs, "architecture", "batch_size"))
    assert [row[1:] for row in view.rows] == [("6.2", "31.2"), ("12.5", "37.5")]
    assert "mean over learning_rate" in view.notes[0]


def test_incomplete_cell_has_no_mean() -> None:
    """A mean over the runs that have ended would change the order of cells. The picture has the same numbers."""
    rows = grid(base("desk"), architecture=("biencoder", "contextual"), seed=(3, 4))
    runs = [
        replace(run, learning_rate=rate, batch_size=size)
        for rate in (0.001, 0.002)
        for size in (16, 64)
        for run in rows
    ]
    # the contextual model is recorded for another seed, too, so a flat mean would count it twice
    runs += [replace(run, seed=5) for run in runs if run.architecture == "contextual" and run.seed == 3]
    for number, run in enumerate(runs[1:]):
        write_score(run, number / 32)
    pivot = make_pivot(runs, "learning_rate", "batch_size")
    view = make_pivot_view(pivot)
    assert view.rows[0][1] == "–" and all("±" in cell for row in view.rows for cell in row[1:] if cell != "–")
    assert any("1 cell" in note for note in view.notes) and "over seeds" in view.notes[0]
    texts = re.findall(">([^<>]+)</text>", render_pivot(pivot).read_text(encoding="utf-8"))
    assert {cell.split(" ")[0] for row in view.rows for cell in row[1:]} <= set(texts)
    header, *_ = Path(render_pivot(pivot)).with_suffix(".csv").read_text().splitlines()
    assert "architecture" in header.split(",")


def test_pivot_picture_draws_all_cells() -> None:
    """Columns without a value (all pairs) and seeds are drawn like any other."""
    runs = grid(base("desk"), num_pairs=(None, 1024), learning_rate=(0.001, 0.002), seed=(3, 4))
    for number, run in enumerate(runs):
        write_score(run, number / 16)
    for x, numbers in (("num_pairs", {"3.1", "15.6", "28.1", "40.6"}), ("seed", {"12.5", "18.8", "25.0", "31.2"})):
        pivot = make_pivot(runs, x, "learning_rate")
        texts = re.findall(">([^<>]+)</text>", render_pivot(pivot).read_text(encoding="utf-8"))
        assert numbers <= set(texts)
        assert ("mean over num_pairs" in texts) == (x == "seed")
    grids = ("table1-seed-1..2", "table1-seed-1..3")
    assert len({render_pivot(pivot, grid=name) for name in grids}) == 2, "one file for each grid"


def test_encoding_progress_counts_all_calls() -> None:
    """The line after ten seconds adds up all calls: 100, 30 and 20 texts."""
    clock, lines = Mock(return_value=0.0), list[str]()
    report = make_encoding_reporter(lines.append, clock=clock)
    for num_done, num_texts in ((64, 100), (100, 100), (30, 30)):
        report(num_done, num_texts)
    clock.return_value = 10.0
    report(20, 50)
    (line,) = lines
    assert "150 texts" in line and "10 s" in line


DOCUMENT = "\\documentclass{article}\\usepackage{graphicx}\\begin{document}\n%s\\end{document}\n"


def find_problems(text: str, folder: Path) -> list[str]:
    """Return the errors of pdflatex and the lines that are wider than the page."""
    (folder / "tables.tex").write_text(DOCUMENT % text)
    command = ("pdflatex", "-interaction=nonstopmode", "tables.tex")
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False).stdout
    return re.findall(r"^! .*|^Overfull \\hbox \(\d{2,}.*", output, re.MULTILINE)


def test_latex_is_ascii_and_compiles(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    app(["show", "all", "--format", "latex"], standalone_mode=False)
    text = capsys.readouterr().out
    num_artefacts = sum(bool(experiment.runs("desk")) for experiment, _ in artefacts().values())
    assert text.count(r"\begin{tabular}") >= num_artefacts
    assert text.isascii()
    if shutil.which("pdflatex"):
        body = "\\noindent\n" + text.replace("\n\n", "\n\n\\noindent\n")
        assert find_problems(body, tmp_path) == []


def test_negative_numbers_get_a_minus() -> None:
    view = View("t", ("claim", "effect", "interval"), (("F1-b of 2026-11-22", "-1.25", "[-2.0, -0.5]"),))
    assert r"F1-b of 2026-11-22 & $-$1.25 & [$-$2.0, $-$0.5] \\" in as_latex(view)


def test_notes_become_comments() -> None:
    lines = as_latex(View("t", ("a", "b"), (("x", "1 ± 2"),), (SPREAD_NOTE,))).splitlines()
    assert lines[-2:] == [r"\end{tabular}", r"% $\pm$: standard deviation over the runs that ``seeds'' counts"]


def test_ledger_summary_is_a_comment() -> None:
    lines = run_command("check", "T1.a", "--scale", "smoke", "--format", "latex").splitlines()
    assert all(line.startswith("%") for line in lines if line) and any("1 other scale" in line for line in lines)


def test_wide_table_is_scaled() -> None:
    wide = View("t", tuple(f"column {number}" for number in range(9)), (("1.0 ± 0.1",) * 9,))
    text = as_latex(wide)
    assert "\\resizebox{\\linewidth}{!}{%\n\\begin{tabular}" in text and "\\end{tabular}}\n" in text
    assert "% needs \\usepackage{graphicx}" in text
    assert "graphicx" not in as_latex(View("t", ("a", "b"), (("x", "1"),)))
