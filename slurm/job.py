"""Execute one job: run an experiment or build a stage under its lease, handle stop signals, and record the outcome.

The same class serves as a task of a Slurm array (through submitit), as a child of the local queue, and as the parent of
a run with several processes.
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

from repro.pipeline import stages as pipeline_stages
from repro.planning.cost import list_training_phases, list_trainings
from repro.records.provenance import compute_source_digest, get_code_identity
from repro.records.store import has_record
from repro.spec import Run, run_from_fields
from repro.spec.identity import RUN_ID, get_training_id, run_id
from repro.stopping import Interrupted, Stopped, delay_stops, unwrap_stop
from repro.storage.lease import Lease, acquire, get_last_owner, get_live_owner
from repro.storage.paths import get_local_records, run_folder
from repro.storage.platform_info import measure_peak_bytes
from repro.storage.shards import find_stage, merge_shards
from repro.storage.stages import Stage
from repro.train.checkpoint import CHECKPOINT_FILE, read_checkpoint_step
from slurm.ranks import run_ranks
from slurm.scheduler import explain_stop_signal, find_canceller
from slurm.signals import Stop, handle_stop_signals, log_line
from slurm.states import JobState, WorkItem, get_run_item, get_stage_item

# At these scales a run may only execute with the code it was launched with.
CAREFUL_SCALES = ("small", "large")
POLL_SECONDS = 2.0
UNLIMITED = 10**9


@dataclass(frozen=True, kw_only=True)
class Job:
    """One unit of work, described by plain values that survive pickle and JSON."""

    run: Mapping[str, Any]  # fields of the run
    # The stage (kind/key) to build for that run, or one of its shards. Empty: the run itself.
    stage: str = ""
    num_shards: int = 1  # number of shards that the stage is merged from
    num_processes: int = 1  # per node
    num_nodes: int = 1
    max_requeues: int = 10  # consecutive interruptions without progress
    # Code identity and source digest at launch.
    launched_with: Mapping[str, Any] = field(default_factory=dict)

    @property
    def item(self) -> WorkItem:
        """The work item: where its owner and its last state are stored."""
        return get_stage_item(self._stage()) if self.stage else get_run_item(run_from_fields(self.run))

    def _stage(self) -> Stage:
        stages = pipeline_stages.list_stages(run_from_fields(self.run))
        return merge_shards(find_stage(self.stage, stages), self.num_shards)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self._stage().is_built if self.stage else has_record(get_local_records(), run_from_fields(self.run))

    def progress(self) -> int:
        """Return the number of checkpointed steps of a run's training runs.

        A stage and measuring start over, so they add none. Interruptions count against a run only if it makes no
        progress between them.
        """
        if self.stage:
            return 0
        phases = list_training_phases(run_from_fields(self.run))
        return sum(read_checkpoint_step(run_folder(get_training_id(phase))) for phase in phases)

    def __call__(self, stop: Stop, *, where: JobState) -> str:
        """Do the work under its lease. Return "done", or "held" if a live owner elsewhere is doing it.

        `where` identifies this job and its log. Raises Stopped if it was interrupted and can resume. Any other error is
        recorded with its traceback and re-raised.
        """
        item = self.item
        state = replace(where, host=socket.gethostname())
        if self.is_done:
            return "done"
        # A stage acquires its own lease and waits if another process is building it.
        if self.stage:
            with _OutcomeRecorder(item, state, stop, self.progress) as recorder, unwrap_stop():
                self._begin(item, recorder)
                if RUN_ID.fullmatch(str(self.run["filter_model"])):
                    # Its embeddings need the weights of another run.
                    from repro.execute import train_filter_model

                    train_filter_model(run_from_fields(self.run), should_stop=stop, progress=log_line)
                _build_stoppable(self._stage(), stop, where.job_id)
            return "done"
        lease = _wait_for_lease(item, state, stop)
        if lease is None:
            return "held"
        with lease:
            # Another process may have finished it before this one acquired the lease.
            if self.is_done:
                return "done"
            with _OutcomeRecorder(item, state, stop, self.progress) as recorder, unwrap_stop():
                self._begin(item, recorder)
                # The lease polls for cancellation from its own thread, also while a step takes minutes.
                lease.on_beat = lambda: _stop_if_cancelled(item, stop)
                self._run(stop, where.job_id)
        return "done"

    def _begin(self, item: WorkItem, recorder: _OutcomeRecorder) -> None:
        if item.is_cancelled:
            raise Stopped("it was cancelled")
        if recorder.state.num_in_vain > self.max_requeues:
            interruptions = describe_interruptions(recorder.state, self.max_requeues)
            raise RuntimeError(f"{interruptions}; the last: {recorder.former_reason}")
        if self.launched_with and self.run["scale"] in CAREFUL_SCALES:
            _check_same_code(self.launched_with)
        item.write(replace(recorder.state, state="running", at=time.time()))

    def _run(self, stop: Stop, job_id: str) -> None:
        if self.num_processes * self.num_nodes > 1:
            # The ranks receive the stop request themselves and write their checkpoint.
            with delay_stops():
                has_ended = run_ranks(asdict(self), stop, job_id)
            if not has_ended:
                raise stop.stopped(stop.reason or "its processes stopped")
            return
        # Imported late, because it loads torch. A job whose ranks do the work needs none.
        from repro.execute import execute

        try:
            execute(run_from_fields(self.run), should_stop=stop, progress=log_line)
        except Interrupted as error:
            raise stop.stopped(str(error)) from error


def _check_same_code(launched_with: Mapping[str, Any]) -> None:
    """Raise RuntimeError if the code changed since the launch.

    Compares file digests, because git may be unavailable.
    """
    current = get_code_identity() | {"source": compute_source_digest()}
    if launched_with.get("source") != current["source"]:
        change = f"{dict(launched_with)} then, {current} now"
        raise RuntimeError(f"the code has changed since the launch: {change}; restore it, or launch again with --retry")


def describe_interruptions(state: JobState, max_requeues: int) -> str:
    """Describe how often a job was interrupted without progress."""
    return f"interrupted {state.num_in_vain} times without progress, the limit is {max_requeues}"


def _build_stoppable(stage: Stage, stop: Stop, job_id: str) -> None:
    """Build a stage. A stage has no checkpoint: if stopped, partial files are removed and it starts over."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR2 and explain_stop_signal(job_id) != "preempted":
            return log_line("the time limit is near; a stage cannot resume later, so it continues")
        stop.on_signal(number, frame)

    previous_handlers = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGUSR2)}
    try:
        stage.build(log_line)
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _stop_if_cancelled(item: WorkItem, stop: Stop) -> None:
    if item.is_cancelled and not stop():
        stop.reason = "it was cancelled"


