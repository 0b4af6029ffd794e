"""Which runs are meant by the words of a command line: artefacts, `all`, run ids, or files of runs."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro.records.store import readable_record, split_recorded
from repro.spec import TRAINED, Experiment, Run, is_random, run_of_fields
from repro.spec.axes import describe_grid, expand, get_axes_of_file, is_axis, parse_axes
from repro.spec.identity import run_from_record, run_id
from repro.spec.registry import experiments, find_experiment
from repro.spec.scales import ORDER, get_scale
from repro.spec.values import check_warmup
from repro.storage.json_files import MOST_BYTES, check_regular, json_object, read_json, short
from repro.storage.paths import get_corpora_folder, get_local_records, get_published_records, get_sweeps_folder

RECORDS = (get_local_records, get_published_records)
MOST_RUNS = 50_000
FILES = (".json", ".yaml", ".yml")
MOST_LETTERS = 80
BEGINS_AN_ID = re.compile(r"[0-9a-f]{1,12}")
"""What may begin a run's id, and is taken for it wherever a run can be named; no artefact or claim is called so."""


def resolve_runs(
    what: Sequence[str] | None,
    scale: str,
    *,
    seeds: Sequence[int] | None = None,
    all_seeds: bool = False,
    is_unpublished: bool = False,
) -> list[Run]:
    """Return the runs, an asked one as often as it is asked for.

    Of an artefact the seeds meant for a reader's machine, unless `seeds` names others or `all_seeds` takes every one;
    what no seed changes is among them.
    `is_unpublished` takes every one, too, and leaves out the runs whose record is published: there may be none left.
    A word that ends in .json is a file of runs, one of hexadecimal digits the beginning of a run's id; either has a
    scale and a seed of its own. ValueError names an unknown artefact, scale or field, a seed that no run of an
    asked artefact has, and words of which one would be ignored.
    """
    get_scale(scale)
    typed = [word for word in what or () if is_axis(word)]
    if typed:
        axes, rest = parse_axes(typed), [word for word in what or () if not is_axis(word)]
        if not rest:
            raise ValueError(f"{' '.join(typed)}: name the runs to vary first, for example `table1 {typed[0]}`")
        if seeds and "seed" in axes:
            raise ValueError(f"--seed {list(seeds)} and seed=… do not go together: give one of them")
        rows = resolve_runs(rest, scale, seeds=seeds, all_seeds=all_seeds)
        found = expand(rows, axes)
        print(describe_grid(axes, rows, found), file=sys.stderr)
        return split_recorded(found, [get_published_records()])[1] if is_unpublished else found
    single, names = split_words(what)
    is_every = all_seeds or is_unpublished
    _check_seeds(seeds, all_seeds=all_seeds, has_artefacts=bool(names) or not single)
    of_artefacts: list[Run] = []
    for experiment in resolve_experiments(names) if names or not single else ():
        runs = experiment.runs(scale) if is_every or seeds else experiment.local_runs(scale)
        of_artefacts += [run for run in runs if not seeds or run.seed in seeds or not is_random(run)]
    lacking = sorted({*(seeds or ())} - {run.seed for run in of_artefacts if is_random(run)})
    found = [run for word in single for run in (read_runs(Path(word)) if _is_file(word) else [run_of_id(word)])]
    found += of_artefacts
    if lacking or not found:
        raise ValueError(_no_run(names or what or ["all"], names, scale, lacking))
    return split_recorded(found, [get_published_records()])[1] if is_unpublished else found


def _check_seeds(seeds: Sequence[int] | None, *, all_seeds: bool, has_artefacts: bool) -> None:
    if seeds and all_seeds:
        raise ValueError(f"--seed {list(seeds)} and --all-seeds do not go together; say one of them")
    if seeds and not has_artefacts:
        raise ValueError(f"--seed {list(seeds)} chooses among the runs of artefacts; run ids and files have their own")


