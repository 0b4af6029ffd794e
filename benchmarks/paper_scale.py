"""Measure time and peak memory of every stage by number of generated pairs, each in its own process.

    python -m benchmarks.paper_scale --num-pairs 1000000 --write benchmarks/paper_scale.json

The pairs are a generated copy of the paper's unsupervised data in a public layout (`--layout`).

    corpus      import the copy, one process per core
    selection, tokens, embeddings, keys, clusters, order
                the stages of a run (word vectors, keys of document texts, two epochs of batches)
    start       everything before the first training step, and the data of one step
    sampler     open the stored batches of both epochs
    steps       train twenty steps
    tour        order 20,000 random centroids of 256 dimensions

`--blank` measures readers at sizes that would take hours to build: it writes stages with random content and measures
`start` and `sampler`. Peak memory is ru_maxrss of the process, including mapped pages. On a shared machine compare
processor seconds. The load average is in the record.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.generated_pairs import DOCUMENT_WORDS, LAYOUTS, write_in_child
from benchmarks.harness import describe_machine, make_parser, measure_process, write_rows

if TYPE_CHECKING:
    from repro.spec import Run

NAME = "nomic-unsupervised"
Result = dict[str, Any] | None
"""Numbers of a step, in addition to its time and memory."""


def make_data_folder(options: argparse.Namespace) -> Path:
    """Return the folder of local copies with the generated one."""
    return Path(options.home) / f"{options.layout}-{options.num_pairs}-{options.document_words}"


def make_run(options: argparse.Namespace) -> Run:
    """Return a contextual run of twenty steps on the copy, evaluated under in-corpus context only."""
    from repro.spec import base

    changes = {"suite": "planted", "num_pairs": None, "architecture": "contextual", "test_contexts": "own"}
    run = base("desk", corpus=NAME, domain_column="source", **changes)
    run = replace(run, batch_size=512, sampler="cluster", packing="greedy", cluster_size=options.cluster_size)
    return replace(run, filter="surrogate", num_steps=20, num_warmup_steps=2)


def declare_rows(num_rows: int) -> None:
    """Declare that the paper's data has this number of rows. Otherwise its copy is refused."""
    from repro.data.paper import hub

    declared = replace(hub.SOURCES[NAME], num_rows=num_rows)
    hub.SOURCES = {**hub.SOURCES, NAME: declared}


# ---- the measured steps, each called in its own process


def make_stage_step(name: str) -> Callable[[argparse.Namespace], Result]:
    """Return a function that builds one stage. It exits with an error if the stage exists or lacks its inputs."""

    def build(options: argparse.Namespace) -> Result:
        from repro.pipeline.stages import StageGraph

        stage = getattr(StageGraph(make_run(options)), name)
        if stage.is_built:
            raise SystemExit(f"{name} already exists: remove {stage.path}, or choose another --home")
        # Building the inputs here would count their time and memory for this stage.
        missing = [needed.title for needed in stage.needs if not needed.is_built]
        if missing:
            raise SystemExit(f"{name} needs {', '.join(missing)}: add these steps before it")
        stage.build()
        size = sum(path.stat().st_size for path in stage.path.rglob("*") if path.is_file())
        return {"bytes_per_pair": round(size / options.num_pairs, 1)}

    return build


def start_training(options: argparse.Namespace) -> Result:
    """Execute everything before the first training step, and prepare the data of one step."""
    from repro.pipeline.inputs import Inputs
    from repro.spec.identity import get_training_id
    from repro.storage.paths import run_folder
    from repro.train.feed import feed_batch, step_batches
    from repro.train.trainer import prepare_training

    started = time.monotonic()
    inputs = Inputs(make_run(options))
    inputs.build(print)
    folder = run_folder(get_training_id(inputs.run))
    _, data, _, _ = prepare_training(inputs, folder, lambda: False, print)
    first = step_batches(data.batches, 0, 1)[0]
    feed_batch(data, first, seed=0, num_contexts=16, is_shared=False)
    return {"seconds_after_imports": round(time.monotonic() - started, 1)}


def sample_batches(options: argparse.Namespace) -> Result:
    """Read a batch of each of two epochs."""
    from repro.pipeline.inputs import Inputs
    from repro.train.setup import build_sampler

    batches = build_sampler(Inputs(make_run(options)))
    for step in (0, 1):
        batches.at(step)
    return None


