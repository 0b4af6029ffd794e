"""Kills a sweep again and again, at random moments and on purpose, and compares its records with an undisturbed one's.

    python benchmarks/kills.py --num-runs 30 --num-kills 100

Trainings at smoke go through the local queue, undisturbed in one folder and killed (SIGKILL) in another; the queue is
launched again until every run has its record. A process is killed at a random moment, or in the middle of writing,
just before or just after naming a checkpoint, the arrays or the record; the queue itself is killed at random moments
too. When all runs have ended before the kills are spent, further sweeps follow. Every run must have its record, and
every metric (but the speed) and array be equal to the last bit; exit code 1 when one is not. Processes are forked from
this one, which has torch loaded: a hundred starts of Python would take most of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import torch

from repro.records.store import Record, read_records
from repro.spec import Run, base, grid
from repro.storage.paths import home, local_records
from repro.train import loop
from slurm import children, local
from slurm.profiles import profile_named
from slurm.start import LaunchOptions, start
from slurm.status import statuses

MOMENTS = (
    *("random",) * 4,
    *("checkpoint half written", "checkpoint without its name", "checkpoint just named"),
    *("arrays half written", "arrays just named", "record half written", "record just named"),
)
NUM_STEPS, CHECKPOINT_EVERY = 40, 5
MOST_SECONDS_OF_A_CHILD, MOST_SECONDS_OF_A_QUEUE = 6.0, 60.0
QUEUE, SPEED = "queue", "train/pairs_per_second"


def main() -> int:
    """Run the sweeps; print what was killed where, and what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-runs", type=int, default=30)
    parser.add_argument("--num-kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    prepare()
    runs = runs_of(asked.num_runs)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REPRO_HOME"] = f"{folder}/undisturbed"
        queue_in_child(runs, Fates(Path(folder, "none"), 0, asked.seed))
        expected = {record.id: record for record in read_records(local_records())}
        print(f"{len(expected)} of {len(runs)} runs ended undisturbed", flush=True)
        fates, problems, number = Fates(Path(folder, "fates"), asked.num_kills, asked.seed), [], 0
        while not number or fates.num_left:
            number += 1
            os.environ["REPRO_HOME"] = f"{folder}/killed-{number}"
            problems += sweep(runs, fates, expected)
            print(f"sweep {number}: {len(fates.hits())} kills, {len(problems)} problems", flush=True)
        for moment, count in sorted(Counter(hit.partition(",")[0] for hit in fates.hits()).items()):
            print(f"{count:4d} {moment}")
    print("\n".join(problems) or f"{number * len(runs)} records, every metric and array as undisturbed", flush=True)
    return 1 if problems or len(expected) < len(runs) else 0


def prepare() -> None:
    """Let trainings write a checkpoint every few steps, and the queue fork its children."""
    torch.set_num_threads(1)
    is_due = loop._is_due
    loop._is_due = lambda settings, step, seconds: step % CHECKPOINT_EVERY == 0 or is_due(settings, step, seconds)
    names = {name: getattr(subprocess, name) for name in ("STDOUT", "TimeoutExpired", "run")}
    local.subprocess = SimpleNamespace(Popen=Forked, **names)  # type: ignore[attr-defined]


def runs_of(count: int) -> tuple[Run, ...]:
    """Return so many trainings of both kinds of model."""
    seeds = tuple(range(-(-count // 2)))
    return grid(base("smoke", num_steps=NUM_STEPS), seed=seeds, architecture=("biencoder", "contextual"))[:count]


def sweep(runs: tuple[Run, ...], fates: Fates, expected: Mapping[str, Record]) -> list[str]:
    """Launch until no kill interrupts the queue any more; return what is not as it should be."""
    while not queue_in_child(runs, fates):
        pass
    found = {record.id: record for record in read_records(local_records())}
    states = {status.id: status for status in statuses(runs)}
    lost = [f"{id} has no record: {states[id].state}, {states[id].reason}" for id in expected if id not in found]
    return [*lost, *(words for id in found for words in differences(expected[id], found[id]))]


def differences(expected: Record, found: Record) -> Iterator[str]:
    """Tell every metric and array of a record that is not the undisturbed one's to the last bit."""
    for name in sorted((expected.metrics.keys() | found.metrics.keys()) - {SPEED}):
        if expected.metrics.get(name) != found.metrics.get(name):
            yield f"{found.id}: {name} is {found.metrics.get(name)}, undisturbed {expected.metrics.get(name)}"
    for name in sorted(expected.arrays.keys() | found.arrays.keys()):
        if not np.array_equal(expected.arrays.get(name, np.nan), found.arrays.get(name, np.nan)):
            yield f"{found.id}: the array {name} differs"


# ---- the queue and its children, each a fork of this process


class Fates:
    """Which process is killed when, by a fixed seed, and what was hit so far: a file each, seen by every process."""

    current: Fates

    def __init__(self, folder: Path, num_kills: int, seed: int) -> None:
        self.folder, self.num_kills, self.seed = folder, num_kills, seed
        folder.mkdir()

    def hits(self) -> list[str]:
        """Return what was hit: the moment, and of which item."""
        return sorted(path.read_text() for path in self.folder.glob("*.hit"))

    @property
    def num_left(self) -> int:
        """Kills that are still to come."""
        return max(0, self.num_kills - len(self.hits()))

    def draw(self) -> tuple[str, Random] | None:
        """Return the moment at which a process that begins now is killed; None: it lives."""
        number = len(list(self.folder.glob("*.begun")))
        (self.folder / f"{number}-{os.getpid()}.begun").touch()
        random = Random(f"{self.seed}/{number}")
        return (random.choice(MOMENTS), random) if self.num_left else None

    def kill_me(self, moment: str, item: str) -> None:
        """Write down that this process is hit, and end it at once."""
        (self.folder / f"{os.getpid()}-{time.monotonic_ns()}.hit").write_text(f"{moment},{item}")
        os.kill(os.getpid(), signal.SIGKILL)

    def kill_me_later(self, random: Random, most_seconds: float, item: str) -> None:
        """End this process at a random moment, unless all kills are spent by then."""
        moment = QUEUE if item == QUEUE else "random"
        timer = threading.Timer(random.uniform(0, most_seconds), lambda: self.num_left and self.kill_me(moment, item))
        timer.daemon = True
        timer.start()


def queue_in_child(runs: tuple[Run, ...], fates: Fates) -> bool:
    """Launch the runs from a process of its own; return whether it ended by itself, with every run done."""
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
        fates.kill_me_later(drawn[1], MOST_SECONDS_OF_A_QUEUE, QUEUE)
    log = (home() / "queue.log").open("a")
    patient = replace(profile_named("here"), max_requeues=10**6)  # more than ten interruptions would be a failure
    ended = start(runs, patient, sweep="kills", options=LaunchOptions(), progress=lambda line: print(line, file=log))
    bad = {name: how for name, how in ended.items() if how != "done"}
    print(bad or "", end="", file=sys.stderr)
    return 3 if bad else 0


class Forked:
    """What the queue uses of subprocess.Popen, by a fork: `python -m slurm.children FILE` without a start of Python."""

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
        """Return the exit status; TimeoutExpired when it has not ended in time."""
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
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _child(file: Path) -> int:
    job = json.loads(file.read_text())["job"]
    item = f"{job['stage'] or 'run'} {job['run']['architecture']} {job['run']['seed']}"
    drawn = Fates.current.draw()
    if drawn is not None:
        _await_moment(*drawn, item)
    return children.main()


def _await_moment(moment: str, random: Random, item: str) -> None:
    """See to it that this process is killed at a moment, if it comes to it."""
    if moment == "random":
        return Fates.current.kill_me_later(random, MOST_SECONDS_OF_A_CHILD, item)
    what, _, when = moment.partition(" ")
    wait_for, rename = random.randrange(3) if what == "checkpoint" else 0, Path.replace
    seen = Counter[str]()

    def name(part: Path, target: Path) -> Path:
        is_meant = what == _kind(Path(target))
        seen[moment] += is_meant
        if not is_meant or seen[moment] <= wait_for or not Fates.current.num_left:
            return rename(part, target)
        if when == "half written":
            os.truncate(part, part.stat().st_size // 2)
        if when == "just named":
            rename(part, target)
        Fates.current.kill_me(moment, item)
        raise AssertionError("a killed process goes on")

    Path.replace = name  # type: ignore[method-assign, assignment]


def _kind(target: Path) -> str:
    if target.parent.name == "records":
        return "arrays" if target.suffix == ".npz" else "record"
    return "checkpoint" if target.name == "checkpoint.safetensors" else ""


def _leave_with(action: Any) -> None:
    """End this process with what an action returns, and nothing of what its parent would still do."""
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
