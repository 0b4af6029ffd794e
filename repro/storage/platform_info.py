"""Query the platform: usable cores, peak and free memory, and disk space for a file."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

RESIDENT_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""The unit of `ru_maxrss`: bytes on macOS, KiB elsewhere."""


def count_usable_cores() -> int:
    """Return the number of cores that this process may use, or all cores if the system has no affinity mask."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def measure_peak_bytes(*, with_children: bool = False) -> int:
    """Return the peak resident memory of this process, or the maximum over it and its finished children."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) if with_children else (resource.RUSAGE_SELF,)
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) * RESIDENT_UNIT_BYTES


def reserve_space(descriptor: int, num_bytes: int) -> None:
    """Extend an open file to `num_bytes`. Raises OSError if the disk is full and the system can reserve space."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, num_bytes)
    else:
        os.ftruncate(descriptor, num_bytes)


def measure_free_bytes() -> int | None:
    """Return the memory that this process can still allocate, or None if the system does not report it.

    It is the available memory of the machine, or less if the cgroup has a limit.
    """
    candidates = []
    available_kib = _read_number(Path("/proc/meminfo"), "MemAvailable:")
    if available_kib is not None:
        candidates.append(available_kib * 1024)
    cgroup = Path("/sys/fs/cgroup")
    # cgroup v2, then v1
    for limit_file, usage_file in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit = _read_number(cgroup / limit_file, "")
        usage = _read_number(cgroup / usage_file, "")
        if limit is not None and usage is not None:
            candidates.append(max(0, limit - usage))
    return min(candidates, default=None)


def _read_number(path: Path, label: str) -> int | None:
    """Return the integer after a label at the start of a line, or None without such a line or file."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(label):
            words = line.removeprefix(label).split()
            return int(words[0]) if words and words[0].isdigit() else None
    return None
