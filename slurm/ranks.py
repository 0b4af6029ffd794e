"""A run in several processes: the job starts torchrun, which starts one rank for each GPU, and stays their parent.

The wish to stop comes to a rank from the job, through a file, or straight from the scheduler, which signals every
process of a job. Between two steps the ranks agree on it, so that none waits for another that has left. torchrun itself
must not mind the signals: it would end the ranks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from repro.identity import run_id
from repro.places import CHECKOUT, local_records, run_folder
from repro.spec import Run
from repro.store import has_record
from slurm.children import ask_for_signal, die_with_parent

if TYPE_CHECKING:
    from slurm.job import Job

DEAF_SHELL = 'trap "" USR2 TERM INT; exec "$0" "$@"'
DEAF = dict.fromkeys(("PET_SIGNALS_TO_HANDLE", "TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGHUP")


def run_ranks(job: Job, stop: Callable[[], bool]) -> bool:
    """Does a run with `job.num_processes` ranks; gives whether it ended (False: it stopped at a checkpoint as asked).

    RuntimeError when a rank failed; its traceback is in the log.
    """
    run = Run(**job.run)
    folder = run_folder(run_id(run))
    wish, described = folder / "stop", folder / "ranks.json"
    wish.unlink(missing_ok=True)
    described.write_text(json.dumps(asdict(job)))
    command = [sys.executable, "-u", "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(job.num_processes), "-m", "slurm.ranks", str(described)]
    paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    parent = subprocess.Popen(
        ["bash", "-c", DEAF_SHELL, *command],
        env=os.environ | DEAF | {"PYTHONPATH": paths},
        preexec_fn=partial(ask_for_signal, signal.SIGKILL),  # its ranks then get SIGTERM, and write their checkpoint
    )
    try:
        while parent.poll() is None:
            if stop():
                wish.touch()
            time.sleep(0.2)
    finally:
        parent.kill()  # nothing when it has ended; else the ranks follow, since they die with their parent
        parent.wait()
        wish.unlink(missing_ok=True)
    if parent.returncode != 0 and not stop():
        raise RuntimeError(f"one of {job.num_processes} processes failed (status {parent.returncode}); see the log")
    return has_record(local_records(), run)


def main() -> int:
    """Is one rank, started by torchrun; gives the exit status."""
    from repro.train.loop import Interrupted
    from slurm.job import Stop, listening, named, say

    die_with_parent(os.getppid())
    described = Path(sys.argv[1])
    job, wish, stop = json.loads(described.read_text()), described.with_name("stop"), Stop()
    with listening(stop):
        try:
            named(job["execute"])(Run(**job["run"]), should_stop=lambda: stop() or wish.exists(), report=say)
        except Interrupted as interruption:
            say(f"rank {os.environ['RANK']} stopped: {interruption}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
