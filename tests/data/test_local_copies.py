"""Local copies of declared data: broken downloads resume, and files that changed since are named."""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO
from unittest.mock import Mock

import pytest

from repro.data.beir import Retrieval, load_beir, write_beir_folder
from repro.data.pairs import read_pairs
from repro.data.paper.benchmarks import BENCHMARKS, list_beir_folders
from repro.data.paper.hub import CHECKSUMS, FETCHING, get_local_copy
from repro.data.paper.local_copies import (
    compute_version,
    download,
    fetch,
    find_problems,
    get_copy_folder,
    write_checksums,
)
from repro.pipeline.corpora import load_run_suite, make_corpus_stage, make_searched_stage
from repro.spec import base
from repro.storage.digests import hash_file
from tests.commands import ignore, run_command
from tests.data.files import pack_folder
from tests.leases import take_lease

CONTENT = bytes(range(256)) * 40
ROW = '{"query": "a", "document": "b", "negative": ["c"], "dataset": "nli"}'
Serve = Callable[[bytes], list[int]]
COLLECTION = Retrieval("scifact", ("d1", "d2"), ("one", "two"), ("q1",), ("a",), {"q1": {"d1": 1}})


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Return a function that serves a content in place of the hub's client, and lists the requested first bytes."""

    def serve_content(content: bytes) -> list[int]:
        starts: list[int] = []

        def http_get(url: str, file: BinaryIO, resume_size: int) -> None:
            starts.append(resume_size)
            file.write(content[resume_size:])

        monkeypatch.setattr("huggingface_hub.file_download.http_get", http_get)
        return starts

    return serve_content


def compute_md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(("size", "expected"), [(0, [0]), (4567, [4567]), (len(CONTENT), [])])
def test_interrupted_download_resumes(serve: Serve, tmp_path: Path, size: int, expected: list[int]) -> None:
    """A part is completed, also if only its name is missing. A second call keeps the file."""
    starts, path = serve(CONTENT), tmp_path / "x"
    (tmp_path / "x.part").write_bytes(CONTENT[:size])
    for _ in range(2):
        download("http://x", path, compute_md5(CONTENT))
    assert path.read_bytes() == CONTENT and starts == expected


