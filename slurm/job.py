"""One job: does a run or a stage under its lease, turns signals into a wish to stop, and writes down how it went.

The same job is a task of a Slurm array (through submitit), a child of the local queue, and, when it has several
processes, the parent of torchrun's.
"""

from __future__ import annotations

import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

from repro.lease import Lease, acquire, look
from repro.places import local_records
from repro.provenance import code_identity
from repro.spec import Run
from repro.stages import Stage
from repro.store import has_record
from slurm.notes import Note, Work, run_work, stage_work
from slurm.scheduler import why_told_to_end

EXIT_INTERRUPTED = 75
"""Exit status of a job that stopped before its end and can go on from its checkpoint."""

CAREFUL_SCALES = ("small", "large")  # where a run may not be made with other code than the one it was launched with


class Stopped(Exception):  # noqa: N818  (no error: the run goes on later)
    """A job has stopped before its end, because it was asked to; it can go on later."""


@dataclass
class Stop:
    """The wish that a job should stop, and who wished it."""

    reason: str = ""
    signal_number: int | None = None

    def __call__(self) -> bool:
        """Whether it should stop."""
        return bool(self.reason)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Takes a signal as the wish."""
        self.signal_number = number
        self.reason = {
            signal.SIGUSR2: "its time was nearly up, or its place was wanted (SIGUSR2)",
            signal.SIGTERM: "it was told to end (SIGTERM)",
            signal.SIGINT: "it was stopped from the keyboard",
        }[signal.Signals(number)]


@contextmanager
def listening(stop: Stop) -> Iterator[None]:
    """Turns SIGUSR2, SIGTERM and SIGINT into the wish to stop; puts the former handlers back at the end."""
    numbers = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
    former = {number: signal.signal(number, stop.on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one job is to do, as plain values that survive a pickle and a JSON file."""

    run: Mapping[str, Any]  # the fields of the run
    stage: str = ""  # kind/key of the stage to build for that run; empty: the run itself
    num_processes: int = 1
    max_requeues: int = 10
    launched_with: Mapping[str, Any] = field(default_factory=dict)  # code_identity() at the launch
    execute: str = "repro.execute:execute"
    stages_of: str = "repro.inputs:stages_of"

    @property
    def work(self) -> Work:
        """Where its owner and its note lie."""
        return stage_work(self._stage()) if self.stage else run_work(Run(**self.run))

    def _stage(self) -> Stage:
        stages = named(self.stages_of)(Run(**self.run))
        return next(stage for stage in stages if f"{stage.name}/{stage.path.name}" == self.stage)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return self._stage().is_built if self.stage else has_record(local_records(), Run(**self.run))

    def __call__(self, stop: Stop, *, where: Note) -> str:
        """Does the work under its lease; gives "done", or "held" when a living owner elsewhere is doing it.

        `where` says which job this is and where its log lies. Stopped: it was asked to stop and can go on. Any other
        error is written down with its traceback and goes on to the caller.
        """
        work, me = self.work, replace(where, host=socket.gethostname())
        if self.is_done:
            return "done"
        if self.stage:  # a stage takes its own lease, and waits where another is building it
            with _WrittenDown(work, me, stop) as written:
                self._begin(work, written)
                _build_stoppable(self._stage(), stop, where.job_id)
            return "done"
        lease = _wait_for_lease(work, me, stop)
        if lease is None:
            return "held"
        with lease:
            if self.is_done:
                return "done"
            with _WrittenDown(work, me, stop) as written:
                self._begin(work, written)
                lease.on_beat = lambda: _notice_cancellation(work, stop)
                self._run(stop)
        return "done"

    def _begin(self, work: Work, written: _WrittenDown) -> None:
        if work.is_cancelled:
            raise Stopped("it was cancelled")
        if written.note.num_interruptions > self.max_requeues:
            interrupted = f"interrupted {written.note.num_interruptions} times, {self.max_requeues} are allowed"
            raise RuntimeError(f"{interrupted}; the last: {written.former_reason}")
        now = code_identity()
        if self.launched_with and self.run["scale"] in CAREFUL_SCALES and dict(self.launched_with) != now:
            raise RuntimeError(f"the code has changed since the launch: {dict(self.launched_with)} then, {now} now")
        work.write(replace(written.note, state="running", at=time.time()))

    def _run(self, stop: Stop) -> None:
        if self.num_processes > 1:
            from slurm.ranks import run_ranks

            if not run_ranks(self, stop):
                raise Stopped(stop.reason or "its processes stopped")
            return
        try:
            named(self.execute)(Run(**self.run), should_stop=stop, report=say)
        except RuntimeError as error:
            from repro.train.loop import Interrupted

            if isinstance(error, Interrupted):
                raise Stopped(str(error)) from error
            raise


def named(path: str) -> Callable[..., Any]:
    """Gives the function that "module:name" means."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def say(line: str) -> None:
    """Writes a line to the log at once."""
    print(line, flush=True)


def _build_stoppable(stage: Stage, stop: Stop, job_id: str) -> None:
    """Builds a stage, which has no checkpoint: stopped, what is half made is removed, and it starts over."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR2 and why_told_to_end(job_id) != "preempted":
            return say("its time is nearly up; a stage cannot go on later, so it goes on now")
        stop.on_signal(number, frame)
        raise Stopped(stop.reason)

    former = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGUSR2)}
    try:
        stage.build(say)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _notice_cancellation(work: Work, stop: Stop) -> None:
    if work.is_cancelled and not stop():
        stop.reason = "it was cancelled"


def _wait_for_lease(work: Work, me: Note, stop: Stop) -> Lease | None:
    """Gives the lease; waits only for an earlier life of this same job, which may still be ending."""
    note = {"job_id": me.job_id, "log": me.log}
    while not stop():
        lease = acquire(work.lease_folder, note=note)
        owner = look(work.lease_folder)
        if lease or owner is None or not me.job_id or owner.note.get("job_id") != me.job_id:
            return lease
        time.sleep(1.0)
    raise Stopped(stop.reason)


class _WrittenDown:
    """Writes down how the block ended."""

    def __init__(self, work: Work, me: Note, stop: Stop) -> None:
        self.work, self.stop = work, stop
        last = work.read() or Note(state="done")
        died = last.state == "running"  # its owner died without a word, which counts as an interruption
        self.note = replace(me, num_interruptions=last.num_interruptions + died)
        self.former_reason = "its process died" if died else last.reason

    def __enter__(self) -> _WrittenDown:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = replace(self.note, state="done")
        if isinstance(error, Stopped):
            ended = self._interrupted(self.stop.reason or str(error))
        elif error is not None:
            lines = "".join(traceback.format_exception(error))
            ended = replace(self.note, state="failed", reason=f"{type(error).__name__}: {error}", trace=lines)
        self.work.write(replace(ended, at=time.time()))

    def _interrupted(self, reason: str) -> Note:
        if self.work.is_cancelled or (self.note.job_id and why_told_to_end(self.note.job_id) == "cancelled"):
            return replace(self.note, state="cancelled", reason="it was cancelled")
        num_interruptions = self.note.num_interruptions + 1
        return replace(self.note, state="interrupted", reason=reason, num_interruptions=num_interruptions)
