"""Query the platform: usable cores, peak and free memory, and disk space for a file."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

NO_GPUS = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES, and of its parts, that name no GPU. The last is that of older versions of Slurm."""
RESIDENT_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""The unit of `ru_maxrss`: bytes on macOS, KiB elsewhere."""
MEMINFO = Path("/proc/meminfo")
OWN_CGROUPS, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def count_usable_cores() -> int:
    """Return the number of cores that this process may use: those of its affinity mask, or fewer if a container has a
    CPU quota.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _iter_cgroups():
        # two numbers, or "max" and a number
        quota, period = _read_number(folder / "cpu.max"), _read_number(folder / "cpu.max", word=1)
        if quota and period:
            cores = min(cores, quota // period)
    return max(1, cores)


def measure_peak_bytes() -> int:
    """Return the peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RESIDENT_UNIT_BYTES


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
    for folder in _iter_cgroups():
        limit, usage = _read_number(folder / "memory.max"), _read_number(folder / "memory.current")
        if limit is not None and usage is not None:
            # the page cache of a group can be reclaimed
            cache = _read_number(folder / "memory.stat", "inactive_file ") or 0
            candidates.append(max(0, limit - max(0, usage - cache)))
    return min(candidates, default=None)


def _iter_cgroups() -> Iterator[Path]:
    """Yield the folders of the cgroup (version 2) of this process and of its parents."""
    lines = OWN_CGROUPS.read_text().splitlines() if OWN_CGROUPS.is_file() else []
    for line in lines:
        if line.startswith("0::"):
            folder = CGROUPS / line.removeprefix("0::").lstrip("/")
            yield from (parent for parent in (folder, *folder.parents) if parent.is_relative_to(CGROUPS))


def _read_number(path: Path, label: str = "", word: int = 0) -> int | None:
    """Return the integer after a label at the start of a line, as its word of that index. None if there is no integer."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(label):
            words = line.removeprefix(label).split()
            return int(words[word]) if len(words) > word and words[word].isdigit() else None
    return None
