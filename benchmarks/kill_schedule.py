"""Choose which process of the `kills` benchmark is killed and when, by a fixed seed.

A process is killed at a random moment, or while it writes a checkpoint, an array file or a record.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from repro.train import loop

DURING_WRITES = (
    *("checkpoint half written", "checkpoint without its name", "checkpoint just named"),
    *("arrays half written", "arrays just named", "record half written", "record just named"),
)
RANDOM = "random"
MOMENTS = (*(RANDOM,) * 4, *DURING_WRITES)  # random kills are four times as likely as each other kind
CHECKPOINT_EVERY = 5
"""Steps between two checkpoints, so that short runs write many."""


class KillSchedule:
    """Past kills and the remaining number.

    Each kill and each started process is one file in a folder that all processes share. A process that is about to die
    cannot report to its parent, but it can create a file.
    """

    current: KillSchedule
    """The schedule of this process."""

    def __init__(self, folder: Path, num_kills: int, seed: int) -> None:
        self.folder, self.num_kills, self.seed = folder, num_kills, seed
        folder.mkdir(exist_ok=True)

    def list_kills(self) -> list[str]:
        """Return the past kills, each as "moment,item"."""
        return sorted(path.read_text() for path in self.folder.glob("*.hit"))

    @property
    def num_left(self) -> int:
        """Return the number of remaining kills."""
        return max(0, self.num_kills - len(self.list_kills()))

    def draw(self) -> tuple[str, Random] | None:
        """Return when a starting process will be killed and its random generator, or None if it survives."""
        index = len(list(self.folder.glob("*.begun")))
        (self.folder / f"{index}-{os.getpid()}.begun").touch()
        random = Random(f"{self.seed}/{index}")
        return (random.choice(MOMENTS), random) if self.num_left else None

    def record_kill(self, moment: str, item: str) -> None:
        """Record a kill."""
        (self.folder / f"{os.getpid()}-{time.monotonic_ns()}.hit").write_text(f"{moment},{item}")

    def kill_self(self, moment: str, item: str) -> None:
        """Record the kill of this process, then kill it. In this order, because nothing runs after SIGKILL."""
        self.record_kill(moment, item)
        os.kill(os.getpid(), signal.SIGKILL)

    def kill_self_later(self, random: Random, max_seconds: float, item: str, moment: str = RANDOM) -> None:
        """Kill this process at a random moment, unless no kills remain by then."""

        def kill_if_due() -> None:
            if self.num_left:
                self.kill_self(moment, item)

        timer = threading.Timer(random.uniform(0, max_seconds), kill_if_due)
        timer.daemon = True
        timer.start()


def write_checkpoints_often() -> None:
    """Make training runs of this process write a checkpoint every few steps."""
    is_due = loop._is_due
    loop._is_due = lambda settings, step, seconds: step % CHECKPOINT_EVERY == 0 or is_due(settings, step, seconds)


def kill_self_during(moment: str, random: Random, item: str) -> None:
    """Arrange that this process is killed while it writes a file of the given kind, if it writes one.

    Every complete file gets its name by a rename, so the rename is replaced by one that kills the process before it,
    after it, or before it with half the file missing.
    """
    kind, _, phase = moment.partition(" ")
    # A run writes several checkpoints. The first, second or third one is hit.
    num_to_skip, rename = random.randrange(3) if kind == "checkpoint" else 0, Path.replace
    num_seen = Counter[str]()

    def rename_or_die(part: Path, target: Path) -> Path:
        is_chosen = kind == _get_kind(Path(target))
        num_seen[moment] += is_chosen
        if not is_chosen or num_seen[moment] <= num_to_skip or not KillSchedule.current.num_left:
            return rename(part, target)
        if phase == "half written":
            os.truncate(part, part.stat().st_size // 2)
        if phase == "just named":
            rename(part, target)
        KillSchedule.current.kill_self(moment, item)
        raise AssertionError("a killed process continues")

    Path.replace = rename_or_die  # type: ignore[method-assign, assignment]


def _get_kind(target: Path) -> str:
    if target.parent.name == "records":
        return "arrays" if target.suffix == ".npz" else "record"
    return "checkpoint" if target.name == "checkpoint.safetensors" else ""
