"""Optimisations for thousands of runs do not change any output."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repro.report.formats import MAX_FOLDED_ROWS, format_plain_lines, render
from repro.report.view import View
from repro.spec import base
from repro.spec.identity import get_setting_id, run_id
from repro.statistics.units import split_by_stratum, stratified_mean
from repro.storage.paths import get_home
from tests.commands import run_module


@pytest.mark.parametrize("strata", [[0, 0, 0, 2, 2, 5], [1]])
def test_stratified_mean_is_exact(strata: list[int]) -> None:
    strata_Q = np.array(strata)
    values_Q = np.random.default_rng(0).random(len(strata))
    expected = [values_Q[strata_Q == stratum] for stratum in sorted(set(strata))]
    for actual, values in zip(split_by_stratum(values_Q, strata_Q).values(), expected, strict=True):
        np.testing.assert_array_equal(actual, values)
    assert stratified_mean(values_Q, strata_Q) == float(np.mean([values.mean() for values in expected]))


def test_setting_has_id_of_seed_0() -> None:
    for run in (base("smoke", seed=7), base("desk", seed=3, architecture="contextual", learning_rate=0.5)):
        assert get_setting_id(run) == run_id(replace(run, seed=0)) != run_id(run)


def test_long_table_keeps_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    long = "reason " * 60
    rows = tuple((f"r{number}", "x" * (number % 9), long + str(number)) for number in range(MAX_FOLDED_ROWS + 1))
    view = View("many", ("run", "what", "reason"), rows, ("a note",), align="lrl")
    render(view)
    lines = capsys.readouterr().out.splitlines()
    assert lines == list(format_plain_lines(view)) and lines[0] == "many" and lines[-1] == "a note"
    body = lines[4:-1]
    assert [line.split("  ")[0].strip() for line in body] == [row[0] for row in rows]
    assert all(line.endswith(row[2]) for line, row in zip(body, rows, strict=True))


def test_home_follows_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("REPRO_HOME", "out")
        assert get_home() == tmp_path / name / "out"
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    assert get_home() == tmp_path


@pytest.mark.slow
def test_many_runs_benchmark_works(tmp_path: Path) -> None:
    """Slow: starts the command three times."""
    result = run_module("benchmarks.many_runs", "--num-runs", "60", "--num-records", "30", folder=tmp_path)
    assert result.stdout.count("exit 0") == 3, result.stdout + result.stderr
