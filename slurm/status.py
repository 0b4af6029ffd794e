"""Determine the status of each run and its reason from the disk, and from the scheduler if it responds. Show them as a table."""

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

from rich.table import Table
from rich.text import Text

from repro.records.store import get_score, has_record, read_record
from repro.report.formats import make_console
from repro.spec import Run, list_phases
from repro.spec.identity import format_overrides, get_training_id
from repro.storage.lease import Owner, get_last_owner, get_live_owner
from repro.storage.paths import get_local_records, get_published_records, run_folder
from repro.storage.shards import find_parent_stage
from repro.text import format_seconds, make_printable
from repro.train.checkpoint import METRICS_FILE
from slurm.job import JobState, WorkItem, get_run_item, is_stage_built
from slurm.scheduler import Queued, fetch_job_outcome, fetch_queue
from slurm.sweep import Submission, read_submissions

TAIL_BYTES = 2**15
NEVER_LAUNCHED = "never launched"
STATES = ("recorded", "running", "queued", "failed", "unreadable", "missing")
LOSSES = ("set_apart_loss", "loss")
"""Names in a log line: the loss on pairs that are set apart, which not every line has, and that of the step."""
COLUMNS = ("run", "what", "state", "steps", "score", "left", "reason")
COLOURS = {"recorded": "green", "running": "cyan", "failed": "red", "unreadable": "red"}


@dataclass(frozen=True)
class TrainingProgress:
    """Progress of a training run, from the last lines of its metrics."""

    step: int
    num_steps: int | None
    pairs_per_second: float | None
    seconds_left: float | None
    loss: float | None  # of the last evaluation on pairs that are set apart, otherwise of the last step


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
    score: float | None = None  # mean NDCG@10 of a recorded run