def train_steps(options: argparse.Namespace) -> Result:
    """Train twenty steps of the contextual model."""
    from repro.pipeline.inputs import Inputs
    from repro.train.trainer import train_run

    inputs = Inputs(make_run(options))
    inputs.build(print)
    train_run(inputs)
    return None


def order_clusters(options: argparse.Namespace) -> Result:
    """Visit 20,000 random centroids, as an epoch does in each domain."""
    from repro.batches.pack import greedy_tour

    centroids_KD = np.random.default_rng(0).standard_normal((20_000, 256), dtype=np.float32)
    started = time.process_time()
    greedy_tour(centroids_KD, 0)
    return {"num_clusters": len(centroids_KD), "tour_cpu_seconds": round(time.process_time() - started, 1)}


STAGES = ("corpus", "selection", "tokens", "embeddings", "keys", "clusters", "order")
STEPS: dict[str, Callable[[argparse.Namespace], Result]] = {
    **{name: make_stage_step(name) for name in STAGES},
    "start": start_training,
    "sampler": sample_batches,
    "steps": train_steps,
    "tour": order_clusters,
}
READERS = ("order", "start", "sampler")
"""Steps that also work on stages with random content."""


# ---- stages with random content


NUM_DOMAINS, WIDTH, NUM_WORDS = 64, 128, 30_000
NUM_TOKENS = {"query": 10, "document": 36}
BLOCK = 65_536


