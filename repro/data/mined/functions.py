"""Build the corpus `functions`: pairs of docstrings and code, with whole packages held out.

There are two collections, as is common in code search: one with all functions of the held-out packages, and one with a
thousand of them. Training pairs are functions of the other packages.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from repro.data.beir import write_beir_folder, write_suite
from repro.data.filters import EvaluatedTexts, check_no_overlap, drop_evaluated_rows, drop_repeated_documents
from repro.data.mined.manifests import FUNCTIONS_FOLDER, verify_manifests
from repro.data.mined.mining import Mined, mine_rows
from repro.data.mined.sources import docstrings, functions
from repro.data.mined.splits import get_split
from repro.data.pairs import Row, read_pairs, write_pairs
from repro.data.suites import SuiteRules, build_collection

SUITE = "functions"
RULES = {
    "python-all": SuiteRules(max_documents=4096, max_queries=1000),
    "python-1k": SuiteRules(max_documents=1000, max_queries=1000),
}


def mine_functions() -> Mined:
    """Mine the functions of all packages. Return clean rows."""
    return mine_rows(functions.SOURCE, functions.mine_functions())


def build_functions(folder: Path) -> None:
    """Write train.arrow, suites/functions and report.json. They have the same bytes on every machine.

    Raises:
        ValueError: if a package is not installed or differs from its manifest.
    """
    mined = mine_functions()
    verify_manifests([mined], FUNCTIONS_FOLDER)
    splits: dict[str, list[Row]] = {"train": [], "test": [], "validation": [], "unused": []}
    for row in mined.rows:
        splits[get_split(docstrings.SOURCE, row.domain)].append(row)
    collections = {name: build_collection(name, splits["test"], rules) for name, rules in RULES.items()}
    for name, collection in collections.items():
        write_beir_folder(folder / "suites" / SUITE / name, collection.retrieval)
    write_suite(folder / "suites" / SUITE, SUITE, [(name, SUITE) for name in collections])
    removed: Counter[str] = Counter()
    evaluated = EvaluatedTexts(collection.retrieval for collection in collections.values())
    fresh = drop_repeated_documents(drop_evaluated_rows(splits["train"], evaluated, removed), removed)
    num_pairs = write_pairs(folder / "train.arrow", fresh)
    check_no_overlap(read_pairs(folder / "train.arrow"), [folder / "suites" / SUITE])
    report = {
        "mined": {"num_rows": len(mined.rows), "removed": mined.removed},
        "train": {"num_pairs": num_pairs, "removed": dict(removed)},
        "suites": {name: collection.counts for name, collection in collections.items()},
    }
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
