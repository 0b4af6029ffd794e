"""Selection of the readable files in a user's folder. Hidden files are ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FORMATS = (".jsonl", ".csv", ".tsv", ".parquet")
COMPRESSIONS = (".gz", ".zst", ".bz2")
SAVED = ("dataset_dict.json", "state.json")
"""Files of a folder that `datasets.save_to_disk` wrote, with or without splits."""
SPLIT_NAME = re.compile(
    r"(?:.*[^a-z])?(train(?:ing)?|test(?:ing)?|dev(?:elopment)?|val(?:id(?:ation)?)?|eval(?:uation)?)(?![a-z])",
    re.IGNORECASE,
)
"""Name of a file with one split of a dataset, as in train-00000-of-00001.parquet and pairs_dev.jsonl."""


def is_hidden(path: Path) -> bool:
    """Return whether a path was created by a system or an archiver: `.DS_Store`, `._pairs.jsonl`, `__MACOSX`."""
    return path.name.startswith(".") or path.name == "__MACOSX"


def list_visible_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder in any order, except hidden files and those in hidden folders."""
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        if path.is_file() and not any(map(is_hidden, (relative, *relative.parents[:-1]))):
            yield path


def list_entries(folder: Path) -> list[Path]:
    """Return the visible files and folders in a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if not is_hidden(path))


def is_beir(folder: Path) -> bool:
    """Return whether a folder is a BEIR folder, which has a corpus.jsonl."""
    return (folder / "corpus.jsonl").is_file()


def list_splits(folder: Path) -> list[str]:
    """Return the names of the splits with judgements in a BEIR folder."""
    return sorted(path.stem for path in (folder / "qrels").glob("*.tsv") if not is_hidden(path))


def get_format(path: Path) -> str:
    """Return the format of a file or of a saved dataset: an ending of `FORMATS`, ".arrow", or "" if it is neither."""
    if path.is_dir():
        return ".arrow" if any((path / name).is_file() for name in SAVED) else ""
    name = path.name.lower()
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    return next((ending for ending in FORMATS if name.endswith(ending)), "")


def list_pair_files(source: Path) -> list[Path]:
    """Return the files of pairs at or in `source`, sorted by name: it, a saved dataset, or the files of a folder.

    Files of a folder that are named after other splits than `train` are never read. Raises ValueError if there are no
    others.
    """
    if not source.is_dir() or get_format(source):
        return [source]
    found = list(filter(get_format, list_entries(source)))
    paths = [
        path for path in found if (match := SPLIT_NAME.match(path.name)) is None or match[1].lower().startswith("train")
    ]
    if found and not paths:
        raise ValueError(f"{source} has only files of other splits than train: {[path.name for path in found]}")
    return paths
