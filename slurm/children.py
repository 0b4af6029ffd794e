"""Child process of the local queue (`python -m slurm.children FILE`): executes one job and ends with its parent."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from repro.stopping import Stopped
from slurm.job import Job
from slurm.signals import EXIT_INTERRUPTED, Stop, die_with_parent, handle_stop_signals, log_line
from slurm.states import JobState


def main() -> int:
    """Execute the job described in the given file and return the exit status."""
    description = json.loads(Path(sys.argv[1]).read_text())
    die_with_parent(description["parent"])
    stop = Stop()
    with handle_stop_signals(stop):
        try:
            Job(**description["job"])(stop, where=JobState(**description["where"]))
        except Stopped as stopped:
            log_line(f"stopped: {stopped}")
            return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
