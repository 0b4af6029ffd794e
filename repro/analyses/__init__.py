"""Analyses of a run after training: one function per value of the field `measure`, listed in `repro.spec.MEASURES`.

The function is `measure(inputs, model, folder) -> Measured` in the module of this name, or `measure_NAME` in a module of
several analyses. `model` is the trained model, or None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.spec import Run


@dataclass(frozen=True)
class Measured:
    """Results of an analysis for a record: metrics by path, their values per query, provenance, and rows of text."""

    metrics: Mapping[str, float]
    arrays: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    exhibits: Mapping[str, Sequence[Mapping[str, str | float]]] = field(default_factory=dict)


def check_suite(run: Run, is_suitable: bool, needed: str) -> None:
    """Raise ValueError if the analysis of a run needs another suite."""
    if not is_suitable:
        raise ValueError(f"measure={run.measure!r} with suite={run.suite!r}: choose a suite of {needed}")


SHARED_MODULES = {
    **dict.fromkeys(("counts", "divergence"), "corpora"),
    **dict.fromkeys(("cascade", "probe"), "classification"),
    **dict.fromkeys(("shape", "curve", "steps"), "training"),
    **dict.fromkeys(("neighbours", "cluster"), "pairs"),
    **dict.fromkeys(("cross", "spread", "selection"), "contexts"),
}
"""The module of each analysis that shares one."""


def measure_run(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Run the analysis of a run. Additional files, such as TREC runs, go to `folder`."""
    name = inputs.run.measure
    module = import_module(f"repro.analyses.{SHARED_MODULES.get(name, name)}")
    measured: Measured = getattr(module, f"measure_{name}" if name in SHARED_MODULES else "measure")(
        inputs, model, folder
    )
    return measured
