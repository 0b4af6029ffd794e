"""Typed words: names ignore case, claims are found by id, impossible words are refused early, bad files are isolated."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from repro.spec.identity import run_id
from repro.spec.registry import find_experiment, normalise_artefact_name
from tests.commands import PACKAGES, copy_project, run_command, run_module


@pytest.mark.parametrize(
    ("word", "name"),
    [("Table 1", "table1"), ("TABLE1", "table1"), ("fig 14", "figure14"), ("Fig.14", "figure14"),
     ("GTE_Table7", "gte_table7"), ("runs/My.json", "runs/My.json"), ("Tabel 1", "Tabel 1")],
)  # fmt: skip
def test_artefact_names_ignore_case_and_space(word: str, name: str) -> None:
    assert normalise_artefact_name(word) == name


def test_claims_are_named_by_id() -> None:
    result = run_command("check", "T5.a", "--scale", "smoke")
    assert "T5.a" in result and "T5.b" not in result
    two = run_command("check", "t5.a", "T5.b", "--scale", "smoke")
    assert "T5.a" in two and "T5.b" in two and "T5.c" not in two
    for command, word in (("why", "T1b"), ("check", "T1.bb")):
        with pytest.raises(ValueError, match=r"unknown claim .*did you mean 'T1\.b'\?"):
            run_command(command, word)


def test_corpus_has_table_and_json() -> None:
    table = run_command("data", "planted-tiny", "--samples", "1")
    counts = [line.split() for line in table.splitlines() if line.startswith((" planted ", " all "))]
    assert counts == [["planted", "240", "6"], ["all", "240", "6"]]
    assert "{" not in table and table.count("  query     ") == table.count("  document  ") == 1
    description = json.loads(run_command("data", "planted-tiny", "--samples", "1", "--json"))
    assert description["sources"] == [{"source": "planted", "num_pairs": 240, "num_domains": 6}]
    assert description["samples"][0]["query"] in table


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "BIENCODER", "OUT", "--to", "sentence-transformers", "--width", "9999"], "9999 does not divide 32"),
        (["export", "BIENCODER", "OUT", "--to", "official"], "holds contextual models only"),
        (["evaluate", "--model", "bm25", "--suite", "EMPTY"], "is no BEIR folder"),
        (["evaluate", "--model", "bm25", "--suite", "scifact"], "unknown suite 'scifact'; choose one of"),
        (["evaluate", "--compare", "abc", "--suite", "mine"], "takes two models, --compare A B, but '--suite' is an"),
        (["explain-context", "BIENCODER", "--query", "x"], "'biencoder', which takes no context"),
        (["explain-context", "--model", "EMPTY", "--query", "x", "--suite", "scifact"], "unknown suite 'scifact'"),
        (["explain-batch", "table1", "--where", "sampler"], "sampler=… needs a value; write --where sampler=VALUE"),
    ],
)
def test_impossible_words_are_refused_before_imports(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modules that would import torch cannot be imported here."""
    for module in ("exporting", "evaluating", "explaining"):
        monkeypatch.setitem(sys.modules, f"repro.interop.{module}", None)
    (tmp_path / "empty").mkdir()
    biencoder = next(run for run in find_experiment("table1").runs("smoke") if run.architecture == "biencoder")
    names = {"BIENCODER": run_id(biencoder), "EMPTY": str(tmp_path / "empty"), "OUT": str(tmp_path / "out")}
    with pytest.raises(ValueError, match=message):
        run_command(*[names.get(word, word) for word in words])


OVERVIEW = "from experiments.e15_overview import EXPERIMENT\n"
BROKEN_FILES = [
    ("e96_mine.py", "EXPERIMENT = nothing\n", "name 'nothing' is not defined (NameError)"),
    ("e97_mine.py", "X = 1 / 0\n", "division by zero (ZeroDivisionError)"),
    ("e98_mine.py", OVERVIEW, "number=15, but the file name has 98"),
    ("e15_zweite.py", OVERVIEW, "declared by more than one experiment"),
    ("e100_mine.py", OVERVIEW, "its number needs two digits, 00 to 99"),
]
BROKEN_RUNS = [
    (94, "nothing", "name 'nothing' is not defined (NameError)"),
    (95, "next(one for one in ())", "(StopIteration)"),
]
BROKEN_RUNS_FILE = """
from dataclasses import replace
from experiments.e15_overview import EXPERIMENT as ONE

SHOWN = (replace(ONE.artefacts[0], name="figure{number}"),)
EXPERIMENT = replace(ONE, number={number}, runs=lambda scale: {runs}, artefacts=SHOWN, claims=())
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with experiments that cannot be imported, and others whose runs raise."""
    folder = tmp_path_factory.mktemp("tree")
    copy_project(folder, *PACKAGES)
    for name, text, _ in BROKEN_FILES:
        (folder / "experiments" / name).write_text(text)
    for number, runs, _ in BROKEN_RUNS:
        (folder / "experiments" / f"e{number}_mine.py").write_text(BROKEN_RUNS_FILE.format(number=number, runs=runs))
    return folder


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_module("repro", *words, folder=folder, source=folder, REPRO_HOME=str(folder / "home"))


def test_bad_files_harm_no_artefact(tree: Path) -> None:
    """Other artefacts work. Each faulty file is named with its error, and `list` exits with 2."""
    table = run_in(tree, "show", "figure1", "table1", "figure94", "figure95", "--scale", "smoke")
    listed = run_in(tree, "list")
    assert table.returncode == 0 and "table1 at scale smoke" in table.stdout
    assert listed.returncode == 2 and "table1" in listed.stdout
    assert not {"figure94", "figure95"} & set(listed.stdout.split())
    for errors in (table.stderr, listed.stderr):
        for name, _, message in BROKEN_FILES:
            (line,) = (line for line in errors.splitlines() if f"left out: experiments/{name}" in line)
            assert message in line
        for number, _, message in BROKEN_RUNS:
            assert f"left out: experiments/e{number}_mine.py: its runs at scale 'smoke': {message}" in errors


@pytest.mark.parametrize(("number", "runs", "message"), BROKEN_RUNS)
def test_experiment_with_faulty_runs_is_named(tree: Path, number: int, runs: str, message: str) -> None:
    done = run_in(tree, "show", f"figure{number}", "--scale", "smoke")
    assert done.returncode == 2
    assert f"error: experiments/e{number}_mine.py: its runs at scale 'smoke': {message}" in done.stderr
