"""Read, write and validate retrieval collections in BEIR folders, and suites of them."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from repro.data.folders import is_beir, list_entries, list_splits
from repro.data.lines import iter_lines, list_json_rows
from repro.data.paper.collection_rules import CollectionRules, find_rules, read_rules
from repro.data.wording import is_empty
from repro.storage.files import json_object, name_in_errors
from repro.text import count_noun, shorten

DOCUMENT, QUERY = ("title", "text"), ("text",)
"""The fields of corpus.jsonl and of queries.jsonl that are joined to a text."""
QRELS_HEADER = ("query-id", "corpus-id", "score")
MAX_NAME_CHARACTERS = 100
NOT_NAME_CHARACTERS = re.compile(r"[^\w.+@-]+")
GRADE = re.compile(r"[+-]?[0-9]{1,99}")
MIN_GRADE, MAX_GRADE = -100, 1000
"""trec_eval allocates a table up to the largest grade, so a typing error could exhaust the memory."""


def get_legal_name(name: str, default: str = "collection") -> str:
    """Convert the name of a folder or domain to a valid name of a suite or dataset, for metrics and TREC runs."""
    legal_name = NOT_NAME_CHARACTERS.sub("-", unicodedata.normalize("NFC", name)).lstrip("-.+@")
    return legal_name[:MAX_NAME_CHARACTERS].rstrip("-.") or default


def check_word(identifier: str, where: str) -> None:
    """Raise ValueError if an id is empty or has a space, since TREC runs cannot store it."""
    if identifier.split() != [identifier]:
        raise ValueError(f"{where}: the id {shorten(repr(identifier))} is empty or has a space, unlike those of TREC")


def parse_grade(text: str) -> int:
    """Parse the grade of a judgement, "1" or "1.0". Raises ValueError if it is not a whole number or out of range."""
    text = re.sub(r"\.0+$", "", text)
    if not GRADE.fullmatch(text):
        raise ValueError(f"the grade {shorten(repr(text))} is not a whole number")
    if not MIN_GRADE <= int(text) <= MAX_GRADE:
        raise ValueError(f"the grade {shorten(text)} is not from {MIN_GRADE} to {MAX_GRADE}")
    return int(text)


@dataclass(frozen=True)
class Retrieval:
    """A collection: documents (title and text joined), queries, and `judgements[query id][document id] = relevance`."""

    name: str
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    query_ids: tuple[str, ...]
    queries: tuple[str, ...]
    judgements: Mapping[str, Mapping[str, int]]
    # number of dropped queries of its folder, which no split judges
    num_unjudged: int = field(default=0, compare=False)


class SuiteDataset(NamedTuple):
    """One collection of a suite, and the family whose mean it enters.

    If `rules` is None, the peculiarities of a known collection with this name apply.
    """

    name: str
    family: str
    path: Path
    rules: CollectionRules | None = None
    part_of: str = ""
    """The dataset that it is a part of, such as CQADupStack for a forum. All parts count once in the suite's mean."""
    split: str = ""
    """The split that is read in place of the one of `rules`. Empty if it is that one."""


@dataclass(frozen=True)
class Suite:
    """A named list of BEIR folders."""

    name: str
    datasets: tuple[SuiteDataset, ...]


