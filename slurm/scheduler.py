"""Query Slurm for its limits, its queue and the outcome of a job. Functions return None if it does not respond."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

TIMEOUT_SECONDS = 30
# A busy controller answers "Socket timed out". Retrying usually helps.
PAUSES_SECONDS = (1.0, 4.0)
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
SITE_VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK_SOCKET")
"""Variables about Slurm in general rather than one job. Its commands need them."""


@dataclass(frozen=True)
class Queued:
    """A job in the queue: its state (PENDING, RUNNING, COMPLETING, …) and the scheduler's reason."""

    state: str
    reason: str


def run_command(*command: str) -> str | None:
    """Return the output of a Slurm command, or None if it is not installed, fails or times out."""
    if shutil.which(command[0]) is None:
        return None
    for pause in (*PAUSES_SECONDS, None):
        try:
            completed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if completed.returncode == 0:
            return completed.stdout
        if pause is None or "timed out" not in completed.stderr.lower():
            return None
        time.sleep(pause)
    return None


def get_max_array_size() -> int | None:
    """Return the maximum number of tasks per job array (1 without arrays), or None if Slurm does not report it."""
    match = re.search(r"MaxArraySize\s*=\s*(\d+)", run_command("scontrol", "show", "config") or "")
    return max(1, int(match.group(1))) if match else None


def fetch_queue(job_ids: Iterable[str]) -> Mapping[str, Queued] | None:
    """Return those of these jobs that are in the queue, by id (array tasks as 12_3). None if Slurm does not respond.

    Jobs are requested by id, because other users of this folder may have submitted them.
    """
    arrays = sorted({job_id.partition("_")[0] for job_id in job_ids})
    if not arrays:
        return {}
    # A single id that has left the queue would be an error. Of several, Slurm returns those that it knows.
    ids = ",".join([*arrays, arrays[0]])
    text = run_command("squeue", f"--jobs={ids}", "--array", "--noheader", "--format=%i|%T|%r")
    if text is None:
        return None
    # At most two splits, because a reason may contain the separator.
    rows = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    return {id.strip(): Queued(state.strip(), reason.strip()) for id, state, reason in rows}


def fetch_job_outcome(job_id: str) -> str | None:
    """Return one line on a finished job (state, reason, exit code), or None if Slurm has no entry for it."""
    fields = _fetch_job_fields(job_id)
    if fields:
        names = ("JobState", "Reason", "ExitCode", "Restarts", "TimeLimit", "Dependency")
        return ", ".join(f"{name}={fields[name]}" for name in names if name in fields)
    # The controller forgets a job after some minutes. The accounting, if there is one, keeps it.
    columns = "--format=State,ExitCode,Reason"
    accounted = run_command("sacct", "--jobs", job_id, "--allocations", "--noheader", "--parsable2", columns)
    return (accounted or "").partition("\n")[0] or None


def _fetch_job_fields(job_id: str) -> dict[str, str]:
    """Return what the controller reports on a job, by name. Empty if it does not know the job or does not respond."""
    return dict(re.findall(r"(\w+)=(\S*)", run_command("scontrol", "show", "job", "--oneliner", job_id) or ""))


def is_preempted(job_id: str) -> bool:
    """Return whether Slurm stops this job for another one. It then ends with SIGTERM, as after a cancellation."""
    return _fetch_job_fields(job_id).get("PreemptTime", "None") not in ("None", "N/A", "Unknown")


@contextmanager
def hide_enclosing_job() -> Iterator[None]:
    """Hide the environment of the enclosing Slurm job, if any, from the jobs that it submits.

    They would take its task number and its GPUs for their own, and `srun` would find two contradictory memory settings.
    """
    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    # Imported late, because submitit is slow.
    from submitit.helpers import clean_env

    kept = {name: value for name, value in os.environ.items() if name in SITE_VARIABLES or name.startswith("SBATCH_")}
    with clean_env(extra_names=GPU_VARIABLES):
        os.environ.update(kept)
        yield


def cancel(job_ids: Iterable[str]) -> None:
    """Cancel jobs. Ids of jobs that have already ended are ignored."""
    unique_ids = sorted(set(job_ids))
    if unique_ids:
        run_command("scancel", *unique_ids)
