"""Promises of imported evaluation sets: BEIR folders that judge nothing to train on are taken as what they are."""

import json
from pathlib import Path

import pytest

from repro.data.beir import write_beir_folder
from repro.data.own.imported import bring, find_imported
from repro.interop.opening import describe_name_clash, open_suite
from repro.pipeline.corpora import check_available
from repro.spec import base
from repro.text import count_noun
from tests.commands import run_command
from tests.interop.small import make_things


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two BEIR folders with qrels/test.tsv only."""
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "home"))
    for name in ("one", "two"):
        write_beir_folder(tmp_path / "theirs" / name, make_things())
    return tmp_path / "theirs"


@pytest.mark.parametrize(("what", "names"), [("one", ["one"]), ("", ["one", "two"])])
def test_folders_become_a_suite(theirs: Path, what: str, names: list[str]) -> None:
    shown = run_command("data", "import", str(theirs / what), "--name", "theirs")
    assert f"evaluation set of {count_noun(len(names), 'collection')}: " in shown and "--suite theirs" in shown
    assert [dataset.name for dataset in open_suite("theirs").datasets] == names
    named, folder = (
        json.loads(run_command("evaluate", "--model", "bm25", "--suite", suite, "--json"))["metrics"]
        for suite in ("theirs", str(theirs / what))
    )
    assert list(named.values()) == list(folder.values()) and named["theirs/mean/ndcg_at_10"] > 0


def test_folder_with_the_name_of_a_corpus_is_named(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is read, and a line has the other name of the corpus, which still opens it."""
    corpus = bring(theirs, name="theirs")
    assert describe_name_clash("theirs") == ""
    monkeypatch.chdir(theirs.parent)
    (theirs / "two").rename(theirs / "three")
    lines: list[str] = []
    assert [one.name for one in open_suite("theirs", lines.append).datasets] == ["one", "three"]
    assert len(lines) == 1 and corpus.corpus in lines[0]
    assert [one.name for one in open_suite(corpus.corpus).datasets] == ["one", "two"]
    assert describe_name_clash(corpus.corpus) == describe_name_clash("./theirs") == ""
    theirs.rename(theirs.with_name("desk"))
    assert describe_name_clash("desk") != ""


def test_evaluation_sets_cannot_be_trained_on(theirs: Path) -> None:
    corpus = bring(theirs / "one", name="theirs")
    assert find_imported("theirs").only_evaluates
    for action in (
        lambda: run_command("data", "plan", "theirs"),
        lambda: run_command("data", "show", "theirs"),
        lambda: check_available([base("smoke", corpus=corpus.corpus, suite="theirs")]),
        lambda: bring(theirs / "two", name="more", hold_out=["x"]),
    ):
        with pytest.raises(ValueError, match="to train on"):
            action()
    check_available([base("smoke", suite="theirs", corpus="planted-tiny")])


def test_folders_with_pairs_stay_corpora(theirs: Path) -> None:
    write_beir_folder(theirs / "one", make_things(), split="train")
    with pytest.raises(ValueError, match="has no pair"):  # all of them are evaluated, too
        bring(theirs / "one", name="theirs")
