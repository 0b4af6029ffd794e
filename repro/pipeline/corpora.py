"""Which corpora there are: made from a seed, mined, imported, or local copies of the paper's; each is a stage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from repro.data.beir import Suite, load_suite
from repro.data.external import external_corpora, external_corpus, external_suites, find_corpus_of_suite
from repro.data.mined.manifests import FUNCTIONS_FOLDER, MANIFEST_FOLDER, WIDE_FOLDER
from repro.data.own.imported import check_trainable
from repro.data.pairs import read_pairs
from repro.pipeline.kinds import reads_pairs
from repro.spec import MTEB_SUITES, Run, get_first_phase
from repro.storage.stages import Stage

Progress = Callable[[str], None]
RECIPE = {"desk": 1, "desk-views": 2, "wide": 1, "others": 1, "planted": 1, "functions": 1}
"""Versions of how a corpus is made. Raise one when the same wheels would give other rows: every user's corpus, tokens,
embeddings and clusters are then made anew, which editing a comment must not do. `tests/data/test_desk.py` compares
what is made with the manifests and a digest, so that a change of rows without a new version is noticed."""


def _make_planted_builder(
    num_domains: int, pairs_per_domain: int, num_heldout: int, text: str
) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from repro.data.planted import TEXTS, build_planted

        build_planted(
            folder,
            num_domains=num_domains,
            pairs_per_domain=pairs_per_domain,
            seed=0,
            num_heldout_domains=num_heldout,
            text=TEXTS[text],
        )

    return make


def _make_mined_builder(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from repro.data.mined.desk import build_desk, build_others, build_views, build_wide

        builders = {"desk": build_desk, "desk-views": build_views, "wide": build_wide, "others": build_others}
        builders[name](folder)

    return make


def _make_functions(folder: Path) -> None:
    from repro.data.mined.functions import build_functions

    build_functions(folder)


@dataclass(frozen=True)
class Corpus:
    """A named source of training pairs and evaluation suites that is made here."""

    make: Callable[[Path], None]
    suites: tuple[str, ...] = ()
    made_from: str = "installed packages"


CORPORA: dict[str, Corpus] = {
    "planted-tiny": Corpus(_make_planted_builder(6, 40, 3, "wide"), ("planted", "planted-validation")),
    "planted": Corpus(_make_planted_builder(400, 128, 16, "small"), ("planted", "planted-validation")),
    "desk": Corpus(_make_mined_builder("desk"), ("desk", "desk-validation")),
    "desk-views": Corpus(_make_mined_builder("desk-views")),
    "wide": Corpus(_make_mined_builder("wide"), made_from="installed packages and six wheels that pip fetches once"),
    "others": Corpus(_make_mined_builder("others"), ("desk-others",), made_from="six wheels that pip fetches once"),
    "functions": Corpus(_make_functions, ("functions",)),
}


_MANIFESTS: dict[str, tuple[Path, ...]] = {
    "desk": (MANIFEST_FOLDER,),
    "desk-views": (MANIFEST_FOLDER,),
    "wide": (MANIFEST_FOLDER, WIDE_FOLDER),
    "others": (WIDE_FOLDER,),
    "functions": (FUNCTIONS_FOLDER,),
}
"""The manifests of what a mined corpus is made of."""


def make_corpus_stage(name: str) -> Stage:
    """Return the stage of a corpus; ValueError when it is unknown, or not here: how to get it is said."""
    if name in CORPORA:
        return Stage("corpus", {"corpus": name, "made_from": _origin(name)}, CORPORA[name].make)
    found = external_corpus(name)
    if found is None:
        raise ValueError(f"unknown corpus {name!r}; choose one of {[*CORPORA, *external_corpora()]}")
    return Stage("corpus", {"corpus": name, "made_from": found.origin}, found.make, num_bytes=found.num_bytes)


@cache
def _origin(name: str) -> str:
    """Return a hash of what decides a corpus: the version of its recipe, and the manifests of what is mined."""
    if name not in _MANIFESTS:
        return f"recipe {RECIPE['planted']}"
    found = (path for folder in _MANIFESTS[name] for path in sorted(folder.glob("*.json")))
    manifests = b"\0".join(path.read_bytes() for path in found)
    return f"recipe {RECIPE[name]}, manifests {hashlib.sha256(manifests).hexdigest()[:12]}"


def make_suite_stage(run: Run) -> Stage | None:
    """Return the stage of the corpus that holds a run's suite; None for tasks whose data the library mteb gets itself.

    ValueError when the suite is unknown, or not here: how to get it is said.
    """
    return None if run.suite in MTEB_SUITES else make_corpus_stage(_holder(run))


def make_searched_stage(run: Run) -> Stage:
    """Return the same for what searches a suite's collections: ValueError for tasks of mteb's own, too."""
    stage = make_suite_stage(run)
    if stage is None:
        raise ValueError(
            f"suite {run.suite!r} is tasks whose data the library mteb gets itself, not collections that are searched "
            "here: score a trained model or the surrogate on it, or choose the suite 'beir' or 'cqadupstack'"
        )
    return stage


def _holder(run: Run) -> str:
    """Return the name of the corpus that holds a run's suite: its own, where that does."""
    holders = [name for name, corpus in CORPORA.items() if run.suite in corpus.suites]
    if not holders:
        external = find_corpus_of_suite(run.suite)
        if external is not None:
            return external
        known = sorted({suite for corpus in CORPORA.values() for suite in corpus.suites} | set(external_suites()))
        raise ValueError(f"unknown suite {run.suite!r}; choose one of {known}")
    return run.corpus if run.corpus in holders else holders[0]


def check_available(runs: Iterable[Run]) -> None:
    """ValueError, before anything is spent, when a run or its first phase reads data that is not made here."""
    for run in runs:
        make_suite_stage(run)
        for phase in (run, get_first_phase(run)):
            if phase is not None and reads_pairs(phase):
                make_corpus_stage(phase.corpus)
                check_trainable(phase.corpus)


def load_run_suite(run: Run) -> Suite:
    """Return the evaluation suite of a run, from its built corpus, under the name that the run has for it."""
    found = load_suite(make_searched_stage(run).path / "suites" / run.suite.partition("@")[0])
    return replace(found, name=run.suite)


def describe_corpus(name: str, num_samples: int, progress: Progress) -> dict[str, Any]:
    """Build a corpus when it is missing; return its counts and a few rows of each source."""
    check_trainable(name)
    folder = make_corpus_stage(name).build(progress)
    pairs = read_pairs(folder / "train.arrow")
    sources, samples = [], []
    for code, source in enumerate(pairs.source_names):
        own = np.flatnonzero(pairs.source_codes == code)
        num_domains = len(np.unique(pairs.domain_codes[own]))
        sources.append({"source": source, "num_pairs": len(own), "num_domains": num_domains})
        rows = own[:num_samples]
        for query, document in zip(pairs.texts("query", rows), pairs.texts("document", rows), strict=True):
            samples.append({"source": source, "query": query, "document": document})
    counts = json.loads((folder / "report.json").read_text()) if (folder / "report.json").is_file() else {}
    return {
        "corpus": name,
        "num_pairs": len(pairs),
        "num_domains": len(pairs.domain_names),
        "sources": sources,
        "counts": counts,
        "samples": samples,
    }
