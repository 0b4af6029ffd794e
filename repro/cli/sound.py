"""Leaves out the experiments whose files are at fault, and names these: one mistake must not stop all the others."""

from __future__ import annotations

from collections.abc import Sequence

from repro.cli.patience import tell
from repro.spec import Experiment
from repro.spec.registry import FaultyRunsError


def sound(chosen: Sequence[Experiment], scales: Sequence[str]) -> list[Experiment]:
    """Return the experiments that can tell their runs at these scales; stderr names the files of the others.

    FaultyRunsError when none is left.
    """
    found: list[Experiment] = []
    faults: list[FaultyRunsError] = []
    for experiment in chosen:
        try:
            for scale in scales:
                experiment.runs(scale)
        except FaultyRunsError as fault:
            faults.append(fault)
        else:
            found.append(experiment)
    if faults and not found:
        raise faults[0]
    for left_out in faults:
        tell(f"left out: {left_out}")
    return found
