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
from repro.data.paper.hub import SOURCES, UNSUPERVISED
from repro.planning.cost import TEXT_SHARE, count_operations
from repro.spec import TRAINED

FOLDER = Path(__file__).parent
NUM_GPUS, NUM_CORES = 8, 64
NUM_PAIRS = SOURCES["nomic-unsupervised"].num_rows or 0
CLUSTER_SIZE, WIDTH, MAX_TOKENS, NUM_SEEDS = 512, 2 * 128, 64, 3
ASSUMED_TRAINING = ASSUMED_ENCODING = 150e12
"""Operations per second of an H100 in bfloat16, 15 % of its peak."""
ASSUMED_FAISS = 15e12
"""The same of FAISS in float32, 25 % of the peak."""
ENCODER_WEIGHTS = 85e6
"""Weights of twelve layers of width 768, without word vectors."""


class Phase(NamedTuple):
    """A row of the table. `disk` is in bytes."""

    name: str
    spread: str
    rate: str
    source: str
    hours: float
    disk: float = 0.0


def list_phases() -> list[Phase]:
    """Return the phases in the order of execution."""
    return [*_list_cpu_phases("before"), *_list_gpu_phases(), *_list_cpu_phases("after"), *_list_trainings()]


def _read_rows(name: str) -> list[dict[str, Any]]:
    path = FOLDER / name
    return json.loads(path.read_text())["rows"] if path.is_file() else []


def _list_cpu_phases(when: str) -> Iterator[Phase]:
    """Yield the phases that only use processors, at the rates of the largest measured copy."""
    measured = {
        row["step"]: row
        for row in sorted(_read_rows("paper_scale.json"), key=lambda row: (row["document_words"], row["num_pairs"]))
        if row["label"] == "copy"
    }
    files, all_pairs = "files, all cores", "24 shards, a core each"
    phases = {
        "before": (("corpus", files, NUM_CORES), ("tokens", all_pairs, 24), ("keys", all_pairs, 24)),
        "after": (("order", "a core per seed", 1),),
    }
    for step, spread, num_cores in phases[when]:
        row = measured[step]
        seconds = row["cpu_seconds"] / row["num_pairs"] * NUM_PAIRS
        if step == "order":
            # The tour takes time with the power 1.5 of the number of clusters, and the benchmark packs one epoch of few.
            yield Phase(
                "order of 3 epochs",
                spread,
                "8.5 min an epoch",
                "estimated from 10⁶ pairs",
                3 * 8.5 / 60,
                12 * NUM_PAIRS,
            )
            continue
        rate = f"{row['num_pairs'] / row['cpu_seconds']:,.0f} pairs/s of a core"
        yield Phase(step, spread, rate, "measured", seconds / num_cores / 3600, row["bytes_per_pair"] * NUM_PAIRS)


def _find_gpu_row(**values: Any) -> dict[str, Any]:
    rows = _read_rows("one_gpu.json")
    return next((row for row in rows if "failed" not in row and all(row.get(k) == v for k, v in values.items())), {})


def _list_gpu_phases() -> Iterator[Phase]:
    """Yield the embeddings of surrogate and filter, and the clusters."""
    for name, encoder in (("embeddings, GTR", "gtr"), ("embeddings, filter", "nomic")):
        row = _find_gpu_row(part="encode", encoder=encoder, max_tokens=MAX_TOKENS, num_threads=2)
        rate = row.get("texts_per_second") or ASSUMED_ENCODING / (2 * ENCODER_WEIGHTS * TEXT_SHARE * MAX_TOKENS)
        hours = 2 * NUM_PAIRS / rate / NUM_GPUS / 3600
        yield Phase(
            name, "shards, a GPU each", f"{rate:,.0f} texts/s of a GPU", _name_source(row), hours, 4 * 768 * NUM_PAIRS
        )
    row = _find_gpu_row(part="kmeans", width=WIDTH)
    rate = row.get("teraflops", 0) * 1e12 or ASSUMED_FAISS
    operations = (
        NUM_ATTEMPTS
        * NUM_ITERATIONS
        * sum(
            4 * count_fitted_pairs(size, CLUSTER_SIZE) * count_clusters(size, CLUSTER_SIZE) * WIDTH
            for size in (domain.num_rows or 0 for domain in UNSUPERVISED.values())
        )
    )
    hours = operations / rate / NUM_GPUS / 3600
    yield Phase(
        "clusters of 512",
        "domains, all GPUs each",
        f"{rate / 1e12:.0f} TFLOP/s of a GPU",
        _name_source(row),
        hours,
        4 * NUM_PAIRS,
    )


def _list_trainings() -> Iterator[Phase]:
    """Yield the training runs of each kind of Table 1, all seeds together."""
    for architecture in TRAINED:
        for size in (16_384, 512):
            runs = [
                run for run in EXPERIMENT.runs("small") if (run.architecture, run.batch_size) == (architecture, size)
            ]
            row = _find_gpu_row(part="step", shape="small", architecture=architecture, batch_size=size)
            operations = sum(count_operations(run).flops for run in runs)
            num_pairs = sum(count_operations(run).num_pairs for run in runs)
            rate = row.get("pairs_per_second") or num_pairs / (operations / ASSUMED_TRAINING)
            name = f"{len(runs)} runs, {architecture}, {size:,}"
            hours = num_pairs / rate / NUM_GPUS / 3600
            yield Phase(name, "a batch over all GPUs", f"{rate:,.0f} pairs/s of a GPU", _name_source(row), hours)


def _name_source(row: dict[str, Any]) -> str:
    return f"measured, {row['gpu']}" if row else "assumed speed"


def format_table() -> str:
    """Return the table in Markdown."""
    phases = list_phases()
    lines = [
        "| phase | spread over | rate | source of the rate | hours | disk |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for phase in phases:
        disk = f"{phase.disk / 1e9:,.0f} GB" if phase.disk else "–"
        lines.append(f"| {phase.name} | {phase.spread} | {phase.rate} | {phase.source} | {phase.hours:.1f} | {disk} |")
    first = sum(
        phase.hours for phase in phases if not phase.name.endswith(("512", "16,384")) or "clusters" in phase.name
    )
    total = sum(phase.hours for phase in phases)
    disk = sum(phase.disk for phase in phases)
    lines.append(f"| **first clustered step** | | | | **{first:.0f}** | |")
    lines.append(f"| **Table 1** | | | | **{total:.0f}** | **{disk / 1e12:.1f} TB** |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(format_table())