@dataclass
class Snapshot:
    """A view of the disk and the scheduler at one moment. The scheduler is queried once."""

    submissions: list[Submission] = field(default_factory=read_submissions)

    @cached_property
    def queue(self) -> Mapping[str, Queued] | None:
        """The jobs of all submissions that are in the scheduler's queue, or None if it does not respond."""
        locations = (job for entry in self.submissions if entry.on == "slurm" for job in entry.jobs.values())
        return fetch_queue(job["job_id"] for job in locations)

    @cached_property
    def live_queues(self) -> dict[str, Owner]:
        """The owner of each local queue that is alive, by its lease folder."""
        queues = dict.fromkeys(submission.queue for submission in self.submissions if submission.on == "local")
        return {queue: owner for queue in queues if (owner := get_live_owner(Path(queue)))}

    @cached_property
    def latest(self) -> dict[str, Submission]:
        """The last submission of each item."""
        return {name: submission for submission in self.submissions for name in submission.jobs}

    def get_status(self, run: Run) -> RunStatus:
        """Return the status of a run.

        The order decides: a record outranks everything, then a living owner, then a failure, then the queue.
        """
        item = get_run_item(run)
        owner = get_last_owner(item.lease_folder)
        last = item.read()
        place = self._find_place(item, last)
        if has_record(get_local_records(), run):
            try:
                metrics = read_record(get_local_records() / f"{item.name}.json").metrics
            except (ValueError, OSError) as error:
                return RunStatus(item.name, "unreadable", str(error), **place)
            return RunStatus(item.name, "recorded", score=get_score(run, metrics), **place)
        if owner is not None and owner.is_alive:
            place |= {"host": owner.host, "live_on": "slurm" if last and last.job_id else "local"}
            return RunStatus(item.name, "running", str(owner), progress=read_progress(run), **place)
        if item.is_cancelled:
            return RunStatus(item.name, "failed", "it was cancelled", **place)
        if last is not None and last.state == "failed":
            return RunStatus(item.name, "failed", last.reason, **place)
        live_on, reason = self.find_live_job(item.name)
        if live_on:
            # the job that waits, not the one that reported last
            place |= {"job_id": "", **self.latest[item.name].jobs[item.name], "live_on": live_on}
        if last is not None and last.state != "done":
            died = f"its process ended without storing an outcome ({owner})"
            reason = f"{died if last.state == 'running' else last.reason}; {reason}"
        elif live_on != "slurm":
            # Another process may have built a stage after its job failed. The first stage that is missing counts.
            for stage in [name for name in reversed(self.list_dependencies(item.name)) if not is_stage_built(name)]:
                failure = WorkItem(stage).read()
                if failure is not None and failure.state == "failed":
                    reason = f"stage {stage} failed: {failure.reason}; {failure.log}"
                    return RunStatus(item.name, "failed", reason, **(place | {"live_on": ""}))
                stage_is_live, text = self.find_live_job(stage)
                if not live_on and not stage_is_live:
                    reason = f"stage {stage}: {text}"
        return RunStatus(item.name, "queued" if live_on else "missing", reason, **place)

    def _find_place(self, item: WorkItem, last: JobState | None) -> dict[str, Any]:
        """Return where the last job of an item ran: its job id, host, log and script."""
        submission = self.latest.get(item.name)
        place: dict[str, Any] = dict(submission.jobs[item.name]) if submission else {}
        if last is not None:
            place |= {name: getattr(last, name) for name in ("job_id", "host", "log", "script", "num_interruptions")}
        return place

    def list_dependencies(self, name: str) -> Sequence[str]:
        """Return the stages that an item was launched to wait for, each preceded by its shards."""
        needs = self.latest[name].needs.get(name, ()) if name in self.latest else ()
        return [each for need in needs for each in (*self._list_shards(need), need)]

    def _list_shards(self, name: str) -> list[str]:
        needs = self.latest[name].needs.get(name, ()) if name in self.latest else ()
        return [need for need in needs if find_parent_stage(need) == name]

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
            log = Path(submission.jobs[name]["log"])
            # A job that could not start Python reports no state, but has a log.
            hint = f", see its log {log}" if log.is_file() else ""
            return "", f"job {job_id} has left Slurm's queue{hint}; launch again"
        return "slurm", f"job {job_id} is {self.queue[job_id].state} ({self.queue[job_id].reason})"

    def map_slurm_jobs(self) -> dict[str, str]:
        """Return the Slurm job that will still execute each item, by its name."""
        live = [name for name in self.latest if self.find_live_job(name)[0] == "slurm"]
        return {name: self.latest[name].jobs[name]["job_id"] for name in live}

    def list_unbuilt_stages(self, statuses: Iterable[RunStatus]) -> dict[str, str]:
        """Return every unbuilt stage that launched runs without a record wait for, with its status."""
        names = {
            name: None
            for status in statuses
            for name in (() if status.state == "recorded" else self.list_dependencies(status.id))
            # Shards are described with their stage.
            if not find_parent_stage(name) and not is_stage_built(name)
        }
        return {name: self._describe_stage(name) for name in names}

    def _describe_stage(self, name: str) -> str:
        shards = self._list_shards(name)
        unbuilt = [shard for shard in shards if not is_stage_built(shard)]
        last = WorkItem(name).read()
        if unbuilt:
            details = "; ".join(f"{shard.rpartition('/')[2]} {self._describe_stage(shard)}" for shard in unbuilt[:3])
            return f"{len(shards) - len(unbuilt)} of {len(shards)} shards built; {details}"
        if owner := get_live_owner(WorkItem(name).lease_folder):
            return f"being built by {owner}"
        if last is not None and last.state == "failed":
            return f"failed: {last.reason}; log {last.log}"
        return self.find_live_job(name)[1]


def read_progress(run: Run) -> TrainingProgress | None:
    """Return the progress of a run, or None before its first step. During its first phase, that of the phase."""
    for phase in list_phases(run):
        # A line without its closing brace is being written at this moment.
        lines = [line for line in read_tail(run_folder(get_training_id(phase)) / METRICS_FILE) if line.endswith("}")]
        if lines:
            return _parse_progress([json.loads(line) for line in lines], phase)
    return None


def _parse_progress(lines: Sequence[Mapping[str, Any]], phase: Run) -> TrainingProgress:
    step, speed = lines[-1]["step"], lines[-1].get("pairs_per_second")
    losses = (line[name] for name in LOSSES for line in reversed(lines) if name in line)
    seconds_left = None
    if phase.num_steps is not None and speed:
        seconds_left = (phase.num_steps - step) * phase.batches_a_step * phase.batch_size / speed
    return TrainingProgress(step, phase.num_steps, speed, seconds_left, next(losses, None))


