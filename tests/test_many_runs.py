"""What makes thousands of runs quick to look at changes nothing that is said of them; a killed sweep loses nothing."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repro.records.store import read_record, write_record
from repro.report.formats import MOST_FOLDED_ROWS, format_plain_lines, render
from repro.report.view import View
from repro.spec import base
from repro.spec.identity import get_setting_id, run_id
from repro.statistics.units import split_by_stratum, stratified_mean
from repro.storage.paths import CHECKOUT, home

SUITE = {"name": "desk", "datasets": [{"name": "a", "family": "f", "num_queries": 4}], "contexts": [{"seed": 0}]}


@pytest.mark.parametrize("strata", [[0, 0, 0, 2, 2, 5], [2, 0, 5, 0, 2, 0], [1]])
def test_stratified_mean_is_exact(strata: list[int]) -> None:
    strata_Q = np.array(strata)
    values_Q = np.random.default_rng(0).random(len(strata))
    by_hand = [values_Q[strata_Q == stratum] for stratum in sorted(set(strata))]
    assert [part.tolist() for part in split_by_stratum(values_Q, strata_Q).values()] == [
        part.tolist() for part in by_hand
    ]
    assert stratified_mean(values_Q, strata_Q) == float(np.mean([part.mean() for part in by_hand]))


def test_setting_has_id_of_seed_0() -> None:
    for run in (base("smoke", seed=7), base("desk", seed=3, architecture="contextual", learning_rate=0.5)):
        assert get_setting_id(run) == run_id(replace(run, seed=0)) != run_id(run)


def test_equal_suites_are_shared(own_home: Path) -> None:
    values = np.linspace(0, 1, 4, dtype=np.float32)
    metrics = {f"desk/{group}/ndcg_at_10": 0.5 for group in ("a", "f", "mean")}
    told = [SUITE, SUITE, SUITE | {"contexts": [{"seed": 1}]}]
    paths = [
        write_record(
            own_home, base("desk", seed=seed), metrics=metrics, arrays={"desk": values}, provenance={"suite": suite}
        ).path
        for seed, suite in enumerate(told)
    ]
    first, same, other = (read_record(path).provenance["suite"] for path in paths)
    assert first is same and other is not first
    assert [first, same, other] == told


def test_long_table_keeps_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    long = "reason " * 60
    rows = tuple((f"r{number}", "x" * (number % 9), long + str(number)) for number in range(MOST_FOLDED_ROWS + 1))
    view = View("many", ("run", "what", "reason"), rows, ("a note",), align="lrl")
    render(view)
    lines = capsys.readouterr().out.splitlines()
    assert lines == list(format_plain_lines(view)) and lines[0] == "many" and lines[-1] == "a note"
    body = lines[4:-1]
    assert [line.split("  ")[0].strip() for line in body] == [row[0] for row in rows]
    assert all(line.endswith(row[2]) for line, row in zip(body, rows, strict=True))


def test_the_homes_folder_follows_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("REPRO_HOME", "out")
        assert home() == tmp_path / name / "out"
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    assert home() == tmp_path


def run_benchmark(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a benchmark module with its options in another folder."""
    name, *options = words.split()
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    env = os.environ | {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_many_runs_benchmark_works(tmp_path: Path) -> None:
    """Slow: starts the command six times."""
    done = run_benchmark("many_runs --num-runs 60 --num-records 30", tmp_path)
    assert done.stdout.count("exit 0") == 6, done.stdout + done.stderr


@pytest.mark.slow
def test_killed_sweep_ends_the_same(tmp_path: Path) -> None:
    """Slow: trains a sweep twice, with four kills."""
    done = run_benchmark("kills --num-runs 2 --num-kills 4", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
