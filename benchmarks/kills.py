"""Kill the processes of a sweep many times, and compare its records with those of an undisturbed sweep.

    python -m benchmarks.kills --num-runs 30 --num-kills 100
    eval "$(slurm/dev-cluster.sh up)"; python -m benchmarks.kills --on slurm

Runs at smoke go through the local queue, undisturbed in one folder and killed by SIGKILL in another. The queue is
restarted until every run has its record. A process is killed at a random moment or during a write: just before or just
after a checkpoint, an array file or a record gets its name. The queue itself is killed at random moments. Further
sweeps follow until all kills are used. Every run must have its record, and every array and metric except speed must be
identical bit for bit. Otherwise the exit code is 1.

Processes are forks of this one, which has loaded torch, because a hundred starts of Python would take most of the time.
With `--on slurm` the killed sweeps are jobs on a private Slurm (see `kills_on_slurm.py`). The undisturbed sweep stays in
the local queue.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import torch

from benchmarks.harness import make_parser
from benchmarks.kill_schedule import RANDOM, KillSchedule, kill_self_during, write_checkpoints_often
from benchmarks.kills_on_slurm import check_cluster, sweep_on_slurm
from repro.records.store import Record, read_records
from repro.spec import Run, base, grid
from repro.storage.paths import get_home, get_local_records
from slurm import children, local
from slurm.profiles import load_profile
from slurm.start import LaunchOptions, start
from slurm.status import get_statuses

NUM_STEPS = 40
MAX_CHILD_SECONDS, MAX_QUEUE_SECONDS = 6.0, 60.0
QUEUE, SPEED = "queue", "train/pairs_per_second"


def main() -> int:
    """Run the sweeps, and print the number of kills by moment and all differences."""
    parser = make_parser(__doc__, has_record=False, num_runs=30, num_kills=100, seed=0)
    parser.add_argument("--on", choices=("local", "slurm"), default="local", help="where the killed sweeps run")
    options = parser.parse_args()
    sweep = {"local": sweep_locally, "slurm": sweep_on_slurm}[options.on]
    if options.on == "slurm":
        check_cluster()
    replace_processes_by_forks()
    runs = make_runs(options.num_runs)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REPRO_HOME"] = f"{folder}/undisturbed"
        run_queue_in_child(runs, KillSchedule(Path(folder, "none"), 0, options.seed))
        expected = {record.id: record for record in read_records(get_local_records())}
        print(f"{len(expected)} of {len(runs)} runs ended undisturbed", flush=True)
        schedule = KillSchedule(Path(folder, "kills"), options.num_kills, options.seed)
        problems: list[str] = []
        num_sweeps = 0
        while num_sweeps == 0 or schedule.num_left:
            num_sweeps += 1
            os.environ["REPRO_HOME"] = f"{folder}/killed-{num_sweeps}"
            get_home().mkdir()
            problems += [*sweep(runs, schedule), *find_lost_or_changed(runs, expected)]
            print(f"sweep {num_sweeps}: {len(schedule.list_kills())} kills, {len(problems)} problems", flush=True)
        for moment, count in sorted(Counter(kill.partition(",")[0] for kill in schedule.list_kills()).items()):
            print(f"{count:4d} {moment}")
    print(
        "\n".join(problems) or f"{num_sweeps * len(runs)} records, all metrics and arrays as in the undisturbed sweep",
        flush=True,
    )
    return 1 if problems or len(expected) < len(runs) else 0


def replace_processes_by_forks() -> None:
    """Make the queue fork its children, and training runs write a checkpoint every few steps."""
    torch.set_num_threads(1)
    write_checkpoints_often()
    names = {name: getattr(subprocess, name) for name in ("STDOUT", "TimeoutExpired", "run")}
    local.subprocess = SimpleNamespace(Popen=Forked, **names)  # type: ignore[assignment]


def make_runs(count: int) -> tuple[Run, ...]:
    """Return this number of runs, alternating between both architectures."""
    seeds = tuple(range(-(-count // 2)))
    return grid(base("smoke", num_steps=NUM_STEPS), seed=seeds, architecture=("biencoder", "contextual"))[:count]


def sweep_locally(runs: tuple[Run, ...], schedule: KillSchedule) -> list[str]:
    """Restart the queue until no kill interrupts it. Return no problems, because the queue itself reports failures."""
    while not run_queue_in_child(runs, schedule):
        pass
    return []


def find_lost_or_changed(runs: tuple[Run, ...], expected: Mapping[str, Record]) -> list[str]:
    """Return every run without a record, and every difference from the undisturbed sweep."""
    records = {record.id: record for record in read_records(get_local_records())}
    states = {status.id: status for status in get_statuses(runs)}
    lost = [f"{id} has no record: {states[id].state}, {states[id].reason}" for id in expected if id not in records]
    return [*lost, *(line for id in records for line in list_differences(expected[id], records[id]))]


def list_differences(expected: Record, record: Record) -> Iterator[str]:
    """Yield a line for every metric and array that is not identical, bit for bit, to the undisturbed one."""
    for name in sorted((expected.metrics.keys() | record.metrics.keys()) - {SPEED}):
        if expected.metrics.get(name) != record.metrics.get(name):
            yield f"{record.id}: {name} is {record.metrics.get(name)}, undisturbed {expected.metrics.get(name)}"
    for name in sorted(expected.arrays.keys() | record.arrays.keys()):
        if not np.array_equal(expected.arrays.get(name, np.nan), record.arrays.get(name, np.nan)):
            yield f"{record.id}: the array {name} differs"


# ---- the queue and its children, each a fork of this process


def run_queue_in_child(runs: tuple[Run, ...], schedule: KillSchedule) -> bool:
    """Launch the runs from a separate process. Return whether it ended normally, with every run done."""
    KillSchedule.current = schedule
    get_home().mkdir(exist_ok=True)
    pid = os.fork()
    if not pid:
        _exit_with(lambda: _run_queue(runs))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code > 0:
        raise SystemExit(f"a queue ended with {code}; its error is above")
    return code == 0


def _run_queue(runs: tuple[Run, ...]) -> int:
    schedule = KillSchedule.current
    planned_kill = schedule.draw()
    if planned_kill is not None and schedule.num_kills:
        schedule.kill_self_later(planned_kill[1], MAX_QUEUE_SECONDS, QUEUE, moment=QUEUE)
    log = (get_home() / "queue.log").open("a")
    # With the default, more than ten interruptions without progress would count as a failure.
    profile = replace(load_profile("here"), max_requeues=10**6)
    outcomes = start(runs, profile, sweep="kills", options=LaunchOptions(), progress=lambda line: print(line, file=log))
    failed = {name: outcome for name, outcome in outcomes.items() if outcome != "done"}
    print(failed or "", end="", file=sys.stderr)
    return 3 if failed else 0


class Forked:
    """Replacement for subprocess.Popen in the local queue. Forks this process instead of starting Python."""

    def __init__(self, command: list[str], *, env: Mapping[str, str], stdout: IO[bytes], **_: Any) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            os.dup2(stdout.fileno(), 1)
            os.dup2(stdout.fileno(), 2)
            os.environ.update(env)
            sys.argv = ["slurm.children", command[-1]]
            _exit_with(lambda: _run_child(Path(command[-1])))

    def poll(self) -> int | None:
        """Return the exit status once it has ended."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises TimeoutExpired if it has not ended in time."""
        deadline = time.monotonic() + (timeout or 1e9)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("child", timeout or 0)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def _run_child(file: Path) -> int:
    job = json.loads(file.read_text())["job"]
    item = f"{job['stage'] or 'run'} {job['run']['architecture']} {job['run']['seed']}"
    planned_kill = KillSchedule.current.draw()
    if planned_kill is not None:
        moment, random = planned_kill
        if moment == RANDOM:
            KillSchedule.current.kill_self_later(random, MAX_CHILD_SECONDS, item)
        else:
            kill_self_during(moment, random, item)
    return children.main()


def _exit_with(action: Any) -> None:
    """Exit with the result of an action. os._exit skips the cleanup handlers that belong to the parent."""
    try:
        code = action()
    except SystemExit as exit_request:
        code = exit_request.code if isinstance(exit_request.code, int) else 1
    except BaseException:  # noqa: BLE001 — a fork must not continue as its parent
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
