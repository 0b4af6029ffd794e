"""Which runs are meant by the words of a command line: artefacts, `all`, or a file of runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.identity import run_id
from repro.places import corpora_folder, local_records, published_records
from repro.registry import experiment_of, experiments
from repro.scales import ORDER, scale_named
from repro.spec import Run, base
from repro.store import read_record

RECORDS = (local_records, published_records)


def runs_asked(
    what: Sequence[str] | None, scale: str, *, seeds: Sequence[int] | None = None, all_seeds: bool = False
) -> list[Run]:
    """Gives the runs, an asked one as often as it is asked for.

    Of an artefact the seeds meant for a reader's machine, unless `seeds` names others or `all_seeds` takes every one.
    A word that ends in .json is a file of runs. ValueError names an unknown artefact, scale or field.
    """
    scale_named(scale)
    files = [word for word in what or () if word.endswith(".json")]
    names = [word for word in what or () if word not in files]
    found = [run for path in files for run in read_runs(Path(path))]
    asked = experiments() if names == ["all"] or not what else map(experiment_of, names)
    for experiment in {one.number: one for one in asked}.values():
        allowed = tuple(seeds) if seeds else experiment.local_seeds
        found += [run for run in experiment.runs(scale) if all_seeds or run.seed in allowed]
    if not found:
        raise ValueError(f"{' '.join(what or ['all'])} has no run at scale {scale!r} with seed {list(seeds or [])}")
    return found


def read_runs(path: Path) -> list[Run]:
    """Reads a file of runs: a list of objects that each name a scale and the fields that differ from it.

    What `plan --json` prints is such a file too: its missing runs are meant.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    rows = content.get("missing") if isinstance(content, Mapping) else content
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and "scale" in row for row in rows):
        raise ValueError(
            f'{path}: expected a list of objects like {{"scale": "desk", "seed": 1, …}}, each with its scale'
        )
    return [_run(row) for row in rows]


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no value of a run")


def run_of_id(beginning: str) -> Run:
    """Gives a run by the beginning of its id: recorded, planned for an imported corpus, or declared by an experiment.

    ValueError when there is none, or more than one.
    """
    found = {read_record(path).run for folder in RECORDS for path in folder().glob(f"{beginning}*.json")}
    if not found:
        planned = [run for path in corpora_folder().glob("*/*-*.json") for run in read_runs(path)]
        declared = [run for experiment in experiments() for scale in ORDER for run in experiment.runs(scale)]
        found = {run for run in (*planned, *declared) if run_id(run).startswith(beginning)}
    if len(found) != 1:
        raise ValueError(f"run {beginning!r}: {len(found)} runs begin so; `repro plan` and `repro status` show the ids")
    return found.pop()


def _run(row: Mapping[str, Any]) -> Run:
    return base(row["scale"], **{name: value for name, value in row.items() if name not in ("scale", "id")})


def sweep_name(what: Sequence[str] | None, scale: str) -> str:
    """Gives the name of the folder in which these words are swept."""
    stems = [Path(word).stem if word.endswith(".json") else word for word in what or ("all",)]
    return "-".join([*stems, scale])[:100]
