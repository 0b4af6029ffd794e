"""Verdicts, tables, pages and the report follow from the records alone. Removing a record removes what it gave."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

from repro.cli.inspect import check
from repro.cli.main import app
from repro.records import lookup
from repro.records.store import read_records
from repro.report import artefacts as views
from repro.report import markdown_pages
from repro.report.markdown_pages import regenerate_pages
from repro.report.tables import sort_judgements
from repro.report.view import View
from repro.spec import Column, Experiment, Row, Run, Table, base, grid, pick
from repro.spec.registry import artefacts, experiments
from repro.statistics.judge import Judgement
from tests.hand_made import NDCG, above, publish, write_scores

GAINS = {64: 0.0, 128: 0.05, 256: 0.0005, 512: -0.05}
"""What each batch size adds to the scores of the same queries. The verdicts follow from it."""
RUNS = grid(base("desk"), batch_size=tuple(GAINS), seed=(0, 1, 2))
TABLE = Table(
    name="tableX",
    caption="made by hand",
    columns=(Column(label="NDCG@10", value=NDCG, factor=100),),
    rows=tuple(Row(label=f"batch {size}", runs=pick(batch_size=size)) for size in GAINS),
)


CLAIMS = (above("X.missing", 1024), above("X.holds", 128), above("X.undecided", 256), above("X.differs", 512))
VERDICTS = {"X.missing": "not run", "X.holds": "HOLDS", "X.undecided": "OPEN", "X.differs": "DIFFERS"}
EXPERIMENT = Experiment(number=99, title="by hand", runs=lambda scale: RUNS, artefacts=(TABLE,), claims=CLAIMS)


def write(folder: Path, run: Run) -> None:
    level = np.random.default_rng(7).uniform(0.3, 0.7, 200)
    own = np.random.default_rng([run.seed, run.batch_size]).normal(GAINS[run.batch_size], 0.03, 200)
    write_scores(folder, run, (level + own).astype(np.float32))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hand-made records in place of the published ones."""
    return publish(monkeypatch, tmp_path, RUNS, write)


def make_views() -> tuple[View, dict[str, Judgement]]:
    judged = views.judgements(EXPERIMENT, "desk")
    return views.make_artefact_views(EXPERIMENT, "desk")["tableX"], {one.claim.id: one for one in judged}


def test_hand_made_verdicts_are_known(folder: Path) -> None:
    table, judged = make_views()
    assert {name: one.verdict for name, one in judged.items()} == VERDICTS
    assert all("–" not in row for row in table.rows) and {row[2] for row in table.rows} == {"3/3"}


def test_scales_are_judged_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown_pages, "experiments", lambda: (EXPERIMENT,))
    found = {one.claim.id: one.verdict for one in markdown_pages.judge_results("desk")}
    assert found == {name: verdict for name, verdict in VERDICTS.items() if verdict != "not run"}
    assert markdown_pages.judge_results("lab") == [], "the experiment has no runs at lab"


def test_removed_record_takes_its_cells(folder: Path) -> None:
    """Removing one record changes one row, and only claims that need the record lose their verdict."""
    table, judged = make_views()
    for record in read_records(folder):
        content = record.path.read_bytes()
        record.path.unlink()
        found, judged_without = make_views()
        record.path.write_bytes(content)
        changed = [after for before, after in zip(table.rows, found.rows, strict=True) if before != after]
        assert [row[:3] for row in changed] == [(f"batch {record.run.batch_size}", "published", "2/3")]
        touched = {claim.id for claim in CLAIMS if any(term.runs.matches(record.run) for term in claim.terms)}
        for name, before in judged.items():
            is_tentative = name in touched and before.word != "not run"
            assert judged_without[name].verdict == ("tentative" if is_tentative else before.verdict)
            assert len(judged_without[name].seeds) == len(before.seeds) - is_tentative


@pytest.mark.parametrize(
    ("claims", "code"),
    [(("X.holds", "X.undecided"), 0), (tuple(VERDICTS), 1), (("X.differs",), 1), (("X.holds", "X.missing"), 2)],
)
def test_strict_check_sets_exit_code(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    claims: tuple[str, ...],
    code: int,
) -> None:
    chosen = tuple(claim for claim in CLAIMS if claim.id in claims)
    one = Experiment(number=99, title="", runs=EXPERIMENT.runs, artefacts=(TABLE,), claims=chosen)
    monkeypatch.setattr(lookup, "experiments", lambda: (one,))
    check(strict=False)
    assert get_exit_code(strict=True) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{len(claims)} claim{'s' * (len(claims) > 1)}: ")
    assert get_exit_code(strict=True, as_json=True) == code


def get_exit_code(**options: bool) -> int:
    """Return the exit code of `check`."""
    try:
        check(**options)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def test_dry_run_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text("old")
    monkeypatch.setattr(lookup, "experiments", lambda: (EXPERIMENT,))
    monkeypatch.setattr("repro.report.markdown_pages.regenerate_pages", lambda judged, scale: {page: "fresh"})
    monkeypatch.setattr("repro.cli.gallery.make_gallery_pictures", dict)
    assert get_exit_code(write=True, dry_run=True) == 1 and page.read_text() == "old"
    assert get_exit_code(write=True) == 0 and page.read_text() == "fresh"
    assert get_exit_code(write=True, dry_run=True) == 0
    assert capsys.readouterr().err.splitlines() == ["PAGE.md would change", "PAGE.md is renewed"]


def test_pages_match_committed_records() -> None:
    """Fails if records or claims changed after the last `repro check --write`."""
    if not list(views.RECORDS["published"]().glob("*.json")):
        pytest.skip("no record is committed")
    judged = sort_judgements(one for experiment in experiments() for one in views.judgements(experiment, "desk"))
    for path, text in regenerate_pages(judged, "desk").items():
        assert path.read_text() == text, f"{path.name} is out of date: python -m repro check --write"


@pytest.mark.parametrize("words", [("show", "table3"), ("show", "figure17_scores"), ("check", "table1"), ("check",)])
def test_csv_is_read_by_pandas(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    app([*words, "--format", "csv"], standalone_mode=False)
    out = capsys.readouterr().out
    read = pd.read_csv(io.StringIO(out), keep_default_na=False, dtype=str)
    assert [list(read.columns), *read.values.tolist()] == list(csv.reader(io.StringIO(out)))
    assert ("claim" in read.columns) == (words[0] == "check")


@pytest.mark.parametrize("words", [(), ("all",), ("table1", "figure6")])
def test_several_tables_are_no_csv(words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="a csv holds one table"):
        app(["show", *words, "--format", "csv"], standalone_mode=False)


def test_report_is_written_from_records(tmp_path: Path) -> None:
    app(["report", "--out", str(tmp_path / "report.html")], standalone_mode=False)
    text = (tmp_path / "report.html").read_text()
    shown = [name for name, (experiment, _) in artefacts().items() if experiment.runs("desk")]
    assert [name for name in shown if f'<section id="{name}"' not in text] == []
    assert "Not drawn" not in text


def test_json_uses_the_thresholds_unit(capsys: pytest.CaptureFixture[str]) -> None:
    app(["check", "--json"], standalone_mode=False)
    rows = json.loads(capsys.readouterr().out)
    above = [one for one in rows if one["word"] == "HOLDS" and re.fullmatch(r"> [-\d.]+", one["threshold"])]
    ends = [(one["claim"], float(one["threshold"][2:]), c["low"]) for one in above for c in one["comparisons"]]
    assert len([id for id, threshold, _ in ends if threshold]) > 1
    assert [id for id, threshold, low in ends if low < threshold] == []