def _wait_for_lease(item: WorkItem, state: JobState, stop: Stop) -> Lease | None:
    """Return the lease. Waits only for an earlier attempt of this same job, which may still be ending."""
    note = {"job_id": state.job_id, "log": state.log}
    # A requeued job may start before its earlier attempt has released the lease.
    while not stop():
        lease = acquire(item.lease_folder, note=note)
        owner = get_last_owner(item.lease_folder)
        if lease or owner is None or not state.job_id or owner.note.get("job_id") != state.job_id:
            return lease
        time.sleep(1.0)
    raise stop.stopped()


class _OutcomeRecorder:
    """Record how the enclosed block ended."""

    def __init__(self, item: WorkItem, state: JobState, stop: Stop, progress: Callable[[], int]) -> None:
        self.item, self.stop, self.progress = item, stop, progress
        last = item.read() or JobState(state="done")
        # The lease of a run is held by this job, so only a stage can have another owner.
        has_other_owner = item.kind == "stage" and get_live_owner(item.lease_folder) is not None
        # An end without a report counts as an interruption.
        died = last.state == "running" and not has_other_owner
        self.state = replace(
            state, num_interruptions=last.num_interruptions, num_in_vain=last.num_in_vain, reached=last.reached
        )
        if died:
            self.state = self._count_interruption()
        self.former_reason = "its process died" if died else last.reason

    def __enter__(self) -> _OutcomeRecorder:
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
        if self.state.job_id and explain_stop_signal(self.state.job_id) == "cancelled":
            canceller = find_canceller(self.state.job_id) or "in Slurm"
            return replace(self.state, state="cancelled", reason=f"it was cancelled, {canceller}")
        return replace(self._count_interruption(), state="interrupted", reason=reason)

    def _count_interruption(self) -> JobState:
        """Return the state with one more interruption.

        It counts as in vain if the run made no progress since the last one.
        """
        reached = self.progress()
        return replace(
            self.state,
            num_interruptions=self.state.num_interruptions + 1,
            num_in_vain=0 if reached > self.state.reached else self.state.num_in_vain + 1,
            reached=reached,
        )


def run_here(run: Run, *, progress: Callable[[str], None]) -> None:
    """Execute a run, or wait while another process executes it.

    Raises Stopped on a stop signal. A training run has then written its checkpoint. Any other work is interrupted
    immediately.
    """
    stop = Stop()
    job = Job(run=asdict(run), max_requeues=UNLIMITED)
    is_reported = False
    try:
        with handle_stop_signals(stop):
            # The state and the cancel mark of a running job belong to its process.
            if get_live_owner(job.item.lease_folder) is None:
                job.item.reset()
            while job(stop, where=JobState(state="running")) != "done":
                if not is_reported:
                    progress(f"waiting for {get_last_owner(job.item.lease_folder)}, which is executing this run")
                    is_reported = True
                time.sleep(POLL_SECONDS)
    except Stopped as stopped:
        resume = "has no checkpoint yet; its built stages are available: run the same command again"
        if any((run_folder(training) / CHECKPOINT_FILE).exists() for training in list_trainings(run)):
            resume = "has a checkpoint: run the same command again to resume"
        raise stopped.add_advice(f"run {run_id(run)} {resume}") from stopped
