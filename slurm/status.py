"""Determine the status of each run and its reason from the disk, and from the scheduler if it responds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import SEEK_END
from pathlib import Path
from typing import Any

from repro.planning.cost import list_training_phases
from repro.records.store import explain_unreadable, has_record
from repro.spec import Run
from repro.spec.identity import format_overrides, get_training_id
from repro.storage.lease import Owner, get_last_owner, get_live_owner, list_owners
from repro.storage.paths import (
    get_building_folder,
    get_local_records,
    get_published_records,
    get_stage_folder,
    run_folder,
)
from repro.storage.shards import find_parent_stage, parse_part
from repro.storage.stages import STAGE_FILE
from repro.train.checkpoint import METRICS_FILE
from slurm.scheduler import Queued, fetch_job_outcome, fetch_queue
from slurm.states import JobState, WorkItem, get_run_item
from slurm.sweep import Submission, read_submissions

TAIL_BYTES = 2**15
BUILDING = "being built"
MAX_SHARDS_SHOWN = 3
NEVER_LAUNCHED = "never launched"
STATES = ("recorded", "running", "queued", "interrupted", "failed", "unreadable", "cancelled", "missing")


@dataclass(frozen=True)
class TrainingProgress:
    """Progress of a running training run, from the last line of its metrics."""

    step: int
    num_steps: int | None
    pairs_per_second: float | None
    seconds_left: float | None


@dataclass(frozen=True)
class RunStatus:
    """The status of one run."""

    id: str
    state: str  # one of STATES
    reason: str = ""
    # The kind of queue, local or slurm, that is executing the run or will execute it.
    live_on: str = ""
    job_id: str = ""
    host: str = ""
    log: str = ""
    script: str = ""
    num_interruptions: int = 0
    progress: TrainingProgress | None = None

    def may_launch(self, on: str, *, retry: bool) -> bool:
        """Return whether a launch on this kind of queue, local or slurm, may start the run."""
        if self.state in ("failed", "cancelled"):
            return retry
        if self.state in ("recorded", "unreadable"):
            return False
        # Local queues share their work. Jobs in Slurm's queue are not submitted again.
        return not self.live_on or self.live_on == on == "local"


@dataclass
class Snapshot:
    """A view of the disk and the scheduler at one moment. The scheduler is queried once."""

    submissions: list[Submission] = field(default_factory=read_submissions)

    @cached_property
    def queue(self) -> Mapping[str, Queued] | None:
        """The scheduler's queue, or None if it does not respond."""
        return fetch_queue()

    @cached_property
    def live_queues(self) -> dict[str, Owner]:
        """The owner of each local queue that is alive, by its lease folder."""
        queues = dict.fromkeys(submission.queue for submission in self.submissions if submission.on == "local")
        return {queue: owner for queue in queues if (owner := get_live_owner(Path(queue)))}

    @cached_property
    def latest(self) -> dict[str, Submission]:
        """The last submission of each item. A local queue that has ended does not replace one that is alive."""
        latest: dict[str, Submission] = {}
        for submission in self.submissions:
            has_ended = submission.on == "local" and submission.queue not in self.live_queues
            for name in submission.jobs:
                if not (has_ended and name in latest and latest[name].queue in self.live_queues):
                    latest[name] = submission
        return latest

    def get_statuses(self, runs: Iterable[Run]) -> list[RunStatus]:
        """Return the status of each run."""
        return [self.get_status(run) for run in runs]

    def get_status(self, run: Run) -> RunStatus:
        """Return the status of a run."""
        item = get_run_item(run)
        owner = get_last_owner(item.lease_folder)
        last = item.read()
        locations = self._list_locations(item, last)
        # The order decides: a record outranks everything, then a living owner, then the cancel mark, then the last
        # report.
        if has_record(get_local_records(), run):
            record_error = explain_unreadable(get_local_records(), run)
            return RunStatus(item.name, "unreadable" if record_error else "recorded", record_error, **locations)
        if owner is not None and owner.is_alive:
            locations |= {"host": owner.host, "live_on": "slurm" if owner.note.get("job_id") else "local"}
            return RunStatus(item.name, "running", str(owner), progress=read_progress(run), **locations)
        if item.is_cancelled:
            return RunStatus(item.name, "cancelled", "it was cancelled", **locations)
        locations["live_on"], description = self.find_live_job(item.name)
        if locations["live_on"]:
            # the job that waits, not the one that reported last
            locations |= {"job_id": "", **self.latest[item.name].jobs[item.name]}
        # "done" without a record: the record was removed, so the run is missing again.
        if last is None or last.state == "done":
            if last is None:
                description = self._describe_unstarted(item.name) or description
            return self._describe_waiting(item, description, locations)
        if last.state in ("failed", "cancelled"):
            return _make_failed(item.name, last.state, last.reason, locations)
        return RunStatus(item.name, "interrupted", _explain_interrupted(last, owner, description), **locations)

    def _describe_waiting(self, item: WorkItem, description: str, locations: dict[str, Any]) -> RunStatus:
        # Slurm's reason says more than the stages, which may be queued again.
        if locations["live_on"] == "slurm":
            return RunStatus(item.name, "queued", description, **locations)
        for stage in self.list_dependencies(item.name):
            # another process may have built a stage after its job failed
            if _is_built(stage):
                continue
            last = read_stage_state(stage)
            if last is None:
                unstarted = self._describe_unstarted(stage)
                if unstarted:
                    description = f"stage {stage}: {unstarted}"
            elif last.state in ("failed", "cancelled"):
                reason = f"stage {stage} {last.state}: {last.reason}; {last.log}"
                return _make_failed(item.name, "failed", reason, locations)
            elif last.state != "done" and not locations["live_on"]:
                description = f"stage {stage} was last {last.state}: {last.reason}; {last.log}; {description}"
        return RunStatus(item.name, "queued" if locations["live_on"] else "missing", description, **locations)

    def _describe_unstarted(self, name: str) -> str:
        """Describe a job that has left Slurm's queue with a log but without ever reporting a start."""
        submission = self.latest.get(name)
        if submission is None or submission.on != "slurm" or self.find_live_job(name)[0]:
            return ""
        job = submission.jobs[name]
        message = f"job {job['job_id']} ended before it started; see its log {job['log']}; launch again"
        return message if Path(job["log"]).is_file() else ""

    def list_dependencies(self, name: str) -> list[str]:
        """Return the stages that a run was launched to wait for, each preceded by its shards."""
        stages: list[str] = []
        for stage in self._get_needs(name):
            stages += [*self._list_shards(stage), stage]
        return stages

    def _list_shards(self, name: str) -> list[str]:
        """Return the shards that a stage was launched to wait for."""
        return [need for need in self._get_needs(name) if find_parent_stage(need) == name]

    def _get_needs(self, name: str) -> Sequence[str]:
        """Return the items that an item was launched to wait for."""
        return self.latest[name].needs.get(name, ()) if name in self.latest else ()

    def find_live_job(self, name: str) -> tuple[str, str]:
        """Return the kind of queue that will still execute this item, or "", and its description."""
        submission = self.latest.get(name)
        if submission is None:
            return "", NEVER_LAUNCHED
        if submission.on == "local":
            owner = self.live_queues.get(submission.queue)
            return ("local", f"in the queue of {owner}") if owner else ("", "its queue has ended; launch again")
        job_id = submission.jobs[name]["job_id"]
        if self.queue is None:
            return "slurm", f"job {job_id} according to its submission; the scheduler does not respond here"
        # An empty queue is known, a silent scheduler is not. Only the first allows launching again.
        if job_id not in self.queue:
            return "", f"job {job_id} has left Slurm's queue; launch again"
        return "slurm", f"job {job_id} is {self.queue[job_id].state} ({self.queue[job_id].reason})"

    def map_slurm_jobs(self) -> dict[str, str]:
        """Return the Slurm job that will still execute each item, by its name."""
        live = [name for name in self.latest if self.find_live_job(name)[0] == "slurm"]
        return {name: self.latest[name].jobs[name]["job_id"] for name in live}

    def list_unbuilt_stages(self, statuses: Iterable[RunStatus]) -> dict[str, str]:
        """Return every unbuilt stage that launched runs without a record wait for, with its status."""
        unbuilt: dict[str, str] = {}
        for status in statuses:
            for name in () if status.state == "recorded" else self.list_dependencies(status.id):
                # Shards are described with their stage.
                if name not in unbuilt and not find_parent_stage(name) and not _is_built(name):
                    unbuilt[name] = self._describe_stage(name)
        return unbuilt

    def _describe_stage(self, name: str) -> str:
        """Return the status of a stage. If it has shards, count those built and describe the others."""
        shards = self._list_shards(name)
        unbuilt = {shard.rpartition("/")[2]: self._describe_builder(shard) for shard in shards if not _is_built(shard)}
        if not unbuilt:
            return self._describe_builder(name)
        num_shards = parse_part(next(iter(unbuilt))).of
        building = [part for part, description in unbuilt.items() if description.startswith(BUILDING)]
        failed = [part for part, description in unbuilt.items() if description.startswith(("failed", "cancelled"))]
        waiting = [part for part in unbuilt if part not in building and part not in failed]
        num_built = num_shards - len(unbuilt)
        counts = f"{num_built} of {num_shards} shards built, {len(building)} {BUILDING}, {len(waiting)} waiting"
        return "; ".join([counts, *(f"{part} {unbuilt[part]}" for part in (failed or waiting)[:MAX_SHARDS_SHOWN])])

    def _describe_builder(self, name: str) -> str:
        last = read_stage_state(name)
        if owner := get_live_owner(find_stage_item(name).lease_folder):
            return f"{BUILDING} by {owner}"
        if last is not None and last.state in ("failed", "cancelled"):
            return f"{last.state}: {last.reason}; log {last.log}"
        return self.find_live_job(name)[1]

    def _list_locations(self, item: WorkItem, last: JobState | None) -> dict[str, Any]:
        submission = self.latest.get(item.name)
        locations: dict[str, Any] = dict(submission.jobs[item.name]) if submission else {}
        if last is not None:
            reported = ("job_id", "host", "log", "script", "num_interruptions")
            locations |= {name: getattr(last, name) for name in reported}
        return locations


