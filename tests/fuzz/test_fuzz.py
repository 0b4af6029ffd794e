"""Bad input ends in one clear line: no traceback, no hang, nothing written elsewhere, no changed record believed.

A reader may take a damaged file (a flipped letter of a text is a text) or raise ValueError or OSError; anything else is
a bug. A verb ends with an exit code that is not 70. About a thousand cases run with the other tests;
`FUZZ=1 pytest -m fuzz` runs about three thousand.
"""

import gzip
import io
import json
import os
import signal
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

from repro.cli.errors import EXIT_BUG, run_with_error_handling
from repro.cli.main import app
from repro.data.beir import load_beir, load_suite, write_beir_folder, write_suite
from repro.data.own.imported import bring, find_imported
from repro.data.pairs import Row, read_pairs, write_pairs
from repro.data.readers import read_foreign, unpack
from repro.evaluate.retrieval import read_run
from repro.evaluate.trec import read_judgements
from repro.interop.safe_weights import read_safetensors
from repro.model.config import ModelConfig, load_config
from repro.records.lookup import read_runs
from repro.records.store import read_record, write_record
from repro.spec import base
from repro.spec.identity import run_id
from repro.storage.arrays import load_array
from repro.storage.lease import look
from repro.train.checkpoint import read_metrics
from slurm.profiles import _read, _tables, load_profile
from slurm.states import get_run_item
from slurm.sweep import Submission, read_submissions
from tests.fuzz.collections import small
from tests.fuzz.damage import damaged_bytes, damaged_values, damaged_words

pytestmark = pytest.mark.fuzz
ALL = os.environ.get("FUZZ") == "1"
CASES = 60 if ALL else 24
WORDS = 400 if ALL else 40
SECONDS = 10
RUN = base("smoke", architecture="bm25")
ROWS = [Row(f"r{n}", f"query {n}", f"document {n}", "ab"[n % 2], "s") for n in range(20)]


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Fail a block that takes longer."""

    def hangs(number: int, frame: Any) -> None:
        raise AssertionError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# ---- readers: how a good file is made in a folder, and how it is read


def beir(folder: Path) -> None:
    write_beir_folder(folder / "x", small("x"))
    write_suite(folder, "zoo", [("x", "f")])


def foreign(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"query": ["a", "b"], "document": ["c", "d"]}), folder / "x.parquet")


def archive(folder: Path) -> None:
    with zipfile.ZipFile(folder / "x.zip", "w") as opened:
        opened.writestr("x.jsonl", json.dumps({"query": "a", "document": "b"}) * 9)
    with tarfile.open(folder / "x.tar.gz", "w:gz") as members:
        data = b'{"query": "a", "document": "b"}\n' * 9
        info = tarfile.TarInfo("x.jsonl")
        info.size = len(data)
        members.addfile(info, io.BytesIO(data))


def weights(folder: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.ones((3, 4), np.float32), "b": np.zeros(5, np.float32)}, folder / "x.safetensors")


def a_record(folder: Path) -> None:
    write_record(folder, RUN, metrics={"train/loss": 1.5}, arrays={"train/loss": np.array([1.0, 2.0])}, provenance={})


def log(folder: Path) -> None:
    line = {"loss": 1.0, "accuracy": 0.5, "masked_fraction": 0.0, "difficulty": None, "learning_rate": 0.1,
            "pairs_per_second": 3.0, "memory_bytes": 5, "batch": "a"}  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line | {"step": n}) + "\n" for n in (1, 2, 3)))


def trained() -> tuple[Any, Any]:
    """A model and its optimiser after a step."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def a_checkpoint(folder: Path) -> None:
    from repro.train.checkpoint import TrainState, write_checkpoint

    write_checkpoint(folder, TrainState("0123456789ab", 3, 1.5, (4, 5), 1, "ab" * 32), *trained())


def read_back(path: Path) -> Any:
    from repro.train.checkpoint import read_checkpoint

    return read_checkpoint(path.parent, "0123456789ab", *trained())


def imported(folder: Path) -> None:
    (folder / "x.jsonl").write_text(
        "".join(json.dumps({"query": f"q {n}", "document": f"d {n}"}) + "\n" for n in range(9))
    )
    bring(folder / "x.jsonl", name="mine")
    (folder / "corpus.json").write_bytes(find_imported("mine").folder.joinpath("corpus.json").read_bytes())


