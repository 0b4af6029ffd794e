"""Compute the id of a run: twelve hex digits of a hash of its difference from the scale, and of the scale's version.

A new field of `Run` does not change old ids, because old runs have the value of the scale.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from repro.spec.run import FIELDS, Run, get_training_run
from repro.spec.scales import get_scale

RUN_ID = re.compile(r"[0-9a-f]{12}")
"""The form of a run's id."""


def difference(run: Run) -> dict[str, Any]:
    """Return the fields whose value differs from the scale's. Scale and seed are always included."""
    defaults = get_scale(run.scale).fields
    # vars instead of asdict: a run is flat, and asdict takes ten times as long
    return {name: value for name, value in vars(run).items() if name in ("scale", "seed") or value != defaults[name]}


def format_overrides(run: Run) -> str:
    """Return the difference from the scale on one line, without the scale: seed=0, sampler=domain"""
    changes = {name: value for name, value in difference(run).items() if name != "scale"}
    return ", ".join(f"{name}={'–' if value is None else value}" for name, value in changes.items())


def run_id(run: Run) -> str:
    """Return the id of a run. It is the same on every machine and does not change if `Run` gets a new field."""
    return _digest(difference(run))


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode  # created once


def _digest(changes: Mapping[str, Any]) -> str:
    version = get_scale(changes["scale"]).version
    if version > 1:
        changes = {**changes, "scale_version": version}
    return hashlib.sha256(_canonical(changes).encode()).hexdigest()[:12]


def get_setting_id(run: Run) -> str:
    """Return the id shared by runs that differ only in their seed, which is the id of seed 0."""
    return _digest({**difference(run), "seed": 0})


def get_training_id(run: Run) -> str:
    """Return the id of a run's training run. Runs that differ only in evaluation share it."""
    return run_id(get_training_run(run))


def run_from_record(recorded: Mapping[str, Any], recorded_id: str) -> Run:
    """Return the run that a record stores.

    A field that is missing in the record gets the value of the scale.

    Raises:
        ValueError: if a field was renamed, or if a value of the scale has changed, so that the id no longer matches.
            The message names the field, its recorded value and its current value.
    """
    unknown = sorted(set(recorded) - set(FIELDS))
    if unknown:
        remedy = "read it with the code that made it (a branch, or before a field was renamed), or move it away"
        raise ValueError(f"record {recorded_id}: this version has no field {unknown}; {remedy}")
    run = Run(**{**get_scale(recorded.get("scale", "")).fields, **recorded})
    if run_id(run) != recorded_id:
        defaults = get_scale(run.scale).fields
        changes = {name: value for name, value in difference(run).items() if name in defaults}
        listed = ", ".join(f"{name} was {value!r}, is {defaults[name]!r}" for name, value in changes.items())
        raise ValueError(f"record {recorded_id} has id {run_id(run)} today: scale {run.scale!r} has moved: {listed}")
    return run
