"""How often the judge of claims is wrong, on simulated records whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.inputs.inputs import Inputs
from repro.measures import Measured

NUM_TRIALS = {"smoke": 4}
MOST_TRIALS = 500
"""Of each cell: a share of 5 % is then known to within 2 points, twice its standard error; of two draws, 1.4 points.

Half as many let the worst of two hundred cells stand at 7.2 % where three thousand trials of that cell say 5.1 %."""


def measure(inputs: Inputs, model: Any, folder: Path) -> Measured:
    """Return `calibration/KIND/TRUTH/NOISE/SEEDS/` `false`, `covered` and `decided`; nothing is trained or read."""
    from repro.claims.calibration import calibrate

    num_trials = NUM_TRIALS.get(inputs.run.scale, MOST_TRIALS)
    return Measured(calibrate(num_trials, inputs.run.seed), {}, {"num_trials": num_trials})
