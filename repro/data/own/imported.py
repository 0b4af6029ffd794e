"""Corpora that users have imported. Each has a folder and a name with a digest of its content.

`corpora/NAME/` has import/ (pairs, audit, and documents without a pair), corpus.json (digest, held-out domains, language)
and, if evaluation data was given, evaluation/ (a suite of BEIR folders). A stage builds training pairs and suite from it.
An evaluation set, which is made of BEIR folders without training judgements, has only the suite.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.data.beir import load_dataset, load_suite, write_beir_folder, write_suite
from repro.data.columns import Columns
from repro.data.folders import is_beir, list_pair_files, list_splits
from repro.data.own.evaluation_folders import (
    TEST_SPLITS,
    Given,
    describe_given,
    list_judged_texts,
    read_given,
    write_given,
)
from repro.data.own.importing import DOCUMENTS_FILE, PAIRS_FILE, Audit, import_pairs, load_audit, write_documents
from repro.data.own.languages import detect_language
from repro.data.pairs import read_pairs, write_pairs
from repro.data.paper.benchmarks import SUITES
from repro.data.paper.collection_rules import CollectionRules
from repro.data.readers import get_domain_name
from repro.storage.digests import hash_file
from repro.storage.files import atomic_folder, json_object, remove_dead_parts, write_json
from repro.storage.lease import acquire_when_free
from repro.storage.paths import CORPUS_FILE, CORPUS_NAME, get_corpora_folder, get_writer_lease, is_imported

IMPORT_FOLDER, GIVEN_FOLDER = "import", "evaluation"
RECIPE = 14
"""Version of the split of an imported corpus. Raise it if the same pairs would be split differently."""
TRAIN_FILE, SET_APART_FILE = "train.arrow", "set_apart.arrow"


@dataclass(frozen=True)
class ImportedCorpus:
    """One imported corpus. A run refers to its training pairs by `corpus` and to its suite by `name`.

    `notes` has lines about its evaluation collections.
    """

    name: str
    folder: Path
    digest: str
    held_out_domains: tuple[str, ...]
    language: str
    recipe: int
    notes: tuple[str, ...]

    @property
    def only_evaluates(self) -> bool:
        """Whether it is an evaluation set: a suite, without pairs to train on."""
        return not (self.folder / IMPORT_FOLDER).is_dir()

    @property
    def has_given_collections(self) -> bool:
        """Whether its collections were given, not held out."""
        return (self.folder / GIVEN_FOLDER).is_dir()

    @property
    def corpus(self) -> str:
        """The name in a run. It contains the digest, so that other content is another corpus."""
        return f"{self.name}@{self.digest[:8]}"

    @property
    def origin(self) -> str:
        """Everything that decides the training pairs and the suite: recipe version and digest of the content."""
        return f"recipe {self.recipe}, {self.digest[:12]}"

    @property
    def found(self) -> Audit:
        """The audit of the import."""
        return load_audit(self.folder / IMPORT_FOLDER)


def import_source(
    source: Path,
    *,
    name: str,
    columns: Columns | None = None,
    hold_out: Sequence[str] = (),
    evaluate_on: Path | None = None,
    split: str = "",
    language: str = "",
    reserved: Iterable[str] = (),
    progress: Callable[[str], None] = print,
) -> ImportedCorpus:
    """Import pairs under a name, completely or not at all. BEIR folders without qrels/train.tsv become evaluation sets.

    The suite is `evaluate_on` if it is given, the test (or dev) split of an imported BEIR folder, or a hold-out.

    Args:
        source: A file of pairs, a folder of them, a saved dataset, or a BEIR folder or a folder of these.
        name: The name of the corpus.
        columns: The names of the columns.
        hold_out: Domains to hold out completely.
        evaluate_on: A BEIR folder, or a folder of them.
        split: The split of BEIR folders to evaluate on.
        language: The language that BM25 stems. Default: detected.
        reserved: Names that a corpus cannot have.
        progress: Called with the process to wait for, if it imports a corpus of this name.

    Raises:
        ValueError: if the name is invalid or taken, also by a concurrent process, or if a file is malformed.
    """
    target, columns = _check_target(name, reserved), columns or Columns()
    hold_out = [get_domain_name(domain) for domain in hold_out]
    trains = _has_pairs(source)
    given = _read_collections(source, evaluate_on, split, trains)
    given_source = evaluate_on or source
    if (given and hold_out) or not (trains or given):
        raise ValueError(f"domains {hold_out} cannot be held out: {source} is evaluated on {given_source}")
    if not trains and (options := [*columns.options, *["--evaluate-on"] * (evaluate_on is not None)]):
        raise ValueError(f"{', '.join(options)}: {source} is read to evaluate on, not for pairs, so leave it out")
    if split and not given:
        raise ValueError(f"--split {split}: there is no BEIR folder to evaluate on")
    with acquire_when_free(
        get_writer_lease(target), lambda owner: progress(f"waiting for {owner}, which imports {name!r}")
    ):
        # again, because another process may have imported it in the meantime
        _check_target(name)
        remove_dead_parts(target, is_leased=True)
        with atomic_folder(target, must_be_first=True) as part:
            notes = describe_given(given_source, given, split, trains=trains and evaluate_on is None)
            if given:
                write_given(part / GIVEN_FOLDER, name, given)
            if trains:
                # Evaluated texts are known before the import, which drops training rows that share a text with them.
                judged, folder = list_judged_texts(given), part / IMPORT_FOLDER
                audit = import_pairs(
                    source,
                    folder,
                    name=name,
                    columns=columns,
                    evaluated=judged,
                    language=language,
                    keeps_domains=bool(hold_out),
                )
                language = audit.language
                if not given or (is_beir(source) and evaluate_on is not None):
                    write_documents(source, folder, name=name, columns=columns)
            else:
                language = language or detect_language([text for _, each in given for text in each.documents])
            digest = _compute_digest(list_content_files(part), [RECIPE, language, *sorted(hold_out)])
            metadata = {"digest": digest, "held_out_domains": hold_out, "recipe": RECIPE, "language": language}
            write_json(part / CORPUS_FILE, {**metadata, "notes": notes})
    return find_imported(name)


def _has_pairs(source: Path) -> bool:
    """Return whether a source has pairs to train on: files of pairs, or a BEIR folder with a training split."""
    if is_beir(source):
        return "train" in list_splits(source)
    return bool(list_pair_files(source))


def _read_collections(source: Path, evaluate_on: Path | None, split: str, trains: bool) -> list[Given]:
    """Return the given evaluation collections: those of `evaluate_on`, or of the source. Empty for a hold-out."""
    if evaluate_on is not None:
        return read_given(evaluate_on, split)
    has_test = is_beir(source) and (split or set(list_splits(source)) & {*TEST_SPLITS})
    return read_given(source, split) if has_test or not trains else []


def list_imported_corpora() -> dict[str, ImportedCorpus]:
    """Return all imported corpora by name. Folders with invalid names are skipped."""
    names = (path.parent.name for path in sorted(get_corpora_folder().glob(f"*/{CORPUS_FILE}")))
    return {name: find_imported(name) for name in names if CORPUS_NAME.fullmatch(name)}


def find_imported(name: str) -> ImportedCorpus:
    """Find an imported corpus by its name, with or without digest.

    Raises:
        ValueError: if it does not exist, if its content has another digest, or if another version imported it.
    """
    base_name, _, digest = name.partition("@")
    path = get_corpora_folder() / base_name / CORPUS_FILE
    if not CORPUS_NAME.fullmatch(base_name) or not path.is_file():
        raise ValueError(f"no corpus {base_name!r} was imported here: `repro data import PATH --name {base_name}`")
    content = json_object(path)
    try:
        lists = {key: tuple(content[key]) for key in ("held_out_domains", "notes")}
        corpus = ImportedCorpus(base_name, path.parent, **content | lists)
        if corpus.recipe != RECIPE:
            raise ValueError(f"its recipe is {corpus.recipe}, this version has {RECIPE}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is of another version ({error}): remove its folder and import again") from error
    if digest and corpus.corpus != name:
        raise ValueError(f"corpus {name!r} has other text now, as {corpus.corpus!r}: import the earlier text again")
    return corpus


def build_imported(corpus: ImportedCorpus, folder: Path) -> None:
    """Write training pairs, suite and report to a folder."""
    suite = folder / "suites" / corpus.name
    report: dict[str, Any] = {"num_pairs": 0}
    if corpus.has_given_collections:
        shutil.copytree(corpus.folder / GIVEN_FOLDER, suite)
    if not corpus.only_evaluates:
        report = {**vars(corpus.found), **_build_pairs(corpus, folder, suite)}
    write_json(folder / "report.json", report | {"suite": _count_texts(suite)})


def _build_pairs(corpus: ImportedCorpus, folder: Path, suite: Path) -> dict[str, Any]:
    """Write the training pairs and those set apart, and the suite if none was given. Return the numbers of pairs."""
    # imported on demand: other commands only need the name of a corpus
    from repro.data.own import holdout

    source = corpus.folder / IMPORT_FOLDER
    pairs = read_pairs(source / PAIRS_FILE)
    keys = holdout.Keys.compute(pairs)
    if corpus.has_given_collections:
        # the import has already dropped rows that share a text with the collections
        split = holdout.make_split_without_holdout(keys)
    else:
        split = holdout.split_pairs(pairs, keys, corpus.held_out_domains)
        documents = source / DOCUMENTS_FILE
        extra = read_pairs(documents) if documents.is_file() else None
        rules: dict[str, CollectionRules] = {}
        for each in holdout.build_collections(pairs, keys, split, extra):
            collection, rules[each.name] = holdout.remove_own_texts(each)
            write_beir_folder(suite / each.name, collection)
        write_suite(suite, corpus.name, [(name, holdout.FAMILY) for name in rules], rules)
    rows = holdout.iter_training_rows(pairs, split.train, split.not_negative)
    num_pairs = write_pairs(folder / TRAIN_FILE, rows, with_negatives=True)
    if len(split.set_apart):
        set_apart = holdout.iter_training_rows(pairs, split.set_apart, split.not_negative[:0])
        write_pairs(folder / SET_APART_FILE, set_apart, with_negatives=True)
    return {"num_pairs": num_pairs, "split": split.counts}


def _count_texts(suite: Path) -> dict[str, Any]:
    sizes = {}
    for dataset in load_suite(suite).datasets:
        collection, _ = load_dataset(dataset)
        sizes[dataset.name] = {"num_documents": len(collection.documents), "num_queries": len(collection.queries)}
    return sizes


def check_trainable(name: str) -> None:
    """Raise ValueError for an evaluation set of the paper or of an import, which has no training pairs."""
    if name in SUITES:
        raise ValueError(f"{name!r} is an evaluation set without training pairs: use it as suite={name}")
    if is_imported(name) and (corpus := find_imported(name)).only_evaluates:
        raise ValueError(f"{corpus.name!r} has no training pairs: use it with `repro evaluate --suite {corpus.name}`")


def explain_none_set_apart(corpus: str) -> str:
    """Return the error message for a corpus without pairs set apart."""
    # imported on demand: other commands only need the name of a corpus
    from repro.data.own.holdout import SET_APART_FROM

    needed = f"imported ones of {SET_APART_FROM} queries and documents or more have some"
    return f"kept_weights='best': corpus {corpus!r} has no pairs set apart ({needed}): use 'last'"


def list_content_files(folder: Path) -> list[Path]:
    """Return the files of an imported corpus that decide its training pairs and its suite."""
    given = sorted((folder / GIVEN_FOLDER).rglob("*.*"))
    # given queries search the documents that were given with them
    paths = [folder / IMPORT_FOLDER / PAIRS_FILE, *(given or [folder / IMPORT_FOLDER / DOCUMENTS_FILE])]
    return [path for path in paths if path.is_file()]


def _check_target(name: str, reserved: Iterable[str] = ()) -> Path:
    """Return the folder of a new corpus. Raises ValueError if the name is invalid or taken."""
    if not CORPUS_NAME.fullmatch(name):
        raise ValueError(f"name={name!r}: at most 41 of a-z, 0-9, '.', '_' and '-', a letter or digit first")
    if name in reserved:
        raise ValueError(f"name={name!r} is one of the project's own: choose another")
    target = get_corpora_folder() / name
    if target.exists():
        raise ValueError(f"a corpus {name!r} exists already in {target}: choose another name or remove the folder")
    return target


def _compute_digest(files: Sequence[Path], settings: Sequence[Any]) -> str:
    digest = hashlib.sha256(json.dumps(settings).encode())
    for path in files:
        digest.update(bytes.fromhex(hash_file(path)))
    return digest.hexdigest()
