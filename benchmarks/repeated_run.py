"""Train a recorded run again with another number of threads, and compare its score with the spread over seeds.

    python -m benchmarks.repeated_run 5189cd68830d --num-threads 2 --write benchmarks/repeated_run.json

Threads change the order of sums, so the two scores differ slightly. The run is repeated in a temporary home that shares
the stages of this one. The spread is the standard deviation of the published records that differ only in their seed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.harness import describe_machine, make_parser, write_rows
from repro.records.lookup import resolve_runs
from repro.records.store import read_record
from repro.spec import Run
from repro.spec.identity import run_id
from repro.spec.registry import experiments
from repro.storage.paths import get_home, get_published_records

POINTS = 100


def read_score(folder: Path, run: Run) -> float:
    """Return the mean NDCG@10 of a recorded run, in points."""
    return POINTS * read_record(folder / f"{run_id(run)}.json").metrics[f"{run.suite}/mean/ndcg_at_10"]


def list_seeds(run: Run) -> list[Run]:
    """Return the declared runs that differ from a run in nothing but the seed and have a published record."""
    declared = {other for experiment in experiments() for other in experiment.runs(run.scale)}
    same = (other for other in declared if replace(other, seed=run.seed) == run)
    return [other for other in same if (get_published_records() / f"{run_id(other)}.json").is_file()]


def main() -> None:
    """Repeat the run, print and store."""
    parser = make_parser(__doc__, num_threads=2)
    parser.add_argument("run", help="id of a run with a published record")
    options = parser.parse_args()
    (run,) = resolve_runs([options.run], "desk")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stages").symlink_to(get_home() / "stages")
        environment = {**os.environ, "REPRO_HOME": folder, "OMP_NUM_THREADS": str(options.num_threads)}
        subprocess.run([sys.executable, "-m", "repro", "run", options.run], env=environment, check=True)
        repeated = read_score(Path(folder) / "records", run)
    scores = [read_score(get_published_records(), seed_run) for seed_run in list_seeds(run)]
    published = read_score(get_published_records(), run)
    row = {"run": options.run, "num_threads": options.num_threads, "published": round(published, 3)}
    row |= {"again": round(repeated, 3), "difference": round(repeated - published, 3), "num_seeds": len(scores)}
    row |= {"deviation_over_seeds": round(statistics.stdev(scores), 3) if len(scores) > 1 else None}
    print(row | describe_machine(), flush=True)
    write_rows(options.write, [row | describe_machine()], ("run", "num_threads"))


if __name__ == "__main__":
    main()
