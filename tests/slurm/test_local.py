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
from repro.storage.paths import CHECKOUT, get_local_records, run_folder
from repro.train.checkpoint import CHECKPOINT_FILE
from slurm.job import Job, JobState, get_run_item
from slurm.local import make_slots
from slurm.profiles import Profile
from slurm.signals import Stop
from slurm.start import cancel
from slurm.status import get_statuses
from slurm.sweep import read_submissions
from tests.leases import find_owner, take_lease
from tests.slurm.launching import get_states, launch_runs, read_state, wait_until
from tests.slurm.stand_in import clear_flag, compute_undisturbed_metric, read_trace, set_flag, stages_of

pytestmark = pytest.mark.usefixtures("stand_in")

HERE = Profile(name="here", on="local", num_at_once=2, parameters={"cpus_per_task": 1})
launch = partial(launch_runs, profile=HERE)
RUNS = grid(base("smoke", num_steps=5), seed=(0, 1, 2))
LONG = tuple(replace(run, num_steps=500) for run in RUNS)

LAUNCHER = """
import json, sys
from repro.spec import Run
from slurm.start import start
from tests.slurm.stand_in_job import replace_all
from tests.slurm.test_local import HERE
replace_all()
runs = [Run(**fields) for fields in json.loads(sys.argv[1])]
start(runs, HERE, sweep="test", progress=lambda line: print(line, flush=True))
"""


def start_launcher(runs: tuple[Run, ...]) -> subprocess.Popen[str]:
    """Launch in another process."""
    command = [sys.executable, "-c", LAUNCHER, json.dumps([vars(run) for run in runs])]
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read_pid(run: Run) -> int:
    """Return the process that executes a run."""
    return find_owner(get_run_item(run).lease_folder).pid


def check_metrics(*runs: Run) -> None:
    """Check that all runs are recorded, and that each step was executed exactly once."""
    metrics = {record.id: record.metrics["value"] for record in read_records(get_local_records())}
    assert metrics == {run_id(run): compute_undisturbed_metric(run) for run in runs}


def test_launch_records_every_run() -> None:
    assert get_states(*RUNS) == ["missing"] * 3
    launch(*RUNS)
    assert get_states(*RUNS) == ["recorded"] * 3
    check_metrics(*RUNS)
    trace = read_trace()
    assert trace.count("build corpus") == 1
    assert launch(*RUNS) == ["3 runs requested, 0 to start"]
    assert read_trace() == trace


def test_failed_run_waits_for_retry() -> None:
    bad = replace(RUNS[0], seed=13)
    launch(RUNS[0], bad)
    [status] = get_statuses([bad])
    assert (status.state, status.reason) == ("failed", "ValueError: seed 13 brings bad luck")
    assert "in execute" in read_state(bad).trace and "bad luck" in Path(status.log).read_text()
    assert get_states(RUNS[0]) == ["recorded"]
    set_flag("mended")
    assert launch(bad) == ["1 run requested, 0 to start, 1 failed or cancelled (--retry restarts them)"]
    with pytest.raises(ValueError, match="on 4 GPUs"):
        launch_runs(bad, profile=replace(HERE, parameters={"gpus_per_node": 4}), retry=True)
    assert get_states(bad) == ["failed"], "a refused launch keeps the reason"
    launch(bad, retry=True)
    assert get_states(bad) == ["recorded"]


def test_failed_stage_fails_its_runs() -> None:
    run = replace(RUNS[0], sampler="cluster", cluster_size=8)
    set_flag("break-clusters")
    launch(run, RUNS[1])
    [status] = get_statuses([run])
    assert status.state == "failed" and "no room for clusters" in status.reason
    assert get_states(RUNS[1]) == ["recorded"]
    clear_flag("break-clusters")
    launch(run)
    assert read_trace().count("build clusters") == 1
    launch(run, retry=True)
    assert get_states(run) == ["recorded"]


SHARED = grid(base("smoke", num_steps=5), context_seed=(0, 1))


