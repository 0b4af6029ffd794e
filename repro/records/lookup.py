"""Resolve the arguments of a command line to runs: artefacts, `all`, run ids, files of runs, and grids."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from repro.records.store import try_read_record
from repro.spec import Experiment, Run, depends_on_seed, run_from_fields
from repro.spec.axes import describe_grid, expand, is_axis, parse_axes
from repro.spec.identity import run_from_record, run_id
from repro.spec.registry import experiments, find_experiment
from repro.spec.run import check_run_warmup
from repro.spec.scales import ORDER, get_scale
from repro.storage.files import json_object, read_json
from repro.storage.paths import get_corpora_folder, get_local_records, get_published_records, get_sweeps_folder
from repro.text import format_spans, shorten

RECORDS = (get_local_records, get_published_records)
FILE_ENDING = ".json"
MAX_SELECTOR_CHARACTERS = 80
ID_PREFIX = re.compile(r"[0-9a-f]{1,12}")
"""The beginning of a run id. No artefact or claim has such a name."""


def resolve_runs(
    arguments: Sequence[str] | None,
    scale: str,
    *,
    seeds: Sequence[int] | None = None,
    all_seeds: bool = False,
) -> list[Run]:
    """Return the runs of some arguments. Runs that are named twice are returned twice.

    Args:
        arguments: artefacts, files of runs (.json), prefixes of run ids, and axes such as `seed=1..5`. Files
            and ids have their own scale and seed.
        scale: the scale of the artefacts.
        seeds: the seeds of the artefacts, by default the local seeds. Runs that depend on no seed are always included.
        all_seeds: whether to include all seeds.

    Raises:
        ValueError: for an unknown artefact, scale or field, for a seed that no run of the artefacts has, and for
            arguments that exclude each other.
    """
    get_scale(scale)
    axis_words = [word for word in arguments or () if is_axis(word)]
    if axis_words:
        axes = parse_axes(axis_words)
        selectors = [word for word in arguments or () if not is_axis(word)]
        if not selectors:
            raise ValueError(f"{' '.join(axis_words)}: name the runs first, for example `table1 {axis_words[0]}`")
        if seeds and "seed" in axes:
            raise ValueError(f"--seed {list(seeds)} and seed=… do not go together: give one of them")
        # Axes vary the runs of the other arguments, which are resolved first.
        rows = resolve_runs(selectors, scale, seeds=seeds, all_seeds=all_seeds)
        runs = _pin_imported_content(expand(rows, axes))
        print(describe_grid(axes, rows, runs), file=sys.stderr)
        return runs
    files_and_ids, artefacts = split_words(arguments)
    has_artefacts = bool(artefacts) or not files_and_ids
    if seeds and all_seeds:
        raise ValueError(f"--seed {list(seeds)} and --all-seeds do not go together; give one of them")
    if seeds and not has_artefacts:
        raise ValueError(f"--seed {list(seeds)} chooses among the runs of artefacts; run ids and files have their own")
    artefact_runs: list[Run] = []
    for experiment in resolve_experiments(artefacts) if has_artefacts else ():
        candidates = experiment.runs(scale) if all_seeds or seeds else experiment.local_runs(scale)
        artefact_runs += [run for run in candidates if not seeds or run.seed in seeds or not depends_on_seed(run)]
    # A seed that exists for only some artefacts is accepted. One that exists for none is a mistake.
    missing_seeds = sorted({*(seeds or ())} - {run.seed for run in artefact_runs if depends_on_seed(run)})
    runs = []
    for word in files_and_ids:
        runs += read_runs(Path(word)) if _is_file(word) else [find_run_by_id(word)]
    runs += artefact_runs
    if missing_seeds or not runs:
        raise ValueError(_describe_no_run(artefacts or ["all"], scale, missing_seeds))
    return runs


def describe_seeds(arguments: Sequence[str] | None, scale: str) -> list[str]:
    """Return a line on the seeds that the artefacts get by default at a scale. Empty without artefacts."""
    axes = parse_axes(word for word in arguments or () if is_axis(word))
    files_and_ids, artefacts = split_words(arguments)
    if "seed" in axes or (files_and_ids and not artefacts):
        return []
    selected = resolve_experiments(artefacts)
    existing = {run.seed for experiment in selected for run in experiment.runs(scale) if depends_on_seed(run)}
    planned = {run.seed for experiment in selected for run in experiment.local_runs(scale) if depends_on_seed(run)}
    if not planned or planned == existing:
        return []
    seeds = f"seed {format_spans(planned)} of {format_spans(existing)}"
    return [f"{seeds}; --seed N selects another, --all-seeds plans all"]


def _describe_no_run(artefacts: Sequence[str], scale: str, missing_seeds: Sequence[int]) -> str:
    """Return the message for artefacts without a run: the available scales or seeds, and how to run other seeds."""
    selected, words = resolve_experiments(artefacts), " ".join(artefacts)
    if not missing_seeds:
        return describe_missing_scale(artefacts, selected, scale)
    seeds = sorted({run.seed for experiment in selected for run in experiment.runs(scale) if depends_on_seed(run)})
    missing = f"{words} has no run at scale {scale!r} with seed {missing_seeds}; it has {seeds}."
    return f"{missing} For other seeds, vary the field: `repro run {words} seed={missing_seeds[0]} --scale {scale}`"


def describe_missing_scale(arguments: Sequence[str], selected: Sequence[Experiment], scale: str) -> str:
    """Return the message for arguments without a run at a scale, with the scales at which their experiments run."""
    scales = sorted({name for experiment in selected for name in experiment.scales}, key=ORDER.index)
    message = f"{' '.join(arguments)} has no run at scale {scale!r}"
    return message if scale in scales else f"{message}; it runs at {', '.join(scales)}"


def split_words(arguments: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Split arguments into files and ids of runs, and artefacts.

    Axes (`seed=1..5`) are in neither list. They apply to the runs of the other arguments.
    """
    words = [word for word in arguments or () if not is_axis(word)]
    files_and_ids = [word for word in words if _is_file(word) or ID_PREFIX.fullmatch(word)]
    return files_and_ids, [word for word in words if word not in files_and_ids]


