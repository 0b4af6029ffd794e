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
    find_beir_folders,
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
GIVEN_FAMILY = "given"
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
        inside = unpack(source, root)
        try:
            yield inside
        except ValueError as error:
            message = str(error).replace(str(inside), str(source)).replace(str(root), str(source))
            raise ValueError(message) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def find_evaluation_folders(source: Path) -> list[Path]:
    """Return the BEIR folders at or below `source` if all have a test split and none has a training split."""
    found = [path for _, path in find_beir_folders(source)] if source.is_dir() else []
    splits = [list_splits(folder) for folder in found]
    fit = all(set(one) & set(TEST_SPLITS) and "train" not in one for one in splits)
    return found if fit else []


def read_given(source: Path) -> list[Given]:
    """Read the collections at or below `source`, with their peculiarities. The split is applied already.

    Raises:
        ValueError: if a collection has no test split, or if a name occurs twice or is that of a mean.
    """
    named = find_beir_folders(source)
    check_groups([(one.name, one.family) for one in find_collections(source, GIVEN_FAMILY)], str(source))
    return [_read(name, folder) for name, folder in named]


def list_judged_texts(source: Path, given: Sequence[Given]) -> list[Retrieval]:
    """Return the queries and relevant documents of each collection, which must not be trained on.

    Each document occurs with and without its title, since training pairs often omit the title.
    """
    folders = dict(find_beir_folders(source)) if given else {}
    return [_select_judged_texts(one, folders[one.name]) for one, _ in given]


def _select_judged_texts(retrieval: Retrieval, folder: Path) -> Retrieval:
    right = {document for grades in retrieval.judgements.values() for document, grade in grades.items() if grade > 0}
    every = zip(retrieval.document_ids, retrieval.documents, strict=True)
    joined = {i: text for i, text in every if i in right}
    rows = ((str(row["_id"]), row.get("text")) for _, row in list_json_rows(folder / "corpus.jsonl"))
    texts = [*joined.items(), *((i, text) for i, text in rows if i in joined and text)]
    ids, documents = (tuple(values) for values in zip(*texts, strict=True)) if texts else ((), ())
    return replace(retrieval, document_ids=ids, documents=documents)


def write_given(folder: Path, suite: str, given: Sequence[Given], source: Path) -> None:
    """Write the collections of `source` as a suite. suite.json has the peculiarities that are not defaults."""
    for retrieval, _ in given:
        write_beir_folder(folder / retrieval.name, retrieval)
    datasets = find_collections(source, GIVEN_FAMILY)
    names, parts = [(one.name, one.family) for one in datasets], {one.name: one.part_of for one in datasets}
    odd = any(quirks.changed() for _, quirks in given)
    write_suite(folder, suite, names, {retrieval.name: quirks for retrieval, quirks in given} if odd else None, parts)


def _read(name: str, folder: Path) -> Given:
    quirks, splits = find_quirks(name), list_splits(folder)
    there = [split for split in (quirks.split, *TEST_SPLITS) if split in splits]
    if not there:
        raise ValueError(f"{folder} has no split to evaluate on; one of {list(TEST_SPLITS)} is needed in qrels/")
    found, quirks = load_known_collection(folder, name, replace(quirks, split=there[0]))
    says = quirks.says if there[0] == find_quirks(name).split else ""
    return replace(found, name=name), note_unjudged_queries(replace(quirks, split=Quirks().split, says=says), found)
