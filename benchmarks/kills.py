"""Kill a sweep repeatedly, at random and chosen moments, and compare its records with those of an undisturbed sweep.

    python benchmarks/kills.py --num-runs 30 --num-kills 100
    eval "$(slurm/dev-cluster.sh up)"; python benchmarks/kills.py --on slurm

Training runs at smoke go through the local queue, undisturbed in one folder and killed (SIGKILL) in another. The queue
restarts until every run has its record. A process is killed at a random moment or during a write: just before or just
after renaming a checkpoint, the arrays or the record. The queue itself is also killed at random moments. If all runs
end before the kills are used up, further sweeps follow. Every run must have its record, and every metric (except speed)
and array must be bit-identical. Otherwise the exit code is 1. Processes are forked from this one, which has loaded
torch, because a hundred starts of Python would take most of the time. With `--on slurm` the killed sweeps are jobs of a
private Slurm (see `kills_on_slurm.py`), and the undisturbed one stays in the local queue.
"""

from __future__ import annotations

import argparse
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
from fates import RANDOM, Fates, await_moment, write_checkpoints_often
from kills_on_slurm import check_cluster, sweep_on_slurm

from repro.records.store import Record, read_records
from repro.spec import Run, base, grid
from repro.storage.paths import get_local_records, home
from slurm import children, local
from slurm.profiles import load_profile
from slurm.start import LaunchOptions, start
from slurm.status import statuses

NUM_STEPS = 40
MOST_SECONDS_OF_A_CHILD, MOST_SECONDS_OF_A_QUEUE = 6.0, 60.0
QUEUE, SPEED = "queue", "train/pairs_per_second"


