"""Promise of the pages on ways in and out: each of their blocks runs as it stands."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import repro.interop
from repro.data.beir import write_beir_folder
from repro.evaluate.mteb.task import retrieval_task
from repro.records.lookup import read_runs
from tests.interop.checkpoints import random_weights, write_checkpoint
from tests.interop.test_mteb import collection

INTEROP = Path(repro.interop.__file__).parent / "README.md"


def blocks_of(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def run_blocks(blocks: list[str]) -> dict:
    """Run blocks one after another with the objects that the pages mention, and return their names."""
    data = collection()
    given = {
        "corpus": data.documents,
        "queries": data.queries,
        "documents": data.documents,
        "task": retrieval_task(data),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in blocks:
            exec(block, given)
            if "scores" in given:
                assert given.pop("scores").shape == (12, 12)
    return given


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the authors' format in it, as a tiny checkpoint with random weights."""
    monkeypatch.chdir(tmp_path)
    write_checkpoint(Path("cde-small-v1"), weights=random_weights("nomic", words=30528), base={"vocab_size": 30528})


@pytest.mark.usefixtures("here")
def test_the_blocks_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.dumps({"query": f"question {n}", "document": f"answer {n}"}) for n in range(200)]
    Path("pairs.jsonl").write_text("\n".join(rows))
    write_beir_folder(Path("things"), collection())
    planned = Path("out/corpora/mine/mine-mini.json")
    planned.parent.mkdir(parents=True)
    planned.write_text(json.dumps([{"scale": "smoke", "corpus": "mine", "suite": "mine"}]))
    blocks = blocks_of(INTEROP)
    given = run_blocks(blocks)
    assert len(blocks) == 7 and given["vectors"].shape == (12, 16)
    gradients = [weight.grad for weight in given["own"].first_stage_model.parameters()]
    assert any(one is not None and one.abs().sum() > 0 for one in gradients), "the loop trains the first stage, too"
    assert len(read_runs(Path("rates.json"))) == 6
    np.testing.assert_allclose(given["again"], given["vectors"], atol=1e-6)
    assert 0 < given["ndcg"]["NDCG@10"] <= 1
    assert not given["results"].exceptions and list(Path("results").rglob("things-*.json"))
    assert "200 {" in capsys.readouterr().out
