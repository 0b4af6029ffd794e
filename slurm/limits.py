"""Plan runs with the resources of a profile, and name its limits that they exceed: time and memory of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from repro.planning.plan import Plan, make_plan
from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.paths import get_local_records
from repro.text import GIB, count_noun, format_bytes, format_seconds
from slurm.local import count_gpus_per_run
from slurm.profiles import Profile


def make_profile_plan(runs: Sequence[Run], profile: Profile, gpus: Sequence[str] = ()) -> Plan:
    """Return the plan of runs with the resources of a profile. `gpus` are those of this machine, for a local profile."""
    return make_plan(
        runs,
        [get_local_records()],
        num_gpus=count_gpus_per_run(profile, gpus) * profile.num_nodes,
        num_processes=profile.num_processes * profile.num_nodes,
        num_at_once=profile.num_at_once or 1,
    )


def list_exceeded_limits(plan: Plan, profile: Profile) -> Iterator[str]:
    """Yield one line for each limit of a Slurm profile that a run exceeds.

    Interruptions are not failures as long as the run makes progress.
    """
    if profile.on != "slurm":
        return
    runs = zip(plan.missing, plan.estimates, strict=True)
    seconds_by_run = {run: estimate.seconds for run, estimate in runs if estimate.seconds is not None}
    long_runs = [run for run, seconds in seconds_by_run.items() if seconds > 60 * profile.time_minutes]
    if long_runs:
        longest = max(long_runs, key=seconds_by_run.__getitem__)
        num_jobs = math.ceil(seconds_by_run[longest] / (60 * profile.time_minutes))
        limit = format_seconds(60 * profile.time_minutes)
        count = count_noun(len(long_runs), "run")
        yield f"{count} above the {limit} of {profile.name}, resumed from checkpoints: {run_id(longest)} needs {num_jobs} jobs"
    # On GPUs the plan covers GPU memory instead.
    if not plan.num_gpus and profile.memory_gb:
        peak_bytes = max((estimate.memory_bytes for estimate in plan.estimates), default=0) * profile.num_processes
        if peak_bytes > profile.memory_gb * GIB:
            needed = format_bytes(peak_bytes)
            yield f"too much for profile {profile.name}: {needed} of memory, and a run has {profile.memory_gb:g} GiB"
