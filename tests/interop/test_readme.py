"""The code blocks of repro/interop/README.md run unchanged, and that of docs/PYTHON.md at a smaller scale."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.api import train
from repro.data.beir import write_beir_folder
from repro.evaluate.mteb.task import retrieval_task
from repro.records.lookup import read_runs
from repro.storage.lease import has_succeeded
from repro.storage.paths import CHECKOUT
from slurm.job import get_run_item
from tests.data.files import make_repairs, write_rows
from tests.interop.checkpoints import write_usable_checkpoint
from tests.interop.small import make_things

pytestmark = pytest.mark.filterwarnings("ignore")
PAGE = CHECKOUT / "repro" / "interop" / "README.md"
PYTHON_PAGE = CHECKOUT / "docs" / "PYTHON.md"


def run_blocks(blocks: list[str]) -> dict:
    """Run the blocks in order, with the objects that the page mentions. Return the names that they define."""
    data = make_things()
    names = {
        "corpus": data.documents,
        "queries": data.queries,
        "documents": data.documents,
        "task": retrieval_task(data),
    }
    for block in blocks:
        exec(block, names)
        if "scores" in names:
            assert names.pop("scores").shape == (12, 12)
    return names


def test_code_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The authors' checkpoint is a tiny one with random weights."""
    monkeypatch.chdir(tmp_path)
    write_usable_checkpoint(Path("cde-small-v1"))
    write_rows(Path("pairs.jsonl"), make_repairs(200))
    write_beir_folder(Path("things"), make_things())
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = run_blocks(blocks)
    assert len(blocks) == 7 and names["vectors"].shape == (12, 16)
    gradients = [weight.grad for weight in names["own"].first_stage_model.parameters()]
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients), (
        "the loop also trains the first stage"
    )
    assert len(read_runs(Path("rates.json"))) == 6
    np.testing.assert_allclose(names["again"], names["vectors"], atol=1e-6)
    assert 0 < names["ndcg"]["NDCG@10"] <= 1
    assert not names["results"].exceptions and list(Path("results").rglob("things-*.json"))
    assert "200 pairs read, 200 kept" in capsys.readouterr().out


def test_python_page_trains_and_evaluates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of `evaluate` are those of the record. `train` holds the lease of its run, and trains it once."""
    monkeypatch.chdir(tmp_path)
    rows = make_repairs(300)
    write_rows(Path("pairs.jsonl"), rows)
    (block,) = re.findall(r"```python\n(.*?)```", PYTHON_PAGE.read_text(), re.DOTALL)
    assert len(block.splitlines()) <= 15
    names: dict[str, Any] = {}
    exec(block.replace('"mini2"', '"smoke"'), names)
    trained = names["trained"]
    for path, value in names["result"].metrics.items():
        assert value == pytest.approx(trained.record.metrics[path], abs=1e-6), path
    assert names["scores"].shape == (1, 300) and (trained.folder / "README.md").is_file()
    assert has_succeeded(get_run_item(trained.record.run).lease_folder)
    monkeypatch.setattr("repro.train.trainer.train_run", None)
    again = train("mine", scale="smoke")
    vectors = [
        model.encode_document(rows[0]["document"], context=names["documents"]) for model in (again.model, trained.model)
    ]
    np.testing.assert_allclose(*vectors, atol=1e-6)
