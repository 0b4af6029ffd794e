"""Build the mined corpora: training pairs, evaluation suites and a report."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.data.beir import write_beir_folder, write_suite
from repro.data.filters import (
    EvaluatedTexts,
    drop_evaluated_rows,
    drop_repeated_documents,
    drop_repeated_pairs,
)
from repro.data.mined.manifests import FUNCTIONS_FOLDER, WIDE_FOLDER, verify_manifests
from repro.data.mined.mining import (
    MAX_DOCUMENT_WORDS,
    Mined,
    cut_document,
    mine_added_sources,
    mine_all,
    mine_functions,
)
from repro.data.mined.sources import docstrings
from repro.data.mined.splits import TEST_DATASETS, VALIDATION_DATASETS, VALIDATION_OTHERS, Dataset, get_split, matches
from repro.data.mined.views import iter_views
from repro.data.pairs import Row, write_pairs
from repro.data.suites import Collection, SuiteRules, build_collection

VIEWS_SEED = 0
FUNCTION_RULES = {
    "python-all": SuiteRules(max_documents=4096, max_queries=1000),
    "python-1k": SuiteRules(max_documents=1000, max_queries=1000),
}


def build_desk(folder: Path) -> None:
    """Write train.arrow, suites/desk, suites/desk-validation and report.json, with the same bytes on every machine.

    Raises:
        ValueError: if a source is not installed or differs from its manifest.
    """
    mined = mine_all()
    verify_manifests(mined)
    suites = build_suites(mined)
    _write_suites(folder / "suites", suites)
    _write_report(folder, mined, _write_training_pairs(folder, mined, suites), suites)


def build_views(folder: Path) -> None:
    """Write train.arrow with all views of the training text, and report.json. The suites are those of `desk`."""
    mined = mine_all()
    verify_manifests(mined)
    suites = build_suites(mined)
    removed: Counter[str] = Counter()
    evaluated = _collect_evaluated_texts(suites)
    # Evaluated rows are dropped before the views too, since a crop of an evaluated document leaks its text. Evaluated
    # documents are truncated, so both forms of a row are compared.
    rows = drop_evaluated_rows(_iter_training_rows(mined), evaluated, removed, cut=cut_document)
    views = iter_views(rows, max_document_words=MAX_DOCUMENT_WORDS, seed=VIEWS_SEED)
    fresh = drop_repeated_pairs(drop_evaluated_rows(views, evaluated, removed), removed)
    _write_report(folder, mined, _write_rows(folder, fresh, removed), suites)


def build_wide(folder: Path) -> None:
    """Write train.arrow with the training text of `desk` and of more sources, and report.json.

    The suites are those of `desk`. Raises ValueError as `build_desk`, or if a wheel cannot be fetched.
    """
    added = mine_added_sources()
    verify_manifests(added, WIDE_FOLDER)
    mined = mine_all()
    verify_manifests(mined)
    suites = build_suites(mined)
    train = _write_training_pairs(folder, [*mined, *added], suites)
    _write_report(folder, [*mined, *added], train, suites)


def build_others(folder: Path) -> None:
    """Write the suite `desk-others`, on which recipes are chosen, and the other rows of its sources as train.arrow.

    None of its text is in the training text of `desk`, so it measures the cost of fine-tuning on `desk` elsewhere.
    Raises ValueError if a wheel cannot be fetched.
    """
    added = mine_added_sources()
    verify_manifests(added, WIDE_FOLDER)
    suites = {"desk-others": _build_suite(VALIDATION_OTHERS, _group_by_domain(added), EvaluatedTexts())}
    _write_suites(folder / "suites", suites)
    _write_report(folder, added, _write_training_pairs(folder, added, suites), suites)


def build_functions(folder: Path) -> None:
    """Write train.arrow with pairs of docstrings and code, suites/functions and report.json. Whole packages are held out.

    There are two collections, as is common in code search: one with all functions of the held-out packages, and one with
    a thousand of them. Raises ValueError as `build_desk`.
    """
    mined = mine_functions()
    verify_manifests([mined], FUNCTIONS_FOLDER)
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in mined.rows:
        rows[get_split(docstrings.SOURCE, row.domain)].append(row)
    suite = [
        (Dataset(name, "functions", "functions", ()), build_collection(name, rows["test"], rules))
        for name, rules in FUNCTION_RULES.items()
    ]
    suites = {"functions": suite}
    _write_suites(folder / "suites", suites)
    removed: Counter[str] = Counter()
    evaluated = _collect_evaluated_texts(suites)
    fresh = drop_repeated_documents(drop_evaluated_rows(rows["train"], evaluated, removed), removed)
    num_pairs = write_pairs(folder / "train.arrow", fresh)
    report = {
        "mined": {"num_rows": len(mined.rows), "removed": mined.removed},
        "train": {"num_pairs": num_pairs, "removed": dict(removed)},
        "suites": {dataset.name: collection.counts for dataset, collection in suite},
    }
    _write_json(folder / "report.json", report)


Suites = Mapping[str, Sequence[tuple[Dataset, Collection]]]


def build_suites(mined: Sequence[Mined]) -> Suites:
    """Build the test and the validation suite. They share no document or query."""
    rows = _group_by_domain(mined)
    test = _build_suite(TEST_DATASETS, rows, EvaluatedTexts())
    # The test suite is built first: a text in both belongs to the test, never to the choice of parameters.
    tested = EvaluatedTexts(collection.retrieval for _, collection in test)
    return {"desk": test, "desk-validation": _build_suite(VALIDATION_DATASETS, rows, tested)}


def _group_by_domain(mined: Sequence[Mined]) -> Mapping[str, Mapping[str, Sequence[Row]]]:
    rows: dict[str, dict[str, list[Row]]] = {source.source: defaultdict(list) for source in mined}
    for source in mined:
        for row in source.rows:
            rows[source.source][row.domain].append(row)
    return rows


def _build_suite(
    datasets: Sequence[Dataset], rows: Mapping[str, Mapping[str, Sequence[Row]]], excluded: EvaluatedTexts
) -> list[tuple[Dataset, Collection]]:
    suite = []
    for dataset in datasets:
        domains = [domain for domain in rows[dataset.source] if matches(domain, dataset.domains)]
        # Documents are truncated before the comparison, because repeats may differ only after the cut.
        candidates = (cut_document(row) for domain in domains for row in rows[dataset.source][domain])
        fresh = list(drop_evaluated_rows(candidates, excluded, Counter()))
        suite.append((dataset, build_collection(dataset.name, fresh, SuiteRules())))
    return suite


def _write_suites(folder: Path, suites: Suites) -> None:
    for name, suite in suites.items():
        for dataset, collection in suite:
            write_beir_folder(folder / name / dataset.name, collection.retrieval)
        write_suite(folder / name, name, [(dataset.name, dataset.family) for dataset, _ in suite])


def _iter_training_rows(mined: Sequence[Mined]) -> Iterator[Row]:
    """Yield the rows of the training domains. Each domain name belongs to one source only."""
    owners: dict[str, str] = {}
    for source in mined:
        for row in source.rows:
            if get_split(row.source, row.domain) == "train":
                owner = owners.setdefault(row.domain, row.source)
                assert owner == row.source, f"the domain {row.domain!r} is in {owner!r} and in {row.source!r}"
                yield row


def _collect_evaluated_texts(suites: Suites) -> EvaluatedTexts:
    return EvaluatedTexts(collection.retrieval for suite in suites.values() for _, collection in suite)


def _write_training_pairs(folder: Path, mined: Sequence[Mined], suites: Suites) -> dict[str, Any]:
    """Write train.arrow with the training rows that share no text with the suites. Return its part of the report."""
    removed: Counter[str] = Counter()
    rows = map(cut_document, _iter_training_rows(mined))
    fresh = drop_repeated_documents(drop_evaluated_rows(rows, _collect_evaluated_texts(suites), removed), removed)
    return _write_rows(folder, fresh, removed)


def _write_rows(folder: Path, rows: Iterator[Row], removed: Counter[str]) -> dict[str, Any]:
    """Write train.arrow. Return its part of the report. `removed` is filled while the rows are read."""
    by_source: Counter[str] = Counter()
    domains: set[str] = set()

    def count_rows() -> Iterator[Row]:
        for row in rows:
            by_source[row.source] += 1
            domains.add(row.domain)
            yield row

    num_pairs = write_pairs(folder / "train.arrow", count_rows())
    return {
        "num_pairs": num_pairs,
        "num_domains": len(domains),
        "num_pairs_by_source": dict(by_source),
        "removed": dict(removed),
    }


def _write_report(folder: Path, mined: Sequence[Mined], train: dict[str, Any], suites: Suites) -> None:
    """Write report.json: the numbers of mined, removed, trained and held-out rows."""
    sources = {
        source.source: {
            "num_rows": len(source.rows),
            "num_domains": len({row.domain for row in source.rows}),
            "removed": source.removed,
        }
        for source in mined
    }
    report = {
        "mined": sources,
        "train": train,
        "suites": {name: _report_suite(suite) for name, suite in suites.items()},
    }
    _write_json(folder / "report.json", report)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _report_suite(suite: Sequence[tuple[Dataset, Collection]]) -> dict[str, Any]:
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for dataset, collection in suite:
        families[dataset.family].update({"num_datasets": 1, **collection.counts})
    return {
        "total": dict(sum(families.values(), Counter())),
        "families": {family: dict(counts) for family, counts in families.items()},
        "datasets": {dataset.name: collection.counts for dataset, collection in suite},
    }
