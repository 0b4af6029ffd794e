"""Where every run stands and why: told from the disk, with the scheduler's word where it answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from repro.identity import run_id, training_id
from repro.lease import Owner, look, owners
from repro.places import local_records, run_folder, stage_folder
from repro.registry import experiments
from repro.scales import ORDER
from repro.spec import Run
from repro.store import has_record
from slurm.notes import Note, Work, run_work
from slurm.scheduler import Queued, fate, queue
from slurm.sweep import Submission, read_submissions

STATES = ("recorded", "running", "queued", "interrupted", "failed", "cancelled", "missing")


@dataclass(frozen=True)
class Progress:
    """How far a running training is, from the last line of its metrics."""

    step: int
    num_steps: int | None
    pairs_per_second: float | None
    seconds_left: float | None


@dataclass(frozen=True)
class Standing:
    """Where one run stands."""

    id: str
    state: str  # one of STATES
    reason: str = ""
    live_on: str = ""  # local or slurm: a queue there is doing it or will
    job_id: str = ""
    host: str = ""
    log: str = ""
    script: str = ""
    num_interruptions: int = 0
    progress: Progress | None = None

    def may_launch(self, on: str, *, retry: bool) -> bool:
        """Whether a launch there would take it: local queues share their work, Slurm's jobs are left alone."""
        if self.state in ("failed", "cancelled"):
            return retry
        return self.state != "recorded" and (not self.live_on or self.live_on == on == "local")


@dataclass
class Sight:
    """One look at the disk and, once, at the scheduler; every standing told from it is of the same moment."""

    submissions: list[Submission] = field(default_factory=read_submissions)

    @cached_property
    def queue(self) -> Mapping[str, Queued] | None:
        """The scheduler's queue; None when it does not answer."""
        return queue()

    @cached_property
    def latest(self) -> dict[str, Submission]:
        """The last submission of every work."""
        return {name: submission for submission in self.submissions for name in submission.jobs}

    def standing(self, run: Run) -> Standing:
        """Tells where a run stands."""
        work = run_work(run)
        owner, note = look(work.lease_folder), work.read()
        places = self._places(work, note)
        if has_record(local_records(), run):
            return Standing(work.name, "recorded", **places)
        if owner is not None and owner.is_alive:
            places |= {"host": owner.host, "live_on": "slurm" if owner.note.get("job_id") else "local"}
            return Standing(work.name, "running", str(owner), progress=read_progress(run), **places)
        if work.is_cancelled:
            return Standing(work.name, "cancelled", "it was cancelled", **places)
        places["live_on"], says = self.live_job(work.name)
        if note is None or note.state == "done":
            return self._not_begun(work, says, places)
        if note.state in ("failed", "cancelled"):
            return Standing(work.name, note.state, note.reason, **places)
        return Standing(work.name, "interrupted", _why_interrupted(note, owner, says), **places)

    def _not_begun(self, work: Work, says: str, places: dict[str, Any]) -> Standing:
        if places["live_on"]:
            return Standing(work.name, "queued", says, **places)
        for need in self.latest[work.name].needs.get(work.name, ()) if work.name in self.latest else ():
            note = stage_note(need)
            if note is not None and note.state in ("failed", "cancelled"):
                return Standing(work.name, "failed", f"stage {need} {note.state}: {note.reason}; {note.log}", **places)
            if note is not None and note.state != "done":
                says = f"stage {need} was {note.state} when last heard of: {note.reason}; {note.log}; {says}"
        return Standing(work.name, "missing", says, **places)

    def live_job(self, name: str) -> tuple[str, str]:
        """Gives the kind of queue that will still do this work, or nothing, and what is known of that."""
        submission = self.latest.get(name)
        if submission is None:
            return "", "never launched"
        if submission.on == "local":
            owner = look(Path(submission.queue))
            alive = owner is not None and owner.is_alive
            return ("local", f"in the queue of {owner}") if alive else ("", "its queue has ended; launch again")
        job_id = submission.jobs[name]["job_id"]
        if self.queue is None:
            return "slurm", f"job {job_id} by what was last written; the scheduler does not answer here"
        if job_id not in self.queue:
            return "", f"job {job_id} has left Slurm's queue; launch again"
        return "slurm", f"job {job_id} is {self.queue[job_id].state} ({self.queue[job_id].reason})"

    def unbuilt_stages(self, runs: Iterable[Run]) -> dict[str, str]:
        """Gives every stage that launched runs wait for and that is not built, with where it stands."""
        names = [run_work(run).name for run in runs]
        needed = [need for name in names if name in self.latest for need in self.latest[name].needs.get(name, ())]
        unbuilt = [name for name in dict.fromkeys(needed) if not (stage_folder() / name / "stage.json").is_file()]
        return {name: self._stage_standing(name) for name in unbuilt}

    def _stage_standing(self, name: str) -> str:
        owner, note = look(stage_work_named(name).lease_folder), stage_note(name)
        if owner is not None and owner.is_alive:
            return f"being built by {owner}"
        if note is not None and note.state in ("failed", "cancelled"):
            return f"{note.state}: {note.reason}; log {note.log}"
        return self.live_job(name)[1]

    def _places(self, work: Work, note: Note | None) -> dict[str, Any]:
        submission = self.latest.get(work.name)
        found: dict[str, Any] = dict(submission.jobs[work.name]) if submission else {}
        if note is not None:
            found |= {"job_id": note.job_id, "host": note.host, "log": note.log, "script": note.script}
            found |= {"num_interruptions": note.num_interruptions}
        return found


