"""Promises of local copies of declared data: downloads go on where they broke off, and what changed is named."""

import hashlib
import json
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repro.data.beir import Retrieval, load_beir, write_beir_folder
from repro.data.pairs import read_pairs
from repro.data.paper import benchmarks
from repro.data.paper.benchmarks import BENCHMARKS, SUITES, list_beir_folders
from repro.data.paper.download import download
from repro.data.paper.hub import CHECKSUMS, get_local_copy
from repro.data.paper.local_copies import (
    compute_version,
    fetch,
    get_copy_folder,
    list_source_names,
    problems,
    resolve_sources,
)
from repro.pipeline.corpora import load_run_suite, make_corpus_stage, make_searched_stage
from repro.spec import base
from tests.commands import ignore

CONTENT = bytes(range(256)) * 40_000  # ten megabytes: several blocks


class Server:
    """A web server on loopback that serves bytes, breaks connections when asked, and notes what it was asked."""

    def __init__(
        self, content: bytes, *, break_after: Sequence[int] = (), ranges: bool = True, redirect: str = ""
    ) -> None:
        self.ranges_asked, breaks, outer = [], list(break_after), self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers.get("Range")
                outer.ranges_asked.append(asked)
                if redirect:
                    self.send_response(302)
                    self.send_header("Location", redirect)
                    self.end_headers()
                    return
                start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and ranges else 0
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206 if asked and ranges else 200)
                body = content[start:]
                self.send_header("Content-Length", str(len(body)))
                if asked and ranges:
                    self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
                self.end_headers()
                self.wfile.write(body[: breaks.pop(0)] if breaks else body)

            def log_message(self, *words: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def serve(socket_enabled: None) -> Iterator[Callable[..., Server]]:
    servers = []

    def start(content: bytes = CONTENT, **options: Any) -> Server:
        servers.append(Server(content, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.http.shutdown()
        server.http.server_close()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_broken_download_resumes(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(break_after=[3_000_000, 2_000_000])
    path = download(f"{server.url}/x", tmp_path / "x", md5=md5(CONTENT), progress=ignore, wait_seconds=0)
    assert path.read_bytes() == CONTENT
    assert server.ranges_asked == [None, "bytes=3000000-", "bytes=5000000-"]
    download(f"{server.url}/x", tmp_path / "x", progress=ignore)
    assert len(server.ranges_asked) == 3  # what is there is kept


def test_killed_download_resumes(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "x.part").write_bytes(CONTENT[:1_234_567])
    server = serve()
    assert download(f"{server.url}/x", tmp_path / "x", progress=ignore).read_bytes() == CONTENT
    assert server.ranges_asked == ["bytes=1234567-"]
    (tmp_path / "y.part").write_bytes(CONTENT)  # whole, but not yet under its name
    assert download(f"{server.url}/y", tmp_path / "y", md5=md5(CONTENT), progress=ignore).read_bytes() == CONTENT


def test_servers_without_ranges_start_again(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "x.part").write_bytes(b"something else")
    server = serve(ranges=False)
    assert download(f"{server.url}/x", tmp_path / "x", progress=ignore).read_bytes() == CONTENT


def test_another_content_is_removed_and_named(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve()
    with pytest.raises(ValueError, match="is not the file that was expected"):
        download(f"{server.url}/x", tmp_path / "x", md5="0" * 32, progress=ignore)
    assert not list(tmp_path.glob("x*"))


def test_missing_server_is_one_error(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve()
    server.http.server_close()
    with pytest.raises(OSError, match="repeat to resume from"):
        download(f"{server.url}/x", tmp_path / "x", progress=ignore, wait_seconds=0)


def collection(name: str = "scifact") -> Retrieval:
    return Retrieval(name, ("d1", "d2"), ("one", "two"), ("q1",), ("a",), {"q1": {"d1": 1}})


def archive(tmp_path: Path, name: str = "scifact") -> bytes:
    write_beir_folder(tmp_path / "made" / name, collection(name))
    with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as made:
        for path in sorted((tmp_path / "made").rglob("*.*")):
            made.write(path, path.relative_to(tmp_path / "made"))
        made.writestr("__MACOSX/._scifact", "what some archivers add")
    return (tmp_path / f"{name}.zip").read_bytes()


@pytest.fixture
def fetched(serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny SciFact, fetched from a server on loopback."""
    content = archive(tmp_path)
    known = BENCHMARKS["scifact"]
    tiny = type(known)(**{**vars(known), "md5": md5(content)})
    monkeypatch.setattr("repro.data.paper.local_copies.BENCHMARKS", {**BENCHMARKS, "scifact": tiny})
    server = serve(content)
    return fetch("scifact", tmp_path / "data", progress=ignore, base=server.url)


def test_archive_is_unpacked_with_checksums(fetched: Path, tmp_path: Path) -> None:
    assert fetched == get_copy_folder("scifact", tmp_path / "data")
    assert load_beir(fetched).documents == ("one", "two")
    listed = json.loads((fetched / CHECKSUMS).read_text())
    assert listed["revision"].startswith("md5 ")
    assert set(listed["files"]) == {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv"}
    assert (
        listed["files"]["corpus.jsonl"]["sha256"] == hashlib.sha256((fetched / "corpus.jsonl").read_bytes()).hexdigest()
    )
    assert not list(fetched.parent.glob("*.zip*")) and problems("scifact", tmp_path / "data") == []


@pytest.mark.parametrize("content", ['{"files": {"corp', "[]", "{}", '{"files": {"corpus.jsonl": {"size": 3}}}'])
def test_damaged_checksums_lose_nothing(fetched: Path, tmp_path: Path, content: str) -> None:
    (fetched / CHECKSUMS).write_text(content)
    before = sorted(fetched.rglob("*"))
    words = rf"{CHECKSUMS}.*; remove this file and run repro fetch scifact"
    [said] = problems("scifact", tmp_path / "data")
    assert re.search(words, said)
    for ask in (fetch, compute_version):
        with pytest.raises(ValueError, match=words):
            ask("scifact", tmp_path / "data")
    assert sorted(fetched.rglob("*")) == before
    (fetched / CHECKSUMS).unlink()
    assert fetch("scifact", tmp_path / "data", progress=ignore) == fetched and not problems(
        "scifact", tmp_path / "data"
    )


def test_hidden_files_are_no_copy(fetched: Path, tmp_path: Path) -> None:
    (fetched / CHECKSUMS).unlink()
    before = compute_version("scifact", tmp_path / "data")
    for name in (".DS_Store", "qrels/._test.tsv", ".cache/huggingface/corpus.jsonl"):
        (fetched / name).parent.mkdir(parents=True, exist_ok=True)
        (fetched / name).write_text("x")
    assert compute_version("scifact", tmp_path / "data") == before
    alone = get_copy_folder("nfcorpus", tmp_path / "data")
    alone.mkdir()
    (alone / ".DS_Store").write_text("x")
    assert "is not in" in problems("nfcorpus", tmp_path / "data")[0]


def test_verify_names_each_file_that_changed(fetched: Path, tmp_path: Path) -> None:
    corpus = (fetched / "corpus.jsonl").read_text()
    (fetched / "corpus.jsonl").write_text(corpus.replace("one", "eno"))
    (fetched / "queries.jsonl").write_text("")
    (fetched / "qrels" / "test.tsv").unlink()
    found = "\n".join(problems("scifact", tmp_path / "data"))
    assert "corpus.jsonl has changed since" in found and "queries.jsonl has 0 bytes" in found
    assert "test.tsv is missing" in found
    assert len(problems("scifact", tmp_path / "data", is_thorough=False)) == 2


def test_absent_set_is_named(tmp_path: Path) -> None:
    (only,) = problems("nq", tmp_path)
    assert "about 498 MB" in only and "repro fetch nq" in only
    with pytest.raises(ValueError, match=r"\['cqadupstack'\].*about 5500 MB.*repro fetch cqadupstack --data-dir"):
        benchmarks.check_suite("cqadupstack", tmp_path)
    with pytest.raises(ValueError, match="unknown source 'laion'; choose one of"):
        resolve_sources("laion")


def test_suite_of_local_copies_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", str(tmp_path / "data"))
    run = base("smoke", suite="cqadupstack")
    with pytest.raises(ValueError, match="cqadupstack"):
        make_searched_stage(run)
    for name, folder in list_beir_folders("cqadupstack", tmp_path / "data").items():
        write_beir_folder(folder, collection(name))
    make_searched_stage(run).build()
    assert len(load_run_suite(run).datasets) == 12
    assert load_beir(load_run_suite(run).datasets[0].path).documents == ("one", "two")


def test_new_files_are_another_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"about 20 GB.*repro fetch nomic-supervised"):
        make_corpus_stage("nomic-supervised")
    folder = tmp_path / "nomic_embed_supervised"
    folder.mkdir()
    row = {"query": "a", "document": "b", "negative": ["c"], "dataset": "nli"}
    (folder / "x.jsonl").write_text(json.dumps(row))
    stage = make_corpus_stage("nomic-supervised")
    pairs = read_pairs(stage.build() / "train.arrow")
    assert pairs.texts("query", [0]) == ["a"] and pairs.negatives([0]) == [["c"]]
    (folder / "y.jsonl").write_text(json.dumps(row))
    assert make_corpus_stage("nomic-supervised").path != stage.path


def row(name: str) -> str:
    """A line of a source's file."""
    return json.dumps({"query": name, "document": "b", "negative": ["c"], "dataset": "nli"})


def test_unfinished_fetch_is_no_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))

    def break_off(*words: str, local_dir: Path, **options: object) -> None:
        (local_dir / "x.jsonl").write_text(row("x"))
        with pytest.raises(ValueError, match=r"is incomplete.*repro fetch nomic-supervised"):
            make_corpus_stage("nomic-supervised")
        raise OSError("the line is dead")

    monkeypatch.setattr("huggingface_hub.snapshot_download", break_off)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *words: SimpleNamespace(sha="c0ffee"))
    with pytest.raises(ValueError, match="repeat the command to resume"):
        fetch("nomic-supervised", progress=ignore)
    with pytest.raises(ValueError, match="is incomplete"):
        make_corpus_stage("nomic-supervised")
    assert "is incomplete" in problems("nomic-supervised")[0]
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *words, **options: None)
    folder = fetch("nomic-supervised", progress=ignore)
    assert make_corpus_stage("nomic-supervised").key["corpus"] == "nomic-supervised"
    assert not problems("nomic-supervised") and sorted(path.name for path in folder.iterdir()) == [CHECKSUMS, "x.jsonl"]


def test_unfinished_manual_download_is_no_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    part = tmp_path / "nomic_embed_supervised" / ".cache" / "huggingface" / "download" / "y.jsonl.c0ffee.incomplete"
    part.parent.mkdir(parents=True)
    part.touch()
    (tmp_path / "nomic_embed_supervised" / "x.jsonl").write_text(row("x"))
    with pytest.raises(ValueError, match=rf"{part}.*repro fetch nomic-supervised"):
        make_corpus_stage("nomic-supervised")
    part.unlink()
    assert make_corpus_stage("nomic-supervised").key["corpus"] == "nomic-supervised"


def test_failed_fetch_allows_manual_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object) -> None:
        raise OSError("no such host")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", refuse)
    with pytest.raises(ValueError, match="or put a copy in"):
        fetch("nomic-supervised", tmp_path, progress=ignore)
    folder = get_copy_folder("nomic-supervised", tmp_path)
    folder.mkdir(exist_ok=True)
    (folder / "x.jsonl").write_text(row("x"))
    assert get_local_copy("nomic-supervised", tmp_path) == folder


def test_declared_sets_have_a_source() -> None:
    assert {*SUITES, "nomic-unsupervised", "nq"} <= set(list_source_names())
    for known in BENCHMARKS.values():
        assert re.fullmatch(r"[0-9a-f]{32}", known.md5) and known.hub_id and known.revision and known.licence


def test_revisions_match_mteb() -> None:
    import mteb

    tasks = {"fiqa": "FiQA2018", "quora": "QuoraRetrieval", "trec-covid": "TRECCOVID"}
    for name, known in BENCHMARKS.items():
        if known.parts:
            continue
        theirs = {task.lower(): task for task in ("ArguAna", "NFCorpus", "SCIDOCS", "SciFact", "MSMARCO", "NQ")}
        found = mteb.get_task(tasks.get(name) or theirs[name]).metadata
        assert (found.dataset["path"], found.dataset["revision"]) == (known.hub_id, known.revision)
        assert known.licence in (found.license, benchmarks.UNSTATED)


def test_downloads_are_checked(serve: Callable[..., Server], tmp_path: Path) -> None:
    """A file of another md5 is no answer, and a redirect must stay on the web."""
    (tmp_path / "x").write_bytes(b"other")
    with pytest.raises(ValueError, match="not the file that was expected"):
        download("http://127.0.0.1:1/x", tmp_path / "x", md5=md5(CONTENT), progress=ignore)
    assert (tmp_path / "x").read_bytes() == b"other"
    for url in ("file:///etc/hostname", "ftp://127.0.0.1/x"):
        with pytest.raises(ValueError, match="not http"):
            download(url, tmp_path / "y", progress=ignore)
        with pytest.raises((ValueError, OSError), match=r"not http|not allowed"):  # urllib itself refuses files
            download(serve(redirect=url).url, tmp_path / "y", progress=ignore)
    assert not (tmp_path / "y").exists()
