"""The whole promise on a real Slurm: killed, requeued and raced for, a sweep ends as if nobody had touched it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from repro.execute import execute
from repro.records.store import Record, has_record, read_records
from repro.seeds import generator_for
from repro.spec import Run, base, grid
from repro.spec.identity import run_id
from repro.storage.lease import look, owners
from repro.storage.paths import CHECKOUT, get_local_records, run_folder
from slurm.states import get_run_item
from slurm.status import RunStatus, statuses

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

NUM_STEPS = 200
RUNS = grid(base("smoke", num_steps=NUM_STEPS), seed=(0, 1, 2), architecture=("biencoder", "contextual"))
NUM_KILLS, NUM_REQUEUES = 3, 1
PATIENCE_SECONDS = 1500


def undisturbed(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Return the records of a machine where nothing happens."""
    torch.set_num_threads(1)
    with monkeypatch.context() as patch:
        patch.setenv("REPRO_HOME", str(home))
        for run in RUNS:
            execute(run, progress=lambda line: None)
        return read_records(get_local_records())


def race(file: Path) -> list[subprocess.Popen[str]]:
    """Two launchers at once."""
    words = [sys.executable, "-m", "repro", "launch", str(file), "--scale", "smoke", "--profile", "dev-cluster"]
    return [subprocess.Popen(words, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) for _ in range(2)]


def look_twice() -> list[RunStatus]:
    """Where all stand; what is said must be so, unless it changed while we looked."""
    recorded = [has_record(get_local_records(), run) for run in RUNS]
    alive = [owner.is_alive if (owner := look(get_run_item(run).lease_folder)) else False for run in RUNS]
    found = statuses(RUNS)
    for run, status, was_recorded, was_alive in zip(RUNS, found, recorded, alive, strict=True):
        is_recorded = has_record(get_local_records(), run)
        assert status.state == "recorded" or not was_recorded
        assert status.state != "recorded" or is_recorded
        assert (
            status.state in ("running", "recorded")
            or not was_alive
            or not look(get_run_item(run).lease_folder).is_alive
        )
        assert status.state in ("recorded", "running", "queued", "interrupted", "missing"), status
    return found


def disturb(found: list[RunStatus], kills: int, requeues: int, number: int) -> tuple[int, int]:
    """Kill or requeue one run in the midst of its training, if there is one. Return what is left to do."""
    within = [
        one for one in found if one.state == "running" and one.progress and 2 < one.progress.step < NUM_STEPS - 20
    ]
    if not within or kills + requeues == 0:
        return kills, requeues
    victim = within[generator_for(0, "victim", number).integers(len(within))]
    if requeues and (not kills or number % 3 == 1):
        done = subprocess.run(["scontrol", "requeue", victim.job_id], check=False)
        return kills, requeues - (done.returncode == 0)
    owner = look(get_run_item(next(run for run in RUNS if run_id(run) == victim.id)).lease_folder)
    assert owner is not None
    if not owner.is_alive:
        return kills, requeues
    os.kill(owner.pid, signal.SIGKILL)
    return kills - 1, requeues


def test_disturbed_sweep_ends_like_undisturbed_one(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six runs, three kills, a requeue and racing launchers: the same records. Slow: two minutes of jobs that start."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    expected = undisturbed(tmp_path / "undisturbed", monkeypatch)
    file = tmp_path / "grid.json"
    file.write_text(json.dumps([asdict(run) for run in RUNS]))
    kills, requeues, number, deadline = NUM_KILLS, NUM_REQUEUES, 0, time.monotonic() + PATIENCE_SECONDS
    launchers = race(file)
    found = look_twice()
    while any(one.state != "recorded" for one in found):
        assert time.monotonic() < deadline, found
        idle = all(launcher.poll() is not None for launcher in launchers)
        if idle and any(one.may_launch("slurm", retry=False) for one in found):
            launchers = race(file)
        left = disturb(found, kills, requeues, number)
        number += left != (kills, requeues)
        kills, requeues = left
        time.sleep(0.5)
        found = look_twice()
    assert (kills, requeues) == (0, 0), "the runs were over before they could be disturbed"
    assert [launcher.wait() for launcher in launchers] == [0, 0]
    records = read_records(get_local_records())
    assert [record.id for record in records] == [record.id for record in expected]
    for record, same in zip(records, expected, strict=True):
        assert without_speed(record) == without_speed(same)
        assert all(np.array_equal(values, same.arrays[name]) for name, values in record.arrays.items())
    assert_nobody_worked_twice(RUNS)
    again = subprocess.run(race(file)[0].args, cwd=CHECKOUT, capture_output=True, text=True)
    assert f"{len(RUNS)} runs requested, 0 to start" in again.stdout


def without_speed(record: Record) -> dict[str, float]:
    """The metrics but for how fast it went."""
    return {name: value for name, value in record.metrics.items() if name != "train/pairs_per_second"}


def assert_nobody_worked_twice(runs: tuple[Run, ...]) -> None:
    """Exactly one owner ended each run, each step was logged once, and each kill ended one owner."""
    history = [owners(get_run_item(run).lease_folder) for run in runs]
    assert all([owner.outcome for owner in each].count("") == 1 for each in history)
    assert sum(owner.outcome is None for each in history for owner in each) == NUM_KILLS
    for run in runs:
        steps = [
            json.loads(line)["step"] for line in (run_folder(run_id(run)) / "metrics.jsonl").read_text().splitlines()
        ]
        assert steps == list(range(1, NUM_STEPS + 1))
