"""Selection of the readable files in a user's folder. Hidden files are ignored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from repro.storage.files import json_object
from repro.text import count_noun

ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet", ".arrow")
STATE_FILE = "state.json"
DATASET_FILES = ("dataset_info.json", STATE_FILE)
"""Files of a folder of `datasets.save_to_disk` in addition to those of rows."""
SPLITS_FILE = "dataset_dict.json"
SPLIT_NAME = re.compile(r"(train|test|dev|val|valid|validation|eval)(?![a-z])", re.IGNORECASE)
"""Beginning of the name of a file with one split of a dataset, as in train-00000-of-00001.parquet."""
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


def is_hidden(path: Path) -> bool:
    """Return whether a path was created by a system or an archiver: `.DS_Store`, `._pairs.jsonl`, `__MACOSX`."""
    return path.name.startswith(".") or path.name == "__MACOSX"


def list_visible_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder in any order, except hidden files and those in hidden folders."""
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        if path.is_file() and not any(map(is_hidden, (relative, *relative.parents[:-1]))):
            yield path


def match_ending(path: Path, endings: Iterable[str] = ENDINGS) -> str:
    """Return the ending of a name, ignoring case, or "" if it has none of them."""
    return next((ending for ending in endings if path.name.lower().endswith(ending)), "")


def is_beir(folder: Path) -> bool:
    """Return whether a folder is a BEIR folder, which has a corpus.jsonl."""
    return (folder / "corpus.jsonl").is_file()


def list_splits(folder: Path) -> list[str]:
    """Return the names of the splits with judgements in a BEIR folder."""
    return sorted(path.stem for path in (folder / "qrels").glob("*.tsv") if not is_hidden(path))


def list_files_to_read(source: Path) -> list[Path]:
    """Return the files that an import reads, in order: the file itself, those of a BEIR folder, or those of a folder.

    Sub-folders are read only if their name has the ending of a file, as in "pairs.parquet/part-0.parquet". Of the splits
    that `datasets.save_to_disk` wrote, and of files named after splits as on the hub, only "train" is read.
    """
    if not source.is_dir():
        return [source]
    if (source / SPLITS_FILE).is_file():
        return list_files_to_read(source / "train")
    if is_beir(source):
        return [source / "corpus.jsonl", source / "queries.jsonl", source / "qrels" / "train.tsv"]
    if _is_saved_dataset(source):
        return _list_saved_files(source)
    return [path for entry in _list_readable_entries(source) for path in list_files_to_read(entry)]


def _list_readable_entries(folder: Path) -> list[Path]:
    """Return the entries with the ending of a file. If some are named after splits and one is `train`, only it is read."""
    entries = [entry for entry in list_entries(folder) if match_ending(entry)]
    splits = {entry: match[1].lower() for entry in entries if (match := SPLIT_NAME.match(entry.name))}
    has_train = "train" in splits.values()
    return [entry for entry in entries if not has_train or splits.get(entry, "train") == "train"]


def _is_saved_dataset(folder: Path) -> bool:
    return all((folder / name).is_file() for name in DATASET_FILES)


def _list_saved_files(folder: Path) -> list[Path]:
    """Return the files of rows that `save_to_disk` wrote. `map` and `filter` leave cache files next to them."""
    try:
        entries = json_object(folder / STATE_FILE)["_data_files"]
        # by name only, so that a file from others cannot lead out of the folder
        return [folder / Path(entry["filename"]).name for entry in entries]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / STATE_FILE} lists no files of rows: save the dataset again") from error


def list_skipped_files(source: Path) -> list[Path]:
    """Return the files and folders in a folder that are not read as pairs, sorted by name."""
    if not source.is_dir() or is_beir(source):
        return []
    if _is_saved_dataset(source):
        read = {source / name for name in DATASET_FILES}.union(_list_saved_files(source))
        return [entry for entry in list_entries(source) if entry not in read]
    skipped = []
    readable = _list_readable_entries(source)
    for entry in list_entries(source):
        if entry.name in (*DATASET_FILES, SPLITS_FILE) or (entry.name == "train" and (source / SPLITS_FILE).is_file()):
            continue
        skipped += list_skipped_files(entry) if entry in readable else [entry]
    return skipped


def describe_skipped_files(num_skipped: int, first: Sequence[str]) -> str:
    """Return a line with the number of files and folders that were not read, and the first of them."""
    examples = ", ".join(first)
    if num_skipped > len(first):
        examples += f" and {num_skipped - len(first)} more"
    subject = count_noun(num_skipped, "file or folder was", "files or folders were")
    return (
        f"{subject} not read: {examples}; only visible files ending in {', '.join(ENDINGS)} are read, of a folder of "
        "save_to_disk those of state.json, and of splits `train`"
    )


def list_entries(folder: Path) -> list[Path]:
    """Return the visible files and folders in a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if not is_hidden(path))
