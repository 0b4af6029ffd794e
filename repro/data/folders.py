"""Which files of a folder that others made are read, and which are passed over; hidden ones are as if not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from repro.text import count_noun

ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


def is_hidden(path: Path) -> bool:
    """Whether a system or an archiver put a name there, not its owner: `.DS_Store`, `._pairs.jsonl`, `__MACOSX`."""
    return path.name.startswith(".") or path.name == "__MACOSX"


def list_visible_files(folder: Path) -> Iterator[Path]:
    """Return the files below a folder, in no order, without what is hidden and what lies in a hidden folder."""
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if path.is_file() and not any(is_hidden(one) for one in (inside, *inside.parents[:-1])):
            yield path


def match_ending(path: Path, among: Iterable[str] = ENDINGS) -> str:
    """Return which of some endings a name has, in capitals or not; "" for none."""
    return next((ending for ending in among if path.name.lower().endswith(ending)), "")


def is_beir(folder: Path) -> bool:
    """Whether a folder is one of BEIR, known by its documents."""
    return (folder / "corpus.jsonl").is_file()


def list_splits(folder: Path) -> list[str]:
    """Return the names of the splits that a BEIR folder judges."""
    return sorted(path.stem for path in (folder / "qrels").glob("*.tsv") if not is_hidden(path))


def files_read(source: Path) -> list[Path]:
    """Return the files that an import of `source` reads, in their order: itself, those of a BEIR folder, or a folder's.

    Of folders within a folder those are looked into that are called as a file would be: "pairs.parquet/part-0.parquet".
    """
    if not source.is_dir():
        return [source]
    if is_beir(source):
        return [source / "corpus.jsonl", source / "queries.jsonl", source / "qrels" / "train.tsv"]
    return [path for entry in entries(source) if match_ending(entry) for path in files_read(entry)]


def passed_over(source: Path) -> list[Path]:
    """Return what lies in a folder and is not read as pairs, in the order of the names: files and whole folders."""
    if not source.is_dir() or is_beir(source):
        return []
    return [path for entry in entries(source) for path in (passed_over(entry) if match_ending(entry) else [entry])]


def say_passed_over(num: int, first: Sequence[str]) -> str:
    """Say how many files and folders of a folder were not read, the first of them, and which are."""
    named = ", ".join(first) + (f" and {num - len(first)} more" if num > len(first) else "")
    were = count_noun(num, "file or folder was", "files or folders were")
    return f"{were} not read: {named}; read is what ends in {', '.join(ENDINGS)}, hidden files apart"


def entries(folder: Path) -> list[Path]:
    """Return what lies in a folder, in the order of the names, without what is hidden."""
    return sorted(path for path in folder.iterdir() if not is_hidden(path))
