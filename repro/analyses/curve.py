"""Average the training loss over equal stretches of steps (GTE figure 4)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.spec.identity import get_training_id
from repro.storage.paths import run_folder
from repro.train.checkpoint import read_metrics

MAX_POINTS = 24


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `curve/STEP/loss` and `curve/STEP/accuracy`, as means over the stretch that ends at STEP."""
    lines = read_metrics(run_folder(get_training_id(inputs.run)))
    metrics = {}
    for part in np.array_split(np.arange(len(lines)), min(MAX_POINTS, len(lines))):
        for name in ("loss", "accuracy"):
            metrics[f"curve/{part[-1] + 1}/{name}"] = float(np.mean([lines[index][name] for index in part]))
    return Measured(metrics, {}, {"num_points": min(MAX_POINTS, len(lines))})
