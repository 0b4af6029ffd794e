"""What a job writes down about itself: one small file beside its work, from which everything else is told."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from repro.identity import run_id
from repro.places import home, run_folder
from repro.spec import Run
from repro.stages import Stage
from repro.writing import whole_file

STATES = ("running", "interrupted", "failed", "cancelled", "done")


@dataclass(frozen=True, kw_only=True)
class Note:
    """The last thing a job said: its state, why, and where to look."""

    state: str
    reason: str = ""
    trace: str = ""  # the last traceback
    num_interruptions: int = 0  # times it stopped without ending, since it was last launched with a clean slate
    job_id: str = ""  # the scheduler's number; empty for a local job
    host: str = ""
    log: str = ""
    script: str = ""
    at: float = field(default_factory=time.time)  # seconds since the epoch


@dataclass(frozen=True)
class Work:
    """One thing to do under a lease, a run or a stage: its name and the folder where its owner and its note lie."""

    kind: str
    name: str
    folder: Path

    @property
    def lease_folder(self) -> Path:
        """Where its owners are."""
        return self.folder / "owner"

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has asked for it not to go on."""
        return (self.folder / "cancelled").exists()

    def cancel(self) -> None:
        """Asks that it should not go on: a running one notices at its next heart-beat."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cancelled").touch()

    def forget(self) -> None:
        """Takes back failure and cancellation: a clean slate."""
        (self.folder / "cancelled").unlink(missing_ok=True)
        (self.folder / "job.json").unlink(missing_ok=True)

    def write(self, note: Note) -> None:
        """Replaces the note."""
        with whole_file(self.folder / "job.json") as part:
            part.write_text(json.dumps(asdict(note), indent=1))

    def read(self) -> Note | None:
        """Gives the note; None when it never began."""
        try:
            found = json.loads((self.folder / "job.json").read_text())
        except FileNotFoundError:
            return None
        known = {one.name for one in fields(Note)}
        return Note(**{name: value for name, value in found.items() if name in known})


def run_work(run: Run) -> Work:
    """Gives the work of one run."""
    return Work("run", run_id(run), run_folder(run_id(run)))


def stage_work(stage: Stage) -> Work:
    """Gives the work of building one stage."""
    return Work("stage", f"{stage.name}/{stage.path.name}", stage.building_folder)


def sweeps_folder() -> Path:
    """Gives the folder that holds a folder for each sweep."""
    return home() / "sweeps"