def main() -> int:
    """Run the sweeps and print the kills by place and all differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-runs", type=int, default=30)
    parser.add_argument("--num-kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on", choices=("local", "slurm"), default="local")
    asked = parser.parse_args()
    sweep = {"local": sweep_here, "slurm": sweep_on_slurm}[asked.on]
    if asked.on == "slurm":
        check_cluster()
    prepare()
    runs = runs_of(asked.num_runs)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REPRO_HOME"] = f"{folder}/undisturbed"
        queue_in_child(runs, Fates(Path(folder, "none"), 0, asked.seed))
        expected = {record.id: record for record in read_records(get_local_records())}
        print(f"{len(expected)} of {len(runs)} runs ended undisturbed", flush=True)
        fates, problems, number = Fates(Path(folder, "fates"), asked.num_kills, asked.seed), [], 0
        while not number or fates.num_left:
            number += 1
            os.environ["REPRO_HOME"] = f"{folder}/killed-{number}"
            home().mkdir()
            problems += [*sweep(runs, fates), *find_lost_or_changed(runs, expected)]
            print(f"sweep {number}: {len(fates.hits())} kills, {len(problems)} problems", flush=True)
        for moment, count in sorted(Counter(hit.partition(",")[0] for hit in fates.hits()).items()):
            print(f"{count:4d} {moment}")
    print("\n".join(problems) or f"{number * len(runs)} records, every metric and array as undisturbed", flush=True)
    return 1 if problems or len(expected) < len(runs) else 0


def prepare() -> None:
    """Make training runs write a checkpoint every few steps, and the queue fork its children."""
    torch.set_num_threads(1)
    write_checkpoints_often()
    names = {name: getattr(subprocess, name) for name in ("STDOUT", "TimeoutExpired", "run")}
    local.subprocess = SimpleNamespace(Popen=Forked, **names)  # type: ignore[attr-defined]


def runs_of(count: int) -> tuple[Run, ...]:
    """Return this number of training runs of both kinds of model."""
    seeds = tuple(range(-(-count // 2)))
    return grid(base("smoke", num_steps=NUM_STEPS), seed=seeds, architecture=("biencoder", "contextual"))[:count]


def sweep_here(runs: tuple[Run, ...], fates: Fates) -> list[str]:
    """Launch until no kill interrupts the queue. Failures are reported by the queue itself."""
    while not queue_in_child(runs, fates):
        pass
    return []


def find_lost_or_changed(runs: tuple[Run, ...], expected: Mapping[str, Record]) -> list[str]:
    """Return every run without a record, and every difference from the undisturbed sweep."""
    found = {record.id: record for record in read_records(get_local_records())}
    states = {status.id: status for status in statuses(runs)}
    lost = [f"{id} has no record: {states[id].state}, {states[id].reason}" for id in expected if id not in found]
    return [*lost, *(words for id in found for words in differences(expected[id], found[id]))]


def differences(expected: Record, found: Record) -> Iterator[str]:
    """Return every metric and array of a record that is not bit-identical to the undisturbed one."""
    for name in sorted((expected.metrics.keys() | found.metrics.keys()) - {SPEED}):
        if expected.metrics.get(name) != found.metrics.get(name):
            yield f"{found.id}: {name} is {found.metrics.get(name)}, undisturbed {expected.metrics.get(name)}"
    for name in sorted(expected.arrays.keys() | found.arrays.keys()):
        if not np.array_equal(expected.arrays.get(name, np.nan), found.arrays.get(name, np.nan)):
            yield f"{found.id}: the array {name} differs"


# ---- the queue and its children, each a fork of this process


def queue_in_child(runs: tuple[Run, ...], fates: Fates) -> bool:
    """Launch the runs from a separate process. Return whether it ended normally, with every run done."""
    Fates.current = fates
    home().mkdir(exist_ok=True)
    pid = os.fork()
    if not pid:
        _leave_with(lambda: _queue(runs))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code > 0:
        raise SystemExit(f"a queue ended with {code}; see what is above")
    return code == 0


def _queue(runs: tuple[Run, ...]) -> int:
    fates = Fates.current
    drawn = fates.draw()
    if drawn is not None and fates.num_kills:
        fates.kill_me_later(drawn[1], MOST_SECONDS_OF_A_QUEUE, QUEUE, moment=QUEUE)
    log = (home() / "queue.log").open("a")
    patient = replace(load_profile("here"), max_requeues=10**6)  # more than ten interruptions would count as a failure
    ended = start(runs, patient, sweep="kills", options=LaunchOptions(), progress=lambda line: print(line, file=log))
    bad = {name: how for name, how in ended.items() if how != "done"}
    print(bad or "", end="", file=sys.stderr)
    return 3 if bad else 0


class Forked:
    """Implement the part of subprocess.Popen that the queue uses, by a fork instead of starting Python."""

    def __init__(self, words: list[str], *, env: Mapping[str, str], stdout: IO[bytes], **_: Any) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            os.dup2(stdout.fileno(), 1)
            os.dup2(stdout.fileno(), 2)
            os.environ.update(env)
            sys.argv = ["slurm.children", words[-1]]
            _leave_with(lambda: _child(Path(words[-1])))

    def poll(self) -> int | None:
        """Return the exit status once it has ended."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises TimeoutExpired if it has not ended in time."""
        ends = time.monotonic() + (timeout or 1e9)
        while (code := self.poll()) is None:
            if time.monotonic() > ends:
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


def _child(file: Path) -> int:
    job = json.loads(file.read_text())["job"]
    item = f"{job['stage'] or 'run'} {job['run']['architecture']} {job['run']['seed']}"
    drawn = Fates.current.draw()
    if drawn is not None:
        moment, random = drawn
        if moment == RANDOM:
            Fates.current.kill_me_later(random, MOST_SECONDS_OF_A_CHILD, item)
        else:
            await_moment(moment, random, item)
    return children.main()


def _leave_with(action: Any) -> None:
    """End this process with the result of an action, skipping all cleanup of its parent."""
    try:
        code = action()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 — a fork must not go on as its parent
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
