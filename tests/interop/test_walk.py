"""The walk of the front page, typed as it stands there but at smoke size, and what is behind each of its commands."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from repro.cli.main import app
from repro.data.beir import write_beir_folder
from repro.evaluate.retrieval import read_run
from repro.interop.sentence_transformers_folder import open_sentence_transformers
from tests.interop.checkpoints import random_weights, write_checkpoint
from tests.interop.test_mteb import collection

ROOT = Path(__file__).resolve().parents[2]
THINGS = ("kettle", "lamp", "radio", "bicycle", "printer")


class Desk:
    """A fresh working folder with a corpus in it, and a hand that types commands there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = [
            {
                "query": f"how do I repair {THINGS[n % 5]} model {n}",
                "document": f"The {THINGS[n % 5]} {n} is repaired with part {7 * n} and some care.",
                "domain": THINGS[n % 5],
            }
            for n in range(1500)
        ]
        (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m repro …`."""
        environment = {
            **os.environ,
            "REPRO_HOME": str(self.folder / "out"),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }
        command = [sys.executable, "-m", "repro", *words]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, env=environment, timeout=900, check=False
        )


Walked = tuple[Desk, list[subprocess.CompletedProcess[str]], str]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Walked:
    """The three commands, done; and the id of the contextual run."""
    desk, done, run = Desk(tmp_path_factory.mktemp("walk")), [], ""
    walk = re.search(r"<!-- walk -->\s*```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert walk is not None
    lines = walk[1].strip().splitlines()
    assert len(lines) == 3 and all(line.startswith("python -m repro ") for line in lines)
    for line in lines:
        words = line.replace("-mini", "-smoke").replace("RUN", run).split()[3:]
        words += ["--scale", "smoke"] if words[:2] == ["data", "import"] else []
        done.append(desk.type(*words))
        assert done[-1].returncode == 0, done[-1].stderr
        found = re.search(r"([0-9a-f]{12})  contextual", done[-1].stdout)
        run = found[1] if found else run
    return desk, done, run


def test_import_reports_its_findings(walked: Walked) -> None:
    _, (imported, _, _), run = walked
    assert "1500 pairs read, 1500 kept, 5 domains" in imported.stdout
    assert f"repro evaluate --model {run} --suite mine" in imported.stdout
    assert "mine-smoke.json" in imported.stdout


def test_run_trains_and_compares_models(walked: Walked) -> None:
    desk, (_, ran, _), run = walked
    assert "4 of 4 runs have ended" in ran.stdout
    assert all(word in ran.stdout for word in ("your biencoder", "your contextual", "BM25", "MiniLM as it is"))
    record = json.loads((desk.folder / "out" / "records" / f"{run}.json").read_text())
    assert [row["name"] for row in record["provenance"]["suite"]["datasets"]] == ["all"]
    assert {"mine/mean/ndcg_at_10", "mine+null/mean/ndcg_at_10"} <= set(record["metrics"])
    assert record["run"]["corpus"].startswith("mine@") and record["run"]["suite"] == "mine"


def test_export_opens_with_its_card(walked: Walked) -> None:
    desk, _, run = walked
    card = (desk.folder / "mine-for-others" / "README.md").read_text()
    record = json.loads((desk.folder / "out" / "records" / f"{run}.json").read_text())
    assert run in card and f"{100 * record['metrics']['mine/mean/ndcg_at_10']:.1f}" in card
    assert record["run"]["corpus"] in card and "95 %" in card and "## Limits" in card
    theirs = open_sentence_transformers(desk.folder / "mine-for-others")
    with pytest.warns(UserWarning, match="context"):
        assert theirs.encode(["a question"], prompt_name="document").shape == (1, 32)
    assert theirs.encode(["a question"], prompt_name="document", context=["a text"]).shape == (1, 32)


@pytest.fixture
def call(walked: Walked, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command in this process, in the folder of the walk."""
    desk, _, run = walked
    monkeypatch.chdir(desk.folder)
    monkeypatch.setenv("REPRO_HOME", str(desk.folder / "out"))

    def typed(*words: str) -> Result:
        return CliRunner().invoke(app, [run if word == "RUN" else word for word in words])

    return typed


def scores_of(result: Result) -> dict:
    """Return what `evaluate --json` printed."""
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)


def test_second_evaluation_repeats_scores(walked: Walked, call: Callable[..., Result]) -> None:
    desk, _, run = walked
    found = scores_of(
        call("evaluate", "--model", "RUN", "--suite", "mine", "--context", "own", "--context", "null", "--json")
    )
    record = json.loads((desk.folder / "out" / "records" / f"{run}.json").read_text())
    for name, value in found["metrics"].items():
        assert record["metrics"][name] == pytest.approx(value, abs=1e-6), name
    files = sorted((desk.folder / "out" / "evaluations").glob("*/trec/**/*.trec.gz"))
    assert len(files) == 2 and len(read_run(files[0])) > 0
    told = found["provenance"]
    assert told["model"]["run"] == run and told["model"]["weights"] and told["asked"]["context_seed"] == 0


def test_export_scores_like_its_run(call: Callable[..., Result]) -> None:
    ours, theirs = (
        scores_of(call("evaluate", "--model", model, "--suite", "mine", "--json"))["metrics"]
        for model in ("RUN", "mine-for-others")
    )
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_other_seed_draws_other_contexts(walked: Walked, call: Callable[..., Result]) -> None:
    desk, _, _ = walked
    write_beir_folder(desk.folder / "theirs", collection())
    words = ("evaluate", "--model", "RUN", "--suite", "theirs", "--json", "--context-seed")
    drawn = [scores_of(call(*words, seed))["provenance"]["suite"]["contexts"] for seed in "01"]
    assert drawn[0][0]["seed"] == 0 and drawn[0][0]["ids_sha256"] != drawn[1][0]["ids_sha256"]
    shown = call("evaluate", "--model", "RUN", "--suite", "theirs", "--context-seed", "1").stdout
    assert "drawn with seed 1" in shown and "NDCG@10" in shown


def test_official_checkpoint_is_evaluated(walked: Walked, call: Callable[..., Result]) -> None:
    desk, _, _ = walked
    write_beir_folder(desk.folder / "theirs", collection())
    weights = random_weights("nomic", words=30528)
    write_checkpoint(desk.folder / "cde-small-v1", weights=weights, base={"vocab_size": 30528})
    found = scores_of(call("evaluate", "--model", "cde-small-v1", "--suite", "theirs", "--context", "null", "--json"))
    assert set(found["provenance"]["suite"]["contexts"][0]) == {"dataset", "kind"}
    assert "theirs+null/mean/ndcg_at_10" in found["metrics"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["evaluate", "--model", "RUN", "--suite", "nowhere"], "unknown suite 'nowhere'; choose one of"),
        (["evaluate", "--model", "RUN", "--suite", "mine", "--context", "odd"], "unknown context ['odd']"),
        (["evaluate", "--model", "ffffffffffff", "--suite", "mine"], "no run is known by it"),
        (["export", "RUN", "mine-for-others", "--to", "transformers"], "nothing is overwritten"),
        (["export", "RUN", "x", "--to", "official"], "num_soft_prompts"),
        (["export", "RUN", "x", "--to", "onnx"], "unknown format 'onnx'"),
        (["data", "import", "pairs.jsonl", "--name", "mine"], "exists already"),
        (["data", "import", "pairs.jsonl", "--name", "desk"], "one of the project's own"),
        (["data", "import", "pairs.jsonl", "--name", "more", "--query", "frage"], "no column for the query"),
        (["data", "plan", "nothing"], "no corpus 'nothing' was imported here"),
    ],
)
def test_mistakes_are_one_line(call: Callable[..., Result], words: list[str], says: str) -> None:
    done = call(*words)
    assert isinstance(done.exception, ValueError) and says in str(done.exception)
    assert "\n" not in str(done.exception) and not Path("x").exists()


def test_launch_starts_nothing_twice(walked: Walked, call: Callable[..., Result]) -> None:
    desk, _, _ = walked
    assert call("launch", "out/corpora/mine/mine-smoke.json", "--scale", "smoke").exit_code == 0
    plan = call("plan", "out/corpora/mine/mine-smoke.json", "--json")
    assert json.loads(plan.stdout)["missing"] == []
    assert len(list((desk.folder / "out" / "records").glob("*.json"))) == 4
