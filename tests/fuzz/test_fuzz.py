"""Malformed input ends in one clear line, without a traceback, a hang, a stray file or an accepted false record.

A reader may accept a damaged file, since a text with a flipped letter is still a text, or raise ValueError or OSError.
Any other error is a bug. A command must not end with exit code 70. About a thousand cases run with the other tests.
`FUZZ=1 pytest -m fuzz` runs about three thousand.
"""

import gzip
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command

from repro.cli.errors import EXIT_BUG
from repro.cli.main import app
from repro.data.beir import Retrieval, load_beir, load_suite, write_beir_folder, write_suite
from repro.data.own.imported import find_imported, import_source
from repro.data.pairs import Row, read_pairs, write_pairs
from repro.data.readers import read_foreign_rows
from repro.model.config import ModelConfig, load_config
from repro.records.lookup import read_runs
from repro.records.store import read_record, write_record
from repro.spec import base
from repro.spec.identity import run_id
from tests.commands import get_exit_code
from tests.fuzz.damage import damage_bytes, damage_values, damage_words

pytestmark = pytest.mark.fuzz
ALL = os.environ.get("FUZZ") == "1"
CASES = 60 if ALL else 24
COMMAND_LINES = 400 if ALL else 20
SECONDS = 10
RUN = base("smoke", architecture="bm25")
ROWS = [Row(f"r{n}", f"query {n}", f"document {n}", "ab"[n % 2], "s") for n in range(20)]


@contextmanager
def limit_seconds(seconds: int) -> Iterator[None]:
    """Fail if the block takes more processor time. A busy machine does not count."""

    def fail(number: int, frame: Any) -> None:
        raise AssertionError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGPROF, fail)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# ---- readers: functions that write a valid file into a folder, and functions that read it


def write_collection(folder: Path) -> None:
    write_beir_folder(folder / "x", Retrieval("x", ("d1", "d2"), ("one", "two"), ("q1",), ("what",), {"q1": {"d1": 1}}))
    write_suite(folder, "zoo", [("x", "f")])


def writer(name: str, text: str) -> Callable[[Path], None]:
    """Return a function that writes this text into a folder."""
    return lambda folder: (folder / name).write_text(text) and None


def write_parquet(folder: Path) -> None:
    pq.write_table(pa.table({"query": ["a", "b"], "document": ["c", "d"]}), folder / "x.parquet")


def write_small_record(folder: Path) -> None:
    write_record(folder, RUN, metrics={"train/loss": 1.5}, arrays={"train/loss": np.array([1.0, 2.0])}, provenance={})


def import_corpus(folder: Path) -> None:
    lines = [json.dumps({"query": f"q {n}", "document": f"d {n}"}) for n in range(9)]
    (folder / "x.jsonl").write_text("\n".join(lines))
    import_source(folder / "x.jsonl", name="mine")
    (folder / "corpus.json").write_bytes(find_imported("mine").folder.joinpath("corpus.json").read_bytes())


def read_imported(path: Path) -> Any:
    (Path(os.environ["REPRO_HOME"]) / "corpora" / "mine" / "corpus.json").write_bytes(path.read_bytes())
    return find_imported("mine")