def _no_run(what: Sequence[str], names: Sequence[str], scale: str, lacking: Sequence[int]) -> str:
    """Say that there is no run of some words, or none of these seeds: which there are, and how others are run."""
    said = f"{' '.join(what)} has no run at scale {scale!r}"
    if not lacking:
        scales = sorted({at for one in resolve_experiments(names) for at in one.scales}, key=ORDER.index)
        return said if scale in scales else f"{said}; it runs at {', '.join(scales)}"
    there = sorted({run.seed for one in resolve_experiments(names) for run in one.runs(scale) if is_random(run)})
    planned = f"repro plan {' '.join(names or what)} --scale {scale} --json > runs.json"
    return (
        f"{said} with seed {lacking}; it has {there}. Other seeds go into a file of runs: `{planned}`, change the "
        "seeds in it, `repro run runs.json`"
    )


def split_words(what: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the words that mean single runs, files of them and ids, and those that mean artefacts.

    Axes (`seed=1..5`) are neither: a grid is made of the runs that the other words mean.
    """
    words = [word for word in what or () if not is_axis(word)]
    single = [word for word in words if _is_file(word) or BEGINS_AN_ID.fullmatch(word)]
    return single, [word for word in words if word not in single]


def _is_file(word: str) -> bool:
    return word.endswith(FILES)


def resolve_experiments(what: Sequence[str] | None) -> list[Experiment]:
    """Return the experiments that some artefacts are of, each once; all of them for no word or `all`.

    ValueError lists the artefacts there are.
    """
    asked = experiments() if not what or list(what) == ["all"] else map(find_experiment, what)
    return list({one.number: one for one in asked}.values())


def read_runs(path: Path) -> list[Run]:
    """Read a file of runs: a list of objects that each name a scale and the fields that differ from it.

    What `plan --json` prints is such a file too: its missing runs are meant. An imported corpus or evaluation set that
    is named without its content is the content it has today: other text under the name is another run.
    """
    content = read_json(path) if path.suffix == ".json" else _read_yaml(path)
    if isinstance(content, Mapping) and "axes" in content:
        return _runs_of_grid(content, path)
    rows = content.get("missing") if isinstance(content, Mapping) else content
    listed = rows if isinstance(rows, list) else []
    wrong = [number for number, row in enumerate(listed, 1) if not (isinstance(row, Mapping) and "scale" in row)]
    if not isinstance(rows, list) or wrong:
        which = f", run {wrong[0]} of {len(listed)}" if wrong else ""
        raise ValueError(
            f'{short(path)}{which}: expected a list of objects like {{"scale": "desk", "seed": 1}}, each with its scale'
        )
    if not rows:
        raise ValueError(f"{short(path)} lists no runs")
    if len(rows) > MOST_RUNS:
        raise ValueError(f"{path} lists {len(rows)} runs; at most {MOST_RUNS} go into one file: cut it into several")
    return _of_todays_content([_run(row, f"{path}, run {number}") for number, row in enumerate(rows, 1)])


def _runs_of_grid(content: Mapping[str, Any], path: Path) -> list[Run]:
    """Return the runs of a grid in a file: `{"runs": "table1", "scale": "desk", "axes": {"seed": "1..5"}}`."""
    unknown = sorted({*content} - {"runs", "scale", "axes"})
    words = content.get("runs")
    words = [words] if isinstance(words, str) else words
    if unknown or not isinstance(words, list) or not all(isinstance(word, str) for word in words) or not words:
        raise ValueError(
            f'{short(path)}: expected {{"runs": "table1", "scale": "desk", "axes": {{"seed": "1..5"}}}}'
            + (f", found {unknown}" if unknown else "")
        )
    if str(path) in words:
        raise ValueError(f"{short(path)} names itself under runs")
    try:
        rows, axes = resolve_runs(words, content.get("scale", "desk")), get_axes_of_file(content["axes"])
        found = expand(rows, axes)
    except ValueError as error:
        raise ValueError(f"{short(path)}: {error}") from error
    print(describe_grid(axes, rows, found), file=sys.stderr)
    return found


def _read_yaml(path: Path) -> Any:
    import yaml

    check_regular(path, most_bytes=MOST_BYTES)
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{short(path)} is not YAML: {short(str(error).splitlines()[0])}") from error


def run_of_id(beginning: str) -> Run:
    """Return a run by the beginning of its id, wherever it is known.

    That is: recorded here or published, launched in a sweep, declared at any scale, or, where none is recorded, planned
    for an imported corpus.

    ValueError when there is none, or more than one.
    """
    found: dict[str, Run] = {}
    for known in (_list_recorded_runs, _list_planned_runs, _list_launched_runs, _list_declared_runs):
        if known is not _list_planned_runs or not found:
            found |= {identifier: run for identifier, run in known(beginning) if identifier.startswith(beginning)}
    if len(found) != 1:
        why = f"it begins the ids of {sorted(found)[:5]}" if found else "no run is known by it"
        raise ValueError(f"run {beginning!r}: {why}; `repro plan` and `repro status` show the ids")
    return next(iter(found.values()))


Known = Iterator[tuple[str, Run]]


def _list_recorded_runs(beginning: str) -> Known:
    for folder in RECORDS:
        found = map(readable_record, sorted(folder().glob(f"{beginning}*.json")))
        yield from ((record.id, record.run) for record in found if record is not None)


def _list_launched_runs(beginning: str) -> Known:
    for path in sorted(get_sweeps_folder().glob("*/submissions/*.json")):
        with _left_out_where_wrong(path):
            for identifier, values in _map_renamed_fields(json_object(path).get("runs", {}), "its runs").items():
                if identifier.startswith(beginning):
                    with _left_out_where_wrong(path):
                        yield identifier, run_from_record(_map_renamed_fields(values, f"run {identifier}"), identifier)


@contextmanager
def _left_out_where_wrong(path: Path) -> Iterator[None]:
    """Name what cannot be read, and go on: a run may be known elsewhere, too."""
    try:
        yield
    except ValueError as error:
        print(f"left out: {path}: {error}", file=sys.stderr)


def _map_renamed_fields(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} should be an object, found {short(value)}: move the file away")
    return value


def _list_planned_runs(beginning: str) -> Known:
    """Return the runs in the files that `data import` and `data plan` write; one that cannot be read holds none."""
    for folder in sorted(get_corpora_folder().glob("*")):
        for path in (folder / f"{folder.name}-{scale}.json" for scale in ORDER):
            with suppress(ValueError):
                yield from [(run_id(run), run) for run in read_runs(path)]


def _list_declared_runs(beginning: str) -> Known:
    for experiment in experiments():
        for scale in ORDER:
            yield from ((run_id(run), run) for run in experiment.runs(scale))


def _of_todays_content(runs: list[Run]) -> list[Run]:
    """Return runs that name the content of what was imported here; a corpus that names it speaks for its suite."""
    names = {name for run in runs for name in (run.corpus, run.pretraining_corpus, run.suite) if name}
    if not any((get_corpora_folder() / name).is_dir() for name in names):
        return runs  # without loading numpy and pyarrow, and each name is looked up once
    from repro.data.own.imported import find_imported, is_imported

    today = {name: find_imported(name).corpus for name in names if "@" not in name and is_imported(name)}
    return [_apply_renames(run, today) for run in runs]


def _apply_renames(run: Run, today: Mapping[str, str]) -> Run:
    named = {name: getattr(run, name) for name in ("corpus", "pretraining_corpus", "suite")}
    found: dict[str, Any] = {name: today[value] for name, value in named.items() if value in today}
    if run.suite == run.corpus.partition("@")[0]:
        found.pop("suite", None)
    return replace(run, **found) if found else run


def _run(row: Mapping[str, Any], where: str) -> Run:
    try:
        get_scale(row["scale"])
        run = run_of_fields({name: value for name, value in row.items() if name != "id"})
        if run.architecture in TRAINED and run.num_steps is not None:  # else the training finds it, behind all stages
            check_warmup(run.num_warmup_steps, run.num_steps)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return run


def get_sweep_name(what: Sequence[str] | None, scale: str) -> str:
    """Return the name of the folder in which these words are swept; the scale is told where a word takes it.

    Files of one name may lie in several folders: six digits of the path tell a file's sweep from another's.
    """
    words = list(what or ("all",))
    stems = [Path(word).stem if _is_file(word) else word for word in words]
    told = "-".join([*stems, scale] if split_words(words)[1] else stems)
    files = [str(Path(word).resolve()) for word in words if _is_file(word)] + [word for word in words if is_axis(word)]
    if files or len(told) > MOST_LETTERS:
        told = f"{told[:MOST_LETTERS]}-{hashlib.sha256(repr([told, files]).encode()).hexdigest()[:6]}"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", told)
