"""Runs as models: impossible requests are refused before a training run starts."""

from pathlib import Path

import pytest

from repro.spec.identity import run_id
from repro.spec.registry import find_experiment
from tests.commands import run_command

# A published biencoder. Its record has the training time, its weights are not published.
PLAIN = "014b857533ba"
# A published contextual model.
CONTEXTUAL = "5d70dcf65e38"
# A contextual model without a null context, and BM25.
WITHOUT_NULL = next(run_id(run) for run in find_experiment("ablations").runs("smoke") if run.sequence_dropout == 0)
LEXICAL = next(run_id(run) for run in find_experiment("table1").runs("smoke") if run.architecture == "bm25")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"evaluate --model {WITHOUT_NULL} --suite planted --context null", "sequence_dropout=0"),
        (f"evaluate --model {LEXICAL} --suite planted --language german", "--language german"),
        (f"evaluate --model {PLAIN} --suite scifact", "unknown suite 'scifact'"),
        (f"evaluate --model {PLAIN} --suite data/scifact", "data/scifact: no such"),
        ("export full out", "full is no model"),
        (f"export {PLAIN} full", "is not empty"),
        (f"adapt {PLAIN} --corpus full --to full", "is not empty"),
        (f"adapt {CONTEXTUAL} --corpus planted --to out", "contextual"),
    ],
)
def test_impossible_requests_train_nothing(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("repro.train.trainer.trained_model", None)
    monkeypatch.chdir(tmp_path)
    Path("full", "below").mkdir(parents=True)
    # other people's files are not searched for weights
    Path("full", "below", "pytorch_model.bin").touch()
    with pytest.raises(ValueError, match=message):
        run_command(*words.split())
