"""What systems call differently: cores for this process, its peak of memory, room on the disk."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

RESIDENT_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""What `ru_maxrss` counts in."""


def cores_here() -> int:
    """Return how many cores this process may use; all of the machine where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def measure_peak_bytes(*, with_children: bool = False) -> int:
    """Return the most memory that this process has had so far, or any of its children that have ended."""
    asked = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) if with_children else (resource.RUSAGE_SELF,)
    return max(resource.getrusage(one).ru_maxrss for one in asked) * RESIDENT_UNIT_BYTES


def take_room(descriptor: int, num_bytes: int) -> None:
    """Make an open file so long; OSError when the disk has no room for it, on systems that can tell beforehand."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, num_bytes)
    else:
        os.ftruncate(descriptor, num_bytes)


def measure_free_bytes() -> int | None:
    """Return the memory that this process may still take: of the machine, or less under the limit of its cgroup.

    None on a system that does not tell.
    """
    found = []
    if (available := _read_number(Path("/proc/meminfo"), "MemAvailable:")) is not None:
        found.append(available * 1024)
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        numbers = [_read_number(group / name, "") for name in (limit, used)]
        if numbers[0] is not None and numbers[1] is not None:
            found.append(max(0, numbers[0] - numbers[1]))
    return min(found, default=None)


def _read_number(path: Path, label: str) -> int | None:
    """Return the whole number after a label at the start of a line; None if there is none, or no such file."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    words = next((line.removeprefix(label).split() for line in lines if line.startswith(label)), [])
    return int(words[0]) if words and words[0].isdigit() else None
