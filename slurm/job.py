"""Execute one job: run an experiment or build a stage under its lease, handle stop signals, and record the outcome.

The same class serves as a task of Slurm (through submitit), as a child of the local queue (`python -m slurm.job FILE`, which
ends with its parent), and for `run`. The state of a job is one small file next to its results. Every status is derived
from it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repro.pipeline import stages as pipeline_stages
from repro.planning.cost import list_trainings
from repro.records.provenance import compute_source_digest
from repro.records.store import has_record
from repro.spec import Run, list_phases, run_from_fields
from repro.spec.identity import RUN_ID, get_training_id, run_id
from repro.stopping import Interrupted, Stopped, unwrap_stop
from repro.storage.files import json_object, write_json
from repro.storage.lease import Lease, acquire_when_free, get_live_owner
from repro.storage.paths import get_building_folder, get_local_records, get_stage_folder, run_folder
from repro.storage.shards import build_from_shards, find_parent_stage, find_stage
from repro.storage.stages import STAGE_FILE, Stage
from repro.train.checkpoint import CHECKPOINT_FILE, read_checkpoint_step
from slurm.ranks import any_rank, join_ranks
from slurm.signals import EXIT_INTERRUPTED, Stop, die_with_parent, handle_stop_signals, log_line

UNLIMITED = 10**9
CANCELLED = "it was cancelled"


@dataclass(frozen=True, kw_only=True)
class JobState:
    """The last report of a job: its state, the reason, and where to find details."""

    state: str  # running, done, interrupted or failed (also if it was cancelled)
    reason: str = ""
    trace: str = ""  # last traceback
    # Interruptions since the last launch that reset the counters.
    num_interruptions: int = 0
    # The most recent of them, without progress in between.
    num_without_progress: int = 0
    num_steps: int = 0  # training steps completed at the last interruption
    job_id: str = ""  # Slurm job id, empty for a local job
    host: str = ""
    log: str = ""
    script: str = ""


@dataclass(frozen=True)
class WorkItem:
    """A run or stage to complete under a lease, by the id of the run or the title (kind/key) of the stage."""

    name: str

    @property
    def is_stage(self) -> bool:
        """Whether it is a stage."""
        return "/" in self.name

    @property
    def folder(self) -> Path:
        """The folder of its owners and last state."""
        return get_building_folder(get_stage_folder() / self.name) if self.is_stage else run_folder(self.name)

    @property
    def lease_folder(self) -> Path:
        """The folder of its leases."""
        return self.folder / "owner"

    @property
    def is_cancelled(self) -> bool:
        """Whether it has been cancelled."""
        return (self.folder / "cancelled").exists()

    def cancel(self) -> None:
        """Request cancellation. A running job notices at its next heartbeat."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cancelled").touch()

    def reset(self) -> None:
        """Clear the last state and any cancellation."""
        (self.folder / "cancelled").unlink(missing_ok=True)
        (self.folder / "job.json").unlink(missing_ok=True)

    def clear_failure(self) -> None:
        """Clear a failure or cancellation, so that it can start again. Keep the counters of an interrupted run."""
        last = self.read()
        if self.is_cancelled or (last is not None and last.state == "failed"):
            self.reset()

    def write(self, state: JobState) -> None:
        """Replace the last state."""
        write_json(self.folder / "job.json", asdict(state))

    def read(self) -> JobState | None:
        """Return the last state, or None if it never started. Raises ValueError if its file is damaged."""
        path = self.folder / "job.json"
        try:
            values = json_object(path)
            # Files of older code have keys that this version does not know.
            return JobState(**{name: values[name] for name in JobState.__dataclass_fields__ if name in values})
        except (TypeError, ValueError) as error:
            # Another launcher may remove it at this moment.
            if not path.exists():
                return None
            raise ValueError(f"{path} is not the state of a job ({error}); remove it, and launch again") from error


def get_run_item(run: Run) -> WorkItem:
    """Return the work item of a run."""
    return WorkItem(run_id(run))


