"""`status`, `why`, `launch`, `cancel`, `prune`, `fetch` and `verify` as typed: output, exit codes, and stored states."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner, Result

from repro.cli.main import app
from repro.planning.cost import has_ended, list_trainings
from repro.spec import Run, base, grid
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import get_local_records, get_published_records, get_writer_lease, run_folder
from slurm.job import Job, JobState, get_run_item, run_here
from slurm.profiles import Profile
from slurm.prune import list_leftovers
from slurm.scheduler import Queued
from slurm.signals import Stop
from slurm.start import cancel
from slurm.status import read_progress
from slurm.sweep import Submission
from tests.leases import take_lease
from tests.slurm.launching import launch_runs, write_runs
from tests.slurm.stand_in import set_flag, stages_of

pytestmark = pytest.mark.usefixtures("stand_in")

RUNS = grid(base("smoke", num_steps=3), seed=(0, 1, 13))


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Write a file of the three runs."""
    return write_runs(tmp_path, *RUNS)


def invoke(*words: str) -> Result:
    """Run a command, and return its output, exit code and exception."""
    return CliRunner().invoke(app, list(words))


def read_status(file: str) -> list[dict[str, Any]]:
    """Return the rows of `status`."""
    return json.loads(invoke("status", file, "--json").stdout)


def execute_runs(*runs: Run) -> None:
    """Execute runs with the stand-in in this process."""
    for run in runs:
        for stage in stages_of(run):
            stage.build()
        Job(run=asdict(run))(Stop(), where=JobState(state="running"))


def test_status_and_why_describe_a_sweep(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [row["state"] for row in read_status(file)] == ["missing"] * 3
    assert invoke("status", file).stdout == "3 missing\n3 never launched: `repro plan` lists them\n"
    launch_runs(*RUNS, profile=Profile(name="h", on="local", parameters={"cpus_per_task": 1}))
    rows = read_status(file)
    assert [row["state"] for row in rows] == ["recorded", "recorded", "failed"]
    assert "2 recorded, 1 failed" in invoke("status", file).stdout
    # A published record does not hide what happened here.
    monkeypatch.setattr("slurm.status.has_record", lambda folder, run: folder == get_published_records())
    output = invoke("why", rows[2]["id"][:6]).stdout
    assert "bad luck" in output and f"log: {rows[2]['log']}" in output
    assert isinstance(invoke("why", "zzz").exception, ValueError)


def test_launch_sets_its_exit_code(file: str) -> None:
    execute_runs(*RUNS[:2])
    for summary in ("1 to start", "0 to start, 1 failed or cancelled"):
        result = invoke("launch", file)
        assert result.exit_code == 2 and summary in result.output, result.output
    set_flag("mended")
    assert invoke("launch", file, "--retry").exit_code == 0


def test_fetch_builds_what_verify_checks() -> None:
    words = ("table1", "--scale", "smoke")
    for verb in ("verify", "fetch"):
        assert isinstance(invoke(verb, "scifcat").exception, ValueError)
        assert invoke(verb, *words).exit_code == 0
    assert "ok   corpus planted-tiny\n" in invoke("verify", *words).stdout


@pytest.mark.parametrize(
    "changes",
    [{"context_seed": 3}, {"pretraining_corpus": "desk", "num_pretraining_steps": 3}],
    ids=["evaluation", "first phase"],
)
def test_prune_finds_recorded_trainings(changes: dict[str, Any]) -> None:
    """Checkpoints lie in the folders of training runs, which may be those of no run or of another one."""
    run = replace(RUNS[0], **changes)
    execute_runs(run)
    folders = [run_folder(training) for training in list_trainings(run)]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "checkpoint.safetensors").write_bytes(b"0" * 1000)
    assert [path.parent for path, _ in list_leftovers([run])] == folders
    with take_lease(folders[0] / "training"):
        assert [path.parent for path, _ in list_leftovers([run])] == folders[1:], "a process is training here"
    other = Job(run=asdict(replace(run, context_seed=4)))
    write_submission({other.item.name: "7"}, {other.item.name: other.run})
    assert not list(list_leftovers([run])), "a launched run needs the same training runs"
    execute_runs(replace(run, context_seed=4))
    assert len(list(list_leftovers([run]))) == len(folders)
    (folders[-1] / "owner").mkdir()
    assert [path.parent for path, _ in list_leftovers([run])] == folders[:-1], "an unrecorded run has started there"


