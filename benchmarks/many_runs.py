"""Measure `status` and `show` on a large sweep, each in its own process.

    python -m benchmarks.many_runs --num-runs 10000 --num-records 5000

Each record is a mixture of two published records that differ in their seed, stored under an unused seed. The sweep has
these runs and as many others, half of which failed. Everything is written to a temporary folder. The exit code is 1 if a
verb needs more than ten seconds or 500 MiB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import count, cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.harness import make_parser, measure_process
from repro.records.store import Record, read_records, write_record
from repro.spec import Run, depends_on_seed, get_first_phase
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import CHECKOUT, get_home, get_local_records, get_published_records
from slurm.job import JobState, get_run_item
from slurm.sweep import Submission

SCALE = "desk"
MAX_SECONDS, MAX_MEBIBYTES = 10.0, 500.0


def main() -> int:
    """Write the runs and the records, measure each verb, and return the exit code."""
    parser = make_parser(__doc__, has_record=False, num_runs=10_000, num_records=5_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REPRO_HOME"] = folder
        sweep = Path(folder, "runs.json")
        # In a separate process, because the peak memory of a child starts at that of its parent.
        writer = get_context("spawn").Process(target=write_sweep, args=(sweep, options.num_runs, options.num_records))
        writer.start()
        writer.join()
        print(f"{options.num_runs} runs, {options.num_records} records", flush=True)
        verbs = (["status", str(sweep)], ["status", str(sweep), "--json"], ["show", str(sweep)])
        meets_limits = [measure_verb(arguments) for arguments in verbs]
    return 0 if all(meets_limits) else 1


def measure_verb(arguments: list[str]) -> bool:
    """Run a verb and print its seconds, processor seconds and peak memory. Return whether it meets the limits."""
    cost = measure_process([sys.executable, "-m", "repro", *arguments], cwd=CHECKOUT, stdout=subprocess.DEVNULL)
    mebibytes = cost.peak_bytes / 2**20
    name = " ".join(argument for argument in arguments if "/" not in argument)
    print(f"{name:<30} {cost.seconds:5.1f} s {cost.cpu_seconds:5.1f} s of CPU {mebibytes:5.0f} MiB, "
          f"exit {cost.exit_code}", flush=True)  # fmt: skip
    return cost.exit_code == 0 and cost.seconds <= MAX_SECONDS and mebibytes <= MAX_MEBIBYTES


# ---- the test data


def write_sweep(sweep: Path, num_runs: int, num_records: int) -> None:
    """Write a file of runs, and the states and records of a half-finished sweep of them."""
    # Nothing here must survive a power failure, and thousands of flushes would take minutes.
    os.fsync = lambda fd: None
    runs = [write_mixture(*mixture).run for mixture in islice(generate_mixtures(), num_records)]
    last_seed = max(run.seed for run in runs)
    seeded = cycle(run for run in dict.fromkeys(runs) if depends_on_seed(run))
    others = [replace(next(seeded), seed=last_seed + offset) for offset in range(1, num_runs - len(runs) + 1)]
    for run in others[::2]:
        get_run_item(run).write(JobState(state="failed", reason="CUDA error: an illegal memory access"))
    sweep.write_text(json.dumps([asdict(run) for run in (*runs, *others)]))
    names = {run_id(run): run for run in (*runs, *others)}
    Submission(
        on="local", sweep="many", queue=str(get_home() / "sweeps" / "many" / "queue"),
        jobs={name: {"log": f"{name}.log", "script": ""} for name in names},
        runs={name: asdict(run) for name, run in names.items()},
        needs=dict.fromkeys(names, ("tokens/0123456789ab", "clusters/0123456789ab")),
    ).write()  # fmt: skip


def generate_mixtures() -> Iterator[tuple[Run, Record, Record]]:
    """Yield runs with the two records to mix: every recorded run first, then the same runs with new seeds."""
    systems: defaultdict[Run, dict[Run, Record]] = defaultdict(dict)
    for record in read_records(get_published_records()):
        if record.run.scale == SCALE:
            systems[replace(record.run, seed=0)][record.run] = record
    pairs = [tuple(islice(cycle(recorded.values()), 2)) for recorded in systems.values()]
    yield from ((first.run, first, first) for first, _ in pairs)
    for seed in count(100):
        yield from ((replace(first.run, seed=seed), first, second) for first, second in pairs if first is not second)


def write_mixture(run: Run, first: Record, second: Record) -> Record:
    """Write the record of a run by interpolating two records.

    All numbers have the same weight, so the recorded means stay the means of the arrays, which `check` recomputes.
    """
    weight = (run.seed * 0.618) % 1
    arrays = {
        name: (1 - weight) * values + weight * second.arrays[name]
        for name, values in first.arrays.items()
        if name in second.arrays and values.shape == second.arrays[name].shape
    }
    metrics = {
        name: (1 - weight) * value + weight * second.metrics[name]
        for name, value in first.metrics.items()
        if name in second.metrics
    }
    provenance: dict[str, Any] = dict(first.provenance)
    if (phase := get_first_phase(run)) is not None and provenance.get("training"):
        provenance["training"] = provenance["training"] | {"first_phase": get_training_id(phase)}
    return write_record(
        get_local_records(), run, metrics=metrics, arrays=arrays, provenance=provenance, exhibits=first.exhibits
    )


if __name__ == "__main__":
    sys.exit(main())
