"""Corpora that users have imported. Each has a folder and a name with a digest of its content.

`corpora/NAME/` has import/ (pairs, audit, and all documents of a BEIR folder), corpus.json (digest and held-out domains)
and, if evaluation data was given, evaluation/ (a suite of BEIR folders). A stage builds training pairs and suite from it.
An evaluation set, which is made of BEIR folders without training judgements, has only the suite.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from repro.data.beir import (
    Retrieval,
    describe_skipped_entries,
    find_collections,
    load_dataset,
    load_suite,
    write_beir_folder,
    write_suite,
)
from repro.data.columns import Columns
from repro.data.folders import is_beir, list_files_to_read, list_splits
from repro.data.own.evaluation_folders import (
    TEST_SPLITS,
    Given,
    find_evaluation_folders,
    list_judged_texts,
    open_archive,
    read_given,
    write_given,
)
from repro.data.own.importing import (
    DOCUMENTS_FILE,
    PAIRS_FILE,
    Imported,
    import_corpus,
    load_import,
    write_documents,
)
from repro.data.pairs import Side, read_pairs, write_pairs
from repro.data.paper.benchmarks import SUITES
from repro.data.paper.quirks import Quirks
from repro.data.readers import ROWS_PER_READ, get_domain_name, read_foreign_rows
from repro.data.wording import normalize_loosely
from repro.storage.digests import hash_file
from repro.storage.files import atomic_file, atomic_folder, read_json
from repro.storage.lease import Lease, acquire_unless_alive, get_last_owner, lease_folder, remove_leftovers
from repro.storage.paths import CORPUS_FILE, CORPUS_NAME, get_corpora_folder, is_imported
from repro.text import shorten

IMPORT_FOLDER, GIVEN_FOLDER = "import", "evaluation"

RECIPES: dict[Side, int] = {"document": 11, "query": 12}
"""Versions of the split of an imported corpus, by the texts that are drawn. Raise one if the same pairs would be split
differently.

