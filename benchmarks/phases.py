"""Print the phases of Table 1 at `small` on a node of eight GPUs, from measured rates where there are some.

    python -m benchmarks.phases

Processor seconds per pair come from `paper_scale.json`, rates of a GPU from `one_gpu.json` if it exists. Until then they
are operations at an assumed speed. The table is on the page REPRODUCING.md, and a test compares both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from experiments.e01_table1 import EXPERIMENT
from repro.batches.cluster import NUM_ATTEMPTS, NUM_ITERATIONS, count_clusters, count_fitted_pairs
from repro.data.paper.hub import SOURCES
from repro.planning.cost import TEXT_SHARE, count_operations
from repro.spec import TRAINED

FOLDER = Path(__file__).parent
NUM_GPUS, NUM_CORES, NUM_SHARDS = 8, 64, 24
NUM_PAIRS = SOURCES["nomic-unsupervised"].num_rows or 0
CLUSTER_SIZE, WIDTH, MAX_TOKENS = 512, 2 * 128, 64
ASSUMED_TRAINING = 150e12
"""Operations per second of an H100 in bfloat16, 15 % of its peak."""
ASSUMED_ENCODING = 150e12 / (2 * 85e6 * TEXT_SHARE * MAX_TOKENS)
"""Texts per second at the same speed, with the weights of twelve layers of width 768."""
ASSUMED_FAISS = 15
"""Teraflops of FAISS in float32, 25 % of the peak."""
ASSUMED_DISK = 1
"""Gigabytes per second that a process reads and hashes."""
NUM_EVALUATED = 8_000_000
"""Texts of an evaluation: the distinct candidates of all queries of truncated BEIR, estimated."""


class Phase(NamedTuple):
    """A row of the table. `disk` is in bytes."""

    name: str
    spread: str
    rate: str
    source: str
    hours: float
    disk: float = 0.0


def _read_rows(name: str) -> list[dict[str, Any]]:
    path = FOLDER / name
    return json.loads(path.read_text())["rows"] if path.is_file() else []


def _find_copy_row(step: str) -> dict[str, Any]:
    """Return the row of a step for the copy with the longest texts, in the layout of the first declared dataset."""
    rows = [row for row in _read_rows("paper_scale.json") if (row["step"], row.get("layout")) == (step, "nomic")]
    return max(rows, key=lambda row: (row["document_words"], row["num_pairs"]))


def _find_gpu_row(**values: Any) -> dict[str, Any]:
    rows = _read_rows("one_gpu.json")
    return next((row for row in rows if "failed" not in row and all(row.get(k) == v for k, v in values.items())), {})


def _name_source(row: dict[str, Any]) -> str:
    return f"measured, {row['gpu']}" if row else "assumed speed"


def list_stage_phases() -> Iterator[Phase]:
    """Yield what is done once, before the first step on clusters."""
    yield _make_cpu_phase("import", "corpus", "files, 64 cores", NUM_CORES)
    yield _make_cpu_phase("tokens", "tokens", "24 shards, a core each", NUM_SHARDS)
    yield _make_cpu_phase("content keys", "keys", "24 shards, a core each", NUM_SHARDS)
    for name, encoder in (("embeddings, GTR", "gtr"), ("embeddings, filter", "nomic")):
        row = _find_gpu_row(part="encode", encoder=encoder, max_tokens=MAX_TOKENS, num_threads=2)
        rate = row.get("texts_per_second") or ASSUMED_ENCODING
        hours, disk = 2 * NUM_PAIRS / rate / NUM_GPUS / 3600, 2 * 2 * 768 * NUM_PAIRS
        yield Phase(name, "shards, a GPU each", f"{rate:,.0f} texts/s of a GPU", _name_source(row), hours, disk)
    row = _find_gpu_row(part="kmeans", width=WIDTH)
    rate = row.get("teraflops") or ASSUMED_FAISS
    sizes = [domain.num_rows or 0 for domain in SOURCES["nomic-unsupervised"].domains.values()]
    num_distances = sum(
        2 * count_fitted_pairs(size, CLUSTER_SIZE) * count_clusters(size, CLUSTER_SIZE) for size in sizes
    )
    hours = NUM_ATTEMPTS * NUM_ITERATIONS * 2 * WIDTH * num_distances / (rate * 1e12) / NUM_GPUS / 3600
    words = f"{rate:.0f} TFLOP/s of a GPU"
    yield Phase("clusters of 512", "domains, all GPUs for each", words, _name_source(row), hours, 4 * NUM_PAIRS)
    row = _find_copy_row("tour")
    # a step of the tour takes time with the root of the number of clusters
    share = sum(count_clusters(size, CLUSTER_SIZE) ** 1.5 for size in sizes) / row["num_clusters"] ** 1.5
    seconds = row["tour_cpu_seconds"] * share
    words = f"{seconds / 60:.0f} min an epoch"
    yield Phase(
        "order of 3 epochs", "seeds, a core each", words, "measured, scaled", 3 * seconds / 3600, 3 * 3 * 4 * NUM_PAIRS
    )


def _make_cpu_phase(name: str, step: str, spread: str, num_cores: int) -> Phase:
    row = _find_copy_row(step)
    pairs_per_second = row["num_pairs"] / row["cpu_seconds"]
    hours = NUM_PAIRS / pairs_per_second / num_cores / 3600
    rate = f"{pairs_per_second:,.0f} pairs/s of a core"
    return Phase(name, spread, rate, "measured", hours, row["bytes_per_pair"] * NUM_PAIRS)


def list_run_phases() -> Iterator[Phase]:
    """Yield the training runs of each kind of Table 1, all seeds together, and their evaluation."""
    num_encoded = 0
    for architecture in TRAINED:
        for size in (16_384, 512):
            runs = [
                run for run in EXPERIMENT.runs("small") if (run.architecture, run.batch_size) == (architecture, size)
            ]
            num_encoded += NUM_EVALUATED * sum(len(run.test_contexts.split("+")) for run in runs)
            row = _find_gpu_row(part="step", shape="small", architecture=architecture, batch_size=size)
            work = [count_operations(run) for run in runs]
            num_pairs = sum(part.num_pairs for part in work)
            rate = row.get("pairs_per_second") or num_pairs * ASSUMED_TRAINING / sum(part.flops for part in work)
            name, words = f"{len(runs)} runs: {architecture}, {size:,}", f"{rate:,.0f} pairs/s of a GPU"
            yield Phase(name, "each batch, all GPUs", words, _name_source(row), num_pairs / rate / NUM_GPUS / 3600)
    words = f"{ASSUMED_ENCODING:,.0f} texts/s of a GPU"
    yield Phase(
        "evaluation", "texts, all GPUs", words, "assumed speed", num_encoded / ASSUMED_ENCODING / NUM_GPUS / 3600
    )


def format_table() -> str:
    """Return the table in Markdown."""
    stages, runs = list(list_stage_phases()), list(list_run_phases())
    # Shards are hashed when they are written and again when they are joined, and so is the whole.
    num_bytes = 3 * sum(phase.disk for phase in stages)
    hours = num_bytes / (ASSUMED_DISK * 1e9) / 3600
    stages.append(Phase("digests and joins", "a process per stage", f"{ASSUMED_DISK} GB/s", "assumed speed", hours))
    lines = [
        "| phase | spread over | rate | source of the rate | hours | disk |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for phase in (*stages, *runs):
        disk = f"{phase.disk / 1e9:,.0f} GB" if phase.disk else "–"
        lines.append(f"| {phase.name} | {phase.spread} | {phase.rate} | {phase.source} | {phase.hours:.1f} | {disk} |")
    hours, disk = (sum(getattr(phase, name) for phase in stages) for name in ("hours", "disk"))
    lines.append(f"| **first step on clusters** | | | | **{hours:.1f}** | **{disk / 1e12:.1f} TB** |")
    lines.append(f"| **Table 1** | | | | **{hours + sum(phase.hours for phase in runs):.0f}** | |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(format_table())
