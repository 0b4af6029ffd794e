"""Finds every experiment (experiments/eNN_*.py) and which artefact each shows; numbers and names are unique.

A file that cannot be read, or takes a number or a name twice, is left out and named; `check` refuses it. One whose runs
cannot be told is found out when they are asked for, and named then.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from repro.spec.artefact import MAIN, Exhibit, Experiment, Figure, Table
from repro.spec.run import Run
from repro.spec.values import suggestion
from repro.storage.paths import SOURCES

OF_A_FILE = Exception
"""What a mistake in an experiment's file raises when it is imported, or asked for its runs: it may be anything."""


class FaultyRunsError(ValueError):
    """An experiment's file cannot tell its runs; the message names the file and what is wrong with it."""


@cache
def experiments() -> tuple[Experiment, ...]:
    """Return all experiments by number, less those of files that are wrong, which stderr names once."""
    found, problems = _read_experiments()
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    return found


def check_every_experiment() -> None:
    """ValueError when a file of experiments/ is wrong: for whoever judges them all."""
    if problems := _read_experiments()[1]:
        raise ValueError("; ".join(problems))


@cache
def _read_experiments() -> tuple[tuple[Experiment, ...], tuple[str, ...]]:
    """Return the experiments whose files are right, and what is wrong with each other file."""
    found: list[Experiment] = []
    numbered = sorted(path.stem for path in (SOURCES / "experiments").glob("e[0-9]*_*.py"))
    problems = [f"experiments/{name}.py: its number needs two digits, 00 to 99" for name in numbered if name[3] != "_"]
    for name in (one for one in numbered if one[3] == "_"):
        try:
            experiment = importlib.import_module(f"experiments.{name}").EXPERIMENT
            _check_experiment(name, experiment, found)
        except OF_A_FILE as error:
            problems.append(f"experiments/{name}.py: {_describe_clash(error)}")
        else:
            found.append(replace(experiment, runs=_add_file_to_errors(name, experiment)))
    return tuple(found), tuple(problems)


def count_experiment_files() -> int:
    """Return how many files of experiments/ there are, right or wrong."""
    found, problems = _read_experiments()
    return len(found) + len(problems)


def _describe_clash(error: Exception) -> str:
    return f"{' '.join(str(error).split())} ({type(error).__name__})".lstrip()


def _add_file_to_errors(name: str, experiment: Experiment) -> Callable[[str], tuple[Run, ...]]:
    """Return the experiment's runs, none at a scale that it does not have; mistakes name the file."""

    def named(scale: str) -> tuple[Run, ...]:
        if scale not in experiment.scales:
            return ()
        try:
            return experiment.runs(scale)
        except OF_A_FILE as error:
            raise FaultyRunsError(
                f"experiments/{name}.py: its runs at scale {scale!r}: {_describe_clash(error)}"
            ) from error

    return named


def _check_experiment(name: str, experiment: Experiment, before: Sequence[Experiment]) -> None:
    """ValueError when an experiment's number is not its file's, or when another one has its number or an artefact."""
    number = int(re.findall(r"\d+", name)[0])
    if experiment.number != number:
        raise ValueError(f"number={experiment.number}, but the file's name says {number}: write number={number}")
    taken = {artefact for one in before for artefact in one.artefacts}
    twice = sorted(taken.intersection(experiment.artefacts))
    if number in [one.number for one in before] or twice:
        what = f"artefact {twice}" if twice else f"number {number}"
        raise ValueError(f"{what} is declared by more than one experiment: choose another")


def declared_notes(name: str) -> Any:
    """Return the notes that `experiments` declares under a name such as NOT_JUDGED or FINDINGS."""
    module = name.lower() if name in ("DEVIATIONS", "HEADLINES", "FINDINGS") else "unjudged"
    return getattr(importlib.import_module(f"experiments.{module}"), name)


@cache
def artefacts() -> MappingProxyType[str, tuple[Experiment, Table | Figure | Exhibit]]:
    """Return every artefact by name with the experiment that shows it."""
    return MappingProxyType(
        {shown.name: (experiment, shown) for experiment in experiments() for shown in experiment.shows}
    )


@cache
def _papers() -> dict[str, str]:
    return {claim.id: experiment.paper for experiment in experiments() for claim in experiment.claims}


def find_paper(claim: str) -> str:
    """Return the paper whose claim an id is of; that of this suite for one that no experiment declares."""
    return _papers().get(claim, MAIN)


def normalise_artefact_name(word: str) -> str:
    """Return the artefact that is meant by a word written otherwise ("Table 1", "fig 14"); any other word as it is."""
    plain = re.sub(r"^fig(?=\d)", "figure", re.sub(r"[\s.]+", "", word).casefold())
    return plain if plain != word and plain in artefacts() else word


def find_experiment(name: str) -> Experiment:
    """Return the experiment that shows an artefact; ValueError says which is spelt nearly so, and what lists them."""
    if name not in artefacts():
        raise ValueError(f"unknown artefact {name!r}{suggestion(name, artefacts())}; `repro list` shows the artefacts")
    return artefacts()[name][0]