def write_beir_folder(folder: Path, retrieval: Retrieval, split: str = "test") -> None:
    """Write corpus.jsonl, queries.jsonl and qrels/<split>.tsv. Titles are empty, since texts include them."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = (
        {"_id": i, "title": "", "text": t} for i, t in zip(retrieval.document_ids, retrieval.documents, strict=True)
    )
    _write_jsonl(folder / "corpus.jsonl", corpus)
    queries = ({"_id": i, "text": t} for i, t in zip(retrieval.query_ids, retrieval.queries, strict=True))
    _write_jsonl(folder / "queries.jsonl", queries)
    lines = ["\t".join(QRELS_HEADER)]
    for query_id in retrieval.query_ids:
        lines += [
            f"{query_id}\t{document_id}\t{grade}" for document_id, grade in retrieval.judgements[query_id].items()
        ]
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def load_beir(folder: Path, split: str = "test", *, lacks_documents: bool = False) -> Retrieval:
    """Read a BEIR folder: all documents, and the queries that `split` judges, in the order of queries.jsonl.

    Queries without judgements in any split are dropped and counted, as in BEIR's own loader.

    Args:
        folder: The BEIR folder.
        split: Name of the file in qrels/.
        lacks_documents: Accept judged documents that are missing from the corpus. They stay in the ideal ranking, as in
            trec_eval.

    Raises:
        ValueError: with file and line, for malformed JSON, repeated ids, an empty corpus, missing qrels, or a judgement
            of an unknown query or document.
    """
    documents = read_texts(folder / "corpus.jsonl", DOCUMENT, is_for_trec=True)
    if not documents:
        raise ValueError(f"{folder / 'corpus.jsonl'} is empty: a collection needs at least one document")
    if all(map(is_empty, documents.values())):
        raise ValueError(f"{folder / 'corpus.jsonl'} has no text: all of its {len(documents)} documents are empty")
    # All queries are read, because a judgement of an unknown query must be reported.
    all_queries = read_texts(folder / "queries.jsonl", QUERY, is_for_trec=True)
    judgements = _read_judgements(folder, split, None if lacks_documents else documents, all_queries)
    queries = {i: text for i, text in all_queries.items() if i in judgements}
    if all(map(is_empty, queries.values())):
        raise ValueError(f"{folder / 'queries.jsonl'} has no text: all of its {len(queries)} judged queries are empty")
    return Retrieval(
        name=folder.name,
        document_ids=tuple(documents),
        documents=tuple(documents.values()),
        query_ids=tuple(queries),
        queries=tuple(queries.values()),
        judgements=judgements,
        num_unjudged=_count_unjudged_queries(folder, split, all_queries, judgements),
    )


def note_unjudged_queries(rules: CollectionRules, retrieval: Retrieval) -> CollectionRules:
    """Add the number of dropped queries to the note of a collection's peculiarities."""
    if not retrieval.num_unjudged:
        return rules
    queries = count_noun(retrieval.num_unjudged, "query", "queries")
    note = f"{queries} without a judgement in any split left out, as BEIR's own loader does"
    return replace(rules, note=f"{rules.note}; {note}" if rules.note else note)


def load_dataset(dataset: SuiteDataset) -> tuple[Retrieval, CollectionRules]:
    """Read a dataset of a suite under its name in the suite. Return it with its peculiarities.

    The peculiarities of a known name apply only if the content matches them. Raises ValueError as `load_beir`.
    """
    known = find_rules(dataset.name)
    rules = dataset.rules or known
    if dataset.split and dataset.split != rules.split:
        # The note about a known collection is about its usual split.
        rules = replace(rules, split=dataset.split, note="" if rules.note == known.note else rules.note)
    retrieval = load_beir(dataset.path, rules.split, lacks_documents=rules.lacks_documents)
    if dataset.rules is None:
        matched = match_rules(rules, replace(retrieval, name=dataset.name))
        # The name suggested lenient reading, but the content is another collection: read it again, strictly.
        if rules.lacks_documents and not matched.lacks_documents:
            retrieval = load_beir(dataset.path, rules.split)
        rules = matched
    return replace(retrieval, name=dataset.name), note_unjudged_queries(rules, retrieval)