def test_waiting_run_takes_no_slot() -> None:
    lines = launch(*SHARED, RUNS[1])
    first, second, other = (run_id(run) for run in (*SHARED, RUNS[1]))
    trace = read_trace()
    assert trace.index(f"end {first}") < trace.index(f"begin {second} at 0")
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
        wait_until(lambda: read_submissions() and stages_of(run)[0].is_built)
        time.sleep(2)
        assert not [line for line in read_trace() if line.startswith("begin")]
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
    os.kill(read_pid(run), signal.SIGKILL)
    set_flag("fast")
    output, _ = process.communicate(timeout=200)
    assert "killed (SIGKILL)" in output
    check_metrics(run)
    assert get_statuses([run])[0].num_interruptions == 1


def test_crash_at_start_is_a_failure() -> None:
    """A child that is killed before it begins is not started again and again."""
    set_flag("crash")
    lines = launch(RUNS[0])
    assert sum(": started" in line for line in lines) == 1
    clear_flag("crash")
    launch(RUNS[0])
    assert get_states(RUNS[0]) == ["failed"], "its stage has failed"
    launch(RUNS[0], retry=True)
    assert get_states(RUNS[0]) == ["recorded"]


def advance_and_interrupt(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> Never:
    """Advance by one step in each of the first five attempts. Every attempt is interrupted."""
    folder = run_folder(run_id(run))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "attempts").open("a+") as file:
        file.write(".")
        state = json.dumps({"run_id": "x", "step": min(file.tell(), 5)})
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
        assert (last.num_interruptions, last.num_without_progress) == (attempt, max(0, attempt - 5))
    get_run_item(run).write(replace(last, state="running"))  # as if killed, the third time without progress
    with pytest.raises(RuntimeError, match="interrupted 3 times without progress, the limit is 2"):
        job(Stop(), where=JobState(state="running"))
    launch(run, retry=True)
    assert get_states(run) == ["recorded"]


def test_children_end_with_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it was killed. Each writes its checkpoint."""
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "1")
    runs = LONG[:2]
    process = start_launcher(runs)
    wait_until(lambda: get_states(*runs) == ["running"] * 2 and len(read_trace()) >= 3)
    pids = [read_pid(run) for run in runs]
    process.kill()
    process.communicate(timeout=200)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert get_states(*runs) == ["missing"] * 2
    assert len([line for line in read_trace() if line.startswith("stop")]) == 2
    set_flag("fast")
    launch(*runs)
    check_metrics(*runs)


def test_cancelling_stops_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.2")
    process = start_launcher(LONG)
    wait_until(lambda: get_states(*LONG) == ["running", "running", "queued"])
    assert len(cancel(LONG)) == 3
    process.communicate(timeout=200)
    assert get_states(*LONG) == ["failed"] * 3
    assert "0 to start" in launch(*LONG)[0]
    set_flag("fast")
    launch(*LONG, retry=True)
    check_metrics(*LONG)


@pytest.mark.parametrize(
    ("gpus_per_run", "gpus", "num_cores", "expected"),
    [
        (0, "0123", 16, [(("0",), 4), (("1",), 4), (("2",), 4), (("3",), 4)]),
        (2, "015", 8, [(("0", "1"), 4)]),
        (0, "", 8, [((), 2)] * 4),
        # CUDA_VISIBLE_DEVICES=0,0,0 lets three small runs share a GPU
        (0, "000", 6, [(("0",), 2)] * 3),
    ],
)
def test_gpus_and_cores_are_divided(
    gpus_per_run: int, gpus: str, num_cores: int, expected: list[tuple[tuple[str, ...], int]]
) -> None:
    profile = Profile(name="p", on="local", parameters={"gpus_per_node": gpus_per_run})
    slots = make_slots(profile, gpus=list(gpus), num_cores=num_cores)
    assert [(slot.gpus, slot.num_threads) for slot in slots] == expected
    assert slots[0].environment()["CUDA_VISIBLE_DEVICES"] == ",".join(expected[0][0])
