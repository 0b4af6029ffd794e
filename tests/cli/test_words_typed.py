"""Typed words: names ignore case, claims are found by id, impossible words are refused early, bad files are isolated."""

import json
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


@pytest.mark.parametrize(
    ("words", "listed", "absent"),
    [(["T5.a"], {"T5.a"}, "T5.b"), (["t5.a", "T5.b"], {"T5.a", "T5.b"}, "T5.c"), (["figure4"], {"F4.a"}, "T5.a")],
)
def test_check_takes_claims_and_artefacts(words: list[str], listed: set[str], absent: str) -> None:
    output = run_command("check", *words, "--scale", "smoke")
    assert all(id in output for id in listed) and absent not in output


@pytest.mark.parametrize(("command", "word"), [("why", "T1b"), ("check", "T1.bb")])
def test_unknown_claim_gets_a_suggestion(command: str, word: str) -> None:
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
        ("export RUN out --to sentence-transformers --width 9999", "9999 does not divide 32"),
        ("export RUN out --to official", "holds contextual models only"),
        ("export RUN out --to onnx", "unknown format 'onnx'"),
        ("export RUN . --to transformers", "is the current folder"),
        ("export RUN full --to transformers", "is not empty"),
        ("export nothere out --to transformers", "no model 'nothere'"),
        ("evaluate --model nothere --suite planted", "no model 'nothere'"),
        ("evaluate --compare bm25 nothere --suite planted", "no model 'nothere'"),
        ("evaluate --compare abc --suite mine", "takes two models, --compare A B, but '--suite' is an"),
        ("evaluate --model bm25 --suite full", "is no BEIR folder"),
        ("evaluate --model bm25 --suite no/where", "--suite no/where: no such folder"),
        ("evaluate --model bm25 --suite scifact", "unknown suite 'scifact'; choose one of"),
        ("explain-context RUN --query x", "'biencoder', which takes no context"),
        ("explain-context --model full --query x --suite scifact", "unknown suite 'scifact'"),
        ("explain-batch table1 --where sampler", "--where 'sampler': expected field=value"),
    ],
)
def test_impossible_words_are_refused_before_imports(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modules that would import torch cannot be imported here."""
    for module in ("exporting", "evaluating", "explaining"):
        monkeypatch.setitem(sys.modules, f"repro.interop.{module}", None)
    monkeypatch.chdir(tmp_path)
    Path("full").mkdir()
    Path("full", "file").touch()
    biencoder = next(run for run in find_experiment("table1").runs("smoke") if run.architecture == "biencoder")
    with pytest.raises(ValueError, match=message):
        run_command(*words.replace("RUN", run_id(biencoder)).split())


OVERVIEW = "from experiments.e15_overview import EXPERIMENT\n"
BROKEN_FILES = [
    ("e96_mine.py", "EXPERIMENT = nothing\n", "name 'nothing' is not defined (NameError)"),
    ("e97_mine.py", "X = 1 / 0\n", "division by zero (ZeroDivisionError)"),
    ("e98_mine.py", OVERVIEW, "number=15, but the file name has 98"),
    ("e15_zweite.py", OVERVIEW, "declared by more than one experiment"),
    ("e100_mine.py", OVERVIEW, "its number needs two digits, 00 to 99"),
]
BROKEN_RUNS = [
    ("e94_mine.py", "nothing", "its runs at scale 'smoke': name 'nothing' is not defined (NameError)"),
    ("e95_mine.py", "next(one for one in ())", "its runs at scale 'smoke': (StopIteration)"),
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
    for name, runs, _ in BROKEN_RUNS:
        (folder / "experiments" / name).write_text(BROKEN_RUNS_FILE.format(number=int(name[1:3]), runs=runs))
    return folder


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        ("show figure1 table1 figure94 figure95 --scale smoke", 0, BROKEN_FILES + BROKEN_RUNS),
        ("list", 2, BROKEN_FILES + BROKEN_RUNS),
        ("show figure94 --scale smoke", 2, BROKEN_RUNS[:1]),
        ("show figure95 --scale smoke", 2, BROKEN_RUNS[1:]),
    ],
)
def test_bad_files_harm_no_artefact(words: str, code: int, named: list[tuple[str, str, str]], tree: Path) -> None:
    """Other artefacts work. Each faulty file is named with its error, and the exit code is 2 if it was asked for."""
    result = run_module("repro", *words.split(), folder=tree, source=tree, REPRO_HOME=str(tree / "home"))
    assert result.returncode == code
    assert ("table1" in result.stdout) == (named == BROKEN_FILES + BROKEN_RUNS)
    assert not {"figure94", "figure95"} & set(result.stdout.split())
    for name, _, message in named:
        (line,) = (line for line in result.stderr.splitlines() if f"experiments/{name}: " in line)
        assert message in line
