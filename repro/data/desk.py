"""Builds the corpora of the scales `desk` and `lab` from mined text: training pairs, evaluation suites, a report."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from repro.data.beir import write_beir_folder, write_suite
from repro.data.mining import Mined, mine_all
from repro.data.pairs import Row, write_pairs
from repro.data.sources.wording import normalise
from repro.data.splits import TEST_DATASETS, VALIDATION_DATASETS, Dataset, matches, split_of
from repro.data.suites import Collection, SuiteRules, build_collection

Progress = Callable[[str], None]

# About 64 WordPiece tokens of prose, what a small model reads of a document.
DESK_DOCUMENT_WORDS = 64


def build_desk(folder: Path, progress: Progress | None = None) -> None:
    """Writes train.arrow, suites/desk, suites/desk-validation and report.json; the same bytes on every machine."""
    say = progress or (lambda _: None)
    mined = _mine(say)
    test, validation = write_suites(folder, mined, say)
    removed: Counter[str] = Counter()
    rows = list(training_rows(_split_rows(mined, "train"), _texts_of([*test, *validation]), removed))
    write_pairs(folder / "train.arrow", rows)
    say(f"wrote {len(rows)} training pairs")
    write_report(folder, mined, rows, test=test, validation=validation, removed=removed)


def write_suites(folder: Path, mined: Sequence[Mined], say: Progress) -> tuple[list[Collection], list[Collection]]:
    """Writes both suites and gives their collections; no document or query of the test suite is in the validation's."""
    test = _build_suite(TEST_DATASETS, _split_rows(mined, "test"), _Texts())
    validation = _build_suite(VALIDATION_DATASETS, _split_rows(mined, "validation"), _texts_of(test))
    for name, datasets, collections in (
        ("desk", TEST_DATASETS, test),
        ("desk-validation", VALIDATION_DATASETS, validation),
    ):
        for collection in collections:
            write_beir_folder(folder / "suites" / name / collection.retrieval.name, collection.retrieval)
        write_suite(folder / "suites" / name, name, [(dataset.name, dataset.family) for dataset in datasets])
        say(f"wrote the suite {name}: {sum(c.counts['num_queries'] for c in collections)} queries")
    return test, validation


class _Texts:
    """Normalised texts that must not appear again."""

    def __init__(self) -> None:
        self.documents: set[str] = set()
        self.queries: set[str] = set()


def training_rows(rows: Iterable[Row], evaluated: _Texts, removed: Counter[str]) -> Iterator[Row]:
    """Gives the rows that may be trained on, and counts the others.

    A row is left out when its document or its query is in an evaluation collection, when its document came before
    (anywhere), or when its query came before in the same domain; all comparisons are of normalised texts.
    """
    documents: set[str] = set()
    queries: set[tuple[str, str]] = set()
    for row in rows:
        document, query = normalise(row.document), normalise(row.query)
        if document in evaluated.documents or query in evaluated.queries:
            removed["evaluated"] += 1
        elif document in documents:
            removed["repeated_document"] += 1
        elif (row.domain, query) in queries:
            removed["repeated_query_in_domain"] += 1
        else:
            documents.add(document)
            queries.add((row.domain, query))
            yield row


def write_report(
    folder: Path,
    mined: Sequence[Mined],
    rows: Sequence[Row],
    *,
    test: Sequence[Collection],
    validation: Sequence[Collection],
    removed: Counter[str],
) -> None:
    """Writes report.json: what was mined, removed, trained on and held out, all as counts."""
    report = {
        "mined": {
            source.source: {
                "num_rows": len(source.rows),
                "num_domains": len({row.domain for row in source.rows}),
                "removed": source.removed,
            }
            for source in mined
        },
        "train": {
            "num_pairs": len(rows),
            "num_pairs_by_source": dict(Counter(row.source for row in rows)),
            "num_domains": len({(row.source, row.domain) for row in rows}),
            "removed": dict(removed),
        },
        "desk": _report_suite(TEST_DATASETS, test),
        "desk-validation": _report_suite(VALIDATION_DATASETS, validation),
    }
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _report_suite(datasets: Sequence[Dataset], collections: Sequence[Collection]) -> dict[str, object]:
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for dataset, collection in zip(datasets, collections, strict=True):
        families[dataset.family].update({"num_datasets": 1, **collection.counts})
    total = sum(families.values(), Counter())
    by_dataset = {collection.retrieval.name: collection.counts for collection in collections}
    return {"total": dict(total), "families": {k: dict(v) for k, v in families.items()}, "datasets": by_dataset}


def _mine(say: Progress) -> list[Mined]:
    say("mining text from the installed packages")
    mined = mine_all()
    say(f"mined {sum(len(source.rows) for source in mined)} rows")
    return mined


def _split_rows(mined: Sequence[Mined], split: str) -> list[Row]:
    """Gives the rows of a split, cut to what the desk scale reads."""
    return [cut(row) for source in mined for row in source.rows if split_of(row.source, row.domain) == split]


def cut(row: Row) -> Row:
    """Cuts the document to `DESK_DOCUMENT_WORDS`."""
    return row._replace(document=" ".join(row.document.split()[:DESK_DOCUMENT_WORDS]))


def _build_suite(datasets: Sequence[Dataset], rows: Sequence[Row], excluded: _Texts) -> list[Collection]:
    by_source: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if normalise(row.document) not in excluded.documents and normalise(row.query) not in excluded.queries:
            by_source[row.source].append(row)
    return [
        build_collection(
            dataset.name,
            [row for row in by_source[dataset.source] if matches(row.domain, dataset.domains)],
            SuiteRules(),
        )
        for dataset in datasets
    ]


def _texts_of(collections: Iterable[Collection]) -> _Texts:
    texts = _Texts()
    for collection in collections:
        texts.documents.update(map(normalise, collection.retrieval.documents))
        texts.queries.update(map(normalise, collection.retrieval.queries))
    return texts
