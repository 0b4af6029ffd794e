"""What records cost: the seconds of training and of measuring that they say they took."""

from __future__ import annotations

from collections.abc import Iterable

from repro.records.store import Record


def sum_seconds(records: Iterable[Record]) -> tuple[float, float]:
    """Return seconds of training and of measuring; a training that several runs share counts once."""
    trained, measured = {}, 0.0
    for record in records:
        training = record.provenance.get("training") or {}
        trained[training.get("id", record.id)] = float(training.get("seconds", 0.0))
        measured += float(record.provenance.get("evaluation_seconds", 0.0))
    return sum(trained.values()), measured
