"""How often the judge of claims is wrong, on simulated records whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.inputs.inputs import Inputs
from repro.measures import Measured

NUM_TRIALS = {"smoke": 4}
MOST_TRIALS = 250
"""Of each cell: a share of 5 % is then known to within 2.8 points, twice its standard error."""


def measure(inputs: Inputs, model: Any, folder: Path) -> Measured:
    """Return `calibration/KIND/TRUTH/NOISE/SEEDS/` `false`, `covered` and `decided`; nothing is trained or read."""
    from repro.claims.calibration import calibrate

    num_trials = NUM_TRIALS.get(inputs.run.scale, MOST_TRIALS)
    return Measured(calibrate(num_trials, inputs.run.seed), {}, {"num_trials": num_trials})