def test_unreadable_record_is_not_replaced(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute_runs(RUNS[0])
    path = get_local_records() / f"{run_id(RUNS[0])}.json"
    content = path.read_text()
    path.write_text(content[:100])
    row = read_status(file)[0]
    assert row["state"] == "unreadable" and str(path) in row["reason"]
    launched = invoke("launch", file, "--retry")
    assert launched.exit_code == 2 and f"skipped: run {run_id(RUNS[0])}: {path}" in launched.output, launched.output
    assert isinstance(invoke("run", file).exception, ValueError) and path.read_text() == content[:100]
    (get_run_item(RUNS[0]).folder / "checkpoint.json").touch()
    assert not list(list_leftovers(RUNS[:1])), "files of runs without a readable record are kept"
    path.write_text(content)
    assert read_status(file)[0]["state"] == "recorded"


def write_submission(jobs: dict[str, str], runs: dict[str, Any] | None = None, **fields: Any) -> None:
    """Store a submission to Slurm, with the number of each job."""
    locations = {name: {"job_id": number, "log": f"{number}.log"} for name, number in jobs.items()}
    Submission(**{"on": "slurm", "sweep": "t", "jobs": locations, "runs": runs or {}, **fields}).write()


def test_cancel_takes_unneeded_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, stages = run_id(RUNS[0]), run_id(RUNS[1]), ("corpus/shared", "clusters/own")
    jobs = {name: str(number) for number, name in enumerate((first, second, *stages, "shard/1"), 10)}
    needs = {first: [*stages], second: [stages[0]], stages[1]: [stages[0], "shard/1"]}
    write_submission(jobs, {first: asdict(RUNS[0]), second: asdict(RUNS[1])}, needs=needs)
    monkeypatch.setattr("slurm.status.fetch_queue", lambda ids: {job: Queued("PENDING", "") for job in jobs.values()})
    monkeypatch.setattr("slurm.status.find_parent_stage", lambda name: stages[1] if name == "shard/1" else "")
    cancelled: list[str] = []
    monkeypatch.setattr("slurm.start.scancel", cancelled.extend)
    assert [status.id for status in cancel(RUNS[:1])] == [first]
    assert sorted(cancelled) == ["10", "13", "14"]


def test_cancel_takes_the_queued_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was interrupted in one job may wait in another."""
    write_submission({run_id(RUNS[0]): "20"}, {run_id(RUNS[0]): asdict(RUNS[0])})
    monkeypatch.setattr("slurm.status.fetch_queue", lambda ids: {"20": Queued("PENDING", "")})
    cancelled: list[str] = []
    monkeypatch.setattr("slurm.start.scancel", cancelled.extend)
    for job_id in ("12", ""):
        get_run_item(RUNS[0]).reset()
        get_run_item(RUNS[0]).write(JobState(state="interrupted", job_id=job_id, reason="a lost node"))
        assert [status.job_id for status in cancel(RUNS[:1])] == ["20"]
    assert cancelled == ["20", "20"]


def test_run_keeps_the_mark_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` waits for a process that executes the run, and does not undo its cancellation."""
    item = get_run_item(RUNS[0])
    with take_lease(item.lease_folder):
        running = JobState(state="running")
        item.write(running)
        item.cancel()
        monkeypatch.setattr("repro.storage.lease.time.sleep", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_here(RUNS[0])
        assert item.is_cancelled and item.read() == running


def test_prune_takes_recorded_checkpoints(file: str) -> None:
    execute_runs(*RUNS[:2])
    unfinished = replace(RUNS[0], seed=5)
    for run in (*RUNS[:2], unfinished):
        get_run_item(run).folder.mkdir(parents=True, exist_ok=True)
        (get_run_item(run).folder / "checkpoint.safetensors").write_bytes(b"0" * 1000)
    expected = [get_run_item(run).folder / "checkpoint.safetensors" for run in RUNS[:2]]
    assert [path for path, _ in list_leftovers((*RUNS[:2], unfinished))] == expected
    weights = run_folder(run_id(RUNS[0])) / "checkpoint.safetensors"
    assert invoke("prune", file).exit_code == 0 and weights.exists(), "weights are kept without --weights"
    take_lease(weights.parent / "training").release()
    assert has_ended(run_id(RUNS[0]))
    assert invoke("prune", file, "--weights").exit_code and weights.exists(), "nobody confirmed"
    assert invoke("prune", file, "--weights", "--dry-run").exit_code == 0 and weights.exists()
    assert invoke("prune", file, "--weights", "--yes").exit_code == 0 and not weights.exists()
    assert (weights.parent / "metrics.jsonl").exists()
    weights.write_bytes(b"0" * 1000)
    assert not has_ended(run_id(RUNS[0])), "the training has only started again"
    assert [row["state"] for row in read_status(file)[:2]] == ["recorded"] * 2


def test_prune_leaves_living_builds(own_home: Path) -> None:
    old, young, locked = (own_home / "stages" / f".{name}.part" for name in ("a.1", "b.2", "c.3"))
    locked.mkdir(parents=True)
    for path in (old, young):
        path.write_text("half")
    for path in (old, locked):
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    lock = os.open(locked, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    assert [path for path, _ in list_leftovers([])] == [old]
    os.close(lock)
    assert [path for path, _ in list_leftovers([])] == [old, locked]
    with take_lease(get_writer_lease(own_home / "stages" / "c")):
        assert [path for path, _ in list_leftovers([])] == [old], "another machine may build it"


def test_last_complete_line_is_the_progress() -> None:
    run = base("smoke", num_steps=900)
    folder = run_folder(get_training_id(run))
    folder.mkdir(parents=True)
    assert read_progress(run) is None
    line = '{"step": %d, "pairs_per_second": 100.0}\n'
    (folder / "metrics.jsonl").write_text("".join(line % step for step in range(1, 800)) + '{"step": 800, "pairs')
    progress = read_progress(run)
    assert progress is not None and (progress.step, progress.pairs_per_second) == (799, 100.0)


def test_foreign_process_is_left_alone() -> None:
    item = get_run_item(RUNS[0])
    item.lease_folder.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        owner = {"host": socket.gethostname(), "pid": stranger.pid, "machine": "this boot pid:[another]", "born": "1"}
        (item.lease_folder / "000001.json").write_text(json.dumps(owner))
        assert [status.state for status in cancel(RUNS[:1])] == ["running"]
        assert item.is_cancelled, "the run notices it at its next heartbeat"
        stranger.communicate(b"\n")
        assert stranger.returncode == 0
