"""Promises to whoever names a run as a model: what it cannot do is said before it is trained, and what it takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from repro.cli.main import app
from repro.execute import execute
from repro.interop import named_runs, opening
from repro.interop.named_runs import format_training_line, run_named
from repro.interop.typed import check_export
from repro.records.lookup import resolve_runs
from repro.spec import Run, base
from repro.spec.identity import get_training_id, run_id
from repro.spec.registry import find_experiment
from repro.storage.paths import run_folder

PLAIN = "014b857533ba"
"""A published biencoder: its record has how long it took, its weights are nowhere."""

CONTEXTUAL = "5d70dcf65e38"
"""A published contextual model."""

SMOKE = run_id(next(run for run in find_experiment("table1").runs("smoke") if run.architecture == "contextual"))
"""A contextual model with fewer soft prompts than the authors' format holds, on a corpus that is built in no time."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "home"))


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that is begun fails the test."""

    def begun(*args: object) -> None:
        raise AssertionError("a training was begun")

    monkeypatch.setattr("repro.train.trainer.trained_model", begun)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["evaluate", "--model", PLAIN, "--suite", "planted", "--context", "null"], "has no context"),
        (["export", SMOKE, "x", "--to", "official"], "--to transformers or --to sentence-transformers takes it"),
        (["export", PLAIN, "x", "--to", "transformers", "--width", "8"], "--width=8 with --to transformers"),
    ],
)
def test_impossible_requests_start_no_training(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ValueError) and says in str(done.exception)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["export", PLAIN, ".", "--to", "transformers"], "is the folder you are in"),
        (["export", PLAIN, "FULL", "--to", "transformers"], "is there and not empty"),
        (["export", PLAIN, "x", "--to", "onnx"], "unknown format 'onnx'"),
        (["export", "nothere", "x", "--to", "transformers"], "no model 'nothere'"),
        (["evaluate", "--model", "nothere", "--suite", "planted"], "no model 'nothere'"),
        (["evaluate", "--compare", "bm25", "nothere", "--suite", "planted"], "no model 'nothere'"),
        (["evaluate", "--model", "bm25", "--suite", "no/where"], "--suite no/where: there is no such folder"),
    ],
)
def test_wrong_words_are_refused_before_imports(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opening_is_told(line: str) -> None:  # the last thing before the imports
        raise AssertionError(line)

    monkeypatch.setattr("repro.cli.evaluate_export.tell", opening_is_told)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = CliRunner().invoke(app, [str(tmp_path / "full") if word == "FULL" else word for word in words])
    assert isinstance(done.exception, ValueError) and says in str(done.exception)


def test_words_are_checked_without_torch() -> None:
    code = "import sys, repro.cli.main, repro.interop.typed; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_unique_prefix_names_a_run() -> None:
    (found,) = resolve_runs([CONTEXTUAL], "desk")
    for beginning in (CONTEXTUAL, CONTEXTUAL[:6], CONTEXTUAL[:5]):
        assert resolve_runs([beginning], "desk") == [found] == [run_named(beginning)]
    for ask in (lambda: resolve_runs(["0"], "desk"), lambda: run_named("0")):
        with pytest.raises(ValueError, match="run '0': it begins the ids of"):
            ask()


def test_training_is_announced_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads((opening_records() / f"{PLAIN}.json").read_text())["provenance"]["training"]
    said: list[str] = []
    monkeypatch.setattr("repro.train.trainer.trained_model", lambda run, progress: said.append("training"))
    opening.open_model(PLAIN, progress=said.append)
    assert len(said) == 2 and said[1] == "training" and f"training {told['num_steps']} steps" in said[0]
    assert "not published" in said[0] and f"about {told['seconds'] / 60:.0f} min" in said[0]


def opening_records() -> Path:
    (found,) = [folder() for folder in named_runs.RECORDS if (folder() / f"{PLAIN}.json").is_file()]
    return found


def test_ended_training_is_not_announced() -> None:
    run = base("smoke", corpus="planted", suite="planted", num_steps=4)
    assert "training 4 steps" in (format_training_line(run) or "") and "not here" in (format_training_line(run) or "")
    execute(run, progress=lambda line: None)
    assert format_training_line(run) is None
    checkpoint_of(run).write_bytes(b"damaged")
    assert "training 4 steps" in (format_training_line(run) or "")


def checkpoint_of(run: Run) -> Path:
    (found,) = run_folder(get_training_id(run)).glob("checkpoint.safetensors")
    return found


def test_unwritable_export_folder_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (locked := tmp_path / "locked").mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != locked and real(path, mode))
    with pytest.raises(ValueError, match=r"cannot be made: .*locked cannot be written to; name a folder elsewhere"):
        check_export("nobody/nothing", locked / "a" / "b", "transformers")
    (locked / "there").mkdir()  # it is empty, and would be replaced
    with pytest.raises(ValueError, match="locked cannot be written to"):
        check_export("nobody/nothing", locked / "there", "transformers")
    monkeypatch.setenv("REPRO_HOME", str(locked))
    with pytest.raises(ValueError, match=r"locked.* cannot be written to"):
        check_export(PLAIN, tmp_path / "out", "transformers")
