"""Choose which process of `kills.py` is killed and when, by a fixed seed: at a random moment, or during a write."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from repro.train import loop

ON_PURPOSE = (
    *("checkpoint half written", "checkpoint without its name", "checkpoint just named"),
    *("arrays half written", "arrays just named", "record half written", "record just named"),
)
RANDOM = "random"
MOMENTS = (*(RANDOM,) * 4, *ON_PURPOSE)
CHECKPOINT_EVERY = 5


class Fates:
    """Kills so far and the remaining number, as one file each in a folder that every process sees."""

    current: Fates

    def __init__(self, folder: Path, num_kills: int, seed: int) -> None:
        self.folder, self.num_kills, self.seed = folder, num_kills, seed
        folder.mkdir(exist_ok=True)

    def hits(self) -> list[str]:
        """Return the past kills: the moment and the item."""
        return sorted(path.read_text() for path in self.folder.glob("*.hit"))

    @property
    def num_left(self) -> int:
        """Return the number of remaining kills."""
        return max(0, self.num_kills - len(self.hits()))

    def draw(self) -> tuple[str, Random] | None:
        """Return the moment at which a starting process is killed. None: it survives."""
        number = len(list(self.folder.glob("*.begun")))
        (self.folder / f"{number}-{os.getpid()}.begun").touch()
        random = Random(f"{self.seed}/{number}")
        return (random.choice(MOMENTS), random) if self.num_left else None

    def note(self, moment: str, item: str) -> None:
        """Record a kill."""
        (self.folder / f"{os.getpid()}-{time.monotonic_ns()}.hit").write_text(f"{moment},{item}")

    def kill_me(self, moment: str, item: str) -> None:
        """Record that this process is killed, and end it immediately."""
        self.note(moment, item)
        os.kill(os.getpid(), signal.SIGKILL)

    def kill_me_later(self, random: Random, most_seconds: float, item: str, moment: str = RANDOM) -> None:
        """End this process at a random moment, unless no kills remain by then."""
        timer = threading.Timer(random.uniform(0, most_seconds), lambda: self.num_left and self.kill_me(moment, item))
        timer.daemon = True
        timer.start()


def write_checkpoints_often() -> None:
    """Make training runs of this process write a checkpoint every few steps."""
    is_due = loop._is_due
    loop._is_due = lambda settings, step, seconds: step % CHECKPOINT_EVERY == 0 or is_due(settings, step, seconds)


def await_moment(moment: str, random: Random, item: str) -> None:
    """Arrange that this process is killed while it writes a file of the given kind, if it writes one."""
    what, _, when = moment.partition(" ")
    wait_for, rename = random.randrange(3) if what == "checkpoint" else 0, Path.replace
    seen = Counter[str]()

    def name(part: Path, target: Path) -> Path:
        is_meant = what == _kind(Path(target))
        seen[moment] += is_meant
        if not is_meant or seen[moment] <= wait_for or not Fates.current.num_left:
            return rename(part, target)
        if when == "half written":
            os.truncate(part, part.stat().st_size // 2)
        if when == "just named":
            rename(part, target)
        Fates.current.kill_me(moment, item)
        raise AssertionError("a killed process goes on")

    Path.replace = name  # type: ignore[method-assign, assignment]


def _kind(target: Path) -> str:
    if target.parent.name == "records":
        return "arrays" if target.suffix == ".npz" else "record"
    return "checkpoint" if target.name == "checkpoint.safetensors" else ""
