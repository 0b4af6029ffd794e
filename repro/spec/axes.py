"""Parse grids from a command line, such as `learning_rate=1e-4,3e-5 seed=1..5`, and expand runs over them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

from repro.spec.identity import run_id
from repro.spec.measures import MEASURES, TRAINED
from repro.spec.run import (
    CHOICES,
    CONTEXT_FIELDS,
    EVALUATION_FIELDS,
    FIELDS,
    Run,
    check_field_value,
    check_run_warmup,
    depends_on_seed,
    draws_within_domains,
    needs_surrogate,
)
from repro.spec.start import resolve_encoders
from repro.spec.validation import RANGES, validate_value
from repro.text import count_noun, format_suggestion, shorten

AXIS = re.compile(r"[^=/\\]+=.*", re.DOTALL)
RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
NONE_WORDS = ("none", "null", "None")
BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
MAX_VALUES = 10_000
SURROGATE_FIELDS = ("surrogate", "max_tokens", "prompts", "corpus")
"""Fields that affect the scores of an untrained surrogate, in addition to those of the evaluation."""
PAIR_FIELDS = ("corpus", "sources", "num_pairs", "domain_column")
"""Fields that select the training pairs, which some analyses read even if nothing is trained."""
DRAW_FIELDS = ("context_seed", "num_test_contexts", "test_contexts")
"""Fields that select the context documents of an evaluation."""
NEEDED_BY: Mapping[str, Callable[[Any], bool]] = {
    # the first phase may have clusters of its own
    "surrogate": lambda run: _reranks(run) or needs_surrogate(run) or run.pretraining_cluster_size is not None,
    "domain_column": lambda run: _reads_domains(run),
    "filter_model": lambda run: run.filter != "none",
    "filter_margin": lambda run: run.filter != "none",
    # a shift of all positions changes nothing where they are rotary
    "first_position": lambda run: run.backbone == "bert",
    "mined_negatives": lambda run: run.num_hard_negatives > 0,
    "cluster_dimensions": lambda run: run.sampler == "cluster" or run.pretraining_cluster_size is not None,
    "packing": lambda run: run.sampler == "cluster" or run.pretraining_cluster_size is not None,
}
"""Fields that only some training runs read. An axis of such a field leaves all other training runs as they are."""
EXCLUSIVE_FIELDS = (("num_steps", "num_epochs"), ("num_pretraining_steps", "num_pretraining_epochs"))
"""Pairs of fields of which exactly one has a value."""

Axes = Mapping[str, tuple[Any, ...]]


def is_axis(word: str) -> bool:
    """Return whether an argument is an axis, FIELD=VALUES."""
    return AXIS.fullmatch(word) is not None and not word.endswith(".json")


def parse_axes(words: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each axis.

    Values are separated by commas. `1..5` means every whole number from 1 to 5, and `none` means None.

    Raises:
        ValueError: for an unknown field, an invalid value, or a field that is given twice.
    """
    axes: dict[str, tuple[Any, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        name = name.strip()
        check_field(name)
        if name in axes:
            raise ValueError(f"{name} is given twice: put all its values after one {name}=, separated by commas")
        axes[name] = _validate_values(name, _parse_text(name, text))
    return axes


def check_field(name: str) -> None:
    """Raise ValueError if an axis cannot vary this field. The message suggests the most similar field."""
    if name == "scale":
        raise ValueError("scale=… is not an axis, since rows differ between scales: use --scale, one command per scale")
    if name not in FIELDS:
        hint = format_suggestion(name, FIELDS, likeness=0.6)
        raise ValueError(f"unknown field {shorten(repr(name))}{hint or ';'} `repro fields` lists all")


def expand(runs: Sequence[Run], axes: Axes) -> list[Run]:
    """Return every run with every combination of the axes' values, each once.

    A field does not multiply a run whose result it cannot change, for example the number of contexts of a biencoder. The
    other axes decide, too: `architecture=bm25,biencoder seed=1,2` gives one run of BM25. An axis of steps clears epochs,
    and vice versa.

    Raises:
        ValueError: for the first impossible combination.
    """
    grid = []
    for run, combination in product(runs, product(*axes.values())):
        values = dict(zip(axes, combination, strict=True))
        # These fields may be impossible together, as long as it is open which of the values apply.
        combined: Any = SimpleNamespace(**vars(run) | values)
        grid.append(_change(run, {name: value for name, value in values.items() if _applies(name, combined)}))
    given = set(runs)
    unique: dict[Hashable, Run] = {}
    for run in grid:
        key = _list_effective_values(run)
        # of equivalent runs, the one that an experiment declares may have a record
        if key not in unique or (run in given and unique[key] not in given):
            unique[key] = run
    return list(unique.values())


def describe_grid(axes: Axes, runs: Sequence[Run], grid: Sequence[Run]) -> str:
    """Return one line with the number of rows, values and runs."""
    sizes = " × ".join(f"{len(values)} {name}" for name, values in axes.items())
    return f"grid: {count_noun(len(set(runs)), 'row')} × {sizes} = {count_noun(len(grid), 'run')}"


def describe_type(name: str) -> str:
    """Describe the values of a field: its choices, or its type and range."""
    kind, *others = Run.__annotations__[name].split(" | ")
    suffix = ", or none" if others else ""
    if name in CHOICES:
        return ", ".join(CHOICES[name]) + suffix
    description = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}[kind]
    if name in RANGES:
        minimum, maximum = RANGES[name]
        description += f" from {minimum:.10g} to {maximum:.10g}"
    return description + suffix


def _list_effective_values(run: Run) -> Hashable:
    """Return the values that can change the result of an untrained system. A trained run is itself such a value."""
    if run.architecture in TRAINED:
        return run
    return (run.scale, *(getattr(run, name) for name in FIELDS if _applies(name, run)))


def _applies(name: str, run: Run) -> bool:
    """Return whether a field can change the result of this run."""
    analysis = MEASURES[run.measure]
    if name == "architecture":
        return True
    if name == "seed":
        return depends_on_seed(run)
    is_drawn_for_context = name in DRAW_FIELDS and run.measure == "retrieval"
    if is_drawn_for_context or (name in CONTEXT_FIELDS and run.architecture in TRAINED):
        return run.architecture == "contextual"
    if run.architecture in TRAINED and name in NEEDED_BY:
        return NEEDED_BY[name](run)
    if run.architecture in (*TRAINED, "none") or name in EVALUATION_FIELDS or analysis.samples_pairs:
        return True
    if name in PAIR_FIELDS and analysis.reads_pairs:
        return True
    return name in SURROGATE_FIELDS and (run.architecture == "surrogate" or _reranks(run))


def _reranks(run: Any) -> bool:
    """Return whether a run reranks candidates of the surrogate."""
    return run.protocol == "rerank" and MEASURES[run.measure].reranks


def _reads_domains(run: Any) -> bool:
    """Return whether the batches of a training run, or its analysis, depend on the domains of the pairs."""
    is_divided = draws_within_domains(run) or run.num_hard_negatives > 0 or run.pretraining_cluster_size is not None
    return is_divided or MEASURES[run.measure].reads_pairs or MEASURES[run.measure].samples_pairs


def _change(run: Run, values: dict[str, Any]) -> Run:
    changes = resolve_encoders(values)
    # of two exclusive fields, the one that is not given is cleared
    for steps, epochs in EXCLUSIVE_FIELDS:
        for name, opposite in ((steps, epochs), (epochs, steps)):
            if changes.get(name) is not None:
                changes.setdefault(opposite, None)
    # cluster_size is valid only for the sampler "cluster"
    if changes.get("sampler", "cluster") != "cluster":
        changes.setdefault("cluster_size", None)
    try:
        changed = replace(run, **changes)
        check_run_warmup(changed)
        return changed
    except ValueError as error:
        given = ", ".join(f"{name}={value}" for name, value in values.items())
        raise ValueError(f"{given} with run {run_id(run)} ({run.architecture}, {run.sampler}): {error}") from error


def _validate_values(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values of an axis in the form of the field's type, each once, in order."""
    validated = tuple(dict.fromkeys(validate_value(name, value, Run.__annotations__[name]) for value in values))
    for value in validated:
        check_field_value(name, value)
    return validated


def _parse_text(name: str, text: str) -> list[Any]:
    """Return the values of an axis, separated by commas, before they are validated."""
    return [value for part in text.split(",") for value in _parse_values(name, part.strip())]


def _parse_values(name: str, text: str) -> list[Any]:
    """Return the values of one comma-separated part of an axis, before they are validated."""
    declared = Run.__annotations__[name]
    kind = declared.split(" | ")[0]
    if text == "":
        raise ValueError(f"{name}=: a value is missing; allowed: {describe_type(name)}")
    if text in NONE_WORDS and "None" in declared and text not in CHOICES.get(name, ()):
        return [None]
    if kind == "str":
        return [text]
    if kind == "bool":
        if text not in BOOLEANS:
            raise ValueError(f"{name}={shorten(text)}: expected true or false")
        return [BOOLEANS[text]]
    if kind == "int" and (span := RANGE.fullmatch(text)):
        first, last = map(int, span.groups())
        if not first <= last < first + MAX_VALUES:
            raise ValueError(f"{name}={text}: expected an increasing range of at most {MAX_VALUES} numbers")
        return list(range(first, last + 1))
    try:
        # Python would accept underscores and digits of other scripts
        if "_" in text or not text.isascii():
            raise ValueError
        return [int(text) if kind == "int" else float(text)]
    except ValueError:
        raise ValueError(f"{name}={shorten(text)}; allowed: {describe_type(name)}") from None