def _make_failed(name: str, state: str, reason: str, locations: Mapping[str, Any]) -> RunStatus:
    """Return the status of a failed or cancelled run. A local queue does not start it again, even if it is still alive."""
    if locations["live_on"] == "local":
        locations = {**locations, "live_on": ""}
    return RunStatus(name, state, reason, **locations)


def _is_built(name: str) -> bool:
    return (get_stage_folder() / name / STAGE_FILE).is_file()


def _explain_interrupted(last: JobState, owner: Owner | None, queue_description: str) -> str:
    if last.state != "running":
        return f"{last.reason}; {queue_description}"
    if owner is not None and owner.is_released:
        return f"its outcome could not be written (is the disk full?); see its log or the terminal; {queue_description}"
    return f"its process died without an outcome ({owner}); {queue_description}"


def find_stage_item(name: str) -> WorkItem:
    """Return the work item of a stage by kind/key."""
    return WorkItem("stage", name, get_building_folder(get_stage_folder() / name))


def read_stage_state(name: str) -> JobState | None:
    """Return the last state of the job of a stage (kind/key)."""
    return find_stage_item(name).read()


def read_progress(run: Run) -> TrainingProgress | None:
    """Return the progress of a run, or None before its first step. During its first phase, that of the phase."""
    for phase in list_training_phases(run):
        lines = _read_tail(run_folder(get_training_id(phase)) / METRICS_FILE)
        # A line without its closing brace is being written at this moment.
        complete_lines = [line for line in lines if line.endswith("}")]
        if complete_lines:
            return _parse_progress(complete_lines[-1], phase)
    return None


