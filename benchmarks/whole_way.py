"""Take the paper's way from its data to a record, undisturbed and with every phase killed once, and compare the numbers.

    python -m benchmarks.whole_way --num-pairs 1000000 --write benchmarks/whole_way.json

Data and models are generated in the hub's formats at tiny size: a copy of BGE's training data with a file per domain, nine
BEIR folders, a T5 encoder as GTR and a NomicBERT as the filter. The run is of scale `small` with one layer. `repro launch`
imports, tokenises and embeds in two shards, clusters by domain, packs, trains in two processes, and reranks.

In the second home, all processes of the launch get SIGKILL as soon as a phase has begun, and the same command is given
again. Both records must have the same metrics.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.generated_pairs import generate_blocks
from benchmarks.harness import describe_machine, make_parser, write_rows

if TYPE_CHECKING:
    from repro.spec import Run

NUM_DOMAINS, NUM_DOCUMENTS, NUM_QUERIES = 8, 200, 20
DOCUMENT_WORDS = 12
PROFILE = '[two]\non = "local"\ntasks_per_node = 2\ncpus_per_task = 1\nnum_shards = 2\nnum_at_once = 1\n'
SIZES: dict[str, Any] = {
    "architecture": "contextual",
    "start": "random",
    "num_layers": 1,
    "num_first_stage_layers": 1,
    "hidden_size": 64,
    "num_contexts": 8,
    "sampler": "cluster",
    "cluster_size": 256,
    "cluster_dimensions": 16,
    "batch_size": 64,
    "num_epochs": None,
    "num_steps": 200,
    "num_warmup_steps": 20,
    "sequence_dropout": 0.0,
    "test_contexts": "own+wrong",
    "rerank_depth": 32,
    "corpus": "bge-full-data",
}
HOMES = ("undisturbed", "killed")
STAGES = ("corpus", "tokens", "embeddings", "clusters", "order")
PHASES = (*STAGES, "training", "evaluation")


def write_inputs(folder: Path, num_pairs: int) -> None:
    """Write data, evaluation sets and encoders. Nothing is done if they exist."""
    from benchmarks.one_gpu import save_encoder
    from repro.data.beir import Retrieval, write_beir_folder
    from repro.data.paper.benchmarks import SUITES
    from repro.data.paper.hub import SOURCES

    if (folder / "complete").is_file():
        return
    domains = [*SOURCES["bge-full-data"].domains][:NUM_DOMAINS]
    (folder / "data" / "bge-full-data").mkdir(parents=True)
    for number, block in enumerate(generate_blocks(num_pairs, 0, dict.fromkeys(domains, 1.0), DOCUMENT_WORDS)):
        all_rows = block.to_pylist()
        for domain in domains:
            rows = [row for row in all_rows if row["domain"] == domain]
            table = [{"query": row["query"], "pos": [row["document"]], "neg": [rows[0]["document"]]} for row in rows]
            path = folder / "data" / "bge-full-data" / f"{domain}-{number:05d}-of-{99:05d}.parquet"
            pq.write_table(pa.Table.from_pylist(table), path)
    texts = next(generate_blocks(NUM_DOCUMENTS * len(SUITES["beir"]), 1)).to_pylist()
    for number, name in enumerate(SUITES["beir"]):
        rows = texts[number * NUM_DOCUMENTS : (number + 1) * NUM_DOCUMENTS]
        document_ids = tuple(f"d{row}" for row in range(NUM_DOCUMENTS))
        query_ids = tuple(f"q{row}" for row in range(NUM_QUERIES))
        documents, queries = (tuple(row[side] for row in rows) for side in ("document", "query"))
        judgements = {f"q{row}": {f"d{row}": 1} for row in range(NUM_QUERIES)}
        collection = Retrieval(name, document_ids, documents, query_ids, queries[:NUM_QUERIES], judgements)
        split = "dev" if name == "msmarco" else "test"
        write_beir_folder(folder / "data" / "beir" / name, collection, split=split)
    for name in ("gtr", "nomic"):
        save_encoder(name, folder / name, is_tiny=True)
    (folder / "profiles.toml").write_text(PROFILE)
    (folder / "complete").touch()


def write_run(folder: Path) -> tuple[Path, str]:
    """Write the file of the run, and return it with the id of the run."""
    from repro.spec.identity import run_id

    for home in HOMES:
        # A home stores the names of the encoders that were given as folders.
        os.environ["REPRO_HOME"] = str(folder / home)
        run = make_run(folder)
    path = folder / "run.json"
    path.write_text(json.dumps([asdict(run)]))
    return path, run_id(run)


def make_run(folder: Path) -> Run:
    """Return the run with the generated encoders."""
    from repro.spec import base

    return base("small", surrogate=str(folder / "gtr/encoder"), filter_model=str(folder / "nomic/encoder"), **SIZES)


def make_environment(folder: Path, home: str) -> dict[str, str]:
    """Return the environment of a launch."""
    names = {"REPRO_HOME": home, "REPRO_DATA": "data", "REPRO_PROFILES": "profiles.toml"}
    return os.environ | {name: str(folder / path) for name, path in names.items()} | {"HF_HUB_OFFLINE": "1"}


def start_launch(folder: Path, home: str, runs: Path) -> subprocess.Popen[bytes]:
    """Launch the run. The log is appended to a file next to the home."""
    command = [sys.executable, "-m", "repro", "launch", str(runs), "--scale", "small", "--profile", "two"]
    with (folder / f"{home}.log").open("ab") as log:
        return subprocess.Popen(command, env=make_environment(folder, home), stdout=log, stderr=log)


def has_begun(phase: str, home: Path, run: str) -> bool:
    """Return whether a phase has written something and has not ended."""
    if phase in STAGES:
        stages = home / "stages"
        # a shard is in a folder below its kind
        parts = [*(stages / phase).glob(".*.part"), *(stages / phase).glob("*.shards/.*.part")]
        return any(file.is_file() for part in parts for file in part.rglob("*"))
    if phase == "training":
        return any(path.stat().st_size > 2000 for path in (home / "runs").glob("*/metrics.jsonl"))
    return (home / "runs" / run / "kept").is_dir()


def kill_all(home: Path) -> int:
    """Send SIGKILL to all processes of this home, and return their number. Only these have it in their environment."""
    marker, pids = f"REPRO_HOME={home}".encode(), []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and marker in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def run_with_kills(folder: Path, home: str, runs: Path, run: str) -> Iterator[str]:
    """Launch until the record exists, and yield each phase in which the launch was killed."""
    for phase in PHASES:
        launch = start_launch(folder, home, runs)
        while launch.poll() is None:
            if has_begun(phase, folder / home, run):
                num_killed = kill_all(folder / home)
                launch.wait()
                print(f"killed {num_killed} processes in {phase}", flush=True)
                yield phase
                break
            time.sleep(0.02)
    start_launch(folder, home, runs).wait()


def read_metrics(folder: Path, home: str, run: str) -> dict[str, float]:
    """Return the metrics of a record, without those of speed."""
    record = json.loads((folder / home / "records" / f"{run}.json").read_text())
    return {name: value for name, value in record["metrics"].items() if "second" not in name and "memory" not in name}


def main() -> None:
    """Run both ways, compare them and update the record."""
    parser = make_parser(__doc__, num_pairs=30_000)
    parser.add_argument("--home", type=Path, default=Path("/tmp/whole-way"), help="folder of everything, not removed")
    options: argparse.Namespace = parser.parse_args()
    folder = options.home / str(options.num_pairs)
    write_inputs(folder, options.num_pairs)
    runs, run = write_run(folder)
    started = time.monotonic()
    if start_launch(folder, "undisturbed", runs).wait():
        raise SystemExit(f"the launch failed, see {folder / 'undisturbed.log'}")
    seconds = time.monotonic() - started
    killed = list(run_with_kills(folder, "killed", runs, run))
    expected, found = (read_metrics(folder, home, run) for home in ("undisturbed", "killed"))
    different = [name for name in expected if expected[name] != found.get(name)]
    row = {
        "num_pairs": options.num_pairs,
        "seconds_undisturbed": round(seconds),
        "seconds_with_kills": round(time.monotonic() - started - seconds),
        "killed_in": killed,
        "num_metrics": len(expected),
        "num_different": len(different),
    }
    print(row, different[:5])
    write_rows(options.write, [row | describe_machine()], ("num_pairs",))
    if different or len(killed) < len(PHASES):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
