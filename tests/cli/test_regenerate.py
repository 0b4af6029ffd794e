"""`check --write` writes stale files and missing golden metrics. With `--dry-run` it only lists them."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from repro.cli import regenerate as renewing
from repro.cli.regenerate import regenerate
from repro.spec import Experiment
from repro.spec.registry import find_experiment


@pytest.fixture
def new_golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A stale page, a current picture and one experiment without golden metrics. Returns the names of golden metrics that are made."""
    page, picture = tmp_path / "PAGE.md", tmp_path / "picture.svg"
    page.write_text("old")
    picture.write_text("<svg/>")
    missing = [find_experiment("figure14")]
    new_golden: list[str] = []

    def make(experiment: Experiment) -> Path:
        new_golden.append(experiment.artefact_names[0])
        missing.clear()
        return tmp_path

    monkeypatch.setattr("repro.report.markdown_pages.regenerate_pages", lambda judged, scale: {page: "fresh"})
    monkeypatch.setattr("repro.cli.gallery.make_gallery_pictures", dict)
    monkeypatch.setattr(renewing, "make_front_pictures", lambda: {picture: "<svg/>"})
    monkeypatch.setattr(renewing, "list_without_golden", lambda: list(missing))
    monkeypatch.setattr(renewing, "make_golden", make)
    return new_golden


def test_dry_run_changes_nothing(new_golden: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert regenerate([], "desk", dry_run=True)
    assert capsys.readouterr().err.splitlines() == [
        "PAGE.md would change",
        "figure14.json would be made by 6 runs at smoke",
    ]
    assert (tmp_path / "PAGE.md").read_text() == "old" and new_golden == []


def test_stale_files_are_written_once(
    new_golden: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert regenerate([], "desk", dry_run=False)
    assert (tmp_path / "PAGE.md").read_text() == "fresh" and new_golden == ["figure14"]
    assert "picture.svg" not in capsys.readouterr().err, "current files are not written"
    assert not regenerate([], "desk", dry_run=False) and capsys.readouterr().err == ""
    assert new_golden == ["figure14"]


@pytest.mark.parametrize("succeeds", [True, False])
def test_failed_smoke_run_shows_output(
    succeeds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    child = tmp_path / "child"
    child.write_text(f"#!/bin/sh\necho drawn: $REPRO_HOME/figure.svg >&2\nexit {0 if succeeds else 1}\n")
    child.chmod(0o755)
    monkeypatch.setattr(renewing.sys, "executable", str(child))
    monkeypatch.setattr(renewing, "list_golden_runs", lambda experiment: [])
    monkeypatch.setattr(renewing, "write_golden", lambda name, records: tmp_path)
    message = "`repro run figure14 --scale smoke` failed, see above"
    with nullcontext() if succeeds else pytest.raises(ValueError, match=message):
        renewing.make_golden(find_experiment("figure14"))
    assert ("drawn: " in capfd.readouterr().err) is not succeeds
