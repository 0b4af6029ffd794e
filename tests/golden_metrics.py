"""The metrics of smoke runs that a change should not move; `GOLDEN_WRITE=1` renews them, in a commit of its own."""

import json
import os
from collections.abc import Collection
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parent / "golden"
HEADLINES = ("loss", "accuracy", "ndcg_at_10")
TOLERANCE = {"loss": 0.02, "accuracy": 0.07, "ndcg_at_10": 0.05, "score": 0.05}
"""Across machines sums come in another order; twelve steps from a random start spread that to this much."""
OTHERWISE = 0.02
MAY_FLIP = ("x", "y", "crossovers")
"""A principal component has no sign of its own, and a count of who is ahead turns on ties."""
MOST_METRICS = 12
"""Of what is no headline, the first so many by name: enough to notice, few enough to read."""


def assert_golden(name: str, folder: Path, ids: Collection[str]) -> None:
    """Compares the records of these runs with the file of that name."""
    found = {path.stem: _chosen(path) for path in sorted(folder.glob("*.json")) if path.stem in ids}
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("GOLDEN_WRITE"):
        golden.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    expected = json.loads(golden.read_text())
    assert found.keys() == expected.keys()
    for identifier, metrics in expected.items():
        assert found[identifier].keys() == metrics.keys(), identifier
        for metric, value in metrics.items():
            tolerance = TOLERANCE.get(_last(metric), OTHERWISE * max(1.0, abs(value)))
            assert found[identifier][metric] == pytest.approx(value, abs=tolerance), f"{identifier} {metric}"


def _chosen(path: Path) -> dict[str, float]:
    recorded = json.loads(path.read_text())["metrics"]
    metrics = {name: value for name, value in recorded.items() if "per_second" not in name}
    headline = [name for name in metrics if _last(name) in HEADLINES and ("mean" in name or name.startswith("train"))]
    if all(name.startswith("train/") for name in headline):  # a measure of another kind than retrieval
        others = (name for name in metrics if not name.startswith("train/") and _last(name) not in MAY_FLIP)
        headline += sorted(others)[:MOST_METRICS]
    return {name: round(metrics[name], 4) for name in headline}


def _last(name: str) -> str:
    return name.rpartition("/")[2]
