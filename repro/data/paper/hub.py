"""The paper's training data on the hub: sources with their domains, prompts, numbers of rows and local copies.

`declared.toml` lists the sources. Revisions are pinned when a source is fetched.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from repro.data.columns import Columns
from repro.data.folders import get_format, list_visible_files
from repro.data.pairs import Row, make_id
from repro.data.paper import DECLARED
from repro.data.prompts import CLASSIFICATION, CLUSTERING, SEARCH
from repro.data.readers import read_foreign_rows
from repro.data.wording import keep_words
from repro.spec import TRAINING_PAIRS
from repro.storage.files import json_object
from repro.storage.paths import get_data_folder

EMPTY = "[empty]"
"""Replacement of an empty text, as in the authors' loader."""
CHECKSUMS = "checksums.json"
"""File with sha256 and size of each file of a local copy. `fetch` writes it last."""
FETCHING = ".fetching"
"""Marker file that exists while `fetch` is incomplete."""
_SHARD = re.compile(r"(-train)?-\d{5}-of-\d{5}$")
COUNTS = "counts.json"
"""File of contrastors with the number of rows of each file of a folder. Each data set has a folder of .jsonl.gz."""
CONTRASTORS_FOLDERS, CONTRASTORS_COLUMNS = DECLARED["contrastors"]["folders"], DECLARED["contrastors"]["columns"]
PROMPT_KINDS: Mapping[str, tuple[str, str]] = {
    "search": SEARCH,
    "clustering": CLUSTERING,
    "classification": CLASSIFICATION,
    "questions": (SEARCH.query, SEARCH.query),
}
"""Prompts of queries and documents by the kind of a domain in declared.toml."""


@dataclass(frozen=True)
class Domain:
    """One domain of a source: its prompts (query, document), and its number of rows in the paper if it is printed."""

    prompts: tuple[str, str]
    num_rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """A dataset on the hub.

    Attributes:
        hub_ids: Its ids, which `fetch` tries in this order.
        domains: Its domains by name. Empty if they are not declared.
        columns: The names of its columns. Without a column of domains, each file or folder is named after its domain. A
            folder that is named after a domain precedes the column.
        num_rows: Its number of rows, or None if it is unknown.
        has_exact_rows: Whether the number of rows is exact. Otherwise it is rounded.
        size_gb: Estimated size.
    """

    hub_ids: Sequence[str]
    domains: Mapping[str, Domain]
    columns: Mapping[str, str]
    num_rows: int | None = None
    has_exact_rows: bool = True
    size_gb: int = 0


def _read_source(name: str, domains: Mapping[str, Sequence[str]], **values: Any) -> HubSource:
    # Table 5 has the numbers of the unsupervised domains. Other sources have domains with the same names.
    counts = TRAINING_PAIRS if name == "nomic-unsupervised" else {}
    by_name = {each: Domain(PROMPT_KINDS[kind], counts.get(each)) for kind, names in domains.items() for each in names}
    return HubSource(domains=by_name, **values)


SOURCES = {name: _read_source(name, **values) for name, values in DECLARED["training"].items()}


def get_source_folder(name: str) -> Path:
    """Return the folder of the local copy of a source, whether it exists or not."""
    return get_data_folder() / name


def get_local_copy(name: str) -> Path:
    """Return the folder of the local copy of a source.

    Raises:
        ValueError: if the copy is missing or incomplete. The message has its size and the command that fetches it.
    """
    source, folder = SOURCES[name], get_source_folder(name)
    if not any(list_copied_files(folder)):
        fetch = f"REPRO_DATA={shlex.quote(str(folder.parent))} repro fetch {name}"
        raise ValueError(f"{name} (about {source.size_gb} GB) is not in {folder}; on a machine with internet: {fetch}")
    if reason := find_incomplete_reason(name, folder):
        raise ValueError(reason)
    if "domain" not in source.columns:
        get_prompts_by_domain(name, (_get_domain(name, path) for path in list_copied_files(folder)))
    return folder


def find_incomplete_reason(name: str, folder: Path) -> str:
    """Return why a copy is incomplete, and the command that completes it. Empty if it is complete."""
    if (folder / CHECKSUMS).is_file():
        return ""
    if (folder / FETCHING).is_file():
        remedy = f"resume on a machine with internet: REPRO_DATA={shlex.quote(str(folder.parent))} repro fetch {name}"
        return f"{name} in {folder} is incomplete: {folder / FETCHING} exists; {remedy}"
    # a partial file of the hub's client
    partial = next(folder.rglob("*.incomplete"), None)
    return f"{name} in {folder} is incomplete: {partial} exists; repeat your `hf download` to resume" if partial else ""


def list_copied_files(folder: Path) -> Iterator[Path]:
    """Return the files of a local copy that hold its pairs, in any order. Hidden files are ignored."""
    return (path for path in list_visible_files(folder) if get_format(path) in (".parquet", ".jsonl"))