Reader = tuple[Callable[[Path], Any], str, Callable[[Path], Any]]
READERS: dict[str, Reader] = {
    "corpus.jsonl": (write_collection, "x/corpus.jsonl", lambda path: load_beir(path.parent)),
    "queries.jsonl": (write_collection, "x/queries.jsonl", lambda path: load_beir(path.parent)),
    "qrels": (write_collection, "x/qrels/test.tsv", lambda path: load_beir(path.parent.parent)),
    "suite.json": (write_collection, "suite.json", lambda path: load_suite(path.parent)),
    "jsonl": (writer("x.jsonl", '{"query": "a", "document": ["b"], "negatives": ["c"]}\n' * 3), "x.jsonl",
              lambda path: list(read_foreign_rows(path))),
    "csv": (writer("x.csv", 'query,document\na,b\n"c, d",e\n'), "x.csv", lambda path: list(read_foreign_rows(path))),
    "tsv": (writer("x.tsv", "query\tdocument\na\tb\n"), "x.tsv", lambda path: list(read_foreign_rows(path))),
    "parquet": (write_parquet, "x.parquet", lambda path: list(read_foreign_rows(path))),
    "jsonl.gz": (lambda folder: (folder / "x.jsonl.gz").write_bytes(gzip.compress(b'{"query": "a", "document": "b"}\n' * 9)),
                 "x.jsonl.gz", lambda path: list(read_foreign_rows(path))),
    "config.json": (lambda folder: ModelConfig(architecture="biencoder").save(folder), "config.json",
                    lambda path: load_config(path.parent)),
    "record": (write_small_record, f"{run_id(RUN)}.json", read_record),
    "arrays of a record": (write_small_record, f"{run_id(RUN)}.npz", lambda path: read_record(path.with_suffix(".json")).arrays),
    "runs": (writer("x.json", '[{"scale": "smoke", "seed": 1, "num_steps": 4}, {"scale": "desk"}]'), "x.json",
             read_runs),
    "pairs": (lambda folder: write_pairs(folder / "x.arrow", iter(ROWS)), "x.arrow",
              lambda path: read_pairs(path).texts("query", np.arange(len(read_pairs(path))))),
    "imported corpus": (import_corpus, "corpus.json", read_imported),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_readers_refuse_damaged_files(name: str, tmp_path: Path) -> None:
    make, relative, read = READERS[name]
    make(tmp_path)
    path = tmp_path / relative
    whole = path.read_bytes()
    # The valid file is read without an error.
    read(path)
    cases = list(damage_bytes(whole, CASES, name))
    if relative.endswith(".json"):
        cases += damage_values(json.loads(whole), CASES, name)
    for number, data in enumerate(cases):
        path.write_bytes(data)
        try:
            with limit_seconds(SECONDS):
                read(path)
        except (ValueError, OSError) as error:
            assert len(str(error)) < 5000, f"case {number}: the message has {len(str(error))} letters"
        except Exception as error:
            raise AssertionError(f"{name}, case {number}, {data[:200]!r}: {type(error).__name__}: {error}") from error


# ---- commands


LONG_COMMANDS = ("run", "launch", "fetch", "explain-batch", "data show", "report")
"""Commands that start long work or wait for the network."""


def list_commands() -> dict[str, list[str]]:
    """Return every other command with its options."""
    group: Any = get_command(app)
    commands = group.commands | {f"data {name}": command for name, command in group.commands["data"].commands.items()}
    return {
        name: [word for parameter in command.params for word in parameter.opts if word.startswith("--")]
        for name, command in commands.items()
        if name not in ("data", *LONG_COMMANDS)
    }


def assert_no_bug(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends in time, without a traceback and not with the exit code of a bug."""
    monkeypatch.setattr(sys, "argv", ["repro", *words])
    with limit_seconds(60):
        code = get_exit_code(*words)
    errors = capsys.readouterr().err
    assert code != EXIT_BUG and "Traceback" not in errors, f"{words}: {errors[-2000:]}"


def test_odd_words_are_never_bugs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    # /tmp/x is one of the odd values. Another program may have created it.
    existed = Path("/tmp/x").exists()
    for words in damage_words(list_commands(), COMMAND_LINES, "verbs"):
        # These commands take seconds and no values, so an unknown option ends them early.
        slow = words[0] in ("check", "doctor", "list") and "--json" not in words
        assert_no_bug([*words, "--mars"] if slow else words, monkeypatch, capsys)
    assert {path.name for path in tmp_path.iterdir()} <= {"here", "home"}, "a file outside the named places"
    assert not list((tmp_path / "here").rglob("*.py")) and Path("/tmp/x").exists() == existed


@pytest.mark.parametrize(
    "words",
    [
        "plan FILE",
        "status FILE",
        "run FILE",
        "launch --dry-run FILE",
        "evaluate --model FILE --suite zoo",
        "export FILE OUT",
    ],
)
def test_commands_refuse_damaged_files(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    paths = {"FILE": str(path), "OUT": str(tmp_path / "out")}
    rows = [{"scale": "smoke", "seed": 1, "num_steps": 4, "suite": "planted", "corpus": "planted-tiny"}]
    for data in list(damage_bytes(json.dumps(rows).encode(), CASES, words))[:CASES]:
        path.write_bytes(data)
        assert_no_bug([paths.get(word, word) for word in words.split()], monkeypatch, capsys)