def _parse_progress(line: str, phase: Run) -> TrainingProgress:
    last = json.loads(line)
    step = last["step"]
    speed = last.get("pairs_per_second")
    seconds_left = None
    if phase.num_steps is not None and speed:
        seconds_left = (phase.num_steps - step) * phase.batches_a_step * phase.batch_size / speed
    return TrainingProgress(step, phase.num_steps, speed, seconds_left)


def get_statuses(runs: Iterable[Run]) -> list[RunStatus]:
    """Return the status of each run at one moment."""
    return Snapshot().get_statuses(dict.fromkeys(runs))


def format_state_counts(statuses: Iterable[RunStatus]) -> str:
    """Return the counts per state in one line."""
    counts = Counter(status.state for status in statuses)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "no runs"


def explain_run(run: Run) -> dict[str, Any]:
    """Return everything known about a run: fields, state, reason, traceback, log, script, owners and scheduler."""
    item = get_run_item(run)
    last = item.read()
    snapshot = Snapshot()
    status = snapshot.get_status(run)
    is_published = has_record(get_published_records(), run) and not has_record(get_local_records(), run)
    return {
        "published": "its record is published; it was not run on this machine" if is_published else "",
        "run": f"scale={run.scale}, {format_overrides(run)}",
        **asdict(status),
        "peak_memory": f"{last.peak_bytes / 2**20:.0f} MiB" if last and last.peak_bytes else "",
        "traceback": last.trace if last else "",
        "last_lines": _read_tail(Path(status.log))[-15:] if status.log else [],
        "scheduler": fetch_job_outcome(status.job_id) if status.job_id else None,
        "stages": [f"{name}: {description}" for name, description in snapshot.list_unbuilt_stages([status]).items()],
        "owners": [f"{owner.number}: {owner}, {_describe_end(owner)}" for owner in list_owners(item.lease_folder)],
        "sweeps": sorted({submission.sweep for submission in snapshot.submissions if item.name in submission.jobs}),
        "folder": str(item.folder),
    }


def _describe_end(owner: Owner) -> str:
    if owner.is_alive:
        return "alive"
    return "died" if owner.outcome is None else owner.outcome or "ended"


def _read_tail(path: Path) -> list[str]:
    """Return the complete lines at the end of a file, or nothing if it does not exist.

    Logs of a million steps have hundreds of megabytes, and --watch reads them every two seconds.
    """
    if not path.is_file():
        return []
    with suppress(FileNotFoundError), path.open("rb") as file:
        start = max(0, file.seek(0, SEEK_END) - TAIL_BYTES)
        file.seek(start)
        lines = file.read(TAIL_BYTES).decode(errors="replace").splitlines()
        # The first line is incomplete unless the file was read from its beginning.
        return lines[1:] if start else lines
    return []
