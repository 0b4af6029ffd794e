"""The code blocks of repro/interop/README.md run unchanged."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import repro.interop
from repro.data.beir import write_beir_folder
from repro.evaluate.mteb.task import retrieval_task
from repro.records.lookup import read_runs
from tests.interop.checkpoints import write_usable_checkpoint
from tests.interop.small import make_things

pytestmark = pytest.mark.filterwarnings("ignore")
PAGE = Path(repro.interop.__file__).parent / "README.md"


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
    rows = [json.dumps({"query": f"question {n}", "document": f"answer {n}"}) for n in range(200)]
    Path("pairs.jsonl").write_text("\n".join(rows))
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
