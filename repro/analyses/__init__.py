"""Analyses of a run after training: one module per value of the field `measure`, listed in `repro.spec.MEASURES`.

Each module has the function `measure(inputs, model, folder) -> Measured`. `model` is the trained model, or None.
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
    """Results of an analysis for a record: metrics by path, their values per query, provenance, and rows of text."""

    metrics: Mapping[str, float]
    arrays: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    exhibits: Mapping[str, Sequence[Mapping[str, str | float]]] = field(default_factory=dict)


def measure_run(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Run the analysis of a run. Additional files, such as TREC runs, go to `folder`."""
    measured: Measured = import_module(f"repro.analyses.{inputs.run.measure}").measure(inputs, model, folder)
    return measured
