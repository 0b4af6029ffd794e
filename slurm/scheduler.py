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
JOB_VARIABLES = ("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_", "PMI_", "PMIX_")
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
SITE_VARIABLES = (
    "SLURM_CONF",
    "SLURM_CLUSTERS",
    "SLURM_JWT",
    "SLURM_SACK_SOCKET",
    "SLURM_TIME_FORMAT",
    "SLURM_EXIT_ERROR",
)
"""Variables about Slurm in general rather than one job. Its commands need them."""


@dataclass(frozen=True)
class Queued:
    """A job in the queue: its state (PENDING, RUNNING, COMPLETING, …), the scheduler's reason, and its user."""

    state: str
    reason: str
    user: str = ""


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
    text = run_command(
        "squeue", f"--jobs={','.join([*arrays, arrays[0]])}", "--array", "--noheader", "--format=%i|%T|%u|%r"
    )
    if text is None:
        return None
    # At most three splits, because a reason may contain the separator.
    rows = [line.split("|", 3) for line in text.splitlines() if line.count("|") >= 3]
    return {id.strip(): Queued(state.strip(), reason.strip(), user.strip()) for id, state, user, reason in rows}


def fetch_job_outcome(job_id: str) -> str | None:
    """Return one line on a finished job (state, reason, exit code), or None if Slurm has no entry for it."""
    # The controller forgets a job after some minutes. The accounting, if there is one, keeps it.
    fields = _fetch_job_fields(job_id)
    if fields:
        names = ("JobState", "Reason", "ExitCode", "Restarts", "TimeLimit", "Dependency")
        return ", ".join(f"{name}={fields[name]}" for name in names if name in fields)
    accounted = run_command(
        "sacct", "--jobs", job_id, "--noheader", "--parsable2", "--format=JobID,State,ExitCode,Reason"
    )
    lines = [line for line in (accounted or "").splitlines() if line.split("|")[0] == job_id]
    return lines[0] if lines else None


def _fetch_job_fields(job_id: str) -> dict[str, str]:
    """Return what the controller reports on a job, by name. Empty if it does not know the job or does not respond."""
    return dict(re.findall(r"(\w+)=(\S*)", run_command("scontrol", "show", "job", "--oneliner", job_id) or ""))


def explain_stop_signal(job_id: str) -> str:
    """Return why this job received SIGTERM: "preempted", "requeued", "cancelled", or "" for another cause.

    While a job is ending, Slurm shows the same state for all of these. Other fields tell them apart.
    """
    fields = _fetch_job_fields(job_id)
    if fields.get("PreemptTime", "None") not in ("None", "N/A", "Unknown"):
        return "preempted"
    # Slurm counts a requeue before it stops the job. Inside the job, the variable still has the old count.
    if int(fields.get("Restarts", 0)) > int(os.environ.get("SLURM_RESTART_COUNT", 0)):
        return "requeued"
    is_ending = fields.get("JobState") in ("COMPLETING", "CANCELLED")
    # A job at its time limit shows the same states, but has used all of its time.
    is_at_limit = is_ending and _parse_duration(fields["RunTime"]) >= _parse_duration(fields["TimeLimit"])
    return "cancelled" if is_ending and not is_at_limit else ""


def _parse_duration(span: str) -> float:
    """Return the seconds in Slurm's format [days-]hours:minutes:seconds, infinity for UNLIMITED."""
    days, _, clock = span.rpartition("-")
    if not re.fullmatch(r"[\d:]+", clock):
        return float("inf")
    hours, minutes, seconds = map(int, clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


@contextmanager
def hide_enclosing_job() -> Iterator[None]:
    """Hide the environment of the enclosing Slurm job, if any.

    `sbatch` would pass them on. Jobs submitted from inside an array task would then take its task number for their own,
    and `srun` would find two contradictory memory settings. Outside of a job nothing is hidden.
    """
    is_inside = "SLURM_JOB_ID" in os.environ
    names = [name for name in os.environ if name.startswith(JOB_VARIABLES) and name not in SITE_VARIABLES]
    if "SLURM_JOB_GPUS" in names or "SLURM_STEP_GPUS" in names:
        names += [name for name in GPU_VARIABLES if name in os.environ]
    removed = {name: os.environ.pop(name) for name in names} if is_inside else {}
    try:
        yield
    finally:
        os.environ.update(removed)


def cancel(job_ids: Iterable[str]) -> None:
    """Cancel jobs. Ids of jobs that have already ended are ignored."""
    unique_ids = sorted(set(job_ids))
    if unique_ids:
        run_command("scancel", *unique_ids)
