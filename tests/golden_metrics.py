"""Compare metrics of smoke runs with the stored ones. `GOLDEN_WRITE=1` rewrites the stored metrics."""

import json
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from repro.records.golden import compute_golden_metrics, get_golden_path, get_metric_name, write_golden
from repro.records.store import read_records

# Machines add numbers in another order. Over twelve steps from a random start, the differences grow to this size.
TOLERANCE = {"loss": 0.02, "accuracy": 0.07, "ndcg_at_10": 0.05, "score": 0.05}
RELATIVE_TOLERANCE = 0.02


def assert_golden(name: str, folder: Path, ids: Collection[str]) -> None:
    """Compare the records of these runs with the golden metrics of this name."""
    records = [record for record in read_records(folder) if record.id in ids]
    if os.environ.get("GOLDEN_WRITE"):
        write_golden(name, records)
    expected = json.loads(get_golden_path(name).read_text())
    actual = {record.id: compute_golden_metrics(record.metrics) for record in records}
    assert actual.keys() == expected.keys()
    for id, metrics in expected.items():
        assert actual[id].keys() == metrics.keys(), id
        for metric, value in metrics.items():
            tolerance = TOLERANCE.get(get_metric_name(metric), RELATIVE_TOLERANCE * max(1.0, abs(value)))
            assert actual[id][metric] == pytest.approx(value, abs=tolerance), f"{id} {metric}"
