"""Folders and archives of files: everything readable is read, skipped files are counted, hidden ones are ignored."""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.data.beir import Retrieval, find_collections, load_beir, write_beir_folder
from repro.data.folders import list_files_to_read, list_skipped_files
from repro.data.own.importing import MAX_EXAMPLES, Imported, import_corpus, load_import
from repro.data.readers import estimate_text_size, read_foreign_rows
from repro.storage import files
from tests.data.files import pack_folder

APPLE_DOUBLE = b"\0\x05\x16\x07\0\x02\0\0Mac OS X        \xff\xfe"
"""First bytes of the AppleDouble file that macOS adds next to each file of an archive."""
JUDGED = Retrieval("b", ("d1", "d2"), ("one", "two"), ("q1", "q2"), ("a", "b"), {"q1": {"d1": 1}, "q2": {"d2": 1}})


def format_lines(word: str) -> str:
    """Return four pairs as lines of JSON."""
    return "".join(json.dumps({"query": f"{word} {n}", "document": f"is {word} {n}"}) + "\n" for n in range(4))


def format_table(word: str, separator: str) -> str:
    """Return four pairs as a table without quotes."""
    rows = [("query", "document"), *((f"{word} {n}", f"is {word} {n}") for n in range(4))]
    return "".join(separator.join(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with files of every readable format, some in capitals, and of other formats."""
    folder = tmp_path / "in"
    (folder / "more").mkdir(parents=True)
    (folder / "parts.jsonl").mkdir()
    (folder / "a.jsonl").write_text(format_lines("a"))
    (folder / "b.JSONL").write_text(format_lines("b"))
    (folder / "c.Csv").write_text(format_table("c", ","))
    (folder / "d.TSV").write_text(format_table('"d', "\t"))
    (folder / "parts.jsonl" / "1.jsonl").write_text(format_lines("e"))
    (folder / "more" / "x.jsonl").write_text(format_lines("x"))
    for name in ("f.jsonl.gz", "g.ndjson", "README", "parts.jsonl/_SUCCESS"):
        (folder / name).write_text("x")
    return folder


def import_files(tmp_path: Path, source: Path) -> Imported:
    """Import a file, a folder or an archive."""
    return import_corpus(source, tmp_path / "out", name="mine")


def test_endings_ignore_case(tmp_path: Path, folder: Path) -> None:
    assert [pair.query for pair in read_foreign_rows(folder)][::4] == ["a 0", "b 0", "c 0", '"d 0', "e 0"]
    with zipfile.ZipFile(tmp_path / "X.ZIP", "w") as archive:
        archive.writestr("a.JSONL", format_lines("a"))
    assert import_files(tmp_path, tmp_path / "X.ZIP").num_kept == 4


def test_skipped_files_are_counted(tmp_path: Path, folder: Path) -> None:
    imported = import_files(tmp_path, folder)
    skipped = ["README", "f.jsonl.gz", "g.ndjson", "more", "parts.jsonl/_SUCCESS"]
    assert (imported.num_passed_over, list(imported.passed_over)) == (5, skipped[:MAX_EXAMPLES])
    assert load_import(imported.folder) == imported
    (warning,) = imported.warnings
    assert "README, f.jsonl.gz, g.ndjson and 2 more" in warning


def test_only_train_is_read_of_splits(tmp_path: Path) -> None:
    """A folder of the hub has a file per split. A folder without `train` has no splits."""
    names = ("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "test-00000-of-00001.jsonl", "dev.jsonl")
    (tmp_path / "pair").mkdir()
    for name in (*names, "trained.jsonl"):
        (tmp_path / "pair" / name).write_text(format_lines(name))
    assert [path.name for path in list_files_to_read(tmp_path / "pair")] == [*names[:2], "trained.jsonl"]
    assert [path.name for path in list_skipped_files(tmp_path / "pair")] == ["dev.jsonl", names[2]]
    for name in names[:2]:
        (tmp_path / "pair" / name).unlink()
    assert len(list_files_to_read(tmp_path / "pair")) == 3


@pytest.mark.parametrize("archive", ["", "x.zip", "x.tar.gz"])
def test_hidden_files_are_no_pairs(tmp_path: Path, archive: str) -> None:
    folder = tmp_path / "in"
    (folder / "__MACOSX").mkdir(parents=True)
    (folder / "a.jsonl").write_text(format_lines("a"))
    (folder / "b.jsonl").write_text(format_lines("b"))
    for name in ("._a.jsonl", ".DS_Store", "__MACOSX/._a.jsonl"):
        (folder / name).write_bytes(APPLE_DOUBLE)
    source = pack_folder(folder, tmp_path / archive, is_flat=True) if archive else folder
    imported = import_files(tmp_path, source)
    assert (imported.num_kept, imported.num_passed_over, imported.warnings) == (8, 0, ())


def test_hidden_names_are_no_collections(tmp_path: Path) -> None:
    write_beir_folder(tmp_path / "all" / "b", JUDGED)
    write_beir_folder(tmp_path / "all" / ".b", JUDGED)
    (tmp_path / "all" / "b" / "qrels" / "._test.tsv").write_bytes(APPLE_DOUBLE)
    with (tmp_path / "all" / "b" / "queries.jsonl").open("a") as file:
        file.write('{"_id": "q3", "text": "of no split"}\n')
    assert [dataset.name for dataset in find_collections(tmp_path / "all")] == ["b"]
    assert load_beir(tmp_path / "all" / "b").num_unjudged == 1


def test_needed_space_counts_read_files(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a.jsonl", "b.JSONL", "c.Csv", "d.TSV", "parts.jsonl/1.jsonl"]
    size = sum((folder / name).stat().st_size for name in names)
    for name in ("f.jsonl.gz", ".hidden.jsonl", "more/x.jsonl"):
        (folder / name).write_bytes(b"x" * 10_000)
    assert estimate_text_size(folder) == size
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: SimpleNamespace(free=size))
    assert import_files(tmp_path, folder).num_kept == 20
    write_beir_folder(tmp_path / "b", JUDGED, "train")
    size = sum(path.stat().st_size for path in (tmp_path / "b").rglob("*.*"))
    (tmp_path / "b" / "vectors.npy").write_bytes(b"x" * 10_000)
    assert estimate_text_size(tmp_path / "b") == size
