"""Build the corpora `desk`, `desk-views`, `wide` and `others`: training pairs, evaluation suites and a report."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.data.beir import write_beir_folder, write_suite
from repro.data.filters import (
    EvaluatedTexts,
    check_no_overlap,
    drop_evaluated_rows,
    drop_repeated_documents,
    drop_repeated_pairs,
)
from repro.data.mined.manifests import WIDE_FOLDER, verify_manifests
from repro.data.mined.mining import Mined, mine_added_sources, mine_all
from repro.data.mined.splits import TEST_DATASETS, VALIDATION_DATASETS, VALIDATION_OTHERS, Dataset, get_split, matches
from repro.data.mined.views import iter_views
from repro.data.pairs import Row, read_pairs, write_pairs
from repro.data.suites import Collection, SuiteRules, build_collection

Progress = Callable[[str], None]

# about 80 WordPiece tokens of prose, which is more than the models of both scales read
MAX_DOCUMENT_WORDS = 64
VIEWS_SEED = 0


def build_desk(folder: Path, progress: Progress | None = None) -> None:
    """Write train.arrow, suites/desk, suites/desk-validation and report.json, with the same bytes on every machine.

    Raises:
        ValueError: if a source is not installed or differs from its manifest.
    """
    report_progress = progress or _ignore_progress
    mined = _mine(report_progress)
    suites = build_suites(mined)
    _write_suites(folder / "suites", suites, report_progress)
    train = _write_training_pairs(folder, mined, suites)
    # The file itself is read again, so that this does not depend on the filters above.
    check_no_overlap(read_pairs(folder / "train.arrow"), [folder / "suites" / name for name in suites])
    report_progress(f"wrote {train['num_pairs']} training pairs, none of whose text is evaluated")
    _write_report(folder, mined, train, suites)


def build_views(folder: Path, progress: Progress | None = None) -> None:
    """Write train.arrow with all views of the training text, and report.json. The suites are those of `desk`."""
    report_progress = progress or _ignore_progress
    mined = _mine(report_progress)
    suites = build_suites(mined)
    removed: Counter[str] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    evaluated = _collect_evaluated_texts(suites)
    # Evaluated rows are dropped before the views too, since a crop of an evaluated document leaks its text. Evaluated
    # documents are truncated, so both forms of a row are compared.
    rows = drop_evaluated_rows(_iter_training_rows(mined), evaluated, removed, cut=_cut)
    views = iter_views(rows, max_document_words=MAX_DOCUMENT_WORDS, seed=VIEWS_SEED)
    fresh = drop_repeated_pairs(drop_evaluated_rows(views, evaluated, removed), removed)
    write_pairs(folder / "train.arrow", _count_rows(fresh, sizes))
    report_progress(f"wrote {sum(sizes.values())} training pairs")
    _write_report(folder, mined, _report_sizes(sizes, removed), suites)


def build_wide(folder: Path, progress: Progress | None = None) -> None:
    """Write train.arrow with the training text of `desk` and of more sources, and report.json.

    The suites are those of `desk`. Raises ValueError as `build_desk`, or if a wheel cannot be fetched.
    """
    report_progress = progress or _ignore_progress
    added = mine_added_sources()
    verify_manifests(added, WIDE_FOLDER)
    report_progress(f"mined {sum(len(source.rows) for source in added)} rows of {len(added)} more sources")
    mined = _mine(report_progress)
    suites = build_suites(mined)
    train = _write_training_pairs(folder, [*mined, *added], suites)
    report_progress(f"wrote {train['num_pairs']} training pairs, none of whose text is evaluated")
    _write_report(folder, [*mined, *added], train, suites)


def build_others(folder: Path, progress: Progress | None = None) -> None:
    """Write the suite `desk-others`, on which recipes are chosen, and the other rows of its sources as train.arrow.

    None of its text is in the training text of `desk`, so it measures the cost of fine-tuning on `desk` elsewhere.
    Raises ValueError if a wheel cannot be fetched.
    """
    report_progress = progress or _ignore_progress
    added = mine_added_sources()
    verify_manifests(added, WIDE_FOLDER)
    rows = _group_by_domain(added)
    suites = {"desk-others": _build_suite(VALIDATION_OTHERS, rows, EvaluatedTexts())}
    _write_suites(folder / "suites", suites, report_progress)
    _write_report(folder, added, _write_training_pairs(folder, added, suites), suites)


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
        candidates = (_cut(row) for domain in domains for row in rows[dataset.source][domain])
        fresh = list(drop_evaluated_rows(candidates, excluded, Counter()))
        suite.append((dataset, build_collection(dataset.name, fresh, SuiteRules())))
    return suite


def _write_suites(folder: Path, suites: Suites, report_progress: Progress) -> None:
    for name, suite in suites.items():
        for dataset, collection in suite:
            write_beir_folder(folder / name / dataset.name, collection.retrieval)
        write_suite(folder / name, name, [(dataset.name, dataset.family) for dataset, _ in suite])
        report_progress(
            f"wrote the suite {name}: {sum(collection.counts['num_queries'] for _, collection in suite)} queries"
        )


def _mine(report_progress: Progress) -> list[Mined]:
    report_progress("mining text from the installed packages")
    mined = mine_all()
    verify_manifests(mined)
    report_progress(f"mined {sum(len(source.rows) for source in mined)} rows")
    return mined


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


def _cut(row: Row) -> Row:
    return row._replace(document=" ".join(row.document.split()[:MAX_DOCUMENT_WORDS]))


def _count_rows(rows: Iterator[Row], sizes: Counter[tuple[str, str]]) -> Iterator[Row]:
    for row in rows:
        sizes[row.source, row.domain] += 1
        yield row


def _write_training_pairs(folder: Path, mined: Sequence[Mined], suites: Suites) -> dict[str, Any]:
    """Write train.arrow with the training rows that share no text with the suites. Return its part of the report."""
    removed: Counter[str] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    rows = map(_cut, _iter_training_rows(mined))
    fresh = drop_repeated_documents(drop_evaluated_rows(rows, _collect_evaluated_texts(suites), removed), removed)
    write_pairs(folder / "train.arrow", _count_rows(fresh, sizes))
    return _report_sizes(sizes, removed)


def _report_sizes(sizes: Counter[tuple[str, str]], removed: Counter[str]) -> dict[str, Any]:
    by_source: Counter[str] = Counter()
    for (source, _), size in sizes.items():
        by_source[source] += size
    return {
        "num_pairs": sum(sizes.values()),
        "num_domains": len(sizes),
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
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _report_suite(suite: Sequence[tuple[Dataset, Collection]]) -> dict[str, Any]:
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for dataset, collection in suite:
        families[dataset.family].update({"num_datasets": 1, **collection.counts})
    return {
        "total": dict(sum(families.values(), Counter())),
        "families": {family: dict(counts) for family, counts in families.items()},
        "datasets": {dataset.name: collection.counts for dataset, collection in suite},
    }


def _ignore_progress(line: str) -> None:
    """Ignore the progress."""