def match_rules(rules: CollectionRules, retrieval: Retrieval) -> CollectionRules:
    """Return the peculiarities of a known collection if its content matches them, otherwise a note.

    A collection matches if its queries are documents: most queries with the id of a document have its text, and no
    query judges the document with its own id.
    """
    if not rules.removes_self_hits:
        return rules
    documents = dict(zip(retrieval.document_ids, retrieval.documents, strict=True))
    queries = dict(zip(retrieval.query_ids, retrieval.queries, strict=True))
    common_ids = [query_id for query_id in queries if query_id in documents]
    num_self_judged = sum(query_id in retrieval.judgements.get(query_id, ()) for query_id in common_ids)
    num_equal = sum(_normalise(queries[common_id]) in _normalise(documents[common_id]) for common_id in common_ids)
    # A name is not enough. Removing hits from an unrelated collection would silently change its scores.
    if common_ids and not num_self_judged and 2 * num_equal > len(common_ids):
        return rules
    if num_self_judged:
        reason = f"{num_self_judged} queries judge the document of their own id"
    else:
        reason = f"of {len(common_ids)} queries with the id of a document, {num_equal} have its text"
    note = f"named {retrieval.name}, but {reason}: read like any other collection, no hits are removed"
    return CollectionRules(split=rules.split, note=note)


def _normalise(text: str) -> str:
    return " ".join(text.casefold().split())


MAX_LEVELS = 3


GIVEN_FAMILY = "given"
"""The family of a user's collection that is no part of a dataset."""


def find_collections(folder: Path) -> Suite:
    """Return the suite of suite.json, or the BEIR folders at or below `folder`: those in one sub-folder are one dataset.

    Raises ValueError if two would have the same name, or one that of a mean.
    """
    if (folder / "suite.json").is_file():
        return load_suite(folder)
    name = get_legal_name(folder.resolve().name)
    if is_beir(folder):
        datasets = [SuiteDataset(name, GIVEN_FAMILY, folder)]
    else:
        datasets = [_make_dataset(path.relative_to(folder), path) for path in _iter_beir(folder, MAX_LEVELS)]
    check_groups([(dataset.name, dataset.family) for dataset in datasets], str(folder))
    return Suite(name, tuple(datasets))


def describe_skipped_entries(folder: Path, datasets: Sequence[SuiteDataset]) -> list[str]:
    """Return a line about the other entries of a folder of collections, and those inside another. Empty if none."""
    used = {path for dataset in datasets for path in (dataset.path, *dataset.path.parents)}
    parents = {path.parent for path in used if path.is_relative_to(folder) and path != folder}
    entries = {path for parent in parents for path in list_entries(parent)} - used - {folder / "suite.json"}
    nested = {path for dataset in datasets for path in _iter_beir(dataset.path, MAX_LEVELS)}
    names = sorted(str(path.relative_to(folder)) for path in entries | nested)
    return [f"{shorten(folder)}: not read: {shorten(', '.join(names), 300)}"] if names else []


def _iter_beir(folder: Path, num_levels: int) -> Iterator[Path]:
    """Yield the BEIR folders below a folder, at most `num_levels` deep."""
    for path in list_entries(folder):
        if is_beir(path):
            yield path
        elif num_levels > 1 and path.is_dir():
            yield from _iter_beir(path, num_levels - 1)


def _make_dataset(relative: Path, path: Path) -> SuiteDataset:
    name = get_legal_name("-".join(relative.parts))
    if len(relative.parts) == 1:
        return SuiteDataset(name, GIVEN_FAMILY, path)
    parent = get_legal_name(relative.parts[0])
    return SuiteDataset(name, parent, path, part_of=parent)


def write_suite(
    folder: Path,
    name: str,
    datasets: Sequence[tuple[str, str]],
    rules: Mapping[str, CollectionRules] | None = None,
    part_of: Mapping[str, str] | None = None,
) -> None:
    """Write suite.json. Each dataset is the sub-folder with its name.

    Args:
        folder: Folder of the suite.
        name: Name of the suite.
        datasets: Name and family of each dataset.
        rules: Peculiarities of each dataset. Default: those of a known collection with its name.
        part_of: For datasets that are parts of another one, its name.
    """
    rows: list[dict[str, Any]] = []
    for dataset, family in datasets:
        row: dict[str, Any] = {"name": dataset, "family": family}
        if part_of and part_of.get(dataset):
            row["part_of"] = part_of[dataset]
        if rules is not None:
            row["quirks"] = rules[dataset].changed()
        rows.append(row)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"name": name, "datasets": rows}, indent=1, ensure_ascii=False)
    (folder / "suite.json").write_text(text + "\n", encoding="utf-8")


