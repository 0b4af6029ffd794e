"""The local queue: bounded, resumable, shared by several launchers, and never leaving a child behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Never

import numpy as np
import pytest
from safetensors.numpy import save_file

from repro.records.store import read_records
from repro.spec import Run, base, get_first_phase, grid
from repro.spec.identity import get_training_id, run_id
from repro.stopping import Interrupted, Stopped
from repro.storage.lease import Lease, acquire, owners
from repro.storage.paths import CHECKOUT, get_local_records, run_folder
from repro.train.checkpoint import CHECKPOINT_FILE
from slurm.job import Job, _OutcomeRecorder
from slurm.local import make_slots
from slurm.profiles import Profile
from slurm.signals import Stop
from slurm.start import cancel
from slurm.states import JobState, get_run_item
from slurm.status import statuses
from tests.slurm.launching import launch_runs, states, wait_until
from tests.slurm.stand_in import stages_of, traced

pytestmark = pytest.mark.usefixtures("stand_in")

HERE = Profile(name="here", on="local", cpus_per_run=1, num_at_once=2)
launch = partial(launch_runs, profile=HERE)
RUNS = grid(base("smoke", num_steps=5), seed=(0, 1, 2))

LONG = tuple(replace(run, num_steps=500) for run in RUNS)

LAUNCHER = """
import json, sys
from repro.spec import Run
from slurm.profiles import Profile
from slurm.start import LaunchOptions, start
from tests.slurm.stand_in_job import replace_all
replace_all()
profile = Profile(name="here", on="local", cpus_per_run=1, num_at_once=2)
runs = [Run(**fields) for fields in json.loads(sys.argv[1])]
start(runs, profile, sweep="test", options=LaunchOptions(), progress=lambda line: print(line, flush=True))
"""


def launcher(runs: tuple[Run, ...]) -> subprocess.Popen[str]:
    """Launch in a process of its own."""
    fields = json.dumps([vars(run) for run in runs])
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, fields], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def held(folder: Path) -> Lease:
    """The lease of a folder, for as long as a block lasts."""
    lease = acquire(folder)
    assert lease is not None
    return lease


def test_launch_records_every_run() -> None:
    assert states(*RUNS) == ["missing"] * 3
    launch(*RUNS)
    assert states(*RUNS) == ["recorded"] * 3
    before = traced()
    assert before.count("build corpus") == 1
    assert launch(*RUNS) == ["3 runs requested, 0 to start"]
    assert traced() == before


def test_failed_run_waits_for_retry(own_home: Path) -> None:
    bad = replace(RUNS[0], seed=13)
    launch(*RUNS, bad)
    [status] = statuses([bad])
    assert (status.state, status.reason) == ("failed", "ValueError: seed 13 brings bad luck")
    note = get_run_item(bad).read()
    assert note is not None
    assert "in execute" in note.trace
    assert "bad luck" in Path(status.log).read_text()
    assert states(*RUNS) == ["recorded"] * 3
    (own_home / "mended").touch()
    assert launch(bad) == ["1 run requested, 0 to start, 1 failed or cancelled (--retry restarts them)"]
    launch(bad, retry=True)
    assert states(bad) == ["recorded"]


def test_failed_stage_fails_its_runs(own_home: Path) -> None:
    run = replace(RUNS[0], sampler="cluster", cluster_size=8)
    own_home.mkdir()
    (own_home / "break-clusters").touch()
    launch(run, RUNS[1])
    [status] = statuses([run])
    assert status.state == "failed"
    assert "no room for clusters" in status.reason
    assert states(RUNS[1]) == ["recorded"]
    (own_home / "break-clusters").unlink()
    launch(run)
    assert traced().count("build clusters") == 1
    launch(run, retry=True)
    assert states(run) == ["recorded"]


def test_two_launchers_do_each_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.1")
    runs = grid(base("smoke", num_steps=5), seed=tuple(range(6)))
    both = [launcher(runs), launcher(runs)]
    said = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert states(*runs) == ["recorded"] * 6
    assert sorted(line for line in traced() if line.startswith("begin")) == sorted(
        f"begin {run_id(run)} at 0" for run in runs
    )
    assert all(len(owners(get_run_item(run).lease_folder)) == 1 for run in runs)


SHARED = grid(base("smoke", num_steps=5), context_seed=(0, 1))


def begun() -> list[str]:
    """The runs that have begun and ended, in order."""
    return [line.split(" at ")[0] for line in traced() if line.startswith(("begin", "end"))]


def test_waiting_run_takes_no_slot() -> None:
    lines = launch(*SHARED, RUNS[1])
    first, second, other = (run_id(run) for run in (*SHARED, RUNS[1]))
    assert begun().index(f"end {first}") < begun().index(f"begin {second}")
    assert f"{second}: waits for {first}, which executes training run {first} for both" in lines
    words = [line.partition(",")[0].partition(" (")[0].partition(";")[0] for line in lines]
    assert words.index(f"{other}: started") < words.index(f"{first}: done"), "the room goes to other runs"
    bad = grid(base("smoke", seed=13), context_seed=(0, 1))
    launch(*bad)
    assert states(*bad) == ["failed"] * 2, "the second does not wait for ever"


def test_run_waits_for_foreign_phase(own_home: Path) -> None:
    run = base("smoke", num_steps=5, pretraining_corpus="desk", num_pretraining_steps=5)
    first = get_first_phase(run)
    assert first is not None
    folder = run_folder(get_training_id(first))
    with held(folder / "training"):
        process = launcher((run,))
        said = iter(process.stdout or ())
        assert any(f"which executes its training run {get_training_id(first)}" in line for line in said)
        assert begun() == []
    assert process.wait(200) == 0
    (folder / CHECKPOINT_FILE).touch()
    with held(folder / "training"):  # to read what is there
        launch(replace(run, context_seed=1))
    assert states(replace(run, context_seed=1)) == ["recorded"]


def test_killed_run_ends_the_same(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.2")
    run = LONG[0]
    process = launcher((run,))
    wait_until(lambda: traced()[-1:] == [f"begin {run_id(run)} at 0"])
    os.kill(owners(get_run_item(run).lease_folder)[-1].pid, signal.SIGKILL)
    (own_home / "fast").touch()
    said, _ = process.communicate(timeout=200)
    assert "killed (SIGKILL)" in said
    assert states(run) == ["recorded"]
    assert len(owners(get_run_item(run).lease_folder)) == 2
    assert statuses([run])[0].num_interruptions == 1


def test_interrupted_too_often_has_failed() -> None:
    run = RUNS[0]
    item = get_run_item(run)
    launch(*RUNS[1:])
    item.write(JobState(state="interrupted", reason="its time was up", num_in_vain=HERE.max_requeues + 1))
    launch(run)
    [status] = statuses([run])
    assert status.state == "failed"
    says = "interrupted 11 times without progress, the limit is 10; the last: its time was up"
    assert says in status.reason


def test_foreign_stage_has_not_died() -> None:
    stage = Job(run=asdict(RUNS[0]), stage=stages_of(RUNS[0])[0].title)
    stage.item.write(JobState(state="running", host="elsewhere"))
    owner = acquire(stage.item.lease_folder)
    assert owner is not None
    with owner:
        beside = _OutcomeRecorder(stage.item, JobState(state="running"), Stop(), stage.progress)
        assert beside.state.num_in_vain == 0
    assert _OutcomeRecorder(stage.item, JobState(state="running"), Stop(), stage.progress).state.num_in_vain == 1


def count_in_sittings(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> Never:
    """Get a step further in each of the first sittings, then no further. Every sitting is interrupted."""
    folder = run_folder(run_id(run))
    told = (folder / "sittings").read_text() if (folder / "sittings").exists() else ""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sittings").write_text(f"{told}.")
    state = json.dumps({"step": min(len(told) + 1, 5)})
    save_file({"weight": np.zeros(1)}, folder / "checkpoint.safetensors", {"state": state})
    raise Interrupted("its time was up")


def test_progress_resets_interruptions(execute_with: Callable[..., None]) -> None:
    """Training for weeks under a limit of a day is interrupted more often than a job that is stuck may be."""
    run = RUNS[0]
    job = Job(run=asdict(run), max_requeues=2)
    execute_with(count_in_sittings)
    for sitting in range(1, 8):
        with pytest.raises(Stopped):
            job(Stop(), where=JobState(state="running"))
        last = get_run_item(run).read()
        assert last is not None and last.state == "interrupted"
        assert (last.num_interruptions, last.num_in_vain) == (sitting, max(0, sitting - 5))
    get_run_item(run).write(replace(last, state="running"))  # killed without a word, for the third time in vain
    with pytest.raises(RuntimeError, match="interrupted 3 times without progress, the limit is 2"):
        job(Stop(), where=JobState(state="running"))
    launch(run, retry=True)
    assert states(run) == ["recorded"]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_children_end_with_the_queue(end: int, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "1")
    runs = LONG[:2]
    process = launcher(runs)
    wait_until(lambda: states(*runs) == ["running"] * 2 and len(traced()) >= 3)
    time.sleep(0.5)
    pids = [owners(get_run_item(run).lease_folder)[-1].pid for run in runs]
    process.send_signal(end)
    process.communicate(timeout=200)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert states(*runs) == ["interrupted"] * 2
    assert len([line for line in traced() if line.startswith("stop")]) == 2
    (own_home / "fast").touch()
    launch(*runs)
    assert states(*runs) == ["recorded"] * 2
    values = [record.metrics["value"] for record in read_records(get_local_records())]
    for run in runs:
        (get_local_records() / f"{run_id(run)}.json").unlink()
        (get_run_item(run).folder / "checkpoint.json").unlink()
    launch(*runs)
    assert [record.metrics["value"] for record in read_records(get_local_records())] == values


def test_cancelling_stops_everything(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.2")
    runs = LONG
    process = launcher(runs)
    wait_until(lambda: states(*runs) == ["running", "running", "queued"])
    assert len(cancel(runs)) == 3
    process.communicate(timeout=200)
    assert states(*runs) == ["cancelled"] * 3
    assert launch(*runs) == ["3 runs requested, 0 to start, 3 failed or cancelled (--retry restarts them)"]
    (own_home / "fast").touch()
    launch(*runs, retry=True)
    assert states(*runs) == ["recorded"] * 3


def test_gpus_and_cores_are_divided() -> None:
    slots = make_slots(Profile(name="p", on="local"), gpus=["0", "1", "2", "3"], num_cores=16)
    assert [(slot.gpus, slot.num_threads) for slot in slots] == [((number,), 4) for number in "0123"]
    slots = make_slots(Profile(name="p", on="local", gpus_per_run=2), gpus=["0", "1", "5"], num_cores=8)
    assert [slot.gpus for slot in slots] == [("0", "1")]
    assert slots[0].environment()["CUDA_VISIBLE_DEVICES"] == "0,1"
    slots = make_slots(Profile(name="p", on="local"), gpus=[], num_cores=8)
    assert [(slot.gpus, slot.num_threads) for slot in slots] == [((), 2)] * 4
    with pytest.raises(ValueError, match="gives each run 4 GPUs, and this machine shows"):
        make_slots(Profile(name="p", on="local", gpus_per_run=4), gpus=["0"], num_cores=8)
