"""How often the judge is wrong about claims that are looked at again while they are open, on simulated records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.inputs.inputs import Inputs
from repro.measures import Measured

NUM_TRIALS = {"smoke": 4}
MOST_TRIALS = 1000
"""Of each cell and draw; two draws know a share of 5 % to within one point, twice its standard error."""


def measure(inputs: Inputs, model: Any, folder: Path) -> Measured:
    """Return `looks/TRUTH/NOISE/SEEDS/` `false`, `covered`, `decided`, `looks`; nothing is trained or read."""
    from repro.claims.looks import calibrate_looks

    num_trials = NUM_TRIALS.get(inputs.run.scale, MOST_TRIALS)
    return Measured(calibrate_looks(num_trials, inputs.run.seed), {}, {"num_trials": num_trials})