def read_imported(path: Path) -> Any:
    target = imported_home() / "mine" / "corpus.json"
    target.write_bytes(path.read_bytes())
    return find_imported("mine")


def imported_home() -> Path:
    return Path(os.environ["REPRO_HOME"]) / "corpora"


def at_home(relative: str, reader: Callable[[], Any]) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        target = Path(os.environ["REPRO_HOME"]) / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        return reader()

    return read


def submission(folder: Path) -> None:
    made = Submission(
        on="local", sweep="s", profile="here", jobs={"a": {"job_id": "1"}}, runs={"a": {"scale": "smoke"}}
    )
    (folder / "x.json").write_text(json.dumps(vars(made)))


def read_profile(path: Path) -> Any:
    _tables.cache_clear()
    os.environ["REPRO_PROFILES"] = str(path)
    try:
        return [load_profile(name) for name in _read(path)]
    finally:
        del os.environ["REPRO_PROFILES"]
        _tables.cache_clear()


Reader = tuple[Callable[[Path], Any], str, Callable[[Path], Any]]
PROFILE = (
    '[mine]\non = "slurm"\npartition = "gpu"\ntime_minutes = 60\nsetup = ["a"]\n[mine.sbatch]\nmail-type = "END"\n'
)
READERS: dict[str, Reader] = {
    "corpus.jsonl": (beir, "x/corpus.jsonl", lambda path: load_beir(path.parent)),
    "queries.jsonl": (beir, "x/queries.jsonl", lambda path: load_beir(path.parent)),
    "qrels": (beir, "x/qrels/test.tsv", lambda path: load_beir(path.parent.parent)),
    "suite.json": (beir, "suite.json", lambda path: load_suite(path.parent)),
    "judgements": (foreign("x.qrels", "q 0 d 1\nq 0 e 0\n"), "x.qrels", read_judgements),
    "run": (foreign("x.run", "q Q0 d 1 0.5 t\nq Q0 e 2 0.4 t\n"), "x.run", read_run),
    "run, gzipped": (lambda folder: (folder / "x.run").write_bytes(gzip.compress(b"q Q0 d 1 0.5 t\n")), "x.run",
                     read_run),
    "jsonl": (foreign("x.jsonl", '{"query": "a", "document": ["b"], "negatives": ["c"]}\n' * 3), "x.jsonl",
              lambda path: list(read_foreign(path))),
    "csv": (foreign("x.csv", 'query,document\na,b\n"c, d",e\n'), "x.csv", lambda path: list(read_foreign(path))),
    "tsv": (foreign("x.tsv", "query\tdocument\na\tb\n"), "x.tsv", lambda path: list(read_foreign(path))),
    "parquet": (parquet, "x.parquet", lambda path: list(read_foreign(path))),
    "zip": (archive, "x.zip", lambda path: unpack(path, path.parent / "unpacked")),
    "tar.gz": (archive, "x.tar.gz", lambda path: unpack(path, path.parent / "unpacked")),
    "safetensors": (weights, "x.safetensors", read_safetensors),
    "config.json": (lambda folder: ModelConfig(architecture="biencoder").save(folder), "config.json",
                    lambda path: load_config(path.parent)),
    "record": (a_record, f"{run_id(RUN)}.json", read_record),
    "arrays of a record": (a_record, f"{run_id(RUN)}.npz", lambda path: read_record(path.with_suffix(".json")).arrays),
    "metrics.jsonl": (log, "metrics.jsonl", lambda path: read_metrics(path.parent, 3)),
    "runs": (foreign("x.json", '[{"scale": "smoke", "seed": 1, "num_steps": 4}, {"scale": "desk"}]'), "x.json",
             read_runs),
    "pairs": (lambda folder: write_pairs(folder / "x.arrow", iter(ROWS)), "x.arrow",
              lambda path: read_pairs(path).texts("query", np.arange(len(read_pairs(path))))),
    "npy": (lambda folder: np.save(folder / "x.npy", np.arange(50)), "x.npy",
            lambda path: load_array(path, kind="i", shape=(50,), below=50)),
    "owner": (foreign("000001.json", '{"host": "a", "pid": 1, "machine": "m", "born": "1", "dead_after_seconds": 9}'),
              "000001.json", lambda path: look(path.parent)),
    "checkpoint": (a_checkpoint, "checkpoint.safetensors", read_back),
    "imported corpus": (imported, "corpus.json", read_imported),
    "submission": (submission, "x.json", at_home("sweeps/s/submissions/x.json", read_submissions)),
    "job note": (foreign("x.json", '{"state": "failed", "reason": "x"}'), "x.json",
                 at_home(f"runs/{run_id(RUN)}/job.json", lambda: get_run_item(RUN).read())),
    "profile": (foreign("x.toml", PROFILE), "x.toml", read_profile),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_readers_refuse_damaged_files(name: str, tmp_path: Path) -> None:
    make, relative, read = READERS[name]
    make(tmp_path)
    path = tmp_path / relative
    whole = path.read_bytes()
    read(path)  # it is good
    cases = list(damaged_bytes(whole, CASES, name))
    if relative.endswith(".json"):
        cases += damaged_values(json.loads(whole), CASES, name)
    for number, data in enumerate(cases):
        path.write_bytes(data)
        try:
            with at_most(SECONDS):
                read(path)
        except (ValueError, OSError) as error:
            assert len(str(error)) < 5000, f"case {number}: the message is {len(str(error))} letters long"
        except Exception as error:
            raise AssertionError(f"{name}, case {number}, {data[:200]!r}: {type(error).__name__}: {error}") from error


def test_no_changed_record_is_believed(tmp_path: Path) -> None:
    a_record(tmp_path)
    path = tmp_path / f"{run_id(RUN)}.json"
    whole = json.loads(path.read_text())
    believed = read_record(path)
    for data in damaged_values(whole, 4 * CASES, "believed"):
        path.write_bytes(data)
        same = json.loads(data) == whole
        try:
            found = read_record(path)
        except ValueError:
            assert not same
        else:
            assert found == believed or same, data[:300]


# ---- verbs


def verbs_of() -> dict[str, list[str]]:
    """Every verb with its options, but those that would start long work or wait for the network."""
    command: Any = get_command(app)
    found = {name: one for name, one in command.commands.items() if name != "data"}
    found |= {f"data {name}": one for name, one in command.commands["data"].commands.items()}
    idle = ("run", "launch", "fetch", "explain-batch", "explain-context", "data show", "report", "data plan")
    return {
        name: [word for parameter in one.params for word in parameter.opts if word.startswith("--")]
        for name, one in found.items()
        if name not in idle
    }


def run_verb(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["repro", *words])
    with at_most(60):
        return run_with_error_handling(lambda: app(words, prog_name="repro", standalone_mode=False))


def test_odd_words_are_never_bugs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    was_there = Path("/tmp/x").exists()  # of somebody else: a name that WORDS has
    for words in damaged_words(verbs_of(), WORDS, "verbs"):
        if words[0] in ("check", "doctor", "list") and "--json" not in words:
            words = [*words, "--mars"]  # these take no value that could be wrong, and some seconds each
        code = run_verb(words, monkeypatch)
        said = capsys.readouterr().err
        assert code != EXIT_BUG and "Traceback" not in said, f"{words}: {said[-2000:]}"
    assert {path.name for path in tmp_path.iterdir()} <= {"here", "home"}, "written outside the named places"
    assert not list((tmp_path / "here").rglob("*.py")) and Path("/tmp/x").exists() == was_there


@pytest.mark.parametrize("verb", ["plan", "status", "verify", "run", "launch --dry-run", "score", "evaluate", "export"])
def test_verbs_refuse_damaged_files(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    rows = [{"scale": "smoke", "seed": 1, "num_steps": 4, "suite": "planted", "corpus": "planted-tiny"}]
    cases = [*list(damaged_bytes(json.dumps(rows).encode(), CASES, verb))[:CASES]]
    for data in cases:
        path.write_bytes(data)
        words = {"score": ["score", str(path), str(path)],
                 "evaluate": ["evaluate", "--model", str(path), "--suite", "zoo"],
                 "export": ["export", str(path), str(tmp_path / "out"), "--to", "official"]}  # fmt: skip
        started = time.monotonic()
        code = run_verb(words.get(verb, [*verb.split(), str(path)]), monkeypatch)
        said = capsys.readouterr().err
        assert code != EXIT_BUG and "Traceback" not in said, f"{verb} {data[:100]!r}: {said[-2000:]}"
        assert time.monotonic() - started < 6 * SECONDS
