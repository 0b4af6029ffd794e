"""What systems call differently: cores for this process, its peak of memory, room on the disk."""

from __future__ import annotations

import os
import resource
import sys

RESIDENT_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""What `ru_maxrss` counts in."""


def cores_here() -> int:
    """Return how many cores this process may use; all of the machine where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak_bytes(*, with_children: bool = False) -> int:
    """Return the most memory that this process has had so far, or any of its children that have ended."""
    asked = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) if with_children else (resource.RUSAGE_SELF,)
    return max(resource.getrusage(one).ru_maxrss for one in asked) * RESIDENT_UNIT_BYTES


def take_room(descriptor: int, num_bytes: int) -> None:
    """Make an open file so long; OSError when the disk has no room for it, on systems that can tell beforehand."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, num_bytes)
    else:
        os.ftruncate(descriptor, num_bytes)