A corpus keeps the recipe of its import. It is read as long as its split exists, but only these recipes are rebuilt.
"""
EVALUATION_RECIPE = 4
"""Version of an evaluation set, which is not split."""
TRAIN_FILE, SET_APART_FILE = "train.arrow", "set_apart.arrow"


@dataclass(frozen=True)
class ImportedCorpus:
    """One imported corpus. A run refers to its training pairs by `corpus` and to its suite by `name`.

    `skipped` has a line about entries of a folder of collections that are not collections.
    """

    name: str
    digest: str
    held_out_domains: tuple[str, ...]
    folder: Path
    recipe: int = EVALUATION_RECIPE
    skipped: tuple[str, ...] = ()

    @property
    def only_evaluates(self) -> bool:
        """Whether it is an evaluation set: a suite, without pairs to train on."""
        return not (self.folder / IMPORT_FOLDER).is_dir()

    @property
    def corpus(self) -> str:
        """The name in a run. It contains the digest, so that other content is another corpus."""
        return f"{self.name}@{self.digest[:8]}"

    @property
    def origin(self) -> str:
        """Everything that decides the training pairs and the suite: recipe version and digest of the content."""
        return f"recipe {self.recipe}, {self.digest[:12]}"

    @property
    def drawn_side(self) -> Side:
        """The texts of which a tenth is held out, and a twentieth set apart."""
        return "query" if self.recipe == RECIPES["query"] else "document"

    @property
    def found(self) -> Imported:
        """The audit of the import."""
        return load_import(self.folder / IMPORT_FOLDER)


def import_source(
    source: Path,
    *,
    name: str,
    columns: Columns | None = None,
    hold_out: Sequence[str] = (),
    evaluate_on: Path | None = None,
    reserved: Iterable[str] = (),
    skip_bad: bool = False,
) -> ImportedCorpus:
    """Import pairs under a name, completely or not at all. BEIR folders without qrels/train.tsv become evaluation sets.

    The suite is `evaluate_on` if it is given, the test (or dev) split of an imported BEIR folder, or a hold-out.

    Raises:
        ValueError: if the name is invalid or taken, also by a concurrent process, or if a file is malformed.
    """
    target = _check_target(name, set(reserved))
    hold_out = [get_domain_name(domain) for domain in hold_out]
    with ExitStack() as stack:
        # The lease comes before the clean-up, which would otherwise remove the files of a running import.
        stack.enter_context(_import_lease(target))
        remove_leftovers(target)
        train_path = stack.enter_context(open_archive(source, target))
        test_path = None if evaluate_on is None else stack.enter_context(open_archive(evaluate_on, target))
        if test_path is None and (folders := find_evaluation_folders(train_path)):
            if hold_out:
                raise ValueError(f"domains {list(hold_out)} cannot be held out: {source} has nothing to train on")
            options = [*(columns.options if columns else ()), *["--skip-bad"] * skip_bad]
            if options:
                raise ValueError(
                    f"{', '.join(options)}: {source} is read to evaluate on, not for pairs, so leave it out"
                )
            _check_no_pairs(train_path, folders[0])
            return _bring_evaluation(train_path, target, name, source)
        given = _read_collections(train_path, test_path, hold_out)
        part = stack.enter_context(atomic_folder(target, must_be_first=True))
        # Evaluated texts are known before the import, which drops training rows that share a text with them.
        judged = list_judged_texts(test_path or train_path, given)
        import_corpus(train_path, part / IMPORT_FOLDER, name=name, columns=columns, evaluated=judged, skip_bad=skip_bad)
        if is_beir(train_path) and (test_path is not None or not given):
            write_documents(train_path, part / IMPORT_FOLDER / DOCUMENTS_FILE, name)
        if given:
            write_given(part / GIVEN_FOLDER, name, given, test_path or train_path)
        recipe = RECIPES["document" if hold_out else _choose_side(part)]
        digest = _compute_digest(list_content_files(part), hold_out, recipe)
        metadata = {"name": name, "digest": digest, "held_out_domains": hold_out, "recipe": recipe}
        if test_path is not None:
            metadata["skipped"] = describe_skipped_entries(test_path, find_collections(test_path), evaluate_on)
        _write_json(part / CORPUS_FILE, metadata)
    return find_imported(name)


def _check_no_pairs(source: Path, collection: Path) -> None:
    """Raise ValueError if a folder of collections has files of pairs, which would be ignored."""
    paths = [] if is_beir(source) else list(filter(_holds_pairs, list_files_to_read(source)))
    if paths:
        names = shorten(", ".join(str(path.relative_to(source)) for path in paths))
        raise ValueError(
            f"{source} has both files of pairs ({names}) and collections to evaluate on "
            f"({collection.relative_to(source)}). To train on the pairs, give the collections with --evaluate-on (unpack "
            "an archive first). To evaluate only, move the pairs elsewhere"
        )


def _holds_pairs(path: Path) -> bool:
    """Return whether a file has columns of queries and documents. Other tables lie next to collections, too."""
    try:
        return any(not row.flaw for row in islice(read_foreign_rows(path), ROWS_PER_READ))
    except ValueError:
        return False


def _choose_side(folder: Path) -> Side:
    # imported on demand, because it loads scipy
    from repro.data.own.holdout import choose_side

    return choose_side(read_pairs(folder / IMPORT_FOLDER / PAIRS_FILE))


def _import_lease(target: Path) -> Lease:
    """Acquire the lease of the import into a folder. Raises ValueError if another process holds it."""
    folder = lease_folder(target)
    lease = acquire_unless_alive(folder)
    if lease is None:
        raise ValueError(
            f"{target.name!r} is being imported by {get_last_owner(folder)}: wait for it, or choose another name"
        )
    return lease


def _bring_evaluation(folder: Path, target: Path, name: str, source: Path) -> ImportedCorpus:
    given = read_given(folder)
    skipped = describe_skipped_entries(folder, find_collections(folder), source)
    with atomic_folder(target, must_be_first=True) as part:
        write_given(part / GIVEN_FOLDER, name, given, folder)
        digest = _compute_digest(list_content_files(part), (), EVALUATION_RECIPE)
        metadata = {"name": name, "digest": digest, "held_out_domains": [], "skipped": skipped}
        _write_json(part / CORPUS_FILE, metadata)
    return find_imported(name)


def list_imported_corpora() -> dict[str, ImportedCorpus]:
    """Return all imported corpora by name. Folders with invalid names are skipped."""
    names = (path.parent.name for path in sorted(get_corpora_folder().glob(f"*/{CORPUS_FILE}")))
    return {name: find_imported(name) for name in names if CORPUS_NAME.fullmatch(name)}


def find_imported(name: str) -> ImportedCorpus:
    """Find an imported corpus by its name, with or without digest.

    Raises:
        ValueError: if it does not exist, or if its content has another digest.
    """
    base_name, _, digest = name.partition("@")
    path = get_corpora_folder() / base_name / CORPUS_FILE
    if not CORPUS_NAME.fullmatch(base_name) or not path.is_file():
        raise ValueError(
            f"no corpus {base_name!r} was imported on this machine: run `repro data import PATH --name {base_name}`"
        )
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("digest"), str):
        raise ValueError(f"{path} describes no imported corpus: remove its folder and import again")
    if not isinstance(content.get("held_out_domains"), list):
        raise ValueError(f"{path} has no list of held_out_domains: remove its folder and import again")
    corpus = ImportedCorpus(
        base_name,
        content["digest"],
        tuple(content["held_out_domains"]),
        path.parent,
        content.get("recipe", EVALUATION_RECIPE),
        tuple(content.get("skipped", ())),
    )
    if digest and corpus.corpus != name:
        raise ValueError(
            f"corpus {name!r} is not available: the current content of {base_name!r} is {corpus.corpus!r}; import the "
            "earlier text again to use it"
        )
    return corpus


def make_builder(corpus: ImportedCorpus) -> Callable[[Path], None]:
    """Return the function that writes training pairs, suite and report to a folder."""
    return partial(_build_evaluation_set if corpus.only_evaluates else _build_corpus, corpus)


def _build_evaluation_set(corpus: ImportedCorpus, folder: Path) -> None:
    suite = folder / "suites" / corpus.name
    _copy_given(corpus, suite)
    _write_json(folder / "report.json", {"num_pairs": 0, "suite": _count_texts(suite)})


def _build_corpus(corpus: ImportedCorpus, folder: Path) -> None:
    # imported on demand, because it loads scipy
    from repro.data.own import holdout
    from repro.data.suites import count_near_duplicates

    if corpus.recipe not in RECIPES.values():
        known = " and ".join(map(str, RECIPES.values()))
        raise ValueError(
            f"{corpus.name!r} was imported by another version (recipe {corpus.recipe}, this one has {known}) and its "
            f"split is not on this machine: import it again under another name, or after removing {corpus.folder}"
        )
    suite = folder / "suites" / corpus.name
    counts: Counter[str] = Counter()
    near_duplicates: dict[str, int] = {}
    pairs = read_pairs(corpus.folder / IMPORT_FOLDER / PAIRS_FILE)
    # if collections were given, the import has already dropped rows that share a text with them
    collections: list[Retrieval] = []
    answers: list[Retrieval] = []
    if (corpus.folder / GIVEN_FOLDER).is_dir():
        _copy_given(corpus, suite)
    else:
        collections = holdout.hold_out(pairs, corpus.held_out_domains, side=corpus.drawn_side)
        documents = corpus.folder / IMPORT_FOLDER / DOCUMENTS_FILE
        searched = holdout.extend_to_all_documents(
            pairs,
            collections,
            as_one=not corpus.held_out_domains,
            documents=read_pairs(documents) if documents.is_file() else None,
        )
        searched, quirks = map(list, zip(*map(holdout.take_out_own_texts, searched), strict=True))
        names = [collection.name for collection in searched]
        for collection in searched:
            if num_queries := count_near_duplicates(collection):
                near_duplicates[collection.name] = num_queries
            write_beir_folder(suite / collection.name, collection)
        write_suite(
            suite, corpus.name, [(name, holdout.FAMILY) for name in names], dict(zip(names, quirks, strict=True))
        )
        # the extension above makes training documents relevant to held-out queries
        answers = [holdout.select_relevant(collection) for collection in searched]

    # Training drops near forms, while the collections above merge exact texts only: both err on the safe side.
    form = normalize_loosely
    iter_rows = partial(holdout.training_rows, pairs, collections, corpus.held_out_domains, form=form)
    num_answers, keeps_answers = 0, False
    if answers:
        num_answers, keeps_answers = holdout.count_answers(iter_rows(Counter()), answers, form)
    iter_training_rows = partial(iter_rows, answers=answers, keeps_answers=keeps_answers)
    rows = iter_training_rows(counts)
    # The rows may not fit into memory. Each pass reads them from disk: up to two select pairs set apart, the last writes.
    set_apart = holdout.select_set_apart(lambda: iter_training_rows(Counter()), corpus.drawn_side)
    if set_apart:
        write_pairs(folder / SET_APART_FILE, set_apart, with_negatives=True)
        rows = holdout.drop_set_apart(rows, set_apart, counts)
    num_pairs = write_pairs(folder / TRAIN_FILE, rows, with_negatives=True)
    report = {
        "import": corpus.found.to_json(),
        "num_pairs": num_pairs,
        "left_out": dict(counts),
        "suite": _count_texts(suite),
        "near_duplicates": near_duplicates,
        "trained_answers": num_answers if keeps_answers else 0,
        "held_out_documents": sum(len(collection.document_ids) for collection in collections),
    }
    _write_json(folder / "report.json", report)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _copy_given(corpus: ImportedCorpus, suite: Path) -> None:
    """Copy the given collections. Their stored peculiarities apply, and none because of their names."""
    given = corpus.folder / GIVEN_FOLDER
    shutil.copytree(given, suite)
    datasets = load_suite(given).datasets
    quirks = {dataset.name: dataset.quirks or Quirks() for dataset in datasets}
    parts = {dataset.name: dataset.part_of for dataset in datasets}
    write_suite(suite, corpus.name, [(dataset.name, dataset.family) for dataset in datasets], quirks, parts)


def check_trainable(name: str) -> None:
    """Raise ValueError for an evaluation set of the paper or of an import, which has no training pairs."""
    if name in SUITES:
        raise ValueError(f"{name!r} is an evaluation set without training pairs: use it as suite={name}")
    if is_imported(name) and (corpus := find_imported(name)).only_evaluates:
        raise ValueError(
            f"{corpus.name!r} is an evaluation set without training pairs: use it with `repro evaluate --model M "
            f"--suite {corpus.name}`; a BEIR folder to train on needs qrels/train.tsv"
        )


def explain_none_set_apart(corpus: str) -> str:
    """Return the error message for a corpus without pairs set apart."""
    # imported on demand, because it loads scipy
    from repro.data.own.holdout import MAX_LOST_SHARE, SET_APART_FROM

    return (
        f"kept_weights='best': corpus {corpus!r} has no pairs set apart. An imported corpus has some if at least "
        f"{SET_APART_FROM} queries and documents are left for training, and if at most {MAX_LOST_SHARE:.0%} of the "
        "pairs share a text with those set apart: use kept_weights='last'"
    )


def list_content_files(folder: Path) -> list[Path]:
    """Return the files of an imported corpus that decide its training pairs and its suite."""
    given = sorted((folder / GIVEN_FOLDER).rglob("*.*"))
    # given queries search the documents that were given with them
    paths = [folder / IMPORT_FOLDER / PAIRS_FILE, *(given or [folder / IMPORT_FOLDER / DOCUMENTS_FILE])]
    return [path for path in paths if path.is_file()]


def write_runs(path: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Write a file of runs for `repro plan`, `run` and `launch`."""
    with atomic_file(path) as part:
        part.write_text(json.dumps(list(runs), indent=1) + "\n", encoding="utf-8")


