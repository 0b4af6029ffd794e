"""Define the available corpora as stages: synthetic, mined, imported, or local copies of the paper's corpora."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from repro.data.beir import Suite, load_suite
from repro.data.external import find_corpus_of_suite, find_external_stage, list_external_corpora, list_external_suites
from repro.data.mined.mining import FUNCTIONS_FOLDER, MANIFEST_FOLDER, MANY_FOLDER, WIDE_FOLDER
from repro.data.own.imported import check_trainable
from repro.data.pairs import SIDES, read_pairs
from repro.data.paper.benchmarks import SUITES, list_suite_folders
from repro.data.paper.local_copies import list_source_names
from repro.pipeline.needs import reads_pairs
from repro.spec import MTEB_SUITES, Run, list_phases
from repro.storage.stages import Stage

Progress = Callable[[str], None]


def _build_later(target: str, **options: Any) -> Callable[[Path], None]:
    """Return a function that builds a corpus in a folder. Its module is imported when it is called."""
    return lambda folder: resolve_name(f"repro.data.{target}")(folder, **options)


@dataclass(frozen=True)
class Corpus:
    """A named source of training pairs and evaluation suites that this project builds.

    `recipe` is the version of how it is built. Raise it if the same wheels would give other rows. Every user's corpus,
    tokens, embeddings and clusters are then rebuilt. Editing a comment must not cause that, so keys hold this version and
    no hash of the code. `tests/data/test_desk.py` compares the rows with the manifests and a digest, and fails if rows
    change without a new version.
    """

    make: Callable[[Path], None]
    suites: tuple[str, ...] = ()
    manifests: tuple[Path, ...] = ()  # folders of those that list the files of a mined corpus
    recipe: int = 1
    made_from: str = "installed packages"
    reads_wheels: bool = False  # the pinned wheels, which pip fetches


PLANTED_SUITES = ("planted", "planted-validation")
CORPORA: dict[str, Corpus] = {
    "planted-tiny": Corpus(
        _build_later(
            "planted:build_planted_corpus", num_domains=6, pairs_per_domain=40, num_heldout_domains=3, text="wide"
        ),
        PLANTED_SUITES,
    ),
    "planted": Corpus(
        _build_later(
            "planted:build_planted_corpus", num_domains=400, pairs_per_domain=128, num_heldout_domains=16, text="small"
        ),
        PLANTED_SUITES,
    ),
    "desk": Corpus(_build_later("mined.desk:build_desk"), ("desk", "desk-validation"), (MANIFEST_FOLDER,)),
    "desk-views": Corpus(_build_later("mined.desk:build_views"), manifests=(MANIFEST_FOLDER,), recipe=2),
    "wide": Corpus(
        _build_later("mined.desk:build_wide"),
        manifests=(MANIFEST_FOLDER, WIDE_FOLDER),
        made_from="installed packages and six wheels that pip fetches once",
        reads_wheels=True,
    ),
    "others": Corpus(
        _build_later("mined.desk:build_others"),
        ("desk-others",),
        (WIDE_FOLDER,),
        made_from="six wheels that pip fetches once",
        reads_wheels=True,
    ),
    "functions": Corpus(_build_later("mined.desk:build_functions"), ("functions",), (FUNCTIONS_FOLDER,)),
    "packages-many": Corpus(
        _build_later("mined.many:build_many"),
        ("packages-many", "packages-many-validation"),
        (MANY_FOLDER,),
        made_from="180 wheels that pip fetches once",
        reads_wheels=True,
    ),
    "packages-few": Corpus(
        _build_later("mined.many:build_many", step=10),
        manifests=(MANY_FOLDER,),
        made_from="the same wheels, with a tenth of the training packages",
        reads_wheels=True,
    ),
}


def list_project_names() -> set[str]:
    """Return the names of the project's own corpora, suites and sources. An imported corpus cannot have them."""
    suites = (suite for corpus in CORPORA.values() for suite in corpus.suites)
    return {*CORPORA, *list_source_names(), *MTEB_SUITES, *suites}


