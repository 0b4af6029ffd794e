"""The three commands of the README at smoke scale: an import, its runs and an export."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from repro.evaluate.retrieval import read_run
from repro.storage.paths import CHECKOUT
from tests.commands import run_command, run_module
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
    for line in lines:
        words = line.replace("-mini", "-smoke").replace("RUN", run).split()[2:]
        words += ["--scale", "smoke"] if words[1:3] == ["data", "import"] else []
        done = run_module(*words, folder=folder, REPRO_HOME=str(folder / "out"))
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
        match = re.search(r"([0-9a-f]{12})  contextual", done.stdout)
        run = match[1] if match else run
    return Walk(folder, outputs, run, json.loads((folder / "out" / "records" / f"{run}.json").read_text()))


def test_run_trains_and_compares_models(walk: Walk) -> None:
    output, record = walk.outputs[1], walk.record
    assert "4 of 4 runs have ended" in output
    assert all(name in output for name in ("your biencoder", "your contextual", "BM25", "off-the-shelf MiniLM"))
    assert [row["name"] for row in record["provenance"]["suite"]["datasets"]] == ["all"]
    assert {"mine/mean/ndcg_at_10", "mine+null/mean/ndcg_at_10"} <= set(record["metrics"])
    assert record["run"]["corpus"].startswith("mine@") and record["run"]["suite"] == "mine"


def test_export_opens_with_its_card(walk: Walk) -> None:
    card = (walk.folder / "mine-for-others" / "README.md").read_text()
    assert walk.run in card and f"{100 * walk.record['metrics']['mine/mean/ndcg_at_10']:.1f}" in card
    assert walk.record["run"]["corpus"] in card and "95 %" in card and "## Limits" in card
    theirs = open_folder(walk.folder / "mine-for-others")
    with pytest.warns(UserWarning, match="context"):
        assert theirs.encode(["a question"], prompt_name="document").shape == (1, 32)
    assert theirs.encode(["a question"], prompt_name="document", context=["a text"]).shape == (1, 32)


@pytest.fixture
def here(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """The walk, with its folder as the current one."""
    monkeypatch.chdir(walk.folder)
    monkeypatch.setenv("REPRO_HOME", str(walk.folder / "out"))
    return walk


def evaluate_json(model: str, suite: str, *words: str) -> dict[str, Any]:
    return json.loads(run_command("evaluate", "--model", model, "--suite", suite, "--json", *words))


def test_second_evaluation_repeats_scores(here: Walk) -> None:
    result = evaluate_json(here.run, "mine", "--context", "own", "--context", "null")
    for name, value in result["metrics"].items():
        assert here.record["metrics"][name] == pytest.approx(value, abs=1e-6), name
    files = sorted(Path("out", "evaluations").glob("*/trec/**/*.trec.gz"))
    assert len(files) == 2 and len(read_run(files[0])) > 0
    provenance = result["provenance"]
    assert provenance["model"]["run"] == here.run and provenance["model"]["weights"]
    assert provenance["asked"]["context_seed"] == 0
