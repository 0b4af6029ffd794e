"""Retrieval collections in BEIR folders, and suites of them: written, read, refused clearly when malformed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from repro.data.foreign import lines_of

QRELS_HEADER = ("query-id", "corpus-id", "score")


@dataclass(frozen=True)
class Retrieval:
    """A collection: documents (title and text joined), queries, and `judgements[query id][document id] = relevance`."""

    name: str
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    query_ids: tuple[str, ...]
    queries: tuple[str, ...]
    judgements: Mapping[str, Mapping[str, int]]


class SuiteDataset(NamedTuple):
    """One collection of a suite and the family whose mean it enters."""

    name: str
    family: str
    path: Path


@dataclass(frozen=True)
class Suite:
    """A named list of BEIR folders."""

    name: str
    datasets: tuple[SuiteDataset, ...]


def write_beir_folder(folder: Path, retrieval: Retrieval, split: str = "test") -> None:
    """Writes corpus.jsonl, queries.jsonl and qrels/<split>.tsv; whole texts go into `text`, titles stay empty."""
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
    """Reads a BEIR folder: every document, and the queries that `split` judges, in the order of queries.jsonl.

    `lacks_documents`: judged documents may be missing from the corpus; they stay in the judgements, where no ranking
    finds them, as trec_eval has it.

    ValueError, naming file and line, for malformed JSON, repeated ids, an empty corpus, missing qrels, a judgement of
    an unknown query or document, and a query that no split judges.
    """
    documents = _read_texts(folder / "corpus.jsonl", ("title", "text"))
    if not documents:
        raise ValueError(f"{folder / 'corpus.jsonl'} is empty: a collection needs at least one document")
    all_queries = _read_texts(folder / "queries.jsonl", ("text",))
    judgements = _read_judgements(folder, split, None if lacks_documents else documents, all_queries)
    _check_every_query_is_judged(folder, split, all_queries, judgements)
    queries = {i: text for i, text in all_queries.items() if i in judgements}
    return Retrieval(
        name=folder.name,
        document_ids=tuple(documents),
        documents=tuple(documents.values()),
        query_ids=tuple(queries),
        queries=tuple(queries.values()),
        judgements=judgements,
    )


def splits_of(folder: Path) -> list[str]:
    """Gives the names of the splits that a BEIR folder judges."""
    return sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))


def write_suite(folder: Path, name: str, datasets: Sequence[tuple[str, str]]) -> None:
    """Writes suite.json over (dataset name, family); each dataset is the sub-folder of its name."""
    rows = [{"name": dataset, "family": family} for dataset, family in datasets]
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"name": name, "datasets": rows}, indent=1, ensure_ascii=False)
    (folder / "suite.json").write_text(text + "\n", encoding="utf-8")


def load_suite(folder: Path) -> Suite:
    """Reads suite.json; ValueError when it, or a dataset folder that it names, is missing or malformed."""
    path = folder / "suite.json"
    if not path.is_file():
        raise ValueError(f"no suite at {folder}: {path} is missing")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        datasets = tuple(SuiteDataset(row["name"], row["family"], folder / row["name"]) for row in content["datasets"])
        name = content["name"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f'{path} is malformed ({error!r}): expected {{"name", "datasets": [{{"name", "family"}}]}}'
        ) from error
    missing = [dataset.name for dataset in datasets if not dataset.path.is_dir()]
    if missing or not datasets:
        raise ValueError(f"{path} names {len(datasets)} datasets, without a folder: {missing or 'all'}")
    return Suite(name, datasets)


def _write_jsonl(path: Path, rows: Iterator[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as sink:
        for row in rows:
            sink.write(json.dumps(row, ensure_ascii=False) + "\n")


def _read_texts(path: Path, fields: tuple[str, ...]) -> dict[str, str]:
    if not path.is_file():
        raise ValueError(f"{path} is missing: a BEIR folder holds corpus.jsonl, queries.jsonl and qrels/<split>.tsv")
    texts: dict[str, str] = {}
    for number, line in lines_of(path):
        key, text = _parse_text(line, fields, f"{path}, line {number}")
        if key in texts:
            raise ValueError(f"{path}, line {number}: the id {key!r} is there twice")
        texts[key] = text
    return texts


def _parse_text(line: str, fields: tuple[str, ...], where: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        parts = [row.get(field) or "" for field in fields]
        return str(row["_id"]), " ".join(part for part in parts if part).strip()
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f'{where}: expected a JSON object with "_id" and "text" ({error!r})') from error


def _read_judgements(
    folder: Path, split: str, documents: Mapping[str, str] | None, queries: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    path = folder / "qrels" / f"{split}.tsv"
    judgements: dict[str, dict[str, int]] = {}
    for number, (query_id, document_id, grade) in read_qrels(path):
        if query_id not in queries:
            raise ValueError(f"{path}, line {number}: the query {query_id!r} is not in queries.jsonl")
        if documents is not None and document_id not in documents:
            raise ValueError(f"{path}, line {number}: the document {document_id!r} is not in corpus.jsonl")
        judgements.setdefault(query_id, {})[document_id] = grade
    if not judgements:
        raise ValueError(f"{path} judges nothing: a split needs at least one query")
    return judgements


def read_qrels(path: Path) -> Iterator[tuple[int, tuple[str, str, int]]]:
    """Gives line number, and query id, document id and grade, of each judgement; ValueError names a malformed line."""
    if not path.is_file():
        found = sorted(other.stem for other in path.parent.glob("*.tsv"))
        raise ValueError(f"{path} is missing: the splits there are {found or 'none'}")
    for number, line in lines_of(path):
        parts = line.split("\t")
        if number == 1 and parts[0] == QRELS_HEADER[0]:
            continue
        try:
            query_id, document_id, grade = parts
            yield number, (query_id, document_id, int(grade))
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: expected query-id, corpus-id and a whole number ({error})"
            ) from error


def _check_every_query_is_judged(
    folder: Path, split: str, queries: Mapping[str, str], judgements: Mapping[str, object]
) -> None:
    # BEIR keeps the queries of all splits in one file, so a query may belong to another split, but not to none.
    unjudged = [query_id for query_id in queries if query_id not in judgements]
    if not unjudged:
        return
    elsewhere = {
        row[0] for other in (folder / "qrels").glob("*.tsv") if other.stem != split for _, row in read_qrels(other)
    }
    orphans = [query_id for query_id in unjudged if query_id not in elsewhere]
    if orphans:
        raise ValueError(
            f"{folder}: {len(orphans)} queries have no judged document in any split, first {orphans[0]!r}: "
            "judge them in qrels or take them out of queries.jsonl"
        )
