"""Evaluation collections that a user provides as BEIR folders.

If a folder has the name of a known collection, its peculiarities (`repro.data.paper.collection_rules`) apply. Those that decide
scores are stored with the copy. Collections that are cut from imported pairs have none, whatever their names are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from repro.data.beir import (
    Retrieval,
    SuiteDataset,
    describe_skipped_entries,
    find_collections,
    load_dataset,
    write_beir_folder,
    write_suite,
)
from repro.data.folders import list_splits
from repro.data.lines import list_json_rows
from repro.data.paper.collection_rules import CollectionRules, find_rules

TEST_SPLITS = ("test", "dev")
Given = tuple[SuiteDataset, Retrieval]
"""A collection, with its peculiarities in the dataset. The split is applied already."""


def read_given(source: Path, split: str = "") -> list[Given]:
    """Read the collections at or below `source`.

    Args:
        source: A BEIR folder, or a folder of them.
        split: Name of the file in qrels/. Default: that of a known collection, test or dev.

    Raises:
        ValueError: if there are none, if one lacks the split, or if a name occurs twice or is that of a mean.
    """
    datasets = find_collections(source).datasets
    if not datasets:
        raise ValueError(f"{source} holds no file of pairs (jsonl, csv, tsv, parquet) and no BEIR folder")
    return [_read_collection(dataset, split) for dataset in datasets]


def _read_collection(dataset: SuiteDataset, asked_split: str) -> Given:
    retrieval, rules = load_dataset(dataset._replace(split=choose_split(dataset, asked_split)))
    return dataset._replace(rules=replace(rules, split=CollectionRules().split)), retrieval


def choose_split(dataset: SuiteDataset, asked_split: str = "") -> str:
    """Return the split to evaluate on: the asked one, or that of stored rules or of a known collection, test or dev.

    A split that stored or known rules declare has no substitute, since its scores would be taken for theirs.
    """
    rules, splits = dataset.rules or find_rules(dataset.name), list_splits(dataset.path)
    is_declared = dataset.rules is not None or rules != CollectionRules()
    found = [split for split in TEST_SPLITS if split in splits and not is_declared]
    return asked_split or next(iter(found), rules.split)


def describe_split(dataset: SuiteDataset, chosen: str, trained: Sequence[str] = ("train",)) -> list[str]:
    """Return a line about the split that is read and those that are not. Empty if test is the only one."""
    unread = [f"{name}.tsv" for name in list_splits(dataset.path) if name not in (chosen, *trained)]
    if not unread and chosen == "test":
        return []
    others = f"; not read: {', '.join(unread)} (--split chooses another)" if unread else ""
    return [f"{dataset.name} is evaluated on {chosen}.tsv{others}"]


def describe_given(source: Path, given: Sequence[Given], split: str, *, trains: bool) -> list[str]:
    """Return lines about the skipped entries, splits that are read and not read, and peculiarities."""
    lines = describe_skipped_entries(source, [dataset for dataset, _ in given]) if given else []
    for dataset, retrieval in given:
        chosen = choose_split(dataset._replace(rules=None), split)
        lines += describe_split(dataset, chosen, ("train",) if trains else ())
        if dataset.rules and dataset.rules.note:
            lines.append(f"{dataset.name}: {dataset.rules.describe(len(retrieval.queries))}")
    return lines


def list_judged_texts(given: Sequence[Given]) -> list[Retrieval]:
    """Return the queries and relevant documents of each collection, which must not be trained on.

    Each document occurs with and without its title, since training pairs often omit the title.
    """
    return [_select_judged_texts(retrieval, dataset.path) for dataset, retrieval in given]


def _select_judged_texts(retrieval: Retrieval, folder: Path) -> Retrieval:
    relevant = {document for grades in retrieval.judgements.values() for document, grade in grades.items() if grade > 0}
    documents = zip(retrieval.document_ids, retrieval.documents, strict=True)
    texts = [text for document_id, text in documents if document_id in relevant]
    for _, row in list_json_rows(folder / "corpus.jsonl"):
        if str(row["_id"]) in relevant and row.get("text"):
            texts.append(row["text"])
    return replace(retrieval, document_ids=(), documents=tuple(texts))


def write_given(folder: Path, suite: str, given: Sequence[Given]) -> None:
    """Write the collections as a suite. suite.json has the peculiarities, so that none apply because of names."""
    for dataset, retrieval in given:
        write_beir_folder(folder / dataset.name, retrieval)
    datasets = [dataset for dataset, _ in given]
    names = [(dataset.name, dataset.family) for dataset in datasets]
    rules = {dataset.name: dataset.rules or CollectionRules() for dataset in datasets}
    write_suite(folder, suite, names, rules, {dataset.name: dataset.part_of for dataset in datasets})
