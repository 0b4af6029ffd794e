"""`check --write` writes stale files and missing golden metrics. With `--dry-run` it only lists them."""

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from repro.cli import regenerate as renewing
from repro.cli.regenerate import regenerate
from repro.spec.registry import find_experiment


def test_stale_files_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stale page and missing golden metrics are listed by a dry run, then written. A current picture is neither."""
    page, picture = tmp_path / "PAGE.md", tmp_path / "picture.svg"
    page.write_text("old")
    picture.write_text("<svg/>")
    missing = [find_experiment("figure14")]
    make_golden = Mock(side_effect=lambda experiment: missing.remove(experiment) or tmp_path)
    monkeypatch.setattr("repro.report.markdown_pages.regenerate_pages", lambda judged, scale: {page: "fresh"})
    monkeypatch.setattr("repro.cli.figures.make_gallery_pictures", dict)
    monkeypatch.setattr(renewing, "make_front_pictures", lambda: {picture: "<svg/>"})
    monkeypatch.setattr(renewing, "list_without_golden", lambda: list(missing))
    monkeypatch.setattr(renewing, "make_golden", make_golden)
    assert regenerate([], "desk", dry_run=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["PAGE.md would change", "figure14.json would be made by 6 runs at smoke"]
    assert page.read_text() == "old" and not make_golden.called
    assert regenerate([], "desk", dry_run=False)
    assert page.read_text() == "fresh" and "picture.svg" not in capsys.readouterr().err
    assert not regenerate([], "desk", dry_run=False) and capsys.readouterr().err == ""
    make_golden.assert_called_once_with(find_experiment("figure14"))


@pytest.mark.parametrize("succeeds", [True, False])
def test_only_failed_smoke_run_shows_output(
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
