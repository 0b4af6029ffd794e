"""The three commands of the README at smoke scale: an import, its runs and an export."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from repro.evaluate.retrieval import read_run
from repro.storage.paths import CHECKOUT
from tests.commands import run_command
from tests.interop.small import open_folder

THINGS = ("kettle", "lamp", "radio", "bicycle", "printer")


@dataclass(frozen=True)
class Walk:
    """The folder of the commands, what they printed, and the id and record of the contextual run."""

    folder: Path
    outputs: list[str]
    run: str
    record: dict[str, Any]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """The three commands, run in a new folder with a corpus."""
    folder, outputs, run = tmp_path_factory.mktemp("walk"), [], ""
    rows = [
        {
            "query": f"how do I repair {THINGS[n % 5]} model {n}",
            "document": f"The {THINGS[n % 5]} {n} is repaired with part {7 * n} and some care.",
            "domain": THINGS[n % 5],
        }
        for n in range(600)
    ]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    block = re.search(r"<!-- walk -->\s*```\n(.*?)```", (CHECKOUT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    lines = block[1].strip().splitlines()
    assert len(lines) == 3 and all(line.startswith("python -m repro ") for line in lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("REPRO_HOME", str(folder / "out"))
        for line in lines:
            words = line.replace("-mini", "-smoke").replace("RUN", run).split()[3:]
            outputs.append(run_command(*words, *(["--scale", "smoke"] if words[0] == "data" else [])))
            match = re.search(r"([0-9a-f]{12})  contextual", outputs[-1])
            run = match[1] if match else run
    return Walk(folder, outputs, run, json.loads((folder / "out" / "records" / f"{run}.json").read_text()))


def test_run_trains_and_compares_models(walk: Walk) -> None:
    """It ends with a chart of five systems and the one to deploy."""
    output, record = walk.outputs[1], walk.record
    assert "4 of 4 runs have ended" in output and output.count("●") == 5 and "Deploy " in output
    for name in ("your biencoder", "your contextual", "BM25", "off-the-shelf MiniLM", "off-the-shelf MiniLM, whitened"):
        assert f"  {name} " in output, name
    assert [row["name"] for row in record["provenance"]["suite"]["datasets"]] == ["all"]
    assert {"mine/mean/ndcg_at_10", "mine+null/mean/ndcg_at_10"} <= set(record["metrics"])
    assert record["run"]["corpus"].startswith("mine@") and record["run"]["suite"] == "mine"


def test_export_opens_with_its_card(walk: Walk) -> None:
    """The card has the run, its score, and the step of the kept weights."""
    card = (walk.folder / "mine-for-others" / "README.md").read_text()
    assert walk.run in card and f"{100 * walk.record['metrics']['mine/mean/ndcg_at_10']:.1f}" in card
    assert walk.record["run"]["corpus"] in card and "95 %" in card and "## Limits" in card
    assert f"weights of step {walk.record['provenance']['training']['kept_weights']['step']};" in card
    theirs = open_folder(walk.folder / "mine-for-others")
    assert theirs.encode(["a question"], prompt_name="document", context=["a text"]).shape == (1, 32)


def test_second_evaluation_repeats_scores(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(walk.folder)
    monkeypatch.setenv("REPRO_HOME", str(walk.folder / "out"))
    words = ("evaluate", "--model", walk.run, "--suite", "mine", "--json", "--context", "own", "--context", "null")
    result = json.loads(run_command(*words))
    for name, value in result["metrics"].items():
        assert walk.record["metrics"][name] == pytest.approx(value, abs=1e-6), name
    files = sorted(Path("out", "evaluations").glob("*/trec/**/*.trec.gz"))
    assert len(files) == 2 and len(read_run(files[0])) > 0
    assert result["provenance"]["model"]["run"] == walk.run and result["provenance"]["asked"]["context_seed"] == 0
