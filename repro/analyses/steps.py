"""Scores along one training: the model after each fifth of its steps, on one schedule (GTE table 8).

The run is trained once more, in a folder of its own, and stopped after each of the first four fifths to be scored; its
own model is the fifth. Steps follow from the seed alone, so that these are the models its training passed through; on a
GPU they are, but for rounding.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from repro.analyses import Measured
from repro.analyses.retrieval import evaluate
from repro.evaluate.collections import read_collections
from repro.evaluate.suites import Encoder, Evaluation
from repro.pipeline.inputs import Inputs
from repro.train.trainer import build_sampler, make_train_settings, models_along

NUM_PARTS = 5
FOLDER = "along"


def marks(num_steps: int) -> tuple[int, ...]:
    """Return the step that ends each fifth of a training; ValueError for one of fewer than five steps."""
    if num_steps < NUM_PARTS:
        raise ValueError(f"measure='steps' of a training of {num_steps} steps: it needs at least {NUM_PARTS}")
    return tuple(round(num_steps * part / NUM_PARTS) for part in range(1, NUM_PARTS + 1))


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}/…` of the whole training, and `{suite}+fifth1/…` to `{suite}+fifth5/…`."""
    suite, collections = inputs.suite.name, read_collections(inputs.suite)
    steps = marks(make_train_settings(inputs.run, len(build_sampler(inputs))).num_steps)
    last = evaluate(inputs, model, folder / "trec", collections)
    metrics, arrays = dict(last.metrics), dict(last.per_query)
    _add(metrics, arrays, suite, NUM_PARTS, last)
    for part, (_, earlier) in enumerate(models_along(inputs, steps[:-1], folder / FOLDER), 1):
        found = evaluate(inputs, earlier, folder / FOLDER / "trec", collections)
        _add(metrics, arrays, suite, part, found)
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    return Measured(metrics, arrays, {**last.provenance, "steps": list(steps)})


def _add(metrics: dict[str, float], arrays: dict[str, Any], suite: str, part: int, found: Evaluation) -> None:
    """Add what was found under the own context after a fifth."""
    name = f"{suite}+fifth{part}"
    metrics |= {
        path.replace(suite, name, 1): value for path, value in found.metrics.items() if path.startswith(f"{suite}/")
    }
    if suite in found.per_query:
        arrays[name] = found.per_query[suite]