def _is_file(word: str) -> bool:
    return word.endswith(FILE_ENDING)


def resolve_experiments(artefacts: Sequence[str] | None) -> list[Experiment]:
    """Return the experiments of some artefacts, each once, or all experiments for `all` or no artefact.

    Raises ValueError for an unknown artefact.
    """
    if not artefacts or list(artefacts) == ["all"]:
        return list(experiments())
    return list({experiment.number: experiment for experiment in map(find_experiment, artefacts)}.values())


def read_runs(path: Path) -> list[Run]:
    """Read a file of runs: a list of objects, each with a scale and the fields that differ from it.

    The output of `plan --json` is also accepted and means its missing runs. The name of an imported corpus or
    evaluation set without a digest refers to its current content. If the text changes, so does the run.
    """
    content = read_json(path)
    rows = content.get("missing") if isinstance(content, Mapping) else content
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and "scale" in row for row in rows):
        expected = 'a list of objects with a scale, like {"scale": "desk", "seed": 1}'
        raise ValueError(f"{shorten(path)}: expected {expected}")
    if not rows:
        raise ValueError(f"{shorten(path)} lists no runs")
    return _pin_imported_content([_parse_run(row, f"{path}, run {number}") for number, row in enumerate(rows, 1)])


def find_run_by_id(prefix: str) -> Run:
    """Return the run whose id has this prefix.

    It searches local and published records, launched sweeps, and the experiments at every scale. Plans for imported
    corpora are searched only if no record matches.

    Raises:
        ValueError: if no run matches, or more than one.
    """
    # Several sources may know the same run, so they are merged by id before the count.
    matches: dict[str, Run] = {}
    for list_runs in (_list_recorded_runs, _list_launched_runs, _list_planned_runs):
        if list_runs is not _list_planned_runs or not matches:
            matches |= dict(list_runs(prefix))
    matches = {id: run for id, run in (_identify_declared_runs() | matches).items() if id.startswith(prefix)}
    if len(matches) != 1:
        reason = f"it begins the ids of {sorted(matches)[:5]}" if matches else "no run has this id"
        raise ValueError(
            f"run {prefix!r}: {reason}; `repro plan` and `repro status` show them. Those of a file of runs are known once they are recorded"
        )
    return next(iter(matches.values()))


