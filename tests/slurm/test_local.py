"""The local queue: bounded, resumable, shared by several launchers, and leaving no child process."""

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
from repro.storage.lease import owners
from repro.storage.paths import CHECKOUT, get_local_records, run_folder
from repro.train.checkpoint import CHECKPOINT_FILE
from slurm.job import Job, _OutcomeRecorder
from slurm.local import make_slots
from slurm.profiles import Profile
from slurm.signals import Stop
from slurm.start import cancel
from slurm.states import JobState, get_run_item
from slurm.status import statuses
from tests.leases import take_lease
from tests.slurm.launching import get_states, launch_runs, read_state, wait_until
from tests.slurm.stand_in import clear_flag, read_trace, set_flag, stages_of

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


def start_launcher(runs: tuple[Run, ...]) -> subprocess.Popen[str]:
    """Launch in another process."""
    fields = json.dumps([vars(run) for run in runs])
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, fields], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_launch_records_every_run() -> None:
    assert get_states(*RUNS) == ["missing"] * 3
    launch(*RUNS)
    assert get_states(*RUNS) == ["recorded"] * 3
    before = read_trace()
    assert before.count("build corpus") == 1
    assert launch(*RUNS) == ["3 runs requested, 0 to start"]
    assert read_trace() == before


def test_failed_run_waits_for_retry() -> None:
    bad = replace(RUNS[0], seed=13)
    launch(*RUNS, bad)
    [status] = statuses([bad])
    assert (status.state, status.reason) == ("failed", "ValueError: seed 13 brings bad luck")
    assert "in execute" in read_state(bad).trace and "bad luck" in Path(status.log).read_text()
    assert get_states(*RUNS) == ["recorded"] * 3
    set_flag("mended")
    assert launch(bad) == ["1 run requested, 0 to start, 1 failed or cancelled (--retry restarts them)"]
    launch(bad, retry=True)
    assert get_states(bad) == ["recorded"]


def test_failed_stage_fails_its_runs() -> None:
    run = replace(RUNS[0], sampler="cluster", cluster_size=8)
    set_flag("break-clusters")
    launch(run, RUNS[1])
    [status] = statuses([run])
    assert status.state == "failed" and "no room for clusters" in status.reason
    assert get_states(RUNS[1]) == ["recorded"]
    clear_flag("break-clusters")
    launch(run)
    assert read_trace().count("build clusters") == 1
    launch(run, retry=True)
    assert get_states(run) == ["recorded"]


def test_two_launchers_share_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.1")
    runs = grid(base("smoke", num_steps=5), seed=tuple(range(6)))
    launchers = [start_launcher(runs), start_launcher(runs)]
    outputs = [process.communicate(timeout=200)[0] for process in launchers]
    assert [process.returncode for process in launchers] == [0, 0], outputs
    assert get_states(*runs) == ["recorded"] * 6
    begins = sorted(line for line in read_trace() if line.startswith("begin"))
    assert begins == sorted(f"begin {run_id(run)} at 0" for run in runs)
    assert all(len(owners(get_run_item(run).lease_folder)) == 1 for run in runs)


SHARED = grid(base("smoke", num_steps=5), context_seed=(0, 1))


def list_events() -> list[str]:
    """Return which runs began and ended, in order."""
    return [line.split(" at ")[0] for line in read_trace() if line.startswith(("begin", "end"))]


def test_waiting_run_takes_no_slot() -> None:
    lines = launch(*SHARED, RUNS[1])
    first, second, other = (run_id(run) for run in (*SHARED, RUNS[1]))
    assert list_events().index(f"end {first}") < list_events().index(f"begin {second}")
    assert f"{second}: waits for {first}, which executes training run {first} for both" in lines
    events = [line.partition(",")[0].partition(" (")[0].partition(";")[0] for line in lines]
    assert events.index(f"{other}: started") < events.index(f"{first}: done"), "the free slot goes to other runs"
    bad = grid(base("smoke", seed=13), context_seed=(0, 1))
    launch(*bad)
    assert get_states(*bad) == ["failed"] * 2, "the second does not wait forever"


