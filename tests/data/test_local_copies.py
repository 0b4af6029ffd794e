"""Local copies of declared data: broken downloads resume, and files that changed since are named."""

import hashlib
import json
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
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
from repro.storage.digests import hash_file
from tests.commands import ignore
from tests.data.files import pack_folder

CONTENT = bytes(range(256)) * 40_000  # 10 MB, several blocks
ROW = '{"query": "a", "document": "b", "negative": ["c"], "dataset": "nli"}'


class Server:
    """A web server on loopback that serves bytes, can break connections, and records the requested ranges."""

    def __init__(
        self, content: bytes, *, break_after: Sequence[int] = (), ranges: bool = True, redirect: str = ""
    ) -> None:
        self.requested_ranges, breaks, outer = [], list(break_after), self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requested = self.headers.get("Range")
                outer.requested_ranges.append(requested)
                if redirect:
                    self.send_response(302)
                    self.send_header("Location", redirect)
                    self.end_headers()
                    return
                start = int(re.fullmatch(r"bytes=(\d+)-", requested)[1]) if requested and ranges else 0
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206 if requested and ranges else 200)
                body = content[start:]
                self.send_header("Content-Length", str(len(body)))
                if requested and ranges:
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


def compute_md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_broken_download_resumes(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(break_after=[3_000_000, 2_000_000])
    path = download(f"{server.url}/x", tmp_path / "x", md5=compute_md5(CONTENT), progress=ignore, wait_seconds=0)
    assert path.read_bytes() == CONTENT
    assert server.requested_ranges == [None, "bytes=3000000-", "bytes=5000000-"]
    download(f"{server.url}/x", tmp_path / "x", progress=ignore)
    assert len(server.requested_ranges) == 3  # an existing file is kept


def test_killed_download_resumes(serve: Callable[..., Server], tmp_path: Path) -> None:
    """A part is completed, also if only its name is missing. A server without ranges sends everything again."""
    server = serve()
    (tmp_path / "x.part").write_bytes(CONTENT[:1_234_567])
    assert download(f"{server.url}/x", tmp_path / "x", progress=ignore).read_bytes() == CONTENT
    assert server.requested_ranges == ["bytes=1234567-"]
    (tmp_path / "y.part").write_bytes(CONTENT)
    assert (
        download(f"{server.url}/y", tmp_path / "y", md5=compute_md5(CONTENT), progress=ignore).read_bytes() == CONTENT
    )
    (tmp_path / "z.part").write_bytes(b"something else")
    url = serve(ranges=False).url
    assert download(f"{url}/z", tmp_path / "z", progress=ignore).read_bytes() == CONTENT


def test_wrong_content_is_removed(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve()
    with pytest.raises(ValueError, match="is not the file that was expected"):
        download(f"{server.url}/x", tmp_path / "x", md5="0" * 32, progress=ignore)
    assert not list(tmp_path.glob("x*"))


def test_missing_server_is_one_error(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve()
    server.http.server_close()
    with pytest.raises(OSError, match="repeat to resume from"):
        download(f"{server.url}/x", tmp_path / "x", progress=ignore, wait_seconds=0)


def make_collection(name: str = "scifact") -> Retrieval:
    return Retrieval(name, ("d1", "d2"), ("one", "two"), ("q1",), ("a",), {"q1": {"d1": 1}})


@pytest.fixture
def fetched(serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fetch a tiny SciFact from a server on loopback, and return its folder."""
    write_beir_folder(tmp_path / "made" / "scifact", make_collection())
    archive = pack_folder(tmp_path / "made" / "scifact", tmp_path / "scifact.zip")
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("__MACOSX/._scifact", "a file that macOS adds")
    content = archive.read_bytes()
    tiny = replace(BENCHMARKS["scifact"], md5=compute_md5(content))
    monkeypatch.setattr("repro.data.paper.local_copies.BENCHMARKS", {**BENCHMARKS, "scifact": tiny})
    server = serve(content)
    return fetch("scifact", tmp_path / "data", progress=ignore, base=server.url)


def test_archive_is_unpacked_with_checksums(fetched: Path, tmp_path: Path) -> None:
    assert fetched == get_copy_folder("scifact", tmp_path / "data")
    assert load_beir(fetched).documents == ("one", "two")
    listed = json.loads((fetched / CHECKSUMS).read_text())
    assert listed["revision"].startswith("md5 ")
    assert set(listed["files"]) == {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv"}
    assert listed["files"]["corpus.jsonl"]["sha256"] == hash_file(fetched / "corpus.jsonl")
    assert not list(fetched.parent.glob("*.zip*")) and problems("scifact", tmp_path / "data") == []


@pytest.mark.parametrize("content", ['{"files": {"corp', "[]", "{}", '{"files": {"corpus.jsonl": {"size": 3}}}'])
def test_damaged_checksums_lose_nothing(fetched: Path, tmp_path: Path, content: str) -> None:
    (fetched / CHECKSUMS).write_text(content)
    before = sorted(fetched.rglob("*"))
    message = rf"{CHECKSUMS}.*; remove this file and run repro fetch scifact"
    [problem] = problems("scifact", tmp_path / "data")
    assert re.search(message, problem)
    for function in (fetch, compute_version):
        with pytest.raises(ValueError, match=message):
            function("scifact", tmp_path / "data")
    assert sorted(fetched.rglob("*")) == before
    (fetched / CHECKSUMS).unlink()
    assert fetch("scifact", tmp_path / "data", progress=ignore) == fetched
    assert not problems("scifact", tmp_path / "data")


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


def test_changed_files_are_named(fetched: Path, tmp_path: Path) -> None:
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
        write_beir_folder(folder, make_collection(name))
    make_searched_stage(run).build()
    assert len(load_run_suite(run).datasets) == 12
    assert load_beir(load_run_suite(run).datasets[0].path).documents == ("one", "two")


def test_new_files_are_another_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"about 20 GB.*repro fetch nomic-supervised"):
        make_corpus_stage("nomic-supervised")
    folder = tmp_path / "nomic_embed_supervised"
    folder.mkdir()
    (folder / "x.jsonl").write_text(ROW)
    stage = make_corpus_stage("nomic-supervised")
    pairs = read_pairs(stage.build() / "train.arrow")
    assert pairs.texts("query", [0]) == ["a"] and pairs.negatives([0]) == [["c"]]
    (folder / "y.jsonl").write_text(ROW)
    assert make_corpus_stage("nomic-supervised").path != stage.path


def test_unfinished_fetch_is_no_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))

    def break_off(*words: str, local_dir: Path, **options: object) -> None:
        (local_dir / "x.jsonl").write_text(ROW)
        with pytest.raises(ValueError, match=r"is incomplete.*repro fetch nomic-supervised"):
            make_corpus_stage("nomic-supervised")
        raise OSError("connection lost")

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
    (tmp_path / "nomic_embed_supervised" / "x.jsonl").write_text(ROW)
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
    (folder / "x.jsonl").write_text(ROW)
    assert get_local_copy("nomic-supervised", tmp_path) == folder


def test_declared_sets_have_a_source() -> None:
    assert {*SUITES, "nomic-unsupervised", "nq"} <= set(list_source_names())
    for known in BENCHMARKS.values():
        assert re.fullmatch(r"[0-9a-f]{32}", known.md5) and known.hub_id and known.revision and known.licence


def test_revisions_match_mteb() -> None:
    import mteb

    tasks = {task.lower(): task for task in ("ArguAna", "NFCorpus", "SCIDOCS", "SciFact", "MSMARCO", "NQ")}
    tasks |= {"fiqa": "FiQA2018", "quora": "QuoraRetrieval", "trec-covid": "TRECCOVID"}
    for name, known in BENCHMARKS.items():
        if known.parts:
            continue
        found = mteb.get_task(tasks[name]).metadata
        assert (found.dataset["path"], found.dataset["revision"]) == (known.hub_id, known.revision)
        assert known.licence in (found.license, benchmarks.UNSTATED)


def test_downloads_are_checked(serve: Callable[..., Server], tmp_path: Path) -> None:
    """An existing file of another md5 is refused and kept. Only http is downloaded, also after a redirect."""
    (tmp_path / "x").write_bytes(b"other")
    with pytest.raises(ValueError, match="not the file that was expected"):
        download("http://127.0.0.1:1/x", tmp_path / "x", md5=compute_md5(CONTENT), progress=ignore)
    assert (tmp_path / "x").read_bytes() == b"other"
    for url in ("file:///etc/hostname", "ftp://127.0.0.1/x"):
        with pytest.raises(ValueError, match="not http"):
            download(url, tmp_path / "y", progress=ignore)
        with pytest.raises((ValueError, OSError), match=r"not http|not allowed"):  # urllib itself refuses file URLs
            download(serve(redirect=url).url, tmp_path / "y", progress=ignore)
    assert not (tmp_path / "y").exists()