def make_corpus_stage(name: str) -> Stage:
    """Return the stage of a corpus.

    Raises ValueError if it is unknown, or if it is missing, with instructions to get it.
    """
    if name in CORPORA:
        return Stage("corpus", {"corpus": name, "made_from": _describe_origin(name)}, CORPORA[name].make)
    stage = find_external_stage(name)
    if stage is None:
        raise ValueError(f"unknown corpus {name!r}; choose one of {[*CORPORA, *list_external_corpora()]}")
    return stage


@cache
def _describe_origin(name: str) -> str:
    """Return the version of the recipe of a corpus, with a hash of its manifests if it is mined."""
    corpus = CORPORA[name]
    if not corpus.manifests:
        return f"recipe {corpus.recipe}"
    paths = (path for folder in corpus.manifests for path in sorted(folder.glob("*.json")))
    # The manifests list every wheel with its digest, so they determine the text.
    manifests = b"\0".join(path.read_bytes() for path in paths)
    return f"recipe {corpus.recipe}, manifests {hashlib.sha256(manifests).hexdigest()[:12]}"


def make_suite_stage(run: Run) -> Stage | None:
    """Return the stage of the corpus with a run's suite, or None if the library mteb downloads the data of the suite.

    Raises ValueError if the suite is unknown, or if it is missing, with instructions to get it.
    """
    return None if run.suite in MTEB_SUITES else make_corpus_stage(_find_holder(run))


def make_searched_stage(run: Run) -> Stage:
    """Return the stage of a suite whose collections are searched. Raises ValueError for mteb suites too."""
    stage = make_suite_stage(run)
    if stage is None:
        raise ValueError(f"suite {run.suite!r} is scored by the library mteb alone: choose 'beir' or 'cqadupstack'")
    return stage


def _find_holder(run: Run) -> str:
    """Return the name of the corpus with a run's suite. The run's own corpus comes first."""
    holders = [name for name, corpus in CORPORA.items() if run.suite in corpus.suites]
    if not holders:
        external = find_corpus_of_suite(run.suite)
        if external is not None:
            return external
        suites = {suite for corpus in CORPORA.values() for suite in corpus.suites}.union(list_external_suites())
        if run.measure != "mteb":
            suites -= MTEB_SUITES.keys()
        raise ValueError(f"unknown suite {run.suite!r}; choose one of {sorted(suites)}, or an imported corpus")
    # Several corpora may hold a suite. The run's own corpus is needed anyway.
    return run.corpus if run.corpus in holders else holders[0]


def check_available(runs: Iterable[Run]) -> None:
    """Raise ValueError early if a run or its first phase reads data that is missing on this machine."""
    for run in runs:
        make_suite_stage(run)
        for phase in filter(reads_pairs, list_phases(run)):
            check_trainable(phase.corpus)
            make_corpus_stage(phase.corpus)


def load_run_suite(run: Run) -> Suite:
    """Load the evaluation suite of a run from its built corpus, under the name in the run."""
    # The name in the run includes a digest, which the folder on disk does not have.
    suite = load_suite(make_searched_stage(run).path / "suites" / run.suite.partition("@")[0])
    # The collections of the paper stay in the local copy, which may have moved since.
    copies = list_suite_folders(run.suite) if run.suite in SUITES else {}
    datasets = [dataset._replace(path=copies.get(dataset.name, dataset.path)) for dataset in suite.datasets]
    return replace(suite, name=run.suite, datasets=tuple(datasets))


def describe_corpus(name: str, num_samples: int, progress: Progress) -> dict[str, Any]:
    """Return the counts of a corpus and a few rows of each source. Builds the corpus if it is missing."""
    check_trainable(name)
    folder = make_corpus_stage(name).build(progress)
    pairs = read_pairs(folder / "train.arrow")
    sources, samples = [], []
    for code, source in enumerate(pairs.source_names):
        rows = np.flatnonzero(pairs.source_codes == code)
        num_domains = len(np.unique(pairs.domain_codes[rows]))
        sources.append({"source": source, "num_pairs": len(rows), "num_domains": num_domains})
        queries, documents = (pairs.texts(side, rows[:num_samples]) for side in SIDES)
        for query, document in zip(queries, documents, strict=True):
            samples.append({"source": source, "query": query, "document": document})
    return {
        "corpus": name,
        "num_pairs": len(pairs),
        "num_domains": len(pairs.domain_names),
        "sources": sources,
        "samples": samples,
    }
