"""Times what a large sweep asks of the verbs that look: reading a file of runs, its status, reading its records.

    python benchmarks/many_runs.py --num-runs 10000 --num-records 5000

Works in a folder of its own, which is removed. Promised: each under ten seconds and 500 MB; seconds, those of the
processor, and the largest memory of the process so far are told after each step.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MEBI = 2**20


def timed(what: str, action: Callable[[], Any]) -> Any:
    """Return what an action gives; print how long it took."""
    started, spent = time.monotonic(), time.process_time()
    found = action()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEBI
    seconds, own = time.monotonic() - started, time.process_time() - spent
    print(f"{what}: {seconds:.1f} s ({own:.1f} s of CPU), {peak:.0f} MiB at most so far", flush=True)
    return found


def main() -> None:
    """Make the runs and the records, and time each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-runs", type=int, default=10_000)
    parser.add_argument("--num-records", type=int, default=5_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["REPRO_HOME"] = home
        measure(Path(home), asked.num_runs, asked.num_records)


def measure(home: Path, num_runs: int, num_records: int) -> None:
    """Time reading runs, telling their status, writing and reading records, and showing their scores."""
    from repro.records.lookup import read_runs
    from repro.records.store import read_records, write_record
    from repro.report.scores import scores_view
    from repro.storage.paths import local_records
    from slurm.status import standings

    path = home / "runs.json"
    path.write_text(json.dumps([{"scale": "desk", "seed": seed} for seed in range(num_runs)]))
    runs = timed(f"read {num_runs} runs", lambda: read_runs(path))
    timed(f"status of {num_runs} runs", lambda: standings(runs))
    values = np.linspace(0, 1, 400, dtype=np.float32)
    suite = {"name": "desk", "datasets": [{"name": "a", "family": "f", "num_queries": 400}]}
    means = {f"desk/{group}/ndcg_at_10": float(values.mean()) for group in ("a", "f", "mean")}
    for run in runs[:num_records]:
        write_record(local_records(), run, metrics=means, arrays={"desk": values}, provenance={"suite": suite})
    timed(f"read {num_records} records", lambda: read_records(local_records()))
    timed(f"scores of {num_records} records", lambda: scores_view(runs[:num_records]))


if __name__ == "__main__":
    main()
