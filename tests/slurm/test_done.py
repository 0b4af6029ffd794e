"""The guarantee on a real Slurm: a sweep with kills, requeues and racing launchers ends with the undisturbed records."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from repro.execute import execute
from repro.records.store import Record, has_record, read_records
from repro.seeds import make_rng
from repro.spec import Run, base, grid
from repro.spec.identity import run_id
from repro.storage.paths import CHECKOUT, get_local_records, run_folder
from repro.train.checkpoint import read_metrics
from slurm.job import get_run_item
from slurm.status import RunStatus, get_statuses
from tests.commands import ignore, run_command
from tests.leases import find_owner
from tests.slurm.launching import start_requeued, write_runs

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

NUM_STEPS = 160
RUNS = grid(base("smoke", num_steps=NUM_STEPS), seed=(0, 1), architecture=("biencoder", "contextual"))
NUM_KILLS, NUM_REQUEUES = 2, 1
TIMEOUT_SECONDS = 1500


def compute_undisturbed_records(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Execute all runs in this process, and return their records."""
    torch.set_num_threads(1)
    with monkeypatch.context() as patch:
        patch.setenv("REPRO_HOME", str(home))
        for run in RUNS:
            execute(run, progress=ignore)
        return read_records(get_local_records())


def check_statuses() -> list[RunStatus]:
    """Return all statuses. No run ever fails or loses its record."""
    recorded = [has_record(get_local_records(), run) for run in RUNS]
    statuses_now = get_statuses(RUNS)
    for status, was_recorded in zip(statuses_now, recorded, strict=True):
        assert status.state in ("recorded", "running", "queued", "missing"), status
        assert status.state == "recorded" or not was_recorded
    return statuses_now


def find_victim(statuses_now: list[RunStatus], number: int) -> RunStatus | None:
    """Return a run that is training, if there is one."""
    running = [status for status in statuses_now if status.state == "running" and status.progress]
    candidates = [status for status in running if 2 < status.progress.step < NUM_STEPS - 20]
    if not candidates:
        return None
    return candidates[make_rng(0, "victim", number).integers(len(candidates))]


def disturb(victim: RunStatus, action: str) -> bool:
    """Kill or requeue a run. Return False if it has ended in the meantime."""
    if action == "requeue":
        done = subprocess.run(["scontrol", "requeue", victim.job_id], check=False)
        if done.returncode == 0:
            start_requeued(victim.job_id)
        return done.returncode == 0
    owner = find_owner(get_run_item(next(run for run in RUNS if run_id(run) == victim.id)).lease_folder)
    if owner.is_alive:
        os.kill(owner.pid, signal.SIGKILL)
    return owner.is_alive


def test_disturbed_sweep_gives_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs end with the same records after kills, a requeue and racing launchers. Slow: jobs start for a minute."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    expected = compute_undisturbed_records(tmp_path / "undisturbed", monkeypatch)
    words = ["launch", write_runs(tmp_path, *RUNS), "--scale", "smoke", "--profile", "dev-cluster"]
    launchers = [subprocess.Popen([sys.executable, "-m", "repro", *words], cwd=CHECKOUT) for _ in range(2)]
    actions = ["kill"] * NUM_KILLS + ["requeue"] * NUM_REQUEUES
    deadline = time.monotonic() + TIMEOUT_SECONDS
    statuses_now = check_statuses()
    while any(status.state != "recorded" for status in statuses_now):
        assert time.monotonic() < deadline, statuses_now
        idle = all(launcher.poll() is not None for launcher in launchers)
        if idle and any(status.state == "missing" for status in statuses_now):
            run_command(*words)
        victim = find_victim(statuses_now, len(actions)) if actions else None
        if victim and disturb(victim, actions[-1]):
            actions.pop()
        time.sleep(0.2)
        statuses_now = check_statuses()
    assert not actions, "the runs ended before all disturbances"
    assert [launcher.wait() for launcher in launchers] == [0, 0]
    records = read_records(get_local_records())
    assert [record.id for record in records] == [record.id for record in expected]
    for record, same in zip(records, expected, strict=True):
        assert drop_speed(record) == drop_speed(same)
        assert all(np.array_equal(values, same.arrays[name]) for name, values in record.arrays.items())
    check_owners(RUNS)
    assert f"{len(RUNS)} runs requested, 0 to start" in run_command(*words)


def drop_speed(record: Record) -> dict[str, float]:
    """Return the metrics except the speed."""
    return {name: value for name, value in record.metrics.items() if name != "train/pairs_per_second"}


def check_owners(runs: tuple[Run, ...]) -> None:
    """Check that one owner ended each run, that each step was logged once, and that each kill ended one owner."""
    folders = [get_run_item(run).lease_folder for run in runs]
    outcomes = [[path.read_text() for path in folder.glob("*.ended")] for folder in folders]
    assert all(each.count("done") == 1 for each in outcomes)
    num_owners = sum(len([*folder.glob("*.json")]) for folder in folders)
    assert num_owners - sum(map(len, outcomes)) == NUM_KILLS
    for run in runs:
        steps = [line["step"] for line in read_metrics(run_folder(run_id(run)))]
        assert steps == list(range(1, NUM_STEPS + 1))
