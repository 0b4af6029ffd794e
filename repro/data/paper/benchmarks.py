"""The paper's evaluation collections: archives, sizes and md5, as in BEIR."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.data.beir import write_suite
from repro.data.paper import DECLARED
from repro.data.paper.collection_rules import find_rules
from repro.storage.paths import get_data_folder

ARCHIVES = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One archive of BEIR. `parts` are its BEIR folders, empty if the archive is a single BEIR folder."""

    md5: str
    size_mb: int
    parts: Sequence[str] = ()


BENCHMARKS = {name: Benchmark(**values) for name, values in DECLARED["evaluation"].items()}
SUITES: dict[str, tuple[str, ...]] = {name: tuple(names) for name, names in DECLARED["suites"].items()}


def list_beir_folders(name: str) -> dict[str, Path]:
    """Return the BEIR folders of an archive by their names in a suite, whether they exist or not."""
    root = get_data_folder() / "beir" / name
    parts = BENCHMARKS[name].parts
    return {f"{name}-{part}": root / part for part in parts} if parts else {name: root}


def list_missing_files(name: str) -> list[Path]:
    """Return the missing files of an archive: texts, and the judgements of the split that is scored."""
    return [
        path
        for dataset, folder in list_beir_folders(name).items()
        for file in ("corpus.jsonl", "queries.jsonl", f"qrels/{find_rules(dataset).split}.tsv")
        if not (path := folder / file).is_file()
    ]


def check_suite(suite: str) -> None:
    """Raise ValueError if archives of a suite are missing. The message has their size and the fetch command."""
    missing = [name for name in SUITES[suite] if list_missing_files(name)]
    if missing:
        size = sum(BENCHMARKS[name].size_mb for name in missing)
        fetch = f"REPRO_DATA={shlex.quote(str(get_data_folder()))} repro fetch {suite}"
        raise ValueError(
            f"suite {suite!r}: {missing} (about {size} MB) are missing; on a machine with internet: {fetch}"
        )


def list_suite_folders(suite: str) -> dict[str, Path]:
    """Return the BEIR folders of a suite by their names in it, whether they exist or not."""
    return {dataset: folder for name in SUITES[suite] for dataset, folder in list_beir_folders(name).items()}


def make_suite(suite: str, folder: Path) -> None:
    """Write suite.json. The collections take gigabytes and stay in the local copy."""
    write_suite(folder, suite, [(dataset, f"{suite} set") for dataset in list_suite_folders(suite)])
