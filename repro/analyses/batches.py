"""Measure the difficulty of batches under the surrogate (figure 6), and the share of pairs that the filter removes.

Nothing is trained.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs

NUM_BATCHED_PAIRS = 2**16
"""Number of pairs in the measured batches, at most one epoch."""

MAX_SHOWN_PAIRS = 64
"""The record stores the first batch as text if it is at most this large."""


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `batches/difficulty` and `batches/masked_fraction`, as means over batches and as values per batch."""
    from repro.analyses.batch_text import BATCH_EXHIBIT, make_batch_exhibit
    from repro.analyses.microscope import explain
    from repro.train.batch_view import BatchViewer
    from repro.train.setup import build_sampler

    run, sampler, viewer = inputs.run, build_sampler(inputs), BatchViewer(inputs)
    num_batches = max(1, min(len(sampler), NUM_BATCHED_PAIRS // run.batch_size))
    difficulty, masked = [], []
    for step in range(num_batches):
        view = viewer(sampler.at(step))
        assert view.difficulty is not None, "this analysis requires the surrogate's scores"
        difficulty.append(view.difficulty)
        masked.append(view.masked_fraction)
    arrays = {"batches/difficulty": np.array(difficulty), "batches/masked_fraction": np.array(masked)}
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    exhibits = {BATCH_EXHIBIT: make_batch_exhibit(explain(run, 1))} if run.batch_size <= MAX_SHOWN_PAIRS else {}
    return Measured(metrics, arrays, {"num_batches": num_batches, "num_batches_an_epoch": len(sampler)}, exhibits)