IdentifiedRuns = Iterator[tuple[str, Run]]
"""Pairs of id and run."""


def _list_recorded_runs(prefix: str) -> IdentifiedRuns:
    for folder in RECORDS:
        records = map(try_read_record, sorted(folder().glob(f"{prefix}*.json")))
        yield from ((record.id, record.run) for record in records if record is not None)


def _list_launched_runs(prefix: str) -> IdentifiedRuns:
    for path in sorted(get_sweeps_folder().glob("*/submissions/*.json")):
        for identifier, values in json_object(path).get("runs", {}).items():
            if identifier.startswith(prefix):
                yield identifier, run_from_record(values, identifier)


def _list_planned_runs(prefix: str) -> IdentifiedRuns:
    """Yield the runs in the files that `data import` writes. Unreadable files are skipped."""
    # the id is not in the file name, so every run is read
    for folder in sorted(get_corpora_folder().glob("*")):
        for path in (folder / f"{folder.name}-{scale}.json" for scale in ORDER):
            with suppress(ValueError):
                yield from [(run_id(run), run) for run in read_runs(path)]


@cache
def _identify_declared_runs() -> dict[str, Run]:
    # once per process: it takes a third of a second, and a command may name a hundred ids
    return {run_id(run): run for experiment in experiments() for scale in ORDER for run in experiment.runs(scale)}


def _pin_imported_content(runs: list[Run]) -> list[Run]:
    """Return the runs with a digest in the names of imported corpora and evaluation sets.

    A corpus with a digest also determines the suite of the same name.
    """
    names = {name for run in runs for name in (run.corpus, run.pretraining_corpus, run.suite) if name}
    if not any((get_corpora_folder() / name).is_dir() for name in names):
        # the common case, without loading numpy and pyarrow
        return runs
    from repro.data.own.imported import find_imported
    from repro.storage.paths import is_imported

    pinned = {name: find_imported(name).corpus for name in names if "@" not in name and is_imported(name)}
    return [_pin_names(run, pinned) for run in runs]


def _pin_names(run: Run, pinned: Mapping[str, str]) -> Run:
    """Replace the names of imported corpora by their names with a digest."""
    names = {field: getattr(run, field) for field in ("corpus", "pretraining_corpus", "suite")}
    changes: dict[str, Any] = {field: pinned[name] for field, name in names.items() if name in pinned}
    if run.suite == run.corpus.partition("@")[0]:
        # The digest of the corpus already fixes its suite.
        changes.pop("suite", None)
    return replace(run, **changes) if changes else run


def _parse_run(row: Mapping[str, Any], location: str) -> Run:
    try:
        get_scale(row["scale"])
        run = run_from_fields({name: value for name, value in row.items() if name != "id"})
        check_run_warmup(run)
    except ValueError as error:
        raise ValueError(f"{location}: {error}") from error
    return run


def get_sweep_name(arguments: Sequence[str] | None, scale: str) -> str:
    """Return the folder name of a sweep over these arguments. It includes the scale if an artefact depends on it.

    Six digits of a hash distinguish files of the same name in different folders.
    """
    words = list(arguments or ("all",))
    stems = [Path(word).stem if _is_file(word) else word for word in words]
    name = "-".join([*stems, scale] if split_words(words)[1] else stems)
    files = [str(Path(word).resolve()) for word in words if _is_file(word)] + [word for word in words if is_axis(word)]
    if files or len(name) > MAX_SELECTOR_CHARACTERS:
        name = f"{name[:MAX_SELECTOR_CHARACTERS]}-{hashlib.sha256(repr([name, files]).encode()).hexdigest()[:6]}"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)
