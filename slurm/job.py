"""One job: do a run or build a stage under its lease, stop when told to, and write down how it went.

The same job is a task of a Slurm array (through submitit), a child of the local queue, and, when it has several
processes, their parent.
"""

from __future__ import annotations

import signal
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import FrameType, TracebackType
from typing import Any

from repro.records.provenance import compute_source_digest, get_code_identity
from repro.records.store import has_record
from repro.spec import run_of_fields
from repro.stopping import Interrupted, Stopped, unbroken, unwrap_stop
from repro.storage.lease import Lease, acquire, look
from repro.storage.machine import measure_peak_bytes
from repro.storage.paths import get_local_records
from repro.storage.shards import find_stage, merge_shards
from repro.storage.stages import Stage
from slurm.hooks import EXECUTE, STAGES_OF, named
from slurm.progress import read_progress
from slurm.ranks import run_ranks
from slurm.scheduler import explain_told_to_end, who_cancelled
from slurm.signals import Stop, say
from slurm.states import JobState, WorkItem, item_of_run, item_of_stage

CAREFUL_SCALES = ("small", "large")  # where a run may not be made with other code than the one it was launched with


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one job is to do, as plain values that survive a pickle and a JSON file."""

    run: Mapping[str, Any]  # the fields of the run
    stage: str = ""  # kind/key of the stage, or shard of one, to build for that run; empty: the run itself
    num_shards: int = 1  # that the stage is joined from
    num_processes: int = 1  # on each node
    num_nodes: int = 1
    max_requeues: int = 10  # interruptions in a row between which it gets no further
    launched_with: Mapping[str, Any] = field(default_factory=dict)  # code_identity() and source_digest() at the launch
    execute: str = EXECUTE
    stages_of: str = STAGES_OF

    @property
    def item(self) -> WorkItem:
        """Where its owner and its last state lie."""
        return item_of_stage(self._stage()) if self.stage else item_of_run(run_of_fields(self.run))

    def _stage(self) -> Stage:
        return merge_shards(find_stage(self.stage, named(self.stages_of)(run_of_fields(self.run))), self.num_shards)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return self._stage().is_built if self.stage else has_record(get_local_records(), run_of_fields(self.run))

    def progress(self) -> int:
        """Return how far a run is; a stage is not kept in part, and is nowhere until it is built."""
        return 0 if self.stage else read_progress(run_of_fields(self.run))

    def __call__(self, stop: Stop, *, where: JobState) -> str:
        """Do it under its lease; return "done", or "held" when a living owner elsewhere is doing it.

        `where` says which job this is and where its log lies. Stopped: it was asked to stop and can go on. Any other
        error is written down with its traceback and goes on to the caller.
        """
        item, me = self.item, replace(where, host=socket.gethostname())
        if self.is_done:
            return "done"
        if self.stage:  # a stage takes its own lease, and waits where another is building it
            with _WrittenDown(item, me, stop, self.progress) as written, unwrap_stop():
                self._begin(item, written)
                _build_stoppable(self._stage(), stop, where.job_id)
            return "done"
        lease = _wait_for_lease(item, me, stop)
        if lease is None:
            return "held"
        with lease:
            if self.is_done:
                return "done"
            with _WrittenDown(item, me, stop, self.progress) as written, unwrap_stop():
                self._begin(item, written)
                lease.on_beat = lambda: _notice_cancellation(item, stop)
                self._run(stop, where.job_id)
        return "done"

    def _begin(self, item: WorkItem, written: _WrittenDown) -> None:
        if item.is_cancelled:
            raise Stopped("it was cancelled")
        if written.state.num_in_vain > self.max_requeues:
            raise RuntimeError(f"{too_often(written.state, self.max_requeues)}; the last: {written.former_reason}")
        if self.launched_with and self.run["scale"] in CAREFUL_SCALES:
            _check_same_code(self.launched_with)
        item.write(replace(written.state, state="running", at=time.time()))

    def _run(self, stop: Stop, job_id: str) -> None:
        if self.num_processes * self.num_nodes > 1:
            with unbroken():  # the ranks are asked, and leave their checkpoint
                has_ended = run_ranks(asdict(self), stop, job_id)
            if not has_ended:
                raise stop.stopped(stop.reason or "its processes stopped")
            return
        try:
            named(self.execute)(run_of_fields(self.run), should_stop=stop, progress=say)
        except Interrupted as error:
            raise stop.stopped(str(error)) from error


def _check_same_code(then: Mapping[str, Any]) -> None:
    """RuntimeError when what runs is other than at the launch; by its files, as git need not be there, nor answer."""
    now = get_code_identity() | {"source": compute_source_digest()}
    if then.get("source") != now["source"]:
        raise RuntimeError(
            f"the code has changed since the launch: {dict(then)} then, {now} now; put back what was launched, or "
            "launch again with --retry to go on with the code of today"
        )


def too_often(state: JobState, max_requeues: int) -> str:
    """Say how often a job was interrupted that has failed for it."""
    told = f"interrupted {state.num_in_vain} times, {max_requeues} are allowed"
    return f"{told} without getting any further"


def _build_stoppable(stage: Stage, stop: Stop, job_id: str) -> None:
    """Build a stage, which has no checkpoint: stopped, what is half made is removed, and it starts over."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR2 and explain_told_to_end(job_id) != "preempted":
            return say("its time is nearly up; a stage cannot go on later, so it goes on now")
        stop.on_signal(number, frame)

    former = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGUSR2)}
    try:
        stage.build(say)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _notice_cancellation(item: WorkItem, stop: Stop) -> None:
    if item.is_cancelled and not stop():
        stop.reason = "it was cancelled"