def test_run_waits_for_foreign_phase() -> None:
    run = base("smoke", num_steps=5, pretraining_corpus="desk", num_pretraining_steps=5)
    first = get_training_id(get_first_phase(run))
    folder = run_folder(first)
    with take_lease(folder / "training"):
        process = start_launcher((run,))
        assert any(f"which executes its training run {first}" in line for line in process.stdout)
        assert list_events() == []
    assert process.wait(200) == 0
    (folder / CHECKPOINT_FILE).touch()
    with take_lease(folder / "training"):  # a reader holds the lease, too
        launch(replace(run, context_seed=1))
    assert get_states(replace(run, context_seed=1)) == ["recorded"]


def test_killed_run_ends_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.2")
    run = LONG[0]
    process = start_launcher((run,))
    wait_until(lambda: read_trace()[-1:] == [f"begin {run_id(run)} at 0"])
    os.kill(owners(get_run_item(run).lease_folder)[-1].pid, signal.SIGKILL)
    set_flag("fast")
    output, _ = process.communicate(timeout=200)
    assert "killed (SIGKILL)" in output
    assert get_states(run) == ["recorded"]
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
    assert "interrupted 11 times without progress, the limit is 10; the last: its time was up" in status.reason


def test_foreign_stage_counts_as_alive() -> None:
    stage = Job(run=asdict(RUNS[0]), stage=stages_of(RUNS[0])[0].title)
    stage.item.write(JobState(state="running", host="elsewhere"))

    def count_vain_interruptions() -> int:
        return _OutcomeRecorder(stage.item, JobState(state="running"), Stop(), stage.progress).state.num_in_vain

    with take_lease(stage.item.lease_folder):
        assert count_vain_interruptions() == 0
    assert count_vain_interruptions() == 1


def advance_and_interrupt(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> Never:
    """Advance by one step in each of the first five attempts. Every attempt is interrupted."""
    folder = run_folder(run_id(run))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "attempts").open("a+") as file:
        file.write(".")
        state = json.dumps({"step": min(file.tell(), 5)})
    save_file({"weight": np.zeros(1)}, folder / "checkpoint.safetensors", {"state": state})
    raise Interrupted("its time was up")


def test_progress_resets_interruptions(execute_with: Callable[..., None]) -> None:
    """Only interruptions without progress count, so that a run of weeks can have a time limit of a day."""
    run = RUNS[0]
    job = Job(run=asdict(run), max_requeues=2)
    execute_with(advance_and_interrupt)
    for attempt in range(1, 8):
        with pytest.raises(Stopped):
            job(Stop(), where=JobState(state="running"))
        last = read_state(run)
        assert last.state == "interrupted"
        assert (last.num_interruptions, last.num_in_vain) == (attempt, max(0, attempt - 5))
    get_run_item(run).write(replace(last, state="running"))  # as if killed, the third time without progress
    with pytest.raises(RuntimeError, match="interrupted 3 times without progress, the limit is 2"):
        job(Stop(), where=JobState(state="running"))
    launch(run, retry=True)
    assert get_states(run) == ["recorded"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_children_end_with_the_queue(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "1")
    runs = LONG[:2]
    process = start_launcher(runs)
    wait_until(lambda: get_states(*runs) == ["running"] * 2 and len(read_trace()) >= 3)
    time.sleep(0.5)
    pids = [owners(get_run_item(run).lease_folder)[-1].pid for run in runs]
    process.send_signal(number)
    process.communicate(timeout=200)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert get_states(*runs) == ["interrupted"] * 2
    assert len([line for line in read_trace() if line.startswith("stop")]) == 2
    set_flag("fast")
    launch(*runs)
    assert get_states(*runs) == ["recorded"] * 2
    values = [record.metrics["value"] for record in read_records(get_local_records())]
    for run in runs:
        (get_local_records() / f"{run_id(run)}.json").unlink()
        (get_run_item(run).folder / "checkpoint.json").unlink()
    launch(*runs)
    assert [record.metrics["value"] for record in read_records(get_local_records())] == values


def test_cancelling_stops_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.2")
    runs = LONG
    process = start_launcher(runs)
    wait_until(lambda: get_states(*runs) == ["running", "running", "queued"])
    assert len(cancel(runs)) == 3
    process.communicate(timeout=200)
    assert get_states(*runs) == ["cancelled"] * 3
    assert launch(*runs) == ["3 runs requested, 0 to start, 3 failed or cancelled (--retry restarts them)"]
    set_flag("fast")
    launch(*runs, retry=True)
    assert get_states(*runs) == ["recorded"] * 3


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
