"""Store the state of a job in one small file next to its results. Every status is derived from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path

from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.files import json_object, write_json
from repro.storage.paths import run_folder
from repro.storage.stages import Stage


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


KEYS = tuple(key.name for key in fields(JobState))


@dataclass(frozen=True)
class WorkItem:
    """A run or stage to complete under a lease: its name and the folder of its owners and last state."""

    kind: str
    name: str
    folder: Path

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
            return JobState(**{name: values[name] for name in KEYS if name in values})
        except (TypeError, ValueError) as error:
            # Another launcher may remove it at this moment.
            if not path.exists():
                return None
            raise ValueError(f"{path} is not the state of a job ({error}); remove it, and launch again") from error


def get_run_item(run: Run) -> WorkItem:
    """Return the work item of a run."""
    return WorkItem("run", run_id(run), run_folder(run_id(run)))


def get_stage_item(stage: Stage) -> WorkItem:
    """Return the work item that builds a stage."""
    return WorkItem("stage", stage.title, stage.building_folder)
