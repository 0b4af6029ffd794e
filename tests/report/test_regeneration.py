"""Verdicts, tables, pages and the report follow from the records alone, and `check --write` writes what is stale."""

import json
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from repro.cli import regenerate as renewing
from repro.cli.main import app
from repro.records import lookup
from repro.records.store import read_records
from repro.report import artefacts as views
from repro.report import markdown_pages
from repro.report.view import View
from repro.spec import Column, Experiment, Row, Run, Table, base, grid, pick
from repro.spec.registry import artefacts, find_experiment
from repro.statistics.judge import Judgement
from tests.commands import get_exit_code
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
    judgements = {judgement.claim.id: judgement for judgement in judged}
    return views.make_artefact_views(EXPERIMENT, "desk")["tableX"], judgements


def test_verdicts_follow_from_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removing one record changes one row, and only claims that need the record lose their verdict."""
    table, judgements = make_views()
    assert {name: judgement.verdict for name, judgement in judgements.items()} == VERDICTS
    assert all("–" not in row for row in table.rows) and {row[2] for row in table.rows} == {"3/3"}
    monkeypatch.setattr(markdown_pages, "experiments", lambda: (EXPERIMENT,))
    judged = {judgement.claim.id: judgement.verdict for judgement in markdown_pages.judge_results("desk")}
    assert judged == {name: verdict for name, verdict in VERDICTS.items() if verdict != "not run"}
    assert markdown_pages.judge_results("lab") == [], "the experiment has no runs at lab"
    for record in read_records(folder):
        content = record.path.read_bytes()
        record.path.unlink()
        table_without, judgements_without = make_views()
        record.path.write_bytes(content)
        changed = [after for before, after in zip(table.rows, table_without.rows, strict=True) if before != after]
        assert [row[:3] for row in changed] == [(f"batch {record.run.batch_size}", "published", "2/3")]
        for claim in CLAIMS:
            before, after = judgements[claim.id], judgements_without[claim.id]
            needs_record = any(term.runs.matches(record.run) for term in claim.terms) and before.word != "not run"
            assert after.verdict == ("tentative" if needs_record else before.verdict)
            assert len(after.seeds) == len(before.seeds) - needs_record


@pytest.mark.parametrize(
    ("claims", "code"),
    [(("X.holds", "X.undecided"), 0), (tuple(VERDICTS), 1), (("X.differs",), 1), (("X.holds", "X.missing"), 2)],
)
def test_strict_check_sets_exit_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, claims: tuple[str, ...], code: int
) -> None:
    chosen = tuple(claim for claim in CLAIMS if claim.id in claims)
    monkeypatch.setattr(lookup, "experiments", lambda: (replace(EXPERIMENT, claims=chosen),))
    assert get_exit_code("check") == 0
    assert get_exit_code("check", "--strict") == get_exit_code("check", "--strict", "--json") == code


@pytest.mark.parametrize(("name", "code"), [("CC.a", 2), ("context_curve", 0)])
def test_strict_check_needs_named_claims(name: str, code: int) -> None:
    """A claim that is named and judged at another scale is not run here. An artefact may have such claims."""
    assert get_exit_code("check", name, "--strict") == code


@pytest.mark.usefixtures("judged_once")
def test_report_has_every_artefact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.cli.figures.draw_svg", lambda *drawn: '<svg width="90pt"/>')
    monkeypatch.setattr("repro.report.html.judge_results", lambda scale: [])
    app(["report", "--scale", "mini", "--out", str(tmp_path / "report.html")], standalone_mode=False)
    expected = {
        f"mini-{name}"
        for name, (experiment, _) in artefacts().items()
        if "mini" in {run.scale for run in experiment.runs("mini")}
    }
    sections = re.findall(r'<section id="([^"]+)"', (tmp_path / "report.html").read_text())
    assert len(expected) > 10 and expected <= set(sections)


@pytest.mark.usefixtures("judged_once")
def test_json_uses_the_thresholds_unit(capsys: pytest.CaptureFixture[str]) -> None:
    app(["check", "--json"], standalone_mode=False)
    rows = json.loads(capsys.readouterr().out)
    holding = [row for row in rows if row["word"] == "HOLDS" and re.fullmatch(r"> [-\d.]+", row["threshold"])]
    thresholds = {row["claim"]: float(row["threshold"][2:]) for row in holding}
    assert sum(threshold != 0 for threshold in thresholds.values()) > 1
    for row in holding:
        assert all(comparison["low"] >= thresholds[row["claim"]] for comparison in row["comparisons"]), row["claim"]


def test_stale_files_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stale page and missing golden metrics are listed by a dry run, then written. A current picture is neither."""
    page, picture = tmp_path / "PAGE.md", tmp_path / "picture.svg"
    page.write_text("old")
    picture.write_text("<svg/>")
    missing = [find_experiment("figure14")]
    make_golden = Mock(side_effect=lambda experiment: missing.remove(experiment) or tmp_path)
    monkeypatch.setattr("repro.report.markdown_pages.regenerate_pages", lambda judged: {page: "fresh"})
    monkeypatch.setattr("repro.cli.figures.make_gallery_pictures", lambda: {picture: "<svg/>"})
    monkeypatch.setattr(renewing, "list_without_golden", lambda: list(missing))
    monkeypatch.setattr(renewing, "make_golden", make_golden)
    monkeypatch.setattr(lookup, "experiments", lambda: ())
    assert get_exit_code("check", "--write", "--dry-run") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["PAGE.md would change", "figure14.json would be made by 6 runs at smoke"]
    assert page.read_text() == "old" and not make_golden.called
    assert get_exit_code("check", "--write") == 0
    assert page.read_text() == "fresh" and "picture.svg" not in capsys.readouterr().err
    assert get_exit_code("check", "--write", "--dry-run") == 0 and capsys.readouterr().err == ""
    make_golden.assert_called_once_with(find_experiment("figure14"))
