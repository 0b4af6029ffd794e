"""Runs as models: impossible requests are refused before a training run starts, and training is announced."""

from pathlib import Path
from typing import Never

import pytest

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
        (f"evaluate --model {PLAIN} --suite scifact", "unknown suite 'scifact'"),
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
