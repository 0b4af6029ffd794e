"""Evaluation collections that a user provides: BEIR folders or archives of them.

If a folder has the name of a known collection, its peculiarities (`repro.data.paper.quirks`) apply. Those that decide
scores are stored with the copy. Collections that are cut from imported pairs have none, whatever their names are.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from repro.data.beir import (
    Retrieval,
    check_groups,
    find_collections,
    load_known_collection,
    note_unjudged_queries,
    write_beir_folder,
    write_suite,
)
from repro.data.folders import ARCHIVES, list_splits, match_ending
from repro.data.lines import list_json_rows
from repro.data.paper.quirks import Quirks, find_quirks
from repro.data.readers import unpack

TEST_SPLITS = ("test", "dev")
Given = tuple[Retrieval, Quirks]


@contextmanager
def open_archive(source: Path, target: Path) -> Iterator[Path]:
    """Yield the path of a file or folder, or of the unpacked folder of an archive. Errors name the archive.

    The archive is unpacked next to `target`. If the process is killed, `repro prune` finds the temporary folder.
    """
    ending = match_ending(source, ARCHIVES)
    if not (source.is_file() and ending):
        yield source
        return
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        root = part / source.name[: -len(ending)]
        unpacked = unpack(source, root)
        try:
            yield unpacked
        except ValueError as error:
            message = str(error).replace(str(unpacked), str(source)).replace(str(root), str(source))
            raise ValueError(message) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def find_evaluation_folders(source: Path) -> list[Path]:
    """Return the BEIR folders at or below `source` if all have a test split and none has a training split."""
    if not source.is_dir():
        return []
    folders = [dataset.path for dataset in find_collections(source)]
    for folder in folders:
        splits = list_splits(folder)
        if "train" in splits or not set(splits) & set(TEST_SPLITS):
            return []
    return folders


def read_given(source: Path) -> list[Given]:
    """Read the collections at or below `source`, with their peculiarities. The split is applied already.

    Raises:
        ValueError: if a collection has no test split, or if a name occurs twice or is that of a mean.
    """
    datasets = find_collections(source)
    check_groups([(dataset.name, dataset.family) for dataset in datasets], str(source))
    return [_read_collection(dataset.name, dataset.path) for dataset in datasets]


def list_judged_texts(source: Path, given: Sequence[Given]) -> list[Retrieval]:
    """Return the queries and relevant documents of each collection, which must not be trained on.

    Each document occurs with and without its title, since training pairs often omit the title.
    """
    folders = {dataset.name: dataset.path for dataset in find_collections(source)} if given else {}
    return [_select_judged_texts(retrieval, folders[retrieval.name]) for retrieval, _ in given]


def _select_judged_texts(retrieval: Retrieval, folder: Path) -> Retrieval:
    relevant = {document for grades in retrieval.judgements.values() for document, grade in grades.items() if grade > 0}
    documents = zip(retrieval.document_ids, retrieval.documents, strict=True)
    texts = [(document_id, text) for document_id, text in documents if document_id in relevant]
    known = {document_id for document_id, _ in texts}
    for _, row in list_json_rows(folder / "corpus.jsonl"):
        if str(row["_id"]) in known and row.get("text"):
            texts.append((str(row["_id"]), row["text"]))
    return replace(
        retrieval,
        document_ids=tuple(document_id for document_id, _ in texts),
        documents=tuple(text for _, text in texts),
    )


def write_given(folder: Path, suite: str, given: Sequence[Given], source: Path) -> None:
    """Write the collections of `source` as a suite. suite.json has the peculiarities that are not defaults."""
    for retrieval, _ in given:
        write_beir_folder(folder / retrieval.name, retrieval)
    datasets = find_collections(source)
    names = [(dataset.name, dataset.family) for dataset in datasets]
    parts = {dataset.name: dataset.part_of for dataset in datasets}
    has_quirks = any(quirks.changed() for _, quirks in given)
    quirks_by_name = {retrieval.name: quirks for retrieval, quirks in given} if has_quirks else None
    write_suite(folder, suite, names, quirks_by_name, parts)


def _read_collection(name: str, folder: Path) -> Given:
    known_quirks, splits = find_quirks(name), list_splits(folder)
    split = next((split for split in (known_quirks.split, *TEST_SPLITS) if split in splits), None)
    if split is None:
        raise ValueError(f"{folder} has no split to evaluate on; one of {list(TEST_SPLITS)} is needed in qrels/")
    retrieval, quirks = load_known_collection(folder, name, replace(known_quirks, split=split))
    # The note about a known collection is about its usual split.
    note = quirks.says if split == known_quirks.split else ""
    quirks = note_unjudged_queries(replace(quirks, split=Quirks().split, says=note), retrieval)
    return replace(retrieval, name=name), quirks