@pytest.fixture
def fetched(serve: Serve, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fetch a tiny SciFact, and return its folder."""
    write_beir_folder(tmp_path / "source" / "scifact", COLLECTION)
    archive = pack_folder(tmp_path / "source" / "scifact", tmp_path / "scifact.zip")
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("__MACOSX/._scifact", "a file that macOS adds")
    content = archive.read_bytes()
    tiny = replace(BENCHMARKS["scifact"], md5=compute_md5(content))
    monkeypatch.setattr("repro.data.paper.local_copies.BENCHMARKS", {**BENCHMARKS, "scifact": tiny})
    serve(content)
    return fetch("scifact", progress=ignore)


def test_archive_is_unpacked_with_checksums(fetched: Path) -> None:
    assert fetched == get_copy_folder("scifact")
    assert load_beir(fetched).documents == ("one", "two")
    checksums = json.loads((fetched / CHECKSUMS).read_text())
    assert checksums["revision"].startswith("md5 ")
    assert set(checksums["files"]) == {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv"}
    assert checksums["files"]["corpus.jsonl"]["sha256"] == hash_file(fetched / "corpus.jsonl")
    assert not list(fetched.parent.glob("*.zip*")) and find_problems("scifact") == []


def test_version_depends_on_content(fetched: Path) -> None:
    """Neither checksums nor hidden files count."""
    before = compute_version("scifact")
    (fetched / CHECKSUMS).unlink()
    for name in (".DS_Store", "qrels/._test.tsv", ".cache/huggingface/corpus.jsonl"):
        (fetched / name).parent.mkdir(parents=True, exist_ok=True)
        (fetched / name).write_text("x")
    assert compute_version("scifact") == before
    qrels = fetched / "qrels/test.tsv"
    qrels.write_text(qrels.read_text().replace("1", "2"))
    assert compute_version("scifact") != before


def test_folder_without_files_is_fetched(fetched: Path) -> None:
    """An empty folder, or one with checksums or hidden files only, is no copy."""
    checksums = (fetched / CHECKSUMS).read_text()
    for left in ({}, {CHECKSUMS: checksums}, {".DS_Store": "x"}):
        shutil.rmtree(fetched)
        fetched.mkdir()
        for name, text in left.items():
            (fetched / name).write_text(text)
        assert "is not in" in find_problems("scifact")[0]
        assert fetch("scifact", progress=ignore) == fetched
        assert find_problems("scifact") == []


def test_changed_files_are_named(fetched: Path) -> None:
    """Equal sizes are compared by sha256, unless the check is quick."""
    corpus = (fetched / "corpus.jsonl").read_text()
    (fetched / "corpus.jsonl").write_text(corpus.replace("one", "eno"))
    (fetched / "queries.jsonl").write_text("")
    (fetched / "qrels" / "test.tsv").unlink()
    lines = find_problems("scifact")
    for name in ("corpus.jsonl", "queries.jsonl", "test.tsv"):
        assert sum(name in line for line in lines) == 1
    assert len(find_problems("scifact", is_thorough=False)) == 2


def test_hand_made_copies_are_complete(data_folder: Path) -> None:
    """A collection without judgements is named by `verify`, before a model is trained for it."""
    folder = data_folder / "beir" / "scifact"
    write_beir_folder(folder, COLLECTION)
    (folder / "qrels" / "test.tsv").unlink()
    fetch("scifact", progress=ignore)
    assert [line.endswith("test.tsv is missing") for line in find_problems("scifact")] == [True]


def test_suite_of_local_copies_runs(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite is read from the copy in REPRO_DATA, not from an older one with the same content."""
    run = base("smoke", suite="cqadupstack")
    with pytest.raises(ValueError, match="cqadupstack"):
        make_searched_stage(run)
    for folder in list_beir_folders("cqadupstack").values():
        write_beir_folder(folder, COLLECTION)
    make_searched_stage(run).build()
    assert len(load_run_suite(run).datasets) == 12
    assert load_beir(load_run_suite(run).datasets[0].path).documents == ("one", "two")
    moved = data_folder.with_name("moved")
    shutil.copytree(data_folder, moved)
    monkeypatch.setenv("REPRO_DATA", str(moved))
    assert all(dataset.path.is_relative_to(moved) for dataset in load_run_suite(run).datasets)


def test_new_files_are_another_corpus(data_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"20 GB.*repro fetch nomic-supervised"):
        make_corpus_stage("nomic-supervised")
    folder = data_folder / "nomic-supervised"
    folder.mkdir()
    (folder / "x.jsonl").write_text(ROW)
    stage = make_corpus_stage("nomic-supervised")
    pairs = read_pairs(stage.build() / "train.arrow")
    assert pairs.texts("query", [0]) == ["a"] and pairs.negatives([0]) == [["c"]]
    write_checksums(folder, "nomic-supervised", "manual copy")
    assert make_corpus_stage("nomic-supervised").path == stage.path
    (folder / CHECKSUMS).unlink()
    (folder / "y.jsonl").write_text(ROW)
    assert make_corpus_stage("nomic-supervised").path != stage.path
    part = folder / ".cache" / "huggingface" / "download" / "z.jsonl.c0ffee.incomplete"
    part.parent.mkdir(parents=True)
    part.touch()
    with pytest.raises(ValueError, match=str(part)):
        make_corpus_stage("nomic-supervised")


def test_unfinished_fetch_is_no_corpus(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*words: str, local_dir: Path, **options: object) -> None:
        (local_dir / "x.jsonl").write_text(ROW)
        with pytest.raises(ValueError, match="is incomplete"):
            make_corpus_stage("nomic-supervised")
        raise OSError("connection lost")

    monkeypatch.setattr("huggingface_hub.snapshot_download", break_off)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *words: SimpleNamespace(sha="c0ffee"))
    with pytest.raises(ValueError, match="repeat the command to resume"):
        fetch("nomic-supervised", progress=ignore)
    with pytest.raises(ValueError, match="is incomplete"):
        make_corpus_stage("nomic-supervised")
    assert "nomic-ai/nomic_embed_supervised c0ffee" in (get_copy_folder("nomic-supervised") / FETCHING).read_text()
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *words, **options: None)
    folder = fetch("nomic-supervised", progress=ignore)
    assert make_corpus_stage("nomic-supervised").key["corpus"] == "nomic-supervised"
    assert not find_problems("nomic-supervised")
    assert {path.name for path in folder.iterdir()} == {CHECKSUMS, "x.jsonl"}


def test_manual_copy_is_never_completed(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch writes checksums of existing files, which keep the version, and downloads nothing next to them."""
    ask = Mock(side_effect=OSError("no such host"))
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", ask)
    with pytest.raises(ValueError, match="my/copy"):
        run_command("fetch", "nomic-unsupervised", "--from", "my/copy")
    folder = get_copy_folder("nomic-supervised")
    folder.mkdir()
    (folder / "x.jsonl").write_text(ROW)
    assert get_local_copy("nomic-supervised") == folder
    version = compute_version("nomic-supervised")
    assert "existing files" in find_problems("nomic-supervised")[0]
    fetch("nomic-supervised", progress=ignore)
    assert not find_problems("nomic-supervised") and compute_version("nomic-supervised") == version
    assert ask.call_count == 1 and json.loads((folder / CHECKSUMS).read_text())["revision"] == "manual copy"


def test_second_fetch_waits(data_folder: Path) -> None:
    """Two downloads of one archive would write into the same part."""
    folder = get_copy_folder("scifact")
    lease = take_lease(folder.resolve().with_name(".scifact.fetching"))
    lines: list[str] = []

    def finish(line: str) -> None:
        lines.append(line)
        folder.mkdir(parents=True)
        for name in ("corpus.jsonl", CHECKSUMS):
            (folder / name).write_text("{}")
        lease.release()

    assert fetch("scifact", progress=finish) == folder.resolve() and len(lines) == 1


def test_downloads_are_checked(serve: Serve, tmp_path: Path) -> None:
    """Content of another md5 is removed if it was downloaded, and kept if it existed."""
    serve(CONTENT)
    with pytest.raises(ValueError, match="not the file that was expected"):
        download("http://x", tmp_path / "x", "0" * 32)
    assert not list(tmp_path.glob("x*"))
    (tmp_path / "x").write_bytes(b"other")
    with pytest.raises(ValueError, match="not the file that was expected"):
        download("http://x", tmp_path / "x", compute_md5(CONTENT))
    assert (tmp_path / "x").read_bytes() == b"other"
