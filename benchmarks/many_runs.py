"""Time the read-only verbs on a large sweep: status, show, check and report, each in a separate process.

    python benchmarks/many_runs.py --num-runs 10000 --num-records 5000

Records are mixtures of two published ones that differ in their seed, stored under unused seeds. Their means are the
mixtures' means. They replace the published records of `check` and `report`, and this machine's records of `status` and
`show`. The sweep consists of those runs and as many that failed or never started. The first `report` reuses the
verdicts of `check` and draws its pictures. The second reuses these as well. Works in a temporary folder. Each verb must
take less than ten seconds and 500 MB. Otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import count, cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from repro.records.digests import write_digests
from repro.records.store import Record, read_records, write_record
from repro.spec import Run, get_first_phase, is_random
from repro.spec.identity import get_training_id, run_id
from repro.spec.registry import experiments
from repro.statistics.contrasts import drop_seed
from repro.storage.paths import get_local_records, get_published_records, home
from slurm.states import JobState, get_run_item
from slurm.sweep import Submission

SCALE = "desk"
MOST_SECONDS, MOST_MEBIBYTES = 10.0, 500.0
CHILD, RECORDED = "--as-if-published", "recorded.json"


def main() -> int:
    """Create the runs and the records, time each verb in a separate process, and print whether each meets its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-runs", type=int, default=10_000)
    parser.add_argument("--num-records", type=int, default=5_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REPRO_HOME"] = folder
        sweep = Path(folder, "runs.json")
        # in a separate process, because a child's peak memory starts with its parent's
        made = get_context("spawn").Process(target=prepare, args=(sweep, asked.num_runs, asked.num_records))
        made.start()
        made.join()
        print(f"{asked.num_runs} runs, {asked.num_records} records", flush=True)
        report = ["report", "--scale", SCALE, "--out", f"{folder}/r.html"]
        verbs = (["status", str(sweep)], ["status", str(sweep), "--json"], ["show", str(sweep)],
                 ["check", "--scale", SCALE], report, report)  # fmt: skip
        kept = [timed(words) for words in verbs]
    return 0 if all(kept) else 1


def timed(words: list[str]) -> bool:
    """Run a verb and print wall seconds, processor seconds and peak memory. Return whether it meets the limits."""
    folder = home() / ("published" if words[0] in ("check", "report") else "")
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, __file__, CHILD, *words],
        env={**os.environ, "REPRO_HOME": str(folder)},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds, mebibytes = time.monotonic() - started, used.ru_maxrss / 1024
    name = " ".join(word for word in words if "/" not in word)
    spent = used.ru_utime + used.ru_stime
    print(
        f"{name:<30} {seconds:5.1f} s {spent:5.1f} s of CPU {mebibytes:5.0f} MiB, exit {child.returncode}", flush=True
    )
    return child.returncode == 0 and seconds <= MOST_SECONDS and mebibytes <= MOST_MEBIBYTES


# ---- the test data


def prepare(sweep: Path, num_runs: int, num_records: int) -> None:
    """Write a file of runs, and the states and records of a half-finished sweep of them."""
    os.fsync = lambda descriptor: None  # nothing here has to be durable
    runs = [write_mixture(*one).run for one in islice(mixtures(), num_records)]
    write_digests(get_local_records())
    published = home() / "published" / "as-if-published"
    published.parent.mkdir()
    published.symlink_to(get_local_records(), target_is_directory=True)
    published.with_name(RECORDED).write_text(json.dumps([asdict(run) for run in runs]))
    last = max(run.seed for run in runs)
    varied = cycle(run for run in dict.fromkeys(runs) if is_random(run))
    others = [replace(next(varied), seed=last + number) for number in range(1, num_runs - len(runs) + 1)]
    for run in others[::2]:
        get_run_item(run).write(JobState(state="failed", reason="CUDA error: an illegal memory access"))
    sweep.write_text(json.dumps([asdict(run) for run in (*runs, *others)]))
    names = {run_id(run): run for run in (*runs, *others)}
    Submission(
        on="local", sweep="many", profile="here", queue=str(home() / "sweeps" / "many" / "queue"),
        jobs={name: {"log": f"{name}.log", "script": ""} for name in names},
        runs={name: asdict(run) for name, run in names.items()},
        needs=dict.fromkeys(names, ("tokens/0123456789ab", "clusters/0123456789ab")),
    ).write()  # fmt: skip


def mixtures() -> Iterator[tuple[Run, Record, Record]]:
    """Yield every run with a record under one new seed after another, together with the records to mix."""
    systems: defaultdict[Run, dict[Run, Record]] = defaultdict(dict)
    for record in read_records(get_published_records()):
        if record.run.scale == SCALE:
            systems[replace(record.run, seed=0)][record.run] = record
    pairs = [tuple(islice(cycle(found.values()), 2)) for found in systems.values()]
    yield from ((first.run, first, first) for first, _ in pairs)
    for seed in count(100):
        yield from ((replace(a.run, seed=seed), a, b) for a, b in pairs if a is not b)


def write_mixture(run: Run, first: Record, second: Record) -> Record:
    """Write the record of a run in which every number interpolates those of two records with the same weight."""
    part = (run.seed * 0.618) % 1
    arrays = {
        name: (1 - part) * values + part * second.arrays[name]
        for name, values in first.arrays.items()
        if name in second.arrays and values.shape == second.arrays[name].shape
    }
    metrics = {
        name: (1 - part) * value + part * second.metrics[name]
        for name, value in first.metrics.items()
        if name in second.metrics
    }
    told: dict[str, Any] = dict(first.provenance)
    if (phase := get_first_phase(run)) is not None and told.get("training"):
        told["training"] = told["training"] | {"first_phase": get_training_id(phase)}
    return write_record(
        get_local_records(), run, metrics=metrics, arrays=arrays, provenance=told, exhibits=first.exhibits
    )


# ---- the timed process


def as_if_published() -> None:
    """Run a verb that treats this home's records as published, with experiments that request their runs."""
    from repro.cli.main import main as verbs
    from repro.report import artefacts

    folder = home() / "as-if-published"
    if folder.exists():
        artefacts.RECORDS = {**artefacts.RECORDS, "published": lambda: folder}
        extend_experiments(folder)
    sys.argv = ["repro", *sys.argv[2:]]
    verbs()


def extend_experiments(folder: Path) -> None:
    """Extend every experiment by the seeds of its runs that have records next to a folder's list."""
    seeds: defaultdict[Run, list[Run]] = defaultdict(list)
    for values in json.loads(folder.with_name(RECORDED).read_text()):
        run = Run(**values)
        seeds[drop_seed(run)].append(run)
    for experiment in experiments():
        declared = experiment.runs(SCALE)
        found = [run for one in declared for run in seeds[drop_seed(one)]]
        object.__setattr__(experiment, "runs", lambda scale, found=(*declared, *found): tuple(dict.fromkeys(found)))


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        as_if_published()
    sys.exit(main())
