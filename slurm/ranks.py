"""A run in several processes: the job starts torchrun, which starts one rank for each GPU, and stays their parent.

A rank hears that it should stop from the job, through a file, or from the scheduler, which signals every process of a
job. Between two steps the ranks agree on it, so that none waits for another that has left. torchrun itself must ignore
the signals: it would end the ranks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from repro.records.store import has_record
from repro.spec import Run
from repro.spec.identity import run_id
from repro.stopping import Interrupted, Stopped
from repro.storage.paths import import_environment, local_records, run_folder
from slurm.hooks import named
from slurm.signals import Stop, ask_for_signal, die_with_parent, listening, say

DEAF_SHELL = 'trap "" USR2 TERM INT; exec "$0" "$@"'
DEAF = dict.fromkeys(("PET_SIGNALS_TO_HANDLE", "TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGHUP")


def run_ranks(job: Mapping[str, Any], stop: Callable[[], bool]) -> bool:
    """Do a run with `num_processes` ranks; return whether it ended (False: it stopped at a checkpoint as asked).

    `job` is the job as plain values.
    RuntimeError when a rank failed; its traceback is in the log.
    """
    run = Run(**job["run"])
    folder = run_folder(run_id(run))
    request, described = folder / "stop", folder / "ranks.json"
    request.unlink(missing_ok=True)
    described.write_text(json.dumps(dict(job)))
    command = [sys.executable, "-u", "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(job["num_processes"]), "-m", "slurm.ranks", str(described)]
    parent = subprocess.Popen(
        ["bash", "-c", DEAF_SHELL, *command],
        env=os.environ | DEAF | import_environment(),
        preexec_fn=partial(ask_for_signal, signal.SIGKILL),  # its ranks then get SIGTERM, and write their checkpoint
    )
    try:
        while parent.poll() is None:
            if stop():
                request.touch()
            time.sleep(0.2)
    finally:
        parent.kill()  # nothing when it has ended; else the ranks follow, since they die with their parent
        parent.wait()
        request.unlink(missing_ok=True)
    if parent.returncode != 0 and not stop():
        raise RuntimeError(f"one of {job['num_processes']} processes failed (status {parent.returncode}); see the log")
    return has_record(local_records(), run)


def main() -> int:
    """Is one rank, started by torchrun; gives the exit status."""
    die_with_parent(os.getppid())
    described = Path(sys.argv[1])
    job, stop = json.loads(described.read_text()), Stop()
    with listening(stop):
        threading.Thread(target=_await_request, args=(described.with_name("stop"),), daemon=True).start()
        try:
            named(job["execute"])(Run(**job["run"]), should_stop=stop, progress=say)
        except (Interrupted, Stopped) as stopped:
            say(f"rank {os.environ['RANK']} stopped: {stopped}")
    return 0


def _await_request(request: Path) -> None:
    """Turn the job's request into the signal that the scheduler would send."""
    while not request.exists():
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
