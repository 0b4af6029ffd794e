"""A child of the local queue (`python -m slurm.children FILE`): does the job in the file, and ends with its parent."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from slurm.job import EXIT_INTERRUPTED, Job, Stop, Stopped, listening, say
from slurm.notes import Note

LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1
GRACE_SECONDS = 60.0
"""How long a child may take for its checkpoint once its parent has died."""


def ask_for_signal(number: int) -> None:
    """Asks the kernel to send this process a signal when its parent dies; kept over exec. Only Linux can."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int) -> None:
    """Makes this process get SIGTERM when its parent dies, and end whatever it does GRACE_SECONDS later."""
    ask_for_signal(signal.SIGTERM)
    if os.getppid() != parent:  # it died before we could ask
        os._exit(EXIT_INTERRUPTED)
    threading.Thread(target=_watch, args=(parent,), name="watch the parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    if sys.platform != "linux":
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(EXIT_INTERRUPTED)


def main() -> int:
    """Does the job that a file describes; gives the exit status."""
    described = json.loads(Path(sys.argv[1]).read_text())
    die_with_parent(described["parent"])
    stop = Stop()
    with listening(stop):
        try:
            Job(**described["job"])(stop, where=Note(**described["where"]))
        except Stopped as stopped:
            say(f"stopped: {stop.reason or stopped}")
            return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
