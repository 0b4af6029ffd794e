"""Promises of folders that others made: read whole or with a word on what was not, nothing for what is hidden."""

import json
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.data.beir import Retrieval, beir_folders, load_beir, write_beir_folder
from repro.data.own.importing import NAMED, Imported, import_corpus, load_import
from repro.data.readers import read_foreign, size_when_read
from repro.storage import files

APPLE_DOUBLE = b"\0\x05\x16\x07\0\x02\0\0Mac OS X        \xff\xfe"
"""How a file begins that a Mac puts beside each file of an archive."""
JUDGED = Retrieval("b", ("d1", "d2"), ("one", "two"), ("q1", "q2"), ("a", "b"), {"q1": {"d1": 1}, "q2": {"d2": 1}})


def lines_of_pairs(word: str, num: int = 4) -> str:
    return "".join(json.dumps({"query": f"{word} {n}", "document": f"is {word} {n}"}) + "\n" for n in range(num))


def table_of_pairs(word: str, separator: str) -> str:
    rows = [("query", "document"), *((f"{word} {n}", f"is {word} {n}") for n in range(4))]
    return "".join(separator.join(row) + "\n" for row in rows)


def words_of(source: Path) -> list[str]:
    return [pair.query for pair in read_foreign(source)][::4]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of every kind that is read, in capitals too, and of kinds that are not."""
    made = tmp_path / "in"
    (made / "more").mkdir(parents=True)
    (made / "parts.jsonl").mkdir()
    (made / "a.jsonl").write_text(lines_of_pairs("a"))
    (made / "b.JSONL").write_text(lines_of_pairs("b"))
    (made / "c.Csv").write_text(table_of_pairs("c", ","))
    (made / "d.TSV").write_text(table_of_pairs('"d', "\t"))
    (made / "parts.jsonl" / "1.jsonl").write_text(lines_of_pairs("e"))
    (made / "parts.jsonl" / "_SUCCESS").write_text("")
    (made / "more" / "x.jsonl").write_text(lines_of_pairs("x"))
    for name in ("f.jsonl.gz", "g.ndjson", "README"):
        (made / name).write_text("x")
    return made


UNREAD = ["README", "f.jsonl.gz", "g.ndjson", "more", "parts.jsonl/_SUCCESS"]


def imported(tmp_path: Path, source: Path) -> Imported:
    return import_corpus(source, tmp_path / "out", name="mine")


def test_endings_ignore_case(tmp_path: Path, folder: Path) -> None:
    assert words_of(folder) == ["a 0", "b 0", "c 0", '"d 0', "e 0"]
    with zipfile.ZipFile(tmp_path / "X.ZIP", "w") as archive:
        archive.writestr("a.JSONL", lines_of_pairs("a"))
    assert imported(tmp_path, tmp_path / "X.ZIP").num_kept == 4


def test_skipped_files_are_counted(tmp_path: Path, folder: Path) -> None:
    found = imported(tmp_path, folder)
    assert (found.num_passed_over, list(found.passed_over)) == (5, UNREAD[:NAMED])
    assert load_import(found.folder) == found
    assert (
        "5 files or folders were not read: README, f.jsonl.gz, g.ndjson and 2 more; "
        "read is what ends in .jsonl, .csv, .tsv, .parquet, hidden files apart" in found.warnings
    )


@pytest.mark.parametrize("how", ["folder", "zip", "tar"])
def test_hidden_files_are_no_pairs(tmp_path: Path, how: str) -> None:
    made = tmp_path / "in"
    (made / "__MACOSX").mkdir(parents=True)
    (made / "a.jsonl").write_text(lines_of_pairs("a"))
    (made / "b.jsonl").write_text(lines_of_pairs("b"))
    for name in ("._a.jsonl", ".DS_Store", "__MACOSX/._a.jsonl"):
        (made / name).write_bytes(APPLE_DOUBLE)
    source = made
    if how == "zip":
        source = tmp_path / "x.zip"
        with zipfile.ZipFile(source, "w") as archive:
            for path in made.rglob("*"):
                archive.write(path, path.relative_to(made))
    elif how == "tar":
        source = tmp_path / "x.tar.gz"
        with tarfile.open(source, "w:gz") as packed:
            packed.add(made, ".")
    found = imported(tmp_path, source)
    assert (found.num_kept, found.num_passed_over, found.warnings) == (8, 0, ())


def test_hidden_names_are_no_collections(tmp_path: Path) -> None:
    write_beir_folder(tmp_path / "all" / "b", JUDGED)
    write_beir_folder(tmp_path / "all" / ".b", JUDGED)
    (tmp_path / "all" / "b" / "qrels" / "._test.tsv").write_bytes(APPLE_DOUBLE)
    with (tmp_path / "all" / "b" / "queries.jsonl").open("a") as file:
        file.write('{"_id": "q3", "text": "of no split"}\n')
    assert [name for name, _ in beir_folders(tmp_path / "all")] == ["b"]
    assert load_beir(tmp_path / "all" / "b").num_unjudged == 1


def test_room_checked_is_that_of_read_files(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = ["a.jsonl", "b.JSONL", "c.Csv", "d.TSV", "parts.jsonl/1.jsonl"]
    size = sum((folder / name).stat().st_size for name in read)
    for name in ("f.jsonl.gz", ".hidden.jsonl", "more/x.jsonl"):
        (folder / name).write_bytes(b"x" * 10_000)
    assert size_when_read(folder) == size
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: SimpleNamespace(free=size))
    assert imported(tmp_path, folder).num_kept == 20
    write_beir_folder(tmp_path / "b", JUDGED, "train")
    beir = sum(path.stat().st_size for path in (tmp_path / "b").rglob("*.*"))
    (tmp_path / "b" / "vectors.npy").write_bytes(b"x" * 10_000)
    assert size_when_read(tmp_path / "b") == beir
