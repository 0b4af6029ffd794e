"""What a run can measure once its model is there: one module a measure, named in `repro.spec.MEASURES`.

A module has one function, `measure(inputs, model, folder) -> Measured`; `model` is the trained model, or None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs


@dataclass(frozen=True)
class Measured:
    """What a measure gives a record: numbers by path, the values behind them, how they came about, rows of text."""

    metrics: Mapping[str, float]
    arrays: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    exhibits: Mapping[str, Sequence[Mapping[str, str | float]]] = field(default_factory=dict)


def measure_run(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Measure what a run asks for; files for the curious, such as TREC runs, go to `folder`."""
    measured: Measured = import_module(f"repro.analyses.{inputs.run.measure}").measure(inputs, model, folder)
    return measured