def get_statuses(runs: Iterable[Run]) -> list[RunStatus]:
    """Return the status of each run at one moment."""
    snapshot = Snapshot()
    return [snapshot.get_status(run) for run in dict.fromkeys(runs)]


def explain_run(run: Run) -> dict[str, Any]:
    """Return everything known about a run: fields, state, reason, traceback, log, script and scheduler."""
    item = get_run_item(run)
    last = item.read()
    snapshot = Snapshot()
    status = snapshot.get_status(run)
    described = f"scale={run.scale}, {format_overrides(run)}"
    if status.reason == NEVER_LAUNCHED and has_record(get_published_records(), run):
        return {"published": "its record is published; it was not run on this machine", "run": described}
    return {
        "run": described,
        **asdict(status),
        "traceback": last.trace if last else "",
        "last_lines": read_tail(Path(status.log))[-15:] if status.log else [],
        "scheduler": fetch_job_outcome(status.job_id) if status.job_id else None,
        "stages": [f"{name}: {description}" for name, description in snapshot.list_unbuilt_stages([status]).items()],
        "sweeps": sorted({submission.sweep for submission in snapshot.submissions if item.name in submission.jobs}),
        "folder": str(item.folder),
    }


def read_tail(path: Path) -> list[str]:
    """Return the complete lines at the end of a file, or nothing if it does not exist.

    Logs of a million steps have hundreds of megabytes, and a user may ask for them every two seconds.
    """
    with suppress(FileNotFoundError, IsADirectoryError), path.open("rb") as file:
        start = max(0, file.seek(0, SEEK_END) - TAIL_BYTES)
        file.seek(start)
        lines = file.read(TAIL_BYTES).decode(errors="replace").splitlines()
        # The first line is incomplete unless the file was read from its beginning.
        return lines[1:] if start else lines
    return []


def show_status(runs: Sequence[Run]) -> None:
    """Print the status of the runs and of their unbuilt stages."""
    snapshot = Snapshot()
    statuses = {run: snapshot.get_status(run) for run in dict.fromkeys(runs)}
    stages = snapshot.list_unbuilt_stages(statuses.values())
    # hundreds of runs that were never launched would hide the others
    launched = {run: status for run, status in statuses.items() if status.reason != NEVER_LAUNCHED}
    counts = Counter(status.state for status in statuses.values())
    console = make_console()
    console.print(", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "no runs")
    if launched:
        console.print(make_status_table(launched))
    for name, description in stages.items():
        console.print(make_printable(f"stage {name}: {description}"))
    if num_untouched := len(statuses) - len(launched):
        console.print(f"{num_untouched} never launched: `repro plan` lists them")


def make_status_table(statuses: Mapping[Run, RunStatus]) -> Table:
    """Return the table: one row per run. Empty columns are dropped to make room for descriptions."""
    rows = (_format_row(*item) for item in statuses.items())
    columns = [cells for cells in zip(COLUMNS, *rows, strict=True) if any(cells[1:])]
    table = Table(box=None)
    for name, *_ in columns:
        table.add_column(name, justify="right" if name in ("steps", "score", "left") else "left")
    for row in zip(*(cells[1:] for cells in columns), strict=True):
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    return table


def _format_row(run: Run, status: RunStatus) -> tuple[str, ...]:
    """Return the cells of a run. The score is NDCG@10 in points once it is recorded, and a loss while it trains."""
    steps = left = ""
    score = "" if status.score is None else f"{100 * status.score:.1f}"
    if progress := status.progress:
        steps = f"{progress.step}/{progress.num_steps}" if progress.num_steps else str(progress.step)
        score = "" if progress.loss is None else f"loss {progress.loss:.3f}"
        # after the last step the model is evaluated, and the log does not tell for how long
        left = format_seconds(progress.seconds_left) if progress.step != progress.num_steps else "evaluating"
    return status.id, format_overrides(run), status.state, steps, score, left, make_printable(status.reason)