def _check_target(name: str, reserved: set[str]) -> Path:
    """Return the folder of a new corpus. Raises ValueError if the name is invalid or taken."""
    if not CORPUS_NAME.fullmatch(name):
        raise ValueError(
            f"name={name!r}: a name has up to 41 of a-z, 0-9, '.', '_' and '-', the first a letter or a digit"
        )
    if name in reserved:
        raise ValueError(f"name={name!r} is one of the project's own: choose another")
    target = get_corpora_folder() / name
    if target.exists():
        is_trainable = is_imported(name) and not find_imported(name).only_evaluates
        hint = f"continue with `repro data plan {name}`, " if is_trainable else ""
        raise ValueError(
            f"a corpus {name!r} exists already in {target}: {hint}choose another name or remove the folder"
        )
    return target


def _read_collections(source: Path, evaluate_on: Path | None, hold_out: Sequence[str]) -> list[Given]:
    """Return the given evaluation collections: those of `evaluate_on`, or the test split of an imported BEIR folder."""
    given: list[Given] = []
    if evaluate_on is not None:
        given = read_given(evaluate_on)
        if not given:
            raise ValueError(f"{evaluate_on} is no BEIR folder to evaluate on (corpus.jsonl), and holds none")
    elif is_beir(source) and set(list_splits(source)) & set(TEST_SPLITS):
        given = read_given(source)
    if given and hold_out:
        names = ", ".join(retrieval.name for retrieval, _ in given)
        raise ValueError(f"domains {list(hold_out)} cannot be held out: this corpus is evaluated on {names}")
    return given


def _compute_digest(files: Sequence[Path], held_out_domains: Sequence[str], recipe: int) -> str:
    """Return a digest of the files, the held-out domains and the recipe."""
    # Evaluation sets keep the digest of the first versions, which is part of the ids of runs.
    settings = [] if recipe == EVALUATION_RECIPE else [recipe, *sorted(held_out_domains)]
    digest = hashlib.sha256(json.dumps(settings).encode())
    for path in files:
        digest.update(bytes.fromhex(hash_file(path)))
    return digest.hexdigest()


def _count_texts(suite: Path) -> dict[str, Any]:
    sizes = {}
    for dataset in load_suite(suite).datasets:
        collection, _ = load_dataset(dataset)
        sizes[dataset.name] = {"num_documents": len(collection.documents), "num_queries": len(collection.queries)}
    return sizes
