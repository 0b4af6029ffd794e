"""The three commands of the README at smoke scale: an import, its runs and an export."""

import json
import re
from pathlib import Path

import pytest

from repro.evaluate.retrieval import read_run
from repro.storage.paths import CHECKOUT
from tests.commands import run_command
from tests.data.files import make_repairs, write_rows
from tests.interop.small import evaluate, open_folder

SYSTEMS = ("your biencoder", "your contextual", "BM25", "off-the-shelf MiniLM", "off-the-shelf MiniLM, whitened")


def test_commands_of_the_readme_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs end with a summary of five systems. The export opens with the card of its run. An evaluation repeats scores."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "out"))
    write_rows(Path("pairs.jsonl"), make_repairs(600))
    block = re.search(r"<!-- walk -->\s*```\n(.*?)```", (CHECKOUT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    data, trained, export = (line.removeprefix("python -m repro ").split() for line in block[1].strip().splitlines())
    run = re.findall(r"([0-9a-f]{12})  contextual", run_command(*data, "--scale", "smoke"))[0]
    output = run_command(*(word.replace("-mini2", "-smoke") for word in trained))
    assert "4 of 4 runs have ended" in output and "Deploy " in output
    assert all(f"  {name} " in output for name in SYSTEMS)
    record = json.loads(Path("out", "records", f"{run}.json").read_text())
    assert {"mine/mean/ndcg_at_10", "mine+null/mean/ndcg_at_10"} <= set(record["metrics"])
    assert record["run"]["corpus"].startswith("mine@") and record["run"]["suite"] == "mine"

    run_command(*(word.replace("RUN", run) for word in export))
    card = Path("mine-for-others", "README.md").read_text()
    assert run in card and f"{100 * record['metrics']['mine/mean/ndcg_at_10']:.1f}" in card
    assert record["run"]["corpus"] in card and "95 %" in card and "## Limits" in card
    assert f"weights of step {record['provenance']['training']['kept_weights']['step']};" in card
    vectors = open_folder(Path("mine-for-others")).encode(["a question"], prompt_name="document", context=["a text"])
    assert vectors.shape == (1, 32)

    result = evaluate("--model", run, "--context", "own", "--context", "null", "--bm25", suite="mine")
    for name, value in result["metrics"].items():
        assert record["metrics"][name] == pytest.approx(value, abs=1e-6), name
    files = sorted(Path("out", "evaluations").glob("*/trec/**/*.trec.gz"))
    assert len(files) == 2 and len(read_run(files[0])) > 0
    assert result["provenance"]["model"]["run"] == run and result["provenance"]["asked"]["context_seed"] == 0
