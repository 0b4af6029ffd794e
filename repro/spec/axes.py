"""Grids typed on a command line or written in a file: `learning_rate=1e-4,3e-5 seed=1..5` over some runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from repro.spec.identity import run_id
from repro.spec.measures import TRAINED
from repro.spec.run import CHOICES, EVALUATION_FIELDS, FIELDS, Run, is_random
from repro.spec.values import RANGES, checked_value, count_noun, suggestion
from repro.storage.json_files import short

AXIS = re.compile(r"[^=/\\]+=.*", re.DOTALL)
RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
NONE_WORDS = ("none", "null", "None")
TRUTH = {"true": True, "false": False, "True": True, "False": False}
MOST_VALUES = 10_000
OF_SURROGATES = ("surrogate", "max_tokens", "prompts", "corpus")
"""Fields that decide the scores of a surrogate, which is not trained, besides those of the evaluation."""
EITHER_OR = (("num_steps", "num_epochs"), ("num_pretraining_steps", "num_pretraining_epochs"))

Axes = Mapping[str, tuple[Any, ...]]


def is_axis(word: str) -> bool:
    """Return whether a word of a command line is an axis, FIELD=VALUES."""
    return AXIS.fullmatch(word) is not None and not word.endswith((".json", ".yaml", ".yml"))


def parse_axes(words: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each axis; ValueError names an unknown field, a wrong value, or a field given twice.

    Values are separated by commas. `1..5` is every whole number from 1 to 5, `none` is no value.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        check_field(name.strip())
        if name in found:
            raise ValueError(f"{name} is given twice: put all its values behind one {name}=, separated by commas")
        parts = [value for part in text.split(",") for value in _values(name, part.strip())]
        found[name] = tuple(dict.fromkeys(checked_value(name, value, Run.__annotations__[name]) for value in parts))
    return found


def check_field(name: str) -> None:
    """ValueError for a name that is no field of a run that an axis may vary; it suggests the nearest one."""
    if name == "scale":
        raise ValueError("scale=… is no axis, since rows differ between scales: use --scale, one command per scale")
    if name not in FIELDS:
        near = suggestion(name, FIELDS, likeness=0.6)
        raise ValueError(f"unknown field {short(repr(name))}{near or ';'} `repro fields` lists all")


def expand(runs: Sequence[Run], axes: Axes) -> list[Run]:
    """Return every run with every combination of the axes' values, each once.

    A run that is not trained keeps its fields of training, and so does not become several runs. Giving steps takes
    back epochs, and the other way round.

    ValueError names the first combination that is impossible.
    """
    found: dict[Run, None] = {}
    for run in runs:
        names = [name for name in axes if _applies(name, run, axes)]
        for values in product(*(axes[name] for name in names)):
            found[_changed(run, dict(zip(names, values, strict=True)))] = None
    return list(found)


def describe_grid(axes: Axes, runs: Sequence[Run], grid: Sequence[Run]) -> str:
    """Return one line with the numbers of values, rows and runs."""
    sizes = " × ".join(f"{len(values)} {name}" for name, values in axes.items())
    untrained = sum(run.architecture not in TRAINED for run in runs)
    kept = f" ({count_noun(untrained, 'row is', 'rows are')} not trained and ignore fields of training)"
    return f"grid: {count_noun(len(set(runs)), 'row')} × {sizes} = {count_noun(len(grid), 'run')}" + (
        kept if untrained else ""
    )


def get_axes_of_file(values: Any) -> dict[str, tuple[Any, ...]]:
    """Return the axes that a file gives as an object: lists of values, single values, or text as on a command line."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError('"axes": expected an object like {"learning_rate": [1e-4, 3e-5], "seed": "1..5"}')
    found: dict[str, tuple[Any, ...]] = {}
    for name, given in values.items():
        check_field(str(name))
        listed = given if isinstance(given, list) else [given]
        if not listed:
            raise ValueError(f'"axes": {name} has no value')
        # a text is read as on a command line: YAML takes 3e-5 for one
        texts = {
            place: parse_axes([f"{name}={value}"])[name] for place, value in enumerate(listed) if type(value) is str
        }
        parts = [value for place, one in enumerate(listed) for value in texts.get(place, (one,))]
        found[name] = tuple(dict.fromkeys(checked_value(name, value, Run.__annotations__[name]) for value in parts))
    return found


def describe_type(name: str) -> str:
    """Return what a field takes, for a reader: its choices, or its type and range."""
    declared = Run.__annotations__[name]
    kind, *others = declared.split(" | ")
    none = ", or none" if others else ""
    if name in CHOICES:
        return ", ".join(CHOICES[name]) + none
    words = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}[kind]
    if name in RANGES:
        least, most = RANGES[name]
        words += f" from {least:.10g} to {most:.10g}"
    return words + none


def _applies(name: str, run: Run, axes: Axes) -> bool:
    """Return whether a field can change what this run gives."""
    if name == "seed":
        return is_random(run)
    if run.architecture in (*TRAINED, "none") or name in EVALUATION_FIELDS or "architecture" in axes:
        return True
    return run.architecture == "surrogate" and name in OF_SURROGATES


def _changed(run: Run, values: dict[str, Any]) -> Run:
    given = dict(values)
    for one, other in EITHER_OR:
        for name, opposite in ((one, other), (other, one)):
            if given.get(name) is not None and opposite not in given:
                given[opposite] = None
    if given.get("sampler", "cluster") != "cluster":
        given.setdefault("cluster_size", None)
    try:
        return replace(run, **given)
    except ValueError as error:
        told = ", ".join(f"{name}={value}" for name, value in values.items())
        raise ValueError(f"{told} with run {run_id(run)} ({run.architecture}, {run.sampler}): {error}") from error


def _values(name: str, text: str) -> list[Any]:
    """Return what one part of an axis means, before its type is checked."""
    declared = Run.__annotations__[name]
    kind = declared.split(" | ")[0]
    if text == "":
        raise ValueError(f"{name}=: a value is missing; {name} takes {describe_type(name)}")
    if text in NONE_WORDS and "None" in declared and text not in CHOICES.get(name, ()):
        return [None]
    if kind == "str":
        return [text]
    if kind == "bool":
        if text not in TRUTH:
            raise ValueError(f"{name}={short(text)}: expected true or false")
        return [TRUTH[text]]
    if kind == "int" and (span := RANGE.fullmatch(text)):
        first, last = map(int, span.groups())
        if not first <= last < first + MOST_VALUES:
            raise ValueError(f"{name}={text}: expected a range upwards, of at most {MOST_VALUES} numbers")
        return list(range(first, last + 1))
    try:
        if "_" in text or not text.isascii():  # which Python reads as digits
            raise ValueError
        return [int(text) if kind == "int" else float(text)]
    except ValueError:
        raise ValueError(f"{name}={short(text)}: {name} takes {describe_type(name)}") from None
