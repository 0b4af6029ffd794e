"""Runs as models: impossible requests are refused before a training run starts, and training is announced."""

from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest

from repro.interop import opening
from repro.interop.opening import find_named_run
from repro.records.lookup import resolve_runs
from repro.records.store import Record
from repro.report.scores import find_records
from repro.spec.identity import run_id
from repro.spec.registry import find_experiment
from tests.commands import run_command

# A published biencoder. Its record has the training time, its weights are not published.
PLAIN = "014b857533ba"
# A published contextual model.
CONTEXTUAL = "5d70dcf65e38"
# Contextual models that are not trained: one without documents, and one without a null context.
BLIND, WITHOUT_NULL = (
    run_id(next(run for run in find_experiment(name).runs("smoke") if run.sequence_dropout == dropout))
    for name, dropout in (("context_blind", 1), ("ablations", 0))
)

LEXICAL = next(run_id(run) for run in find_experiment("table1").runs("smoke") if run.architecture == "bm25")


def refuse(*arguments: object) -> Never:
    """Fail the test if something is trained or opened."""
    raise AssertionError(arguments)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"evaluate --model {PLAIN} --suite planted --context null", "--context"),
        (f"evaluate --model {WITHOUT_NULL} --suite planted --context null", "sequence_dropout=0"),
        (f"evaluate --compare {PLAIN} {BLIND} --suite planted --context own --context wrong", "--context"),
        (f"evaluate --model {PLAIN} --suite planted --revision main", "only hub ids have revisions"),
        (f"evaluate --model {LEXICAL} --suite planted --language german", "--language german"),
        (f"evaluate --model {PLAIN} --suite full", "full has no suite.json"),
        (f"evaluate --model {PLAIN} --suite no/where", "no/where"),
        (f"evaluate --model {PLAIN} --suite scifact", "unknown suite 'scifact'"),
        (f"export {PLAIN} .", "is the current folder"),
        (f"export {PLAIN} full", "is not empty"),
        (f"adapt {PLAIN} --corpus full --to full", "is not empty"),
        (f"adapt {CONTEXTUAL} --corpus planted --to out", "contextual"),
    ],
)
def test_impossible_requests_train_nothing(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("repro.train.trainer.trained_model", refuse)
    monkeypatch.chdir(tmp_path)
    Path("full").mkdir()
    Path("full", "file").touch()
    with pytest.raises(ValueError, match=message):
        run_command(*words.split())


def test_unique_prefix_names_a_run() -> None:
    runs = resolve_runs([CONTEXTUAL], "desk")
    for prefix in (CONTEXTUAL, CONTEXTUAL[:5]):
        assert resolve_runs([prefix], "desk") == runs == [find_named_run(prefix)]
    with pytest.raises(ValueError, match="run '0': it begins the ids of"):
        find_named_run("0")


def test_training_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line has the time of the record."""
    lines: list[str] = []
    monkeypatch.setattr("repro.train.trainer.trained_model", lambda run, progress: lines.append("trained"))
    opening.open_model(PLAIN, progress=lines.append)
    (record,) = find_records(resolve_runs([PLAIN], "desk"))
    assert f"{record.provenance['training']['seconds'] / 60:.0f} min" in lines[0] and lines[1:] == ["trained"]


def test_finished_epochs_are_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the record of a run in epochs has its number of steps."""
    run = replace(resolve_runs([PLAIN], "desk")[0], num_steps=None, num_epochs=1)
    record = Record(run_id(run), run, {}, {"training": {"num_steps": 30}}, Path("nowhere.json"))
    monkeypatch.setattr(opening, "find_named_run", lambda source: run)
    monkeypatch.setattr(opening, "find_records", lambda runs: [record])
    monkeypatch.setattr("repro.train.trainer.trained_model", lambda run, progress: None)
    for step, num_lines in ((29, 1), (30, 0)):
        lines: list[str] = []
        monkeypatch.setattr("repro.train.checkpoint.read_checkpoint_step", lambda folder, step=step: step)
        opening.open_model("run", progress=lines.append)
        assert len(lines) == num_lines
