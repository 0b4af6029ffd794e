"""Runs as models: impossible requests are refused before a training run starts, and training is announced."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Never

import pytest

from repro.execute import execute
from repro.interop import named_runs, opening
from repro.interop.named_runs import find_named_run, format_training_line
from repro.records.lookup import resolve_runs
from repro.spec import base
from repro.spec.identity import get_training_id, run_id
from repro.spec.registry import find_experiment
from repro.storage.paths import run_folder
from repro.train.checkpoint import CHECKPOINT_FILE
from tests.commands import ignore, run_command

# A published biencoder. Its record has the training time, its weights are not published.
PLAIN = "014b857533ba"
# A published contextual model.
CONTEXTUAL = "5d70dcf65e38"
# A contextual model on a small corpus, with fewer soft prompts than the authors' format holds.
SMOKE = run_id(next(run for run in find_experiment("table1").runs("smoke") if run.architecture == "contextual"))
# Contextual models that are not trained: one without documents, and one without a null context.
BLIND, WITHOUT_NULL = (
    run_id(next(run for run in find_experiment(name).runs("smoke") if run.sequence_dropout == dropout))
    for name, dropout in (("context_blind", 1), ("ablations", 0))
)


def refuse(*arguments: object) -> Never:
    """Fail the test if something is trained or opened."""
    raise AssertionError(arguments)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"evaluate --model {PLAIN} --suite planted --context null", "has no context"),
        (f"evaluate --model {BLIND} --suite planted --context wrong", "without documents.* leave out --context"),
        (f"evaluate --compare {PLAIN} {BLIND} --suite planted --context own --context wrong", "without documents"),
        (f"search {BLIND} x --corpus planted --context own", "without documents.*: leave out --context$"),
        (f"search {WITHOUT_NULL} x --corpus planted --context null", "--context null: .*sequence_dropout=0"),
    ],
)
def test_impossible_requests_train_nothing(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused folders are in test_evaluating.py. tests/cli/test_words_typed.py has refusals before torch is imported."""
    monkeypatch.setattr("repro.train.trainer.trained_model", refuse)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        run_command(*words.split())


def test_words_are_checked_without_torch() -> None:
    code = "import sys, repro.cli.main, repro.interop.arguments; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_unique_prefix_names_a_run() -> None:
    runs = resolve_runs([CONTEXTUAL], "desk")
    for prefix in (CONTEXTUAL, CONTEXTUAL[:6], CONTEXTUAL[:5]):
        assert resolve_runs([prefix], "desk") == runs == [find_named_run(prefix)]
    for resolve in (lambda: resolve_runs(["0"], "desk"), lambda: find_named_run("0")):
        with pytest.raises(ValueError, match="run '0': it begins the ids of"):
            resolve()


def test_training_is_announced_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    (folder,) = [folder() for folder in named_runs.RECORDS if (folder() / f"{PLAIN}.json").is_file()]
    training = json.loads((folder / f"{PLAIN}.json").read_text())["provenance"]["training"]
    lines: list[str] = []
    monkeypatch.setattr("repro.train.trainer.trained_model", lambda run, progress: lines.append("trained"))
    opening.open_model(PLAIN, progress=lines.append)
    line, end = lines
    assert f"training {training['num_steps']} steps" in line and f"about {training['seconds'] / 60:.0f} min" in line
    assert "not published" in line and end == "trained"


def test_finished_training_is_not_announced() -> None:
    run = base("smoke", corpus="planted", suite="planted", num_steps=4)
    line = format_training_line(run) or ""
    assert "training 4 steps" in line and "not here" in line
    execute(run, progress=ignore)
    assert format_training_line(run) is None
    (run_folder(get_training_id(run)) / CHECKPOINT_FILE).write_bytes(b"damaged")
    assert "training 4 steps" in (format_training_line(run) or "")