def _wait_for_lease(item: WorkItem, me: JobState, stop: Stop) -> Lease | None:
    """Return the lease; waits only for an earlier life of this same job, which may still be ending."""
    note = {"job_id": me.job_id, "log": me.log}
    while not stop():
        lease = acquire(item.lease_folder, note=note)
        owner = look(item.lease_folder)
        if lease or owner is None or not me.job_id or owner.note.get("job_id") != me.job_id:
            return lease
        time.sleep(1.0)
    raise stop.stopped()


class _WrittenDown:
    """Writes down how the block ended."""

    def __init__(self, item: WorkItem, me: JobState, stop: Stop, progress: Callable[[], int]) -> None:
        self.item, self.stop, self.progress = item, stop, progress
        last = item.read() or JobState(state="done")
        owner = look(item.lease_folder) if item.kind == "stage" else None  # of a run this job has the lease
        is_at_work = owner is not None and owner.is_alive
        died = last.state == "running" and not is_at_work  # without a word, which counts as an interruption
        counts = last.num_interruptions, last.num_in_vain, last.reached
        self.state = replace(me, num_interruptions=counts[0], num_in_vain=counts[1], reached=counts[2])
        self.state = self._once_more() if died else self.state
        self.former_reason = "its process died" if died else last.reason

    def __enter__(self) -> _WrittenDown:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = replace(self.state, state="done")
        if isinstance(error, Stopped):
            ended = self._record_interruption(self.stop.reason or str(error))
        elif error is not None:
            lines = "".join(traceback.format_exception(error))
            ended = replace(self.state, state="failed", reason=f"{type(error).__name__}: {error}", trace=lines)
        self.item.write(replace(ended, at=time.time(), peak_bytes=measure_peak_bytes(with_children=True)))

    def _record_interruption(self, reason: str) -> JobState:
        if self.item.is_cancelled:
            return replace(self.state, state="cancelled", reason="it was cancelled, by repro cancel")
        if self.state.job_id and explain_told_to_end(self.state.job_id) == "cancelled":
            by = who_cancelled(self.state.job_id) or "in Slurm"
            return replace(self.state, state="cancelled", reason=f"it was cancelled, {by}")
        return replace(self._once_more(), state="interrupted", reason=reason)

    def _once_more(self) -> JobState:
        """Return the state with an interruption more: in vain, unless the run is further than at the last one."""
        reached = self.progress()
        is_further, count = reached > self.state.reached, self.state.num_interruptions + 1
        in_vain = 0 if is_further else self.state.num_in_vain + 1
        return replace(self.state, num_interruptions=count, num_in_vain=in_vain, reached=reached)
