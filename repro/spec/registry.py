"""Finds every experiment (experiments/eNN_*.py) and which artefact each shows; numbers and names are unique."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType
from typing import Any

from repro.spec.artefact import MAIN, Exhibit, Experiment, Figure, Table
from repro.spec.run import Run
from repro.storage.paths import SOURCES


@cache
def experiments() -> tuple[Experiment, ...]:
    """Return all experiments by number; ValueError when a number or an artefact name is used twice."""
    names = sorted(path.stem for path in (SOURCES / "experiments").glob("e[0-9][0-9]_*.py"))
    found = [importlib.import_module(f"experiments.{name}").EXPERIMENT for name in names]
    for name, experiment in zip(names, found, strict=True):
        if int(re.findall(r"\d+", name)[0]) != experiment.number:
            raise ValueError(f"experiments/{name}.py declares number {experiment.number}; name and number must agree")
    artefacts = [artefact for experiment in found for artefact in experiment.artefacts]
    for kind, values in (("number", [e.number for e in found]), ("artefact", artefacts)):
        twice = sorted({str(value) for value in values if values.count(value) > 1})
        if twice:
            raise ValueError(f"{kind} {twice} is declared by more than one experiment")
    return tuple(found)


def declared_notes(name: str) -> tuple[Any, ...]:
    """Return what experiments/unjudged.py lists under a name: NOT_JUDGED, ERRATA or DEVIATIONS, as dataclasses."""
    found: tuple[Any, ...] = getattr(importlib.import_module("experiments.unjudged"), name)
    return found


@cache
def artefacts() -> MappingProxyType[str, tuple[Experiment, Table | Figure | Exhibit]]:
    """Return every artefact by name with the experiment that shows it."""
    return MappingProxyType(
        {shown.name: (experiment, shown) for experiment in experiments() for shown in experiment.shows}
    )


@cache
def _papers() -> dict[str, str]:
    return {claim.id: experiment.paper for experiment in experiments() for claim in experiment.claims}


def paper_of(claim: str) -> str:
    """Return the paper whose claim an id is of; that of this suite for one that no experiment declares."""
    return _papers().get(claim, MAIN)


@cache
def runs_of_companions(scale: str) -> frozenset[Run]:
    """Return the runs that only experiments of companion papers ask for."""
    asked: dict[bool, set[Run]] = {True: set(), False: set()}
    for experiment in experiments():
        asked[experiment.paper == MAIN].update(experiment.runs(scale))
    return frozenset(asked[False] - asked[True])


def suggestion(word: str, known: Iterable[str], *, likeness: float = 0.8) -> str:
    """Return ", did you mean X?" for a word that is spelt nearly as a known one; nothing where none is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=likeness)
    return f", did you mean {near[0]!r}?" if near else ""


def experiment_of(name: str) -> Experiment:
    """Return the experiment that shows an artefact; ValueError says which is spelt nearly so, and what lists them."""
    if name not in artefacts():
        raise ValueError(f"unknown artefact {name!r}{suggestion(name, artefacts())}; `repro list` shows the artefacts")
    return artefacts()[name][0]
