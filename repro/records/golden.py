"""Golden metrics: the results of each experiment at the scale smoke, stored in tests/golden to detect changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from repro.records.store import Record
from repro.spec import Experiment, Run
from repro.spec.registry import experiments
from repro.storage.files import write_json
from repro.storage.paths import CHECKOUT

SCALE = "smoke"
HEADLINES = ("loss", "accuracy", "ndcg_at_10")
SIGN_FREE = ("x", "y", "crossovers")
"""Metrics that rounding can flip: the sign of a principal component, and counts that depend on ties."""
MAX_LISTED_METRICS = 12
"""The number of other metrics, the first by name: enough to detect a change, few enough to read."""


def get_golden_path(name: str, folder: Path = CHECKOUT) -> Path:
    """Return the path of an experiment's golden metrics, given the name of its first artefact."""
    return folder / "tests" / "golden" / f"{name}.json"


def list_without_golden(folder: Path = CHECKOUT) -> list[Experiment]:
    """Return the experiments that have no golden metrics yet."""
    return [
        experiment
        for experiment in experiments()
        if not get_golden_path(experiment.artefact_names[0], folder).is_file()
    ]


def list_golden_runs(experiment: Experiment) -> list[Run]:
    """Return the runs with golden metrics: those of the local seeds at smoke, each once."""
    return list(dict.fromkeys(experiment.local_runs(SCALE)))


def compute_golden_metrics(recorded: Mapping[str, float]) -> dict[str, float]:
    """Return the golden metrics of a record, rounded: the headlines, or the first few metrics if it has none."""
    metrics = {name: value for name, value in recorded.items() if "per_second" not in name}
    selected = [
        name for name in metrics if get_metric_name(name) in HEADLINES and ("mean" in name or name.startswith("train"))
    ]
    if all(name.startswith("train/") for name in selected):
        # an analysis other than retrieval
        others = (name for name in metrics if not name.startswith("train/") and get_metric_name(name) not in SIGN_FREE)
        selected += sorted(others)[:MAX_LISTED_METRICS]
    return {name: round(metrics[name], 4) for name in selected}


def get_metric_name(metric: str) -> str:
    """Return the last part of a metric's path, which names the measure."""
    return metric.rpartition("/")[2]


def write_golden(name: str, records: Iterable[Record], folder: Path = CHECKOUT) -> Path:
    """Write the golden metrics of records to the file of an experiment's first artefact. Return its path."""
    golden = {record.id: compute_golden_metrics(record.metrics) for record in records}
    path = get_golden_path(name, folder)
    write_json(path, golden)
    return path
