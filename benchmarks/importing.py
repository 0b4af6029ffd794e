"""Measure imported pairs per second by format, on generated pairs, with one core and alternating formats.

    python -m benchmarks.importing --num-pairs 200000 --write benchmarks/importing.json

Every round imports the same pairs from parquet, jsonl, csv and tsv. It fails unless all four give the same bytes. The
result of a format is the median over rounds, in processor seconds, because others may use the machine.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.generated_pairs import write_generated
from benchmarks.kept_rows import keep_rows
from repro.data.own.importing import PAIRS_FILE, import_corpus

ENDINGS = ("parquet", "jsonl", "csv", "tsv")


def sources(folder: Path, num_pairs: int) -> dict[str, Path]:
    """Return a file of the same pairs in every format."""
    found = {ending: folder / f"pairs.{ending}" for ending in ENDINGS}
    for ending in ("parquet", "jsonl", "csv"):
        write_generated(found[ending], num_pairs)
    table = pq.read_table(found["parquet"])
    pyarrow.csv.write_csv(table, found["tsv"], pyarrow.csv.WriteOptions(delimiter="\t"))
    return found


def time_import(source: Path, folder: Path) -> tuple[float, str]:
    """Import a file and return the processor seconds and a digest of the pairs."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        started = time.process_time()
        import_corpus(source, Path(made) / "corpus", name="generated")
        seconds = time.process_time() - started
        return seconds, hashlib.sha256((Path(made) / "corpus" / PAIRS_FILE).read_bytes()).hexdigest()


def main() -> None:
    """Measure, print, and write the rows to a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-pairs", type=int, default=200_000)
    parser.add_argument("--num-rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="the record to put the rows into")
    parser.add_argument("--label", default="now", help="what the rows are called in the record")
    asked = parser.parse_args()
    pa.array(["this loads what pyarrow loads once"])
    seconds: dict[str, list[float]] = {ending: [] for ending in ENDINGS}
    digests = set()
    with tempfile.TemporaryDirectory() as name:
        files = sources(Path(name), asked.num_pairs)
        for _ in range(asked.num_rounds):
            for ending, source in files.items():
                spent, digest = time_import(source, Path(name))
                seconds[ending].append(spent)
                digests.add(digest)
    assert len(digests) == 1, "the formats gave different pairs"
    rows = [
        {
            "label": asked.label,
            "format": ending,
            "num_pairs": asked.num_pairs,
            "cpu_seconds": [round(one, 2) for one in each],
            "pairs_per_cpu_second": round(asked.num_pairs / statistics.median(each)),
            "pairs_sha256": digests.copy().pop(),
            "load_average": round(os.getloadavg()[0], 1),
            "processor": platform.processor() or platform.machine(),
        }
        for ending, each in seconds.items()
    ]
    for row in rows:
        print("{label:<8} {format:<8} {pairs_per_cpu_second:>8} pairs/s of a core {cpu_seconds}".format(**row))
    if asked.write:
        keep_rows(asked.write, rows, ("label", "format"), lambda row: row["label"])


if __name__ == "__main__":
    main()