def check_copy(name: str, folder: Path) -> None:
    """Compare the rows and domains of a local copy with the declared ones, before it is imported for hours.

    Rows and domains of parquet files come from their metadata and from one column, rows of contrastors' files from its
    counts. Other files are not counted. The sum of contrastors' counts is not published, so it may differ by a tenth.

    Raises:
        ValueError: if a domain is not declared, or if the number of rows differs, for example because files of two
            downloads lie next to each other. The message has both numbers.
    """
    source, paths = SOURCES[name], list(list_copied_files(folder))
    get_prompts_by_domain(name, {domain for path in paths for domain in _list_domains(name, path)})
    counts = [_count_rows(path) for path in paths]
    if source.num_rows is not None and None in counts and any(counts):
        remedy = "remove files of other downloads, or fetch it into an empty folder"
        raise ValueError(f"{name} in {folder} has files with and without known numbers of rows: {remedy}")
    if source.num_rows is None or None in counts:
        return
    num_rows = sum(filter(None, counts))
    is_exact = source.has_exact_rows and all(get_format(path) == ".parquet" for path in paths)
    tolerance = 0 if is_exact else source.num_rows / 10
    if abs(num_rows - source.num_rows) > tolerance:
        found = f"{num_rows:,} rows in {len(paths)} files, and {source.num_rows:,} are declared"
        remedy = "remove files of other downloads, or fetch it into an empty folder"
        raise ValueError(f"{name} in {folder} has {found}: {remedy}")


def _count_rows(path: Path) -> int | None:
    """Return the number of rows of a file without reading it, or None if it is unknown."""
    if get_format(path) == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    if not (path.parent / COUNTS).is_file():
        return None
    counts = json_object(path.parent / COUNTS)
    # the keys are paths in a bucket, in some files one level deeper
    by_name = {Path(key).name: count for key, count in counts.get("count_per_file", counts).items()}
    return by_name.get(path.name)


def _list_domains(name: str, path: Path) -> set[str]:
    """Return the domains of a file: its own, or those of its column. Empty for a column of another format than parquet."""
    column = SOURCES[name].columns.get("domain")
    if column is None or _is_in_domain_folder(name, path):
        return {_get_domain(name, path)}
    domains: set[str] = set()
    if get_format(path) == ".parquet":
        file = pq.ParquetFile(path, read_dictionary=[column])
        for batch in file.iter_batches(columns=[column]):
            domains.update(domain or "" for domain in batch.column(0).unique().to_pylist())
    return domains


def _get_domain(name: str, path: Path) -> str:
    """Return the domain of a file: that of the folder it lies in, or of its name without the number of a shard."""
    folder = _get_folder_domain(path)
    is_named = _is_in_domain_folder(name, path) or (path.parent / COUNTS).is_file()
    return folder if is_named else _SHARD.sub("", path.name.partition(".")[0])


def _get_folder_domain(path: Path) -> str:
    return CONTRASTORS_FOLDERS.get(path.parent.name, path.parent.name.removesuffix("_full"))


def _is_in_domain_folder(name: str, path: Path) -> bool:
    return _get_folder_domain(path) in SOURCES[name].domains


@dataclass(frozen=True)
class SourceFile:
    """A file of a local copy and how it is read, as plain values that another process can receive.

    `domain` is that of all rows, or "" if a column has it. `num_rows` is None if it is unknown.
    """

    source: str
    number: int
    path: Path
    columns: dict[str, str]
    domain: str
    num_rows: int | None

    def read(self) -> Iterator[Row]:
        """Yield the pairs of the file in constant memory.

        Each dataset of the collection is both domain and source of its pairs. The paper clusters within it (§5). As in
        the authors' loader, only the first document of a list of positives is used, and an empty text becomes "[empty]".
        Prompts are added later, when texts are tokenised.

        Raises:
            ValueError: if the file has another number of rows than its counts.
        """
        number = 0
        for pair in read_foreign_rows(self.path, Columns(self.columns)):
            if pair.is_further:
                continue
            domain = self.domain or pair.domain
            query, document = pair.query or EMPTY, pair.document or EMPTY
            negatives = tuple(text for text in pair.negatives if keep_words(text))
            identifier = make_id(self.source, f"{self.number}.{number}", domain, query, document)
            yield Row(identifier, query, document, domain, domain, negatives)
            number += 1
        if self.num_rows not in (None, number):
            raise ValueError(f"{self.path} has {number:,} rows, and {self.num_rows:,} are counted: fetch it again")


def list_source_files(name: str) -> list[SourceFile]:
    """Return the files of a local copy in the order of their names. The copy is checked first."""
    folder = get_local_copy(name)
    check_copy(name, folder)
    return [_describe_file(name, number, path) for number, path in enumerate(sorted(list_copied_files(folder)))]


def _describe_file(name: str, number: int, path: Path) -> SourceFile:
    columns, domain = dict(SOURCES[name].columns), ""
    if "domain" not in columns or _is_in_domain_folder(name, path):
        columns.pop("domain", None)
        domain = _get_domain(name, path)
    if (path.parent / COUNTS).is_file() and domain in CONTRASTORS_COLUMNS:
        columns["query"], columns["document"] = CONTRASTORS_COLUMNS[domain]
    return SourceFile(name, number, path, columns, domain, _count_rows(path))


def get_prompts_by_domain(name: str, domains: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the prompts (query, document) of the domains of a source. Empty if the source declares no domains.

    Raises:
        ValueError: for an undeclared domain, since its prompts would be a guess.
    """
    declared = SOURCES[name].domains if name in SOURCES else {}
    if not declared:
        return {}
    unknown = sorted(set(domains) - set(declared))
    if unknown:
        raise ValueError(f"{name} declares no prompts for {unknown}: add them to declared.toml, or remove them")
    return {domain: declared[domain].prompts for domain in domains}
