"""Train a recorded run again on another machine or with other threads, and compare the difference with that of seeds.

    python -m benchmarks.repeated_run 5189cd68830d --num-threads 2 --write benchmarks/repeated_run.json
    python -m benchmarks.repeated_run 5189cd68830d --records COPY --write benchmarks/repeated_run.json

Threads and GPUs change the order of sums, so the two scores can differ. The run is repeated in a temporary home that
shares the stages of this one. `--records` reads a folder with the record of another machine instead. The spread is the
standard deviation of the published records that differ only in their seed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.harness import make_parser, write_rows
from repro.records.lookup import resolve_runs
from repro.records.store import Record, read_record
from repro.spec import Run
from repro.spec.identity import run_id
from repro.spec.registry import experiments
from repro.storage.paths import get_home, get_published_records

POINTS = 100


def read_run(folder: Path, run: Run) -> Record:
    """Return the record of a run in a folder."""
    return read_record(folder / f"{run_id(run)}.json")


def get_score(record: Record) -> float:
    """Return the mean NDCG@10 of a recorded run, in points."""
    return POINTS * record.metrics[f"{record.run.suite}/mean/ndcg_at_10"]


def repeat(run: Run, num_threads: int) -> Record:
    """Execute a run in a temporary home and return its record."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stages").symlink_to(get_home() / "stages")
        environment = {**os.environ, "REPRO_HOME": folder, "OMP_NUM_THREADS": str(num_threads)}
        subprocess.run([sys.executable, "-m", "repro", "run", run_id(run)], env=environment, check=True)
        record = read_run(Path(folder) / "records", run)
        # The arrays are read from the folder when they are first used.
        assert record.arrays
        return record


def list_seeds(run: Run) -> list[Run]:
    """Return the declared runs that differ from a run in nothing but the seed and have a published record."""
    declared = {other for experiment in experiments() for other in experiment.runs(run.scale)}
    same = (other for other in declared if replace(other, seed=run.seed) == run)
    return [other for other in same if (get_published_records() / f"{run_id(other)}.json").is_file()]


def main() -> None:
    """Repeat the run, print and store."""
    parser = make_parser(__doc__, num_threads=2)
    parser.add_argument("run", help="id of a run with a published record")
    parser.add_argument("--records", type=Path, help="folder with the record of another machine")
    options = parser.parse_args()
    (run,) = resolve_runs([options.run], "desk")
    again = read_run(options.records, run) if options.records else repeat(run, options.num_threads)
    published = read_run(get_published_records(), run)
    scores = [get_score(read_run(get_published_records(), seed_run)) for seed_run in list_seeds(run)]
    queries = np.abs(again.arrays[run.suite] - published.arrays[run.suite])
    machine = again.provenance["machine"]
    row = {"run": options.run, "device": machine["device"], "num_threads": machine["num_threads"]}
    row |= {"published": round(get_score(published), 3), "again": round(get_score(again), 3)}
    row |= {"difference": round(get_score(again) - get_score(published), 3)}
    row |= {"num_queries": len(queries), "num_queries_that_differ": int((queries > 0).sum())}
    row |= {"num_seeds": len(scores)}
    row |= {"deviation_over_seeds": round(statistics.stdev(scores), 3) if len(scores) > 1 else None}
    print(row, flush=True)
    write_rows(options.write, [row], ("run", "device", "num_threads"))


if __name__ == "__main__":
    main()
