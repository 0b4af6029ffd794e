"""Promises to whoever types: other capitals are understood, claims go by their id, and one bad file harms none."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from repro.cli.main import app
from repro.spec.identity import run_id
from repro.spec.registry import find_experiment, normalise_artefact_name
from repro.storage.paths import CHECKOUT


def typed(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.mark.parametrize(
    ("word", "means"),
    [("Table 1", "table1"), ("TABLE1", "table1"), ("fig 14", "figure14"), ("Fig.14", "figure14"),
     ("GTE_Table7", "gte_table7"), ("runs/My.json", "runs/My.json"), ("Tabel 1", "Tabel 1")],
)  # fmt: skip
def test_artefact_names_ignore_case_and_space(word: str, means: str) -> None:
    assert normalise_artefact_name(word) == means


def test_claims_are_named_by_id() -> None:
    shown = typed("check", "T5.a", "--scale", "smoke")
    assert "T5.a" in shown and "T5.b" not in shown
    both = typed("check", "t5.a", "T5.b", "--scale", "smoke")
    assert "T5.a" in both and "T5.b" in both and "T5.c" not in both
    for verb, word in (("why", "T1b"), ("check", "T1.bb")):
        with pytest.raises(ValueError, match=r"unknown claim .*did you mean 'T1\.b'\?"):
            typed(verb, word)


def test_corpus_is_shown_as_table_or_json(own_home: Path) -> None:
    shown = typed("data", "planted-tiny", "--samples", "1")
    counts = [line.split() for line in shown.splitlines() if line.startswith((" planted ", " all "))]
    assert counts == [["planted", "240", "6"], ["all", "240", "6"]]
    assert "{" not in shown and shown.count("  query     ") == shown.count("  document  ") == 1
    found = json.loads(typed("data", "planted-tiny", "--samples", "1", "--json"))
    assert found["sources"] == [{"source": "planted", "num_pairs": 240, "num_domains": 6}]
    assert found["samples"][0]["query"] in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["export", "BIENCODER", "OUT", "--to", "sentence-transformers", "--width", "9999"], "9999 does not divide 32"),
        (["export", "BIENCODER", "OUT", "--to", "official"], "holds contextual models only"),
        (["evaluate", "--model", "bm25", "--suite", "EMPTY"], "is no BEIR folder"),
        (["evaluate", "--model", "bm25", "--suite", "scifact"], "unknown suite 'scifact'; choose one of"),
        (["explain-context", "BIENCODER", "--query", "x"], "is of 'biencoder', which has no context"),
        (["explain-context", "--model", "EMPTY", "--query", "x", "--suite", "scifact"], "unknown suite 'scifact'"),
    ],
)
def test_impossible_words_are_refused_before_imports(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb in ("exporting", "evaluating", "explaining"):
        monkeypatch.setitem(sys.modules, f"repro.interop.{verb}", None)
    (tmp_path / "empty").mkdir()
    biencoder = next(run for run in find_experiment("table1").runs("smoke") if run.architecture == "biencoder")
    meant = {"BIENCODER": run_id(biencoder), "EMPTY": str(tmp_path / "empty"), "OUT": str(tmp_path / "out")}
    with pytest.raises(ValueError, match=says):
        typed(*[meant.get(word, word) for word in words])


def test_option_after_compare_is_no_model() -> None:
    with pytest.raises(ValueError, match="--compare takes two models, --compare A B, but '--suite' is an option"):
        typed("evaluate", "--compare", "abc", "--suite", "mine")


def test_field_without_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--where sampler: sampler=… needs a value; write --where sampler=VALUE"):
        typed("explain-batch", "table1", "--where", "sampler")


Typing = Callable[..., subprocess.CompletedProcess[str]]


def tree_with(folder: Path, name: str, text: str) -> Typing:
    """Copy the sources with one more experiment; return what runs `repro` there."""
    for part in ("repro", "experiments", "figures", "slurm"):
        left_out = shutil.ignore_patterns("__pycache__", "pictures")
        shutil.copytree(CHECKOUT / part, folder / part, ignore=left_out)
    (folder / "experiments" / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(folder), "REPRO_HOME": str(folder / "home")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "repro", *words]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    return run


FAULTY_RUNS = """
from dataclasses import replace
from experiments.e15_overview import EXPERIMENT as ONE

SHOWS = (replace(ONE.shows[0], name="figure98"),)
EXPERIMENT = replace(ONE, number=98, runs=lambda scale: nothing, shows=SHOWS, claims=())
"""


@pytest.mark.parametrize(
    ("made", "says"),
    [("nothing", "name 'nothing' is not defined (NameError)"), ("next(one for one in ())", "(StopIteration)")],
)
def test_experiment_with_faulty_runs_is_named(tmp_path: Path, made: str, says: str) -> None:
    run = tree_with(tmp_path, "e98_mine.py", FAULTY_RUNS.replace("nothing", made))
    fault = f"experiments/e98_mine.py: its runs at scale 'smoke': {says}"
    listed = run("list")
    assert listed.returncode == 2 and f"left out: {fault}" in listed.stderr
    assert "table1" in listed.stdout and "figure98" not in listed.stdout
    shown = run("show", "table1", "figure98", "--scale", "smoke")
    assert shown.returncode == 0 and f"left out: {fault}" in shown.stderr and "table1 at scale smoke" in shown.stdout
    refused = run("show", "figure98", "--scale", "smoke")
    assert refused.returncode == 2 and refused.stderr.startswith(f"error: {fault}")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("e98_mine.py", "EXPERIMENT = nothing\n", "name 'nothing' is not defined (NameError)"),
        ("e98_mine.py", "from experiments.e15_overview import EXPERIMENT\n", "number=15, but the file name has 98"),
        ("e15_zweite.py", "from experiments.e15_overview import EXPERIMENT\n", "declared by more than one experiment"),
        ("e98_mine.py", "X = 1 / 0\n", "division by zero (ZeroDivisionError)"),
        ("e100_mine.py", "from experiments.e15_overview import EXPERIMENT\n", "its number needs two digits, 00 to 99"),
    ],
)
def test_one_bad_file_harms_no_artefact(tmp_path: Path, name: str, text: str, says: str) -> None:
    run = tree_with(tmp_path, name, text)
    shown = run("show", "figure1", "--scale", "smoke")
    assert shown.returncode == 0 and f"left out: experiments/{name}" in shown.stderr and says in shown.stderr
    listed = run("list")
    assert listed.returncode == 2 and name in listed.stderr and says in listed.stderr
    assert "table1" in listed.stdout
