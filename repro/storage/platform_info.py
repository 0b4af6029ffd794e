"""Query the platform: usable cores, peak and free memory, and disk space for a file."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

RESIDENT_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""The unit of `ru_maxrss`: bytes on macOS, KiB elsewhere."""
MEMINFO = Path("/proc/meminfo")
OWN_CGROUPS, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
MEMORY_V2 = ("memory.max", "memory.current", "inactive_file")
MEMORY_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
"""Files with the limit and the usage of a cgroup, and the label of its reclaimable page cache in `memory.stat`."""


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

    It is the available memory of the machine, or less if a cgroup of the process has a limit, as in a container or a job
    of Slurm.
    """
    candidates = []
    available_kib = _read_number(MEMINFO, "MemAvailable:")
    if available_kib is not None:
        candidates.append(available_kib * 1024)
    for folder, (limit_file, usage_file, cache_label) in _iter_memory_cgroups():
        limit = _read_number(folder / limit_file, "")
        usage = _read_number(folder / usage_file, "")
        if limit is not None and usage is not None:
            cache = _read_number(folder / "memory.stat", f"{cache_label} ") or 0
            candidates.append(max(0, limit - max(0, usage - cache)))
    return min(candidates, default=None)


def _iter_memory_cgroups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Yield the folders of the memory cgroup of this process and of its parents, each with its files."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, files = CGROUPS, MEMORY_V2
        elif "memory" in controllers.split(","):
            root, files = CGROUPS / "memory", MEMORY_V1
        else:
            continue
        folder = root / path.lstrip("/")
        yield from ((parent, files) for parent in (folder, *folder.parents) if parent.is_relative_to(root))


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