def load_suite(folder: Path) -> Suite:
    """Read suite.json, which `write_suite` wrote."""
    path = folder / "suite.json"
    with name_in_errors(path):
        content, datasets = json_object(path), []
        for row in content["datasets"]:
            rules = read_rules(row["quirks"]) if "quirks" in row else None
            datasets.append(
                SuiteDataset(row["name"], row["family"], folder / row["name"], rules, row.get("part_of") or "")
            )
    check_groups([(dataset.name, dataset.family) for dataset in datasets], str(path))
    return Suite(content["name"], tuple(datasets))


MEAN, HEADLINE = "mean", "ndcg_at_10"
"""The name of the mean over all datasets, and the measure whose values per query are stored."""


def group_datasets(datasets: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return the indices of datasets per name: the dataset itself, its family, and `mean` for all of them.

    The parts of one dataset count once in the mean, so the indices of all other datasets are repeated.
    """
    families: dict[str, list[int]] = {}
    for index, row in enumerate(datasets):
        families.setdefault(row["family"], []).append(index)
    single = {row["name"]: [index] for index, row in enumerate(datasets)}
    return single | families | {MEAN: _list_indices_of_mean(datasets)}


def compute_mean_weights(datasets: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the weight of each dataset in the mean of the suite, 1 on average. Empty if all weights are equal."""
    # thousands of records have no parts, and need no groups
    if not any(row.get("part_of") for row in datasets):
        return []
    members = _list_indices_of_mean(datasets)
    if len(members) == len(datasets):
        return []
    # an index that occurs twice counts twice in the mean
    counts = Counter(members)
    return [counts[index] * len(datasets) / len(members) for index in range(len(datasets))]


def _list_indices_of_mean(datasets: Sequence[Mapping[str, Any]]) -> list[int]:
    parents = [row.get("part_of") or row["name"] for row in datasets]
    num_parts = Counter(parents)
    # repeating each index multiple / num_parts times gives all whole datasets the same weight
    multiple = math.lcm(*num_parts.values())
    return [index for index, parent in enumerate(parents) for _ in range(multiple // num_parts[parent])]


def check_groups(datasets: Sequence[tuple[str, str]], where: str) -> None:
    """Raise ValueError if two of the datasets and means over datasets would have the same metric path."""
    counts = Counter([*(name for name, _ in datasets), *{family for _, family in datasets}, MEAN])
    conflicts = sorted(name for name, count in counts.items() if count > 1)
    if conflicts:
        raise ValueError(f"{where}: {conflicts} name more than one dataset or mean over datasets: rename them")


def _write_jsonl(path: Path, rows: Iterator[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as sink:
        for row in rows:
            sink.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_texts(
    path: Path, fields: tuple[str, ...], selected_ids: Container[str] | None = None, *, is_for_trec: bool = False
) -> dict[str, str]:
    """Read the texts of corpus.jsonl or queries.jsonl by id, all or only those with the selected ids.

    Raises:
        ValueError: with file and line, for a malformed line or a repeated id, and with `is_for_trec` for an id that a TREC
            run cannot store.
    """
    texts: dict[str, str] = {}
    for line, key, text in iter_texts(path, fields):
        if selected_ids is not None and key not in selected_ids:
            continue
        if is_for_trec:
            check_word(key, f"{path}, line {line}")
        if key in texts:
            raise ValueError(f"{path}, line {line}: the id {key!r} occurs twice")
        texts[key] = text
    return texts


def iter_texts(path: Path, fields: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    """Yield line, id and text of each row of corpus.jsonl or queries.jsonl. ValueError for a malformed line."""
    if not path.is_file():
        raise ValueError(f"{path} is missing: a BEIR folder holds corpus.jsonl, queries.jsonl and qrels/<split>.tsv")
    for line, row in list_json_rows(path):
        yield line, *_parse_text(row, fields, f"{path}, line {line}")


def _parse_text(row: Mapping[str, Any], fields: tuple[str, ...], where: str) -> tuple[str, str]:
    """Return id and text of a row. The text may be empty or null, but at least one of its fields must exist."""
    key = row.get("_id")
    parts = [row[field] for field in fields if field in row]
    has_id = isinstance(key, str | int) and not isinstance(key, bool)
    if not has_id or not parts or not all(part is None or isinstance(part, str) for part in parts):
        found = {name: row[name] for name in ("_id", *fields) if name in row} if parts else sorted(row)
        raise ValueError(f'{where}: expected "_id" (a string or number) and "text" (a string), found {shorten(found)}')
    return str(key), " ".join(part for part in parts if part).strip()


def _read_judgements(
    folder: Path, split: str, documents: Mapping[str, str] | None, queries: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    path = folder / "qrels" / f"{split}.tsv"
    judgements: dict[str, dict[str, int]] = {}
    for line, (query_id, document_id, grade) in read_qrels(path):
        where = f"{path}, line {line}"
        if query_id not in queries:
            raise ValueError(f"{where}: the query {query_id!r} is not in queries.jsonl")
        if documents is not None and document_id not in documents:
            raise ValueError(f"{where}: the document {document_id!r} is not in corpus.jsonl")
        judgements.setdefault(query_id, {})[document_id] = grade
    if all(grade <= 0 for grades in judgements.values() for grade in grades.values()):
        raise ValueError(f"{path} has no grade above 0: no document is relevant to any query, every score would be 0")
    return judgements


def read_qrels(path: Path) -> Iterator[tuple[int, tuple[str, str, int]]]:
    """Yield the line number, and query id, document id and grade of each judgement.

    The first line may be a header as in BEIR, which begins with "query-id" and does not end with a grade.

    Raises:
        ValueError: with file and line, if a line is malformed, or contradicts an earlier one.
    """
    if not path.is_file():
        splits = list_splits(path.parent.parent)
        raise ValueError(f"{path} is missing: available splits are {splits or 'none'}")
    grades: dict[tuple[str, str], int] = {}
    # Only the first line with content may be a header. `number` counts blank lines too.
    for index, (number, line) in enumerate(iter_lines(path)):
        parts = line.split("\t")
        is_header = parts[0].lower().replace("_", "-") == QRELS_HEADER[0] and not parts[-1][-1:].isdigit()
        try:
            query_id, document_id, grade = parts
            if index == 0 and is_header:
                if not document_id.lower().endswith("id"):
                    raise ValueError(f"the second column is {shorten(repr(document_id))}")
                continue
            value = parse_grade(grade)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: expected query-id, corpus-id and grade ({error})") from error
        # Real qrels repeat lines. Only a contradiction is an error.
        first = grades.setdefault((query_id, document_id), value)
        if first != value:
            raise ValueError(f"{path}, line {number}: this pair was judged {first} before, and {value} here")
        yield number, (query_id, document_id, value)


def _count_unjudged_queries(
    folder: Path, split: str, queries: Mapping[str, str], judgements: Mapping[str, object]
) -> int:
    """Count the queries without judgements in any split. In BEIR, queries.jsonl has those of all splits."""
    unjudged = queries.keys() - judgements.keys()
    if not unjudged:
        return 0
    # Queries of other splits are not dropped by mistake: they are judged there.
    for other_split in list_splits(folder):
        if other_split != split:
            qrels = read_qrels(folder / "qrels" / f"{other_split}.tsv")
            unjudged -= {query_id for _, (query_id, _, _) in qrels}
    return len(unjudged)
