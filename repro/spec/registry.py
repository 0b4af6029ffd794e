"""Find all experiments (eNN_*.py in experiments/, its companions/ and ours/). Numbers and artefact names are unique.

A file that fails to import, or that reuses a number or a name, is an error that names it. So is one whose runs fail, when
they are first requested.
"""

from __future__ import annotations

import importlib
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from repro.spec.artefact import MAIN, Exhibit, Experiment, Figure, Table
from repro.spec.run import FIELDS, Run
from repro.storage.files import name_in_errors
from repro.storage.paths import EXPERIMENT_FOLDERS, SOURCES
from repro.text import format_suggestion


@cache
def experiments() -> tuple[Experiment, ...]:
    """Return all experiments by number. Raises ValueError if two share a number, an artefact or a claim."""
    loaded: list[Experiment] = []
    for file in list_experiment_files():
        with name_in_errors(file):
            experiment = importlib.import_module(".".join(file.with_suffix("").parts)).EXPERIMENT
            # Pages and reports request the runs of each scale many times, which takes them seconds without the cache.
            runs = cache(_add_file_to_errors(file, experiment))
            experiment = replace(experiment, number=int(file.name[1:3]), runs=runs)
            _check_experiment(experiment, loaded)
        loaded.append(experiment)
    return tuple(loaded)


def list_experiment_files() -> list[Path]:
    """Return the path of each experiment file relative to the sources, by number."""
    files = [path for folder in EXPERIMENT_FOLDERS for path in folder.glob("e[0-9]*_*.py")]
    if wrong := [path.name for path in files if path.name[3] != "_"]:
        raise ValueError(f"{wrong}: the number of an experiment needs two digits, 00 to 99")
    return sorted((path.relative_to(SOURCES) for path in files), key=lambda path: path.name)


def _add_file_to_errors(file: Path, experiment: Experiment) -> Callable[[str], tuple[Run, ...]]:
    """Wrap the `runs` of an experiment: no runs at scales that it does not have, and errors that name the file."""

    def runs_at(scale: str) -> tuple[Run, ...]:
        with name_in_errors(file):
            return experiment.runs(scale) if scale in experiment.scales else ()

    return runs_at


def _check_experiment(experiment: Experiment, earlier: Sequence[Experiment]) -> None:
    """Raise ValueError if a number, an artefact or a claim is used twice."""
    for kind, names in (
        ("artefact", [name for each in (*earlier, experiment) for name in each.artefact_names]),
        ("claim", [claim.id for each in (*earlier, experiment) for claim in each.claims]),
    ):
        if duplicates := sorted(name for name, count in Counter(names).items() if count > 1):
            raise ValueError(f"{kind} {duplicates} is declared more than once: choose another name")
    if experiment.number in [other.number for other in earlier]:
        raise ValueError(f"number {experiment.number} is declared by more than one experiment: choose another")


def load_front_page() -> dict[str, Any]:
    """Return the "main_artefacts", and each "headline": a statement, the number of the paper, and the ids of claims."""
    return tomllib.loads((SOURCES / "experiments" / "headlines.toml").read_text("utf-8"))


@cache
def artefacts() -> MappingProxyType[str, tuple[Experiment, Table | Figure | Exhibit]]:
    """Return each artefact and its experiment, by the name of the artefact."""
    return MappingProxyType(
        {artefact.name: (experiment, artefact) for experiment in experiments() for artefact in experiment.artefacts}
    )


@cache
def find_paper(claim_id: str) -> str:
    """Return the paper of a claim. The default is the paper of this suite."""
    declaring = (each for each in experiments() if any(claim.id == claim_id for claim in each.claims))
    return next((each.paper for each in declaring), MAIN)


def find_experiment(name: str) -> Experiment:
    """Return the experiment of an artefact. Raises ValueError with a suggestion if the artefact is unknown."""
    if name in FIELDS:
        raise ValueError(f"{name} is a field: give its values, as in {name}=VALUE,VALUE")
    if name not in artefacts():
        folder = " (a folder: name a file of runs in it)" if Path(name).is_dir() else ""
        hint = format_suggestion(name, artefacts())
        raise ValueError(f"unknown artefact {name!r}{folder}{hint}; `repro list` shows the artefacts")
    return artefacts()[name][0]