def write_blank_stages(options: argparse.Namespace) -> None:
    """Write all inputs of a run with random content: corpus, selection, tokens, embeddings, keys and clusters.

    Sizes, types and files are those of real stages: one-letter texts, 10 and 36 tokens, vectors of 128 zeros in sparse
    files, distinct keys, and clusters of the requested size.
    """
    from repro.data.tokens import BOUNDS_FILE
    from repro.pipeline.stages import KEYS_FILE, SIDES, StageGraph
    from repro.storage.arrays import ArrayWriter, iter_blocks
    from repro.storage.digests import hash_folder, hash_samples
    from repro.storage.stages import STAGE_FILE, Stage

    num_pairs = options.num_pairs
    # the copy must exist, and is not read
    path = make_data_folder(options) / NAME / "train.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"blank")
    graph, rng = StageGraph(make_run(options)), np.random.default_rng(0)
    shares = 1 / np.sqrt(np.arange(1, NUM_DOMAINS + 1))
    codes_N = rng.choice(NUM_DOMAINS, num_pairs, p=shares / shares.sum()).astype(np.int32)

    def write_tokens(folder: Path) -> None:
        for side in SIDES:
            count = NUM_TOKENS[side]
            with ArrayWriter(folder / side / "ids.npy", "int32") as ids:
                for part in iter_blocks(num_pairs, BLOCK):
                    ids.append(rng.integers(1, NUM_WORDS, count * (part.stop - part.start)))
            np.save(folder / side / "offsets.npy", np.arange(0, count * (num_pairs + 1), count))
            (folder / side / BOUNDS_FILE).write_text(json.dumps({"largest_id": NUM_WORDS - 1}))

    def write_embeddings(folder: Path) -> None:
        for side in SIDES:
            # A new memory map is a sparse file: it reads as zeros and takes no disk space.
            np.lib.format.open_memmap(folder / f"{side}.npy", mode="w+", dtype=np.float16, shape=(num_pairs, WIDTH))

    def write_clusters(folder: Path) -> None:
        sizes = np.bincount(codes_N, minlength=NUM_DOMAINS)
        num_K = -(-sizes // options.cluster_size)
        firsts = np.cumsum(num_K) - num_K
        assignment_N = (rng.random(num_pairs) * num_K[codes_N]).astype(np.int64) + firsts[codes_N]
        np.save(folder / "assignment_N.npy", assignment_N.astype(np.int32))
        np.save(folder / "centroids_KD.npy", rng.normal(size=(num_K.sum(), 2 * WIDTH)).astype(np.float32))
        np.save(folder / "domain_of_cluster_K.npy", np.repeat(np.arange(NUM_DOMAINS, dtype=np.int32), num_K))

    def fill(stage: Stage, write: Callable[[Path], None]) -> None:
        if not stage.is_built:
            stage.path.mkdir(parents=True)
            write(stage.path)
            metadata = {"name": stage.name, "key": stage.key, "files": hash_folder(stage.path)}
            (stage.path / STAGE_FILE).write_text(json.dumps(metadata | {"samples": hash_samples(stage.path)}))

    fill(graph.corpus, lambda folder: _write_blank_pairs(folder / "train.arrow", codes_N))
    fill(graph.selection, lambda folder: np.save(folder / "rows.npy", np.arange(num_pairs)))
    fill(graph.tokens, write_tokens)
    fill(graph.embeddings, write_embeddings)
    fill(graph.keys, lambda folder: np.save(folder / KEYS_FILE, np.arange(num_pairs)))
    fill(graph.clusters, write_clusters)


def _write_blank_pairs(path: Path, codes_N: np.ndarray) -> None:
    """Write pairs of one-letter texts with the domains given by the codes, int32 (N,)."""
    from repro.storage.arrays import iter_blocks

    names = pa.array([f"domain-{index:02d}" for index in range(NUM_DOMAINS)])
    schema = pa.schema([pa.field(name, pa.string(), False) for name in ("id", "query", "document", "domain", "source")])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for part in iter_blocks(len(codes_N), BLOCK):
            letters = pa.array(["a"] * (part.stop - part.start))
            domains = names.take(pa.array(codes_N[part]))
            columns = [letters, letters, letters, domains, domains]
            writer.write_batch(pa.record_batch(columns, schema=schema))


# ---- measuring


def measure_step(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds, processor seconds and peak memory of one step in a child process."""
    command = [sys.executable, "-m", "benchmarks.paper_scale", *sys.argv[1:], "--inside", name]
    data = make_data_folder(options)
    variables = {"REPRO_HOME": str(data.with_name(f"{data.name}-home")), "REPRO_DATA": str(data)}
    result = data.with_name("result.json")
    result.unlink(missing_ok=True)
    cost = measure_process(command, env=os.environ | variables, stdout=subprocess.DEVNULL)
    if cost.exit_code:
        raise SystemExit(f"{name} ended with exit code {cost.exit_code}")
    row = {
        "step": name,
        "num_pairs": options.num_pairs,
        "seconds": round(cost.seconds, 1),
        "cpu_seconds": round(cost.cpu_seconds, 1),
        "peak_mebibytes": round(cost.peak_bytes / 2**20),
        "layout": options.layout,
        "document_words": options.document_words,
        **(json.loads(result.read_text()) if result.is_file() else {}),
    }
    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    return row


def main() -> None:
    """Measure the requested steps one after another."""
    parser = make_parser(__doc__, num_pairs=100_000, cluster_size=4096, document_words=DOCUMENT_WORDS)
    parser.add_argument("--home", default="/tmp/paper-scale", help="folder of files and stages, which are not removed")
    parser.add_argument("--steps", nargs="*", default=list(STEPS), choices=STEPS, help="default: all")
    parser.add_argument("--layout", default="nomic", choices=LAYOUTS, help="layout of the copy, default: nomic")
    parser.add_argument("--label", default="copy", help="label of the rows in the record, default: copy")
    parser.add_argument("--blank", action="store_true", help="measure start and sampler on stages with random content")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        declare_rows(options.num_pairs)
        result = {**STEPS, "blank": write_blank_stages}[options.inside](options)
        make_data_folder(options).with_name("result.json").write_text(json.dumps(result or {}))
        return
    data = make_data_folder(options)
    data.mkdir(parents=True, exist_ok=True)
    if options.blank:
        measure_step("blank", options)
    elif not (data / NAME).is_dir():
        words = ("--layout", options.layout, "--document-words", str(options.document_words))
        write_in_child(data / NAME, options.num_pairs, *words)
    order = {name: index for index, name in enumerate(("import", *STEPS))}
    for name in options.steps:
        if options.blank and name not in READERS:
            continue
        row = {"label": "blank" if options.blank else options.label} | measure_step(name, options) | describe_machine()
        keys = ("label", "step", "num_pairs", "layout", "document_words")
        write_rows(
            options.write,
            [row],
            keys,
            order=lambda row: (row["label"], order[row["step"]], row["num_pairs"]),
        )


if __name__ == "__main__":
    main()
