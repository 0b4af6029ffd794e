"""Golden metrics: what an experiment gave at smoke, kept in tests/golden so that a change that moves it is seen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from repro.records.store import Record
from repro.spec import Experiment, Run
from repro.spec.registry import experiments
from repro.storage.atomic import whole_file
from repro.storage.paths import CHECKOUT

SCALE = "smoke"
HEADLINES = ("loss", "accuracy", "ndcg_at_10")
MAY_FLIP = ("x", "y", "crossovers")
"""A principal component has no sign of its own, and a count of who is ahead turns on ties."""
MOST_METRICS = 12
"""Of what is no headline, the first so many by name: enough to notice, few enough to read."""


def get_golden_path(name: str, folder: Path = CHECKOUT) -> Path:
    """Return where the golden metrics of an experiment lie, by the name of its first artefact."""
    return folder / "tests" / "golden" / f"{name}.json"


def without_golden(folder: Path = CHECKOUT) -> list[Experiment]:
    """Return the experiments that have no golden metrics yet."""
    return [one for one in experiments() if not get_golden_path(one.artefacts[0], folder).is_file()]


def list_golden_runs(experiment: Experiment) -> list[Run]:
    """Return the runs whose metrics are golden: those of a reader's seeds at smoke, each once."""
    return list(dict.fromkeys(experiment.local_runs(SCALE)))


def compute_golden_metrics(recorded: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that are kept of a record, rounded: headlines, or the first few where there are none."""
    metrics = {name: value for name, value in recorded.items() if "per_second" not in name}
    kept = [name for name in metrics if last_word(name) in HEADLINES and ("mean" in name or name.startswith("train"))]
    if all(name.startswith("train/") for name in kept):  # a measure of another kind than retrieval
        others = (name for name in metrics if not name.startswith("train/") and last_word(name) not in MAY_FLIP)
        kept += sorted(others)[:MOST_METRICS]
    return {name: round(metrics[name], 4) for name in kept}


def last_word(metric: str) -> str:
    """Return the last part of a metric's path: what is measured."""
    return metric.rpartition("/")[2]


def write_golden(name: str, records: Iterable[Record], folder: Path = CHECKOUT) -> Path:
    """Write the golden metrics of these records under an experiment's first artefact; return the file."""
    found = {record.id: compute_golden_metrics(record.metrics) for record in records}
    path = get_golden_path(name, folder)
    with whole_file(path) as part:
        part.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return path
