"""Check a plan against the limits of a profile: time and memory of stages, memory and requeues of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from repro.planning.plan import SHARDED_KINDS, Plan, make_plan
from repro.planning.stage_cost import StageCost
from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.paths import get_local_records
from repro.text import GIB, count_noun, format_bytes, format_seconds
from slurm.local import count_gpus_per_run
from slurm.profiles import Profile, count_shards

# Phase of a training run that holds pair data in each process.
TRAINING_START = "start"


def make_profile_plan(runs: Sequence[Run], profile: Profile, gpus: Sequence[str] = ()) -> Plan:
    """Return the plan of runs with the resources of a profile. `gpus` are those of this machine, for a local profile."""
    return make_plan(
        runs,
        [get_local_records()],
        num_gpus=count_gpus_per_run(profile, gpus) * profile.num_nodes,
        num_processes=profile.num_processes * profile.num_nodes,
        num_at_once=profile.num_at_once or 1,
        num_shards=lambda run: count_shards(run, profile),
    )


def list_exceeded_limits(plan: Plan, profile: Profile) -> Iterator[str]:
    """Yield one line for each requirement of a plan that a Slurm profile does not meet."""
    if profile.on != "slurm":
        return
    for cost in plan.stage_costs:
        list_missing = _list_missing_at_start if cost.kind == TRAINING_START else _list_missing_of_stage
        if missing := list(list_missing(cost, plan, profile)):
            yield f"too much for profile {profile.name}: {cost.name} of {cost.pairs}: {', '.join(missing)}"
    yield from _describe_requeues(plan, profile)


def _list_missing_of_stage(cost: StageCost, plan: Plan, profile: Profile) -> Iterator[str]:
    """Yield the unmet requirements of a stage. A killed stage starts over, so its time limit must suffice in one go."""
    shards = plan.most_shards if cost.kind in SHARDED_KINDS else 1
    minutes = profile.stage_time_minutes or profile.time_minutes
    if 60 * cost.hours / shards > minutes:
        needed = format_seconds(3600 * cost.hours / shards)
        if shards > 1:
            needed += f" in each of {shards} shards"
        yield f"{needed}, and a stage has {format_seconds(60 * minutes)}"
    memory_gb = profile.stage_memory_gb or profile.memory_gb
    if memory_gb and cost.memory_bytes > memory_gb * GIB:
        yield f"{format_bytes(cost.memory_bytes)} of memory, and a stage has {memory_gb:g} GiB"
    if cost.on == "GPU" and not profile.stage_gpus:
        yield "estimated for a GPU, and a stage has none"


def _list_missing_at_start(cost: StageCost, plan: Plan, profile: Profile) -> Iterator[str]:
    total_bytes = cost.memory_bytes * profile.num_processes
    if profile.memory_gb and total_bytes > profile.memory_gb * GIB:
        yield f"{format_bytes(total_bytes)} in {profile.num_processes} processes, and a run has {profile.memory_gb:g} GiB"


def _describe_requeues(plan: Plan, profile: Profile) -> Iterator[str]:
    """Yield the expected interruptions of the longest run. They are not failures as long as the run makes progress."""
    seconds_by_run = {run: estimate.seconds for run, estimate in zip(plan.missing, plan.estimates, strict=True)}
    long_runs = [run for run, seconds in seconds_by_run.items() if seconds > 60 * profile.time_minutes]
    if long_runs:
        longest = max(long_runs, key=seconds_by_run.__getitem__)
        num_jobs = math.ceil(seconds_by_run[longest] / (60 * profile.time_minutes))
        limit = format_seconds(60 * profile.time_minutes)
        runs = count_noun(len(long_runs), "run")
        yield f"{runs} above the {limit} of {profile.name}, resumed from checkpoints: {run_id(longest)} needs {num_jobs} jobs"
    # On GPUs the plan covers GPU memory instead.
    if not plan.num_gpus and profile.memory_gb:
        peak_bytes = max((estimate.memory_bytes for estimate in plan.estimates), default=0) * profile.num_processes
        if peak_bytes > profile.memory_gb * GIB:
            needed = format_bytes(peak_bytes)
            yield f"too much for profile {profile.name}: {needed} of memory, and a run has {profile.memory_gb:g} GiB"
