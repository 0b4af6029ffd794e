"""A run's id: twelve hex digits of what differs from the values its scale fixes, and of the scale's version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from repro.spec.run import FIELDS, Run, get_training_run
from repro.spec.scales import get_scale


def difference(run: Run) -> dict[str, Any]:
    """Return the fields whose value is not the scale's own (scale and seed always)."""
    fixed = get_scale(run.scale).fields
    # vars, not asdict: a run is flat, and copying its values takes ten times as long
    return {name: value for name, value in vars(run).items() if name in ("scale", "seed") or value != fixed[name]}


def format_overrides(run: Run) -> str:
    """Return what differs from the scale's values as a line for a reader, the scale left out: seed=0, sampler=domain"""
    changes = {name: value for name, value in difference(run).items() if name != "scale"}
    return ", ".join(f"{name}={'–' if value is None else value}" for name, value in changes.items())


def run_id(run: Run) -> str:
    """Return the id of a run: the same on every machine, unmoved by a new field."""
    fixed = get_scale(run.scale).fields
    changes = vars(run).items() - fixed.items()  # of sets, since thousands of ids are asked for; equal is equal
    return _digest({**dict(changes), "scale": run.scale, "seed": run.seed})


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode  # made once


def _digest(changes: Mapping[str, Any], version: int | None = None) -> str:
    version = version or get_scale(changes["scale"]).version
    if version > 1:
        changes = {**changes, "scale_version": version}
    return hashlib.sha256(_canonical(changes).encode()).hexdigest()[:12]


def get_setting_id(run: Run) -> str:
    """Return the id that runs share which differ in nothing but the seed: that of seed 0."""
    return _digest({**difference(run), "seed": 0})


def get_training_id(run: Run) -> str:
    """Return the id of the training a run uses: its own, unless it differs from another run in evaluation only."""
    return run_id(get_training_run(run))


def run_from_record(recorded: Mapping[str, Any], recorded_id: str) -> Run:
    """Return the run of a record as it is understood today.

    A field the record does not know takes its scale's value. ValueError when a field was renamed, or when the id no
    longer follows from the values because a scale's value has moved: it names the field, then and now.
    """
    unknown = sorted(set(recorded) - set(FIELDS))
    if unknown:
        remedy = "read it with the code that made it (a branch, or before a field was renamed), or move it away"
        raise ValueError(f"record {recorded_id}: field {unknown} is none of a run here; {remedy}")
    fixed = get_scale(recorded.get("scale", "")).fields
    run = Run(**{**fixed, **recorded})
    if run_id(run) != recorded_id:
        raise ValueError(
            f"record {recorded_id} has id {run_id(run)} today: a scale's value has moved: {_find_moved_values(run, recorded_id)}"
        )
    return run


def _find_moved_values(run: Run, recorded_id: str) -> str:
    """Return which value of a scale has moved since an id was given; all that differ where no single one explains it.

    A value that was its scale's then is no part of the id, and is a difference today; one that became its scale's, the
    other way round. So each field in turn is put in or left out, under each version that the scale has had.
    """
    scale, changes = get_scale(run.scale), difference(run)
    told = {
        name: f"{name} was {value!r}, is {scale.fields[name]!r}"
        for name, value in changes.items()
        if name in scale.fields
    }
    for version in range(1, scale.version + 1):
        if _digest(changes, version) == recorded_id:
            return f"scale {run.scale!r} had version {version}, has {scale.version}"
        for name, value in scale.fields.items():
            others = {other: changes[other] for other in changes if other != name}
            if _digest(others if name in changes else {**changes, name: value}, version) == recorded_id:
                return f"{told.get(name, f'{name} is {value!r}, and was another value')} at scale {run.scale!r}"
    return f"{', '.join(told.values())} at scale {run.scale!r}"