def is_stage_built(title: str) -> bool:
    """Return whether a stage is built, or a shard or its whole stage. Only folders are read."""
    titles = filter(None, (title, find_parent_stage(title)))
    return any((get_stage_folder() / each / STAGE_FILE).is_file() for each in titles)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One unit of work, described by plain values that survive pickle and JSON."""

    run: Mapping[str, Any]  # fields of the run
    # The stage (kind/key) to build for that run, or one of its shards. Empty: the run itself.
    stage: str = ""
    num_shards: int = 1  # number of shards that the stage is merged from
    num_processes: int = 1  # on all nodes together, each of which executes this job
    max_requeues: int = 10  # consecutive interruptions without progress
    source: str = ""  # digest of the code at launch, which must not change. Empty: any code

    @property
    def item(self) -> WorkItem:
        """The work item: where its owner and its last state are stored."""
        return WorkItem(self.stage or run_id(run_from_fields(self.run)))

    def _stage(self) -> Stage:
        return find_stage(self.stage, pipeline_stages.list_stages(run_from_fields(self.run)))

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        if self.stage:
            return is_stage_built(self.stage)
        return has_record(get_local_records(), run_from_fields(self.run))

    @property
    def is_first(self) -> bool:
        """Whether this process is rank 0 of its run, or its only one. It holds the lease and reports the state."""
        return self.num_processes == 1 or os.environ["RANK"] == "0"

    def progress(self) -> int:
        """Return the number of checkpointed steps of a run's training runs.

        Those of stages and of measuring are not counted. Interruptions count against a run only if it makes no
        progress between them.
        """
        if self.stage:
            return 0
        phases = list_phases(run_from_fields(self.run))
        return sum(read_checkpoint_step(run_folder(get_training_id(phase))) for phase in phases)

    def __call__(self, stop: Stop, *, where: JobState) -> None:
        """Do the work under its lease, or wait while another process does it.

        `where` identifies this job and its log. Raises Stopped if it was interrupted and can resume. Any other error is
        recorded with its traceback and re-raised.
        """
        state = replace(where, host=socket.gethostname())
        if self.stage:
            # A stage acquires its own lease and waits if another process is building it.
            if not self.is_done:
                with self._record_outcome(state, stop):
                    self._build_stage(stop)
            return
        with join_ranks(self.num_processes):
            # Rank 0 decides for all, because the others may see files later.
            lease = _wait_for_lease(self.item, stop) if self.is_first else None
            with lease or nullcontext():
                # Another process may have finished it before this one acquired the lease.
                if any_rank(self.is_first and self.is_done, self.num_processes):
                    return
                with self._record_outcome(state, stop):
                    if lease is not None:
                        # The lease polls for cancellation from its own thread, also while a step takes minutes.
                        lease.on_beat = lambda: _stop_if_cancelled(self.item, stop)
                    self._execute(stop)

    def _execute(self, stop: Stop) -> None:
        # Imported late, because it loads torch.
        from repro.execute import execute

        try:
            execute(run_from_fields(self.run), should_stop=stop, progress=log_line)
        except Interrupted as error:
            raise stop.stopped(str(error)) from error

    def _build_stage(self, stop: Stop) -> None:
        """Build the stage. If stopped, partial files are removed and it starts over, except for K-means of `clusters`."""
        stage, name = self._stage(), str(self.run["filter_model"])
        # Embeddings of the filter need the weights of another run.
        if RUN_ID.fullmatch(name) and any(
            each.key.get("surrogate") == name and not each.is_built for each in stage.all()
        ):
            from repro.execute import train_filter_model

            train_filter_model(run_from_fields(self.run), should_stop=stop, progress=log_line)
        build_from_shards(stage, self.num_shards, log_line)

    @contextmanager
    def _record_outcome(self, where: JobState, stop: Stop) -> Iterator[None]:
        """Record that the work begins and how it ended. Ranks other than the first record only their own failure."""
        item = self.item
        state = _continue_counters(item, where, self.progress) if self.is_first else where
        try:
            with unwrap_stop():
                if self.is_first:
                    self._begin(item, state)
                # No rank works before the first one has begun.
                any_rank(False, self.num_processes)
                yield
        except BaseException as error:
            self._record_end(item, state, stop, error)
            raise
        if self.is_first:
            item.write(replace(state, state="done", reason=""))

    def _begin(self, item: WorkItem, state: JobState) -> None:
        if item.is_cancelled:
            raise Stopped(CANCELLED)
        if state.num_without_progress > self.max_requeues:
            raise RuntimeError(describe_interruptions(state, self.max_requeues))
        # The digest of files, because git may be unavailable.
        if self.source and self.source != compute_source_digest():
            raise RuntimeError("the code has changed since the launch; restore it, or launch again with --retry")
        item.write(replace(state, state="running", reason=""))

    def _record_end(self, item: WorkItem, state: JobState, stop: Stop, error: BaseException) -> None:
        last = item.read()
        # A rank that fails makes the others fail, and a rank that stops makes the others lose their connection. The
        # first report counts.
        is_first_report = last is not None and last.state == "running"
        if not self.is_first and (isinstance(error, Stopped) or stop() or not is_first_report):
            return
        if self.num_processes > 1 and last is not None and last.state == "failed":
            return
        if not isinstance(error, Stopped):
            # notes name the file that was read
            reason = ": ".join([*getattr(error, "__notes__", ()), f"{type(error).__name__}: {error}"])
            if not self.is_first:
                reason = f"rank {os.environ['RANK']} on {socket.gethostname()}: {reason}"
            lines = "".join(traceback.format_exception(error))
            item.write(replace(state, state="failed", reason=reason, trace=lines))
        elif item.is_cancelled:
            item.write(replace(state, state="failed", reason=CANCELLED))
        else:
            counted = _count_interruption(state, self.progress())
            item.write(replace(counted, state="interrupted", reason=stop.reason or str(error)))


def _continue_counters(item: WorkItem, where: JobState, progress: Callable[[], int]) -> JobState:
    """Return the state of this attempt with the counters of the last one."""
    last = item.read() or JobState(state="done")
    counters = ("num_interruptions", "num_without_progress", "num_steps", "reason")
    state = replace(where, **{name: getattr(last, name) for name in counters})
    # The lease of a run is held by this job, so only a stage can have another owner.
    has_other_owner = item.is_stage and get_live_owner(item.lease_folder) is not None
    # An end without a report counts as an interruption.
    if last.state == "running" and not has_other_owner:
        state = replace(_count_interruption(state, progress()), reason="its process died")
    return state


def _count_interruption(state: JobState, num_steps: int) -> JobState:
    """Return the state with one more interruption, and whether the run made progress since the last one."""
    return replace(
        state,
        num_interruptions=state.num_interruptions + 1,
        num_without_progress=0 if num_steps > state.num_steps else state.num_without_progress + 1,
        num_steps=num_steps,
    )


def describe_interruptions(state: JobState, max_requeues: int) -> str:
    """Describe how often a job was interrupted without progress."""
    count = f"interrupted {state.num_without_progress} times without progress, the limit is {max_requeues}"
    return f"{count}; the last: {state.reason}"


def _stop_if_cancelled(item: WorkItem, stop: Stop) -> None:
    if item.is_cancelled and not stop():
        stop.reason = CANCELLED


def _wait_for_lease(item: WorkItem, stop: Stop) -> Lease:
    """Return the lease once it is free. Logs the owner that this process waits for."""

    def check() -> None:
        if stop():
            raise stop.stopped()

    return acquire_when_free(
        item.lease_folder,
        lambda owner: log_line(f"waiting for {owner}, which is executing this run"),
        check=check,
    )


def run_here(run: Run) -> None:
    """Execute a run, or wait while another process executes it.

    Raises Stopped on a stop signal. A training run has then written its checkpoint. Any other work is interrupted
    immediately.
    """
    stop = Stop()
    job = Job(run=asdict(run), max_requeues=UNLIMITED)
    try:
        with handle_stop_signals(stop):
            # The state and the cancel mark of a running job belong to its process.
            if get_live_owner(job.item.lease_folder) is None:
                job.item.reset()
            job(stop, where=JobState(state="running"))
    except Stopped as stopped:
        resume = "has no checkpoint yet; its built stages are available: run the same command again"
        if any((run_folder(training) / CHECKPOINT_FILE).exists() for training in list_trainings(run)):
            resume = "has a checkpoint: run the same command again to resume"
        raise stopped.add_advice(f"run {run_id(run)} {resume}") from stopped


def main() -> int:
    """Execute the job that the local queue describes in a file, and return the exit status."""
    description = json.loads(Path(sys.argv[1]).read_text())
    die_with_parent(description["parent"])
    stop = Stop()
    with handle_stop_signals(stop):
        try:
            Job(**description["job"])(stop, where=JobState(**description["where"]))
        except Stopped as stopped:
            log_line(f"stopped: {stopped}")
            return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
