"""Time the data of a step (pairs, texts, contexts and filter) next to the training step itself.

    python -m benchmarks.step_data --size minilm --num-steps 3 --write benchmarks/step_data.json

Runs use contextual batches with the filter, over the clusters of real text, which are the most expensive data. Each
step draws its pairs, pads them, draws contexts and applies the filter. Then the model executes the step by GradCache.
Results are medians over the steps after a warm-up, in processor seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.kept_rows import keep_rows
from benchmarks.sizes import SIZES, run_of
from repro.pipeline.inputs import Inputs
from repro.spec import Run
from repro.train.chunks import ChunkSizes
from repro.train.feed import Feed, feed_batch, step_batches
from repro.train.loop import optimizer_for, take_step
from repro.train.trainer import prepare_training

CHUNK = 64
"""Texts per chunk of either stage. It limits a batch of 512 at MiniLM's size to a few GiB."""


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of an action and its processor seconds."""
    started = time.process_time()
    return action(), time.process_time() - started


def measure_medians(asked: argparse.Namespace) -> tuple[Run, list[float]]:
    """Train the requested steps. Return the run and the median seconds of a step's data and of the step."""
    own = {"batch_size": asked.batch_size} if asked.batch_size else {}
    clusters = {"sampler": "cluster", "cluster_size": 256, "packing": "greedy", "filter": "surrogate"}
    run = run_of(asked.size, architecture="contextual", **clusters, **own)
    inputs = Inputs(run)
    inputs.build(print)
    model, data, settings, _ = prepare_training(inputs, lambda: False, print)
    settings = replace(settings, chunks=ChunkSizes(texts=CHUNK))
    optimizer = optimizer_for(model.train(), settings)

    def feed_of(step: int) -> Feed:
        batch = step_batches(data.batches, step, 1)[0]
        return feed_batch(data, batch, seed=run.seed, num_contexts=run.num_contexts, is_shared=False)

    of_data, of_steps = [], []
    for step in range(asked.num_steps + 1):
        feed, seconds = timed(lambda: feed_of(step))  # noqa: B023
        of_data.append(seconds)
        of_steps.append(timed(lambda: take_step(model, optimizer, [feed], settings, step=step + 1))[1])  # noqa: B023
    return run, [statistics.median(each[1:]) for each in (of_data, of_steps)]


def main() -> None:
    """Measure, print, and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="desk", choices=[size for size in SIZES if size != "smoke"])
    parser.add_argument("--batch-size", type=int, help="pairs of a step; default: the size's")
    parser.add_argument("--num-steps", type=int, default=20)
    parser.add_argument("--write", type=Path, help="the record to put the row into")
    asked = parser.parse_args()
    run, medians = measure_medians(asked)
    row = {
        "size": asked.size,
        "batch_size": run.batch_size,
        "data": round(medians[0], 5),
        "step": round(medians[1], 4),
        "share": round(medians[0] / sum(medians), 5),
        "num_threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 1),
    }
    print("size {size}, batch {batch_size}: data {data} s, step {step} s, share {share:.2%}".format(**row))
    if asked.write:
        keep_rows(asked.write, [row], ("size", "batch_size"))


if __name__ == "__main__":
    main()
