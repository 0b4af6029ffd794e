"""The state of a job, in one small file beside what it makes: every status is derived from it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.files import read_json, whole_file
from repro.storage.paths import run_folder
from repro.storage.stages import Stage

KINDS: Mapping[str, Any] = {"str": str, "int": int, "float": (int, float)}
LOOK_AGAIN_SECONDS = (0.1, 0.4)
STATES = ("running", "interrupted", "failed", "cancelled", "done")


@dataclass(frozen=True, kw_only=True)
class JobState:
    """The last thing a job said: its state, why, and where to look."""

    state: str
    reason: str = ""
    trace: str = ""  # the last traceback
    num_interruptions: int = 0  # times it stopped without ending, since it was last launched with a clean slate
    num_in_vain: int = 0  # of these, the last ones between which it got no further
    reached: int = 0  # how far it was then, in steps of its trainings
    job_id: str = ""  # the scheduler's number; empty for a local job
    host: str = ""
    peak_bytes: int = 0  # the most memory of any of its processes, told when it ends; 0: not known
    log: str = ""
    script: str = ""
    at: float = field(default_factory=time.time)  # seconds since the epoch


@dataclass(frozen=True)
class WorkItem:
    """One thing to do under a lease, a run or a stage: its name, and the folder of its owners and its last state."""

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
        """Ask that it should not go on: a running one notices at its next heart-beat."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cancelled").touch()

    def forget(self) -> None:
        """Take back failure and cancellation: a clean slate."""
        (self.folder / "cancelled").unlink(missing_ok=True)
        (self.folder / "job.json").unlink(missing_ok=True)

    def write(self, state: JobState) -> None:
        """Replace the last state."""
        with whole_file(self.folder / "job.json") as part:
            part.write_text(json.dumps(asdict(state), indent=1))

    def read(self) -> JobState | None:
        """Return the last state; None when it never began."""
        path, found = self.folder / "job.json", self._content()
        if found is None:
            return None
        known = {one.name: KINDS[str(one.type)] for one in fields(JobState)}
        plain = found if isinstance(found, dict) else {}
        values = {name: plain[name] for name, kind in known.items() if isinstance(plain.get(name), kind)}
        if "state" not in values:
            raise ValueError(f"{path} is no note of a job; remove it, and launch again with --retry")
        return JobState(**values)

    def _content(self) -> Any:
        """Return what the file of the last state holds; None where there is none.

        One that is empty or torn is looked at again: another launcher may be just about to remove or replace it.
        """
        path = self.folder / "job.json"
        for patience_seconds in (*LOOK_AGAIN_SECONDS, None):
            try:
                return read_json(path)
            except (ValueError, OSError) as error:
                if not path.exists():
                    return None
                if patience_seconds is None:
                    raise ValueError(f"{error}; remove it, and launch again with --retry") from error
            time.sleep(patience_seconds)
        raise AssertionError("the last look returns or raises")


def item_of_run(run: Run) -> WorkItem:
    """Return the item of one run."""
    return WorkItem("run", run_id(run), run_folder(run_id(run)))


def item_of_stage(stage: Stage) -> WorkItem:
    """Return the item of building one stage."""
    return WorkItem("stage", stage.title, stage.building_folder)
