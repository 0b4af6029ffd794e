"""How hard a run's batches are for its surrogate (figure 6), and how much the filter leaves out; nothing is trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs

NUM_BATCHED_PAIRS = 2**16
"""Batches are looked at until they hold this many pairs, or an epoch has passed."""

MOST_SHOWN_PAIRS = 64
"""The first batch is kept as text when it is no larger."""


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return the mean over batches of `batches/difficulty` and of `batches/masked_fraction`, with the values of each"""
    from repro.analyses.batch_text import BATCH_EXHIBIT, make_batch_exhibit
    from repro.analyses.microscope import explain
    from repro.train.batch_view import BatchViewer
    from repro.train.trainer import build_sampler

    run, sampler, view_of = inputs.run, build_sampler(inputs), BatchViewer(inputs)
    num_batches = max(1, min(len(sampler), NUM_BATCHED_PAIRS // run.batch_size))
    difficulty, masked = [], []
    for step in range(num_batches):
        found = view_of(sampler.at(step))
        assert found.difficulty is not None, "this measure has the surrogate's scores"
        difficulty.append(found.difficulty)
        masked.append(found.masked_fraction)
    arrays = {"batches/difficulty": np.array(difficulty), "batches/masked_fraction": np.array(masked)}
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    exhibits = {BATCH_EXHIBIT: make_batch_exhibit(explain(run, 1))} if run.batch_size <= MOST_SHOWN_PAIRS else {}
    return Measured(metrics, arrays, {"num_batches": num_batches, "num_batches_an_epoch": len(sampler)}, exhibits)
