"""Measure time and peak memory of every stage by number of generated pairs, each in a separate process.

    python -m benchmarks.paper_scale --num-pairs 1000000 --write benchmarks/paper_scale.json

`import`: a parquet file becomes a corpus. `corpus`: hold-out and training pairs. `selection`, `tokens`, `embeddings`
(word vectors), `keys` (of document texts), `clusters`: the stages of a run. `start`: everything before the first
training step, and the first batch with contexts and filter. `sampler`: two epochs of batches. `steps`: twenty steps.
`--blank` writes stages with random content instead of building them, and measures their readers. Peak memory is that of
the process (ru_maxrss), including mapped pages. On a shared machine, compare processor seconds. The load average is
recorded next to them.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.generated_pairs import write_generated_apart
from benchmarks.kept_rows import keep_rows

NAME = "generated"
MEBI = 2**20


def import_(asked: argparse.Namespace) -> None:
    """Import the generated file."""
    from repro.data.own.imported import bring

    bring(source_of(asked), name=NAME)


def stage(name: str) -> Callable[[argparse.Namespace], None]:
    """Return a function that builds one stage. It does nothing if the stage exists and raises if others are missing."""

    def build(asked: argparse.Namespace) -> None:
        from repro.pipeline.stages import StageGraph

        own = getattr(StageGraph(run_of(asked)), name)
        if own.is_built:
            raise SystemExit(f"{name} is built: remove {own.path}, or give another --home, to measure it")
        if lacking := [need.title for need in own.needs if not need.is_built]:
            raise SystemExit(f"{name} needs {', '.join(lacking)}, measured with it: name its step before")
        own.build()

    return build


def start(asked: argparse.Namespace) -> None:
    """Execute everything before the first training step, and prepare one step's data."""
    from repro.pipeline.inputs import Inputs
    from repro.train.feed import feed_batch, step_batches
    from repro.train.trainer import prepare_training

    inputs = Inputs(run_of(asked))
    inputs.build(print)
    _, data, _, _ = prepare_training(inputs, lambda: False, print)
    first = step_batches(data.batches, 0, 1)[0]
    feed_batch(data, first, seed=0, num_contexts=16, is_shared=False)


def sampler(asked: argparse.Namespace) -> None:
    """Produce the first batches of two epochs."""
    from repro.pipeline.inputs import Inputs
    from repro.train.trainer import build_sampler

    batches = build_sampler(Inputs(run_of(asked)))
    for epoch in range(2):
        batches.at(epoch * len(batches))


def steps(asked: argparse.Namespace) -> None:
    """Train twenty steps of the contextual model."""
    from repro.pipeline.inputs import Inputs
    from repro.train.trainer import train_run

    inputs = Inputs(run_of(asked))
    inputs.build(print)
    train_run(inputs)


STEPS: dict[str, Callable[[argparse.Namespace], None]] = {
    "import": import_,
    **{name: stage(name) for name in ("corpus", "selection", "tokens", "embeddings", "keys", "clusters")},
    "start": start,
    "sampler": sampler,
    "steps": steps,
}
NOT_ON_BLANK = ("import", "corpus", "selection", "tokens", "embeddings", "keys", "clusters", "steps")


def blank(asked: argparse.Namespace) -> None:
    """Write stages with random content instead of building them."""
    from benchmarks.blank_stages import write_blank_import, write_blank_stages

    write_blank_import(NAME, asked.num_pairs)
    write_blank_stages(run_of(asked), asked.num_pairs)


def source_of(asked: argparse.Namespace) -> Path:
    """Return the path of the generated file."""
    return Path(asked.home) / f"pairs-{asked.num_pairs}.{asked.ending}"


def run_of(asked: argparse.Namespace) -> Any:
    """Return a contextual run on the corpus, including clusters and filter."""
    from repro.data.own.imported import find_imported
    from repro.spec import base

    return base(
        "desk",
        corpus=find_imported(NAME).corpus,
        suite=NAME,
        num_pairs=None,
        sampler="cluster",
        packing="greedy",
        batch_size=512,
        cluster_size=asked.cluster_size,
        filter="surrogate",
        architecture="contextual",
        test_contexts="own",
        num_steps=20,
        num_warmup_steps=2,
    )


def measured(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Return wall seconds, processor seconds and peak memory of one step in a separate process."""
    words = [sys.executable, "-m", "benchmarks.paper_scale", *sys.argv[1:], "--inside", name]
    home = str(Path(asked.home) / f"home-{asked.num_pairs}")
    started = time.monotonic()
    child = subprocess.Popen(words, env=os.environ | {"REPRO_HOME": home}, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.monotonic() - started
    if status:
        raise SystemExit(f"{name} ended with status {status}")
    found = {
        "step": name,
        "num_pairs": asked.num_pairs,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mebibytes": round(used.ru_maxrss / 1024),
        "load_average": round(os.getloadavg()[0], 1),
    }
    print("{step:<12} {num_pairs:>10} pairs {seconds:>8} s {cpu_seconds:>8} s of CPU {peak_mebibytes:>7} MiB".format(
        **found), flush=True)  # fmt: skip
    return found


def keep(rows: list[dict[str, Any]], path: Path, label: str) -> None:
    """Write rows to a record, replacing those with the same label, step and number of pairs."""
    machine = {"processor": platform.processor() or platform.machine(), "num_cores": os.cpu_count()}
    order = {name: place for place, name in enumerate(STEPS)}
    keep_rows(
        path,
        ({"label": label, **row, **machine} for row in rows),
        ("label", "step", "num_pairs"),
        lambda row: (row["label"], order[row["step"]], row["num_pairs"]),
    )


def main() -> None:
    """Measure the requested steps in sequence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-pairs", type=int, default=100_000)
    parser.add_argument("--home", default="/tmp/paper-scale", help="where files and stages go; nothing is removed")
    parser.add_argument("--steps", nargs="*", default=list(STEPS), choices=STEPS)
    parser.add_argument("--cluster-size", type=int, default=4096)
    parser.add_argument("--ending", default="parquet", choices=("parquet", "jsonl", "csv"))
    parser.add_argument("--write", type=Path, help="the record to put the rows into")
    parser.add_argument("--label", default="now", help="what the rows are called in the record")
    parser.add_argument("--blank", action="store_true", help="start and sampler only, on stages of drawn content")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        return {**STEPS, "blank": blank}[asked.inside](asked)
    Path(asked.home).mkdir(parents=True, exist_ok=True)
    if asked.blank:
        measured("blank", asked)
    elif not source_of(asked).is_file():
        write_generated_apart(source_of(asked), asked.num_pairs)
    for name in asked.steps:
        if asked.blank and name in NOT_ON_BLANK:
            continue
        row = measured(name, asked)
        if asked.write:
            keep([row], asked.write, "blank" if asked.blank else asked.label)


if __name__ == "__main__":
    main()
