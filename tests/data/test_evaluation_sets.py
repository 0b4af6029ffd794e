"""Imported evaluation sets: BEIR folders without training pairs become suites that cannot be trained on."""

import json
from pathlib import Path

import pytest

from repro.data.beir import write_beir_folder
from repro.data.own.imported import find_imported, import_source
from repro.interop.opening import describe_name_clash, open_suite
from repro.pipeline.corpora import check_available
from repro.spec import base
from repro.text import count_noun
from tests.commands import run_command
from tests.data.files import pack_folder
from tests.interop.small import make_things


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two BEIR folders that have qrels/test.tsv only."""
    for name in ("one", "two"):
        write_beir_folder(tmp_path / "theirs" / name, make_things())
    return tmp_path / "theirs"


@pytest.mark.parametrize(("source", "names"), [("one", ["one"]), ("one.zip", ["one"]), ("", ["one", "two"])])
def test_folders_become_a_suite(folder: Path, source: str, names: list[str]) -> None:
    if source.endswith(".zip"):
        pack_folder(folder / "one", folder / source)
    output = run_command("data", "import", str(folder / source), "--name", "theirs")
    assert f"evaluation set of {count_noun(len(names), 'collection')}: " in output and "--suite theirs" in output
    assert [dataset.name for dataset in open_suite("theirs").datasets] == names
    imported, direct = (
        json.loads(run_command("evaluate", "--model", "bm25", "--suite", suite, "--json"))["metrics"]
        for suite in ("theirs", str(folder / source.removesuffix(".zip")))
    )
    assert list(imported.values()) == list(direct.values()) and imported["theirs/mean/ndcg_at_10"] > 0


def test_name_clash_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is read. A line contains the full name of the corpus, which still opens the corpus."""
    corpus = import_source(folder, name="theirs")
    assert describe_name_clash("theirs") == ""
    monkeypatch.chdir(folder.parent)
    (folder / "two").rename(folder / "three")
    lines: list[str] = []
    assert [dataset.name for dataset in open_suite("theirs", lines.append).datasets] == ["one", "three"]
    assert len(lines) == 1 and corpus.corpus in lines[0]
    assert [dataset.name for dataset in open_suite(corpus.corpus).datasets] == ["one", "two"]
    assert describe_name_clash(corpus.corpus) == describe_name_clash("./theirs") == ""
    folder.rename(folder.with_name("desk"))
    assert describe_name_clash("desk") != ""


def test_evaluation_sets_cannot_be_trained_on(folder: Path) -> None:
    """Neither can a folder whose pairs are all evaluated."""
    corpus = import_source(folder / "one", name="theirs")
    assert find_imported("theirs").only_evaluates
    for action in (
        lambda: run_command("data", "plan", "theirs"),
        lambda: run_command("data", "show", "theirs"),
        lambda: check_available([base("smoke", corpus=corpus.corpus, suite="theirs")]),
        lambda: import_source(folder / "two", name="more", hold_out=["x"]),
    ):
        with pytest.raises(ValueError, match="to train on"):
            action()
    check_available([base("smoke", suite="theirs", corpus="planted-tiny")])
    write_beir_folder(folder / "two", make_things(), split="train")
    with pytest.raises(ValueError, match="has no pair"):
        import_source(folder / "two", name="pairs")


@pytest.mark.parametrize("option", ["--from-words", "--skip-bad", "--allow-unknown", "--scale=desk"])
def test_training_options_are_refused(folder: Path, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option.partition('=')[0]}: .* leave it out"):
        run_command("data", "import", str(folder), "--name", "theirs", option)
    with pytest.raises(ValueError, match="no corpus"):
        find_imported("theirs")
