"""Build the mined corpora: training pairs and evaluation suites."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from repro.data.beir import Retrieval, write_beir_folder, write_suite
from repro.data.filters import EvaluatedTexts, drop_evaluated_rows, drop_repeated_documents, drop_repeated_pairs
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
from repro.data.suites import build_collection

VIEWS_SEED = 0
FUNCTIONS = {"python-all": 4096, "python-1k": 1000}
"""Largest number of documents in each collection of functions."""
Suites = Mapping[str, Sequence[tuple[str, Retrieval]]]
"""Collections by suite, each after its family."""


def build_desk(folder: Path) -> None:
    """Write train.arrow, suites/desk and suites/desk-validation, the same bytes on every machine.

    Raises:
        ValueError: if a source is not installed or differs from its manifest.
    """
    mined = mine_all()
    suites = build_suites(mined)
    write_suites(folder / "suites", suites)
    write_training_pairs(folder, suites, _iter_cut_rows(mined))


def build_views(folder: Path) -> None:
    """Write train.arrow with all views of the training text. The suites are those of `desk`."""
    mined = mine_all()
    evaluated = _collect_evaluated_texts(build_suites(mined))
    # Evaluated rows are dropped before the views too, since a crop of an evaluated document leaks its text. Evaluated
    # documents are truncated, so both forms of a row are compared.
    rows = drop_evaluated_rows(_iter_training_rows(mined), evaluated, cut_document)
    views = iter_views(rows, max_document_words=MAX_DOCUMENT_WORDS, seed=VIEWS_SEED)
    write_pairs(folder / "train.arrow", drop_repeated_pairs(drop_evaluated_rows(views, evaluated)))


def build_wide(folder: Path) -> None:
    """Write train.arrow with the training text of `desk` and of more sources.

    The suites are those of `desk`. Raises ValueError as `build_desk`, or if a wheel cannot be fetched.
    """
    added, mined = mine_added_sources(), mine_all()
    write_training_pairs(folder, build_suites(mined), _iter_cut_rows([*mined, *added]))


def build_others(folder: Path) -> None:
    """Write the suite `desk-others`, on which recipes are chosen, and the other rows of its sources as train.arrow.

    None of its text is in the training text of `desk`, so it measures the cost of fine-tuning on `desk` elsewhere.
    Raises ValueError if a wheel cannot be fetched.
    """
    added = mine_added_sources()
    suites = {"desk-others": _build_suite(VALIDATION_OTHERS, _group_by_domain(added), EvaluatedTexts())}
    write_suites(folder / "suites", suites)
    write_training_pairs(folder, suites, _iter_cut_rows(added))


def build_functions(folder: Path) -> None:
    """Write train.arrow with pairs of docstrings and code, and suites/functions. Whole packages are held out.

    There are two collections, as is common in code search: one with all functions of the held-out packages, and one with
    a thousand of them. Raises ValueError as `build_desk`.
    """
    mined = mine_functions()
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in mined.rows:
        rows[get_split(docstrings.SOURCE, row.domain)].append(row)
    suite = [
        ("functions", build_collection(name, rows["test"], max_documents=size, max_queries=1000))
        for name, size in FUNCTIONS.items()
    ]
    suites = {"functions": suite}
    write_suites(folder / "suites", suites)
    write_training_pairs(folder, suites, rows["train"])


def build_suites(mined: Sequence[Mined]) -> Suites:
    """Build the test and the validation suite. They share no document or query."""
    rows = _group_by_domain(mined)
    test = _build_suite(TEST_DATASETS, rows, EvaluatedTexts())
    # The test suite is built first: a text in both belongs to the test, never to the choice of parameters.
    tested = EvaluatedTexts(collection for _, collection in test)
    return {"desk": test, "desk-validation": _build_suite(VALIDATION_DATASETS, rows, tested)}


def _group_by_domain(mined: Sequence[Mined]) -> Mapping[str, Mapping[str, Sequence[Row]]]:
    rows: dict[str, dict[str, list[Row]]] = {source.source: defaultdict(list) for source in mined}
    for source in mined:
        for row in source.rows:
            rows[source.source][row.domain].append(row)
    return rows


def _build_suite(
    datasets: Sequence[Dataset], rows: Mapping[str, Mapping[str, Sequence[Row]]], excluded: EvaluatedTexts
) -> list[tuple[str, Retrieval]]:
    suite = []
    for dataset in datasets:
        domains = [domain for domain in rows[dataset.source] if matches(domain, dataset.domains)]
        # Documents are truncated before the comparison, because repeats may differ only after the cut.
        candidates = (cut_document(row) for domain in domains for row in rows[dataset.source][domain])
        fresh = list(drop_evaluated_rows(candidates, excluded))
        suite.append((dataset.family, build_collection(dataset.name, fresh)))
    return suite


def write_suites(folder: Path, suites: Suites) -> None:
    """Write the collections of each suite, and its list."""
    for name, suite in suites.items():
        for _, collection in suite:
            write_beir_folder(folder / name / collection.name, collection)
        write_suite(folder / name, name, [(collection.name, family) for family, collection in suite])


def _iter_training_rows(mined: Sequence[Mined]) -> Iterator[Row]:
    """Yield the rows of the training domains. Each domain name belongs to one source only."""
    owners: dict[str, str] = {}
    for source in mined:
        for row in source.rows:
            if get_split(row.source, row.domain) == "train":
                owner = owners.setdefault(row.domain, row.source)
                assert owner == row.source, f"the domain {row.domain!r} is in {owner!r} and in {row.source!r}"
                yield row


def _iter_cut_rows(mined: Sequence[Mined]) -> Iterator[Row]:
    return map(cut_document, _iter_training_rows(mined))


def _collect_evaluated_texts(suites: Suites) -> EvaluatedTexts:
    return EvaluatedTexts(collection for suite in suites.values() for _, collection in suite)


def write_training_pairs(folder: Path, suites: Suites, rows: Iterable[Row]) -> None:
    """Write train.arrow with the rows that share no text with the suites, without repetitions."""
    fresh = drop_evaluated_rows(rows, _collect_evaluated_texts(suites))
    write_pairs(folder / "train.arrow", drop_repeated_documents(fresh))