def _why_interrupted(note: Note, owner: Owner | None, says: str) -> str:
    return f"its process died without a word ({owner}); {says}" if note.state == "running" else f"{note.reason}; {says}"


def stage_work_named(name: str) -> Work:
    """Gives the work of a stage by kind/key."""
    return Work("stage", name, stage_folder() / f"{name}.building")


def stage_note(name: str) -> Note | None:
    """Gives what the job of a stage (kind/key) wrote down."""
    return stage_work_named(name).read()


def read_progress(run: Run) -> Progress | None:
    """Gives how far a run is; None before its first step."""
    try:
        lines = (run_folder(training_id(run)) / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return None
    whole = [line for line in lines if line.endswith("}")]
    if not whole:
        return None
    last = json.loads(whole[-1])
    speed, step = last.get("pairs_per_second"), last["step"]
    left = None
    if run.num_steps is not None and speed:
        left = (run.num_steps - step) * run.batch_size / speed
    return Progress(step, run.num_steps, speed, left)


def standings(runs: Iterable[Run]) -> list[Standing]:
    """Gives where each run stands, at one moment."""
    sight = Sight()
    return [sight.standing(run) for run in dict.fromkeys(runs)]


def summary(found: Iterable[Standing]) -> str:
    """Gives the counts in a line."""
    counts = Counter(standing.state for standing in found)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "no runs"


def why(run: Run) -> dict[str, Any]:
    """Gives all that is known of a run: state, reason, last traceback, log, script, owners, the scheduler's word."""
    work = run_work(run)
    note = work.read()
    standing = Sight().standing(run)
    return {
        **asdict(standing),
        "traceback": note.trace if note else "",
        "last_lines": _last_lines(Path(standing.log)) if standing.log else [],
        "scheduler": fate(standing.job_id) if standing.job_id else None,
        "owners": [f"{owner.number}: {owner}, {_ended(owner)}" for owner in owners(work.lease_folder)],
        "sweeps": sorted({entry.sweep for entry in read_submissions() if work.name in entry.jobs}),
        "folder": str(work.folder),
    }


def _ended(owner: Owner) -> str:
    if owner.is_alive:
        return "alive"
    return "died" if owner.outcome is None else owner.outcome or "ended"


def _last_lines(log: Path, num_lines: int = 15) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-num_lines:] if log.is_file() else []


def known_run(identifier: str) -> Run:
    """Gives a run by the beginning of its id: one that was launched, or that an experiment declares at any scale.

    ValueError when there is none or more than one.
    """
    declared = {run for experiment in experiments() for scale in ORDER for run in experiment.runs(scale)}
    launched = {Run(**values) for submission in read_submissions() for values in submission.runs.values()}
    found = [run for run in launched | declared if run_id(run).startswith(identifier)]
    if len(found) != 1:
        raise ValueError(
            f"run {identifier!r}: {len(found)} runs begin so; `repro status` and `repro plan` show the ids"
        )
    return found[0]
