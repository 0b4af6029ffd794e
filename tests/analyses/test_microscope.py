"""The microscope rebuilds a training batch without training: its pairs, removed texts, reasons and difficulty."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from repro.analyses.batch_text import BATCH_EXHIBIT, make_batch_exhibit
from repro.analyses.microscope import Explanation, Other, explain
from repro.batches.mask import compute_content_keys
from repro.batches.surrogate import Surrogate, load_surrogate
from repro.cli.main import app
from repro.data.pairs import Indices, Pairs, Side
from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.report.batch import make_explanation_views
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.storage.paths import run_folder
from repro.train.batch_view import BatchViewer
from repro.train.checkpoint import read_metrics
from repro.train.trainer import build_filter, build_sampler
from tests.commands import ignore

RUN = base("smoke", sampler="cluster", cluster_size=8, packing="greedy", filter="surrogate")
BATCH = 5


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose stages are built once for all tests."""
    return tmp_path_factory.mktemp("microscope")


@pytest.fixture(autouse=True)
def same_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_HOME", str(home))


def explain_batch(run: Run = RUN, batch: int = BATCH) -> Explanation:
    return explain(run, batch, progress=ignore)


def test_difficulty_needs_no_training() -> None:
    explained = explain_batch()
    assert not run_folder(run_id(RUN)).exists()
    assert explained.parts_are_from == "one rebuilt batch of each part"
    assert (explained.parts[0].first_batch, explained.parts[-1].last_batch) == (1, RUN.num_steps)
    sampler = build_sampler(Inputs(RUN))
    expected = [build_filter(Inputs(RUN))(sampler.at(part.first_batch - 1)).difficulty for part in explained.parts]
    assert [part.difficulty for part in explained.parts] == pytest.approx(expected, abs=1e-6)


def test_documents_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    explain_batch()  # builds the stages
    read, real = [], Pairs.texts

    def texts(self: Pairs, side: Side, rows: Indices) -> list[str]:
        read.extend(side for _ in rows)
        return real(self, side, rows)

    monkeypatch.setattr(Pairs, "texts", texts)
    assert read.count("document") == 0
    assert len(explain_batch().pairs) == RUN.batch_size == read.count("document") == read.count("query")


def test_hardest_negatives_match_brute_force() -> None:
    explained, inputs = explain_batch(), Inputs(RUN)
    rows = build_sampler(inputs).at(BATCH - 1)
    assert [pair.id for pair in explained.pairs] == inputs.pairs.ids(rows)
    scores = np.asarray(inputs.embeddings("query")[rows], np.float32) @ inputs.embeddings("document")[rows].T
    for place, pair in enumerate(explained.pairs):
        removed = {other.place - 1 for other in pair.removed}
        others = [n for n in np.argsort(-scores[place], kind="stable") if n != place and n not in removed]
        assert [other.place - 1 for other in pair.hardest] == others[:3]
        assert pair.score == pytest.approx(scores[place, place], abs=1e-6)
        assert pair.cluster == inputs.clusters.assignment_N[rows[place]]


@pytest.mark.parametrize("changes", [{}, {"filter": "none"}, {"filter_margin": -0.1}, {"num_hard_negatives": 2}])
def test_removed_texts_are_those_masked(changes: dict[str, object]) -> None:
    run = replace(RUN, **changes)
    explain_batch(run, 1)
    inputs = Inputs(run)
    judge, sampler = build_filter(inputs), build_sampler(inputs)
    for step in range(3):
        explained, masked_BM = explain_batch(run, step + 1), judge(sampler.at(step)).masked
        for place, pair in enumerate(explained.pairs):
            assert {other.place - 1 for other in pair.removed} == set(np.flatnonzero(masked_BM[place]))
            for other in pair.removed:
                is_same = len(set(compute_content_keys([pair.document, other.document]))) == 1
                assert other.why == ("the same text" if is_same else "as near as its own document, or nearer")
                assert is_same or other.score >= pair.score + run.filter_margin


def test_batch_matches_training_log() -> None:
    run = replace(RUN, seed=3)
    execute(run, progress=ignore)
    explained, log = explain_batch(run), read_metrics(run_folder(run_id(run)))
    assert explained.batch_hash == log[BATCH - 1]["batch"] and log[BATCH - 1]["step"] == BATCH
    assert explained.difficulty == pytest.approx(log[BATCH - 1]["difficulty"], abs=1e-6)
    assert explained.masked_fraction == pytest.approx(log[BATCH - 1]["masked_fraction"], abs=1e-6)
    assert explained.parts_are_from == "the training's log"
    assert np.mean([part.loss for part in explained.parts[:1]]) == pytest.approx(
        np.mean([line["loss"] for line in log[: explained.parts[0].last_batch]])
    )


@pytest.mark.parametrize("num_hard", [0, 2])
def test_removed_share_matches_the_log(num_hard: int) -> None:
    """The improved loss has four directions, and the share counts all of them."""
    run = replace(RUN, loss="icl", num_hard_negatives=num_hard, seed=5)
    before, (first, *_) = explain_batch(run, 1), explain_batch(run, 1).parts
    execute(run, progress=ignore)
    log = read_metrics(run_folder(run_id(run)))
    logged, after = log[0]["masked_fraction"], explain_batch(run, 1)
    assert before.parts_are_from == "one rebuilt batch of each part" and after.parts_are_from == "the training's log"
    assert 0 < logged < 1
    assert before.masked_fraction == after.masked_fraction == pytest.approx(logged, abs=1e-6)
    assert first.masked_fraction == pytest.approx(logged, abs=1e-6)


def test_runs_without_vectors_are_explained() -> None:
    plain = base("smoke", sampler="random")
    explained = explain_batch(plain)
    assert explained.pairs[0].cluster is None and Inputs(plain).embeddings("query") is None
    stored, rows = Inputs(RUN), build_sampler(Inputs(plain)).at(BATCH - 1)
    fresh = BatchViewer(Inputs(plain), always_scores=True)(rows)
    assert fresh.scores_BM == pytest.approx(BatchViewer(stored)(rows).scores_BM, abs=5e-3)
    assert BatchViewer(Inputs(plain))(rows).scores_BM is None


def test_surrogate_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str) -> Surrogate:
        loaded.append(name)
        return load_surrogate(name)

    monkeypatch.setattr("repro.batches.fixed_encoder.load_surrogate", load)
    explain_batch(base("smoke", sampler="random"))
    assert loaded == [RUN.surrogate]


def test_missing_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="batch 13: this training has batches 1 to 12"):
        explain_batch(batch=13)
    with pytest.raises(ValueError, match="has no batches"):
        explain(base("smoke", architecture="bm25"), 1, progress=ignore)


def test_explanation_becomes_tables_and_rows() -> None:
    explained = explain_batch()
    overview, clusters, pairs, parts = make_explanation_views(explained, num_pairs=2)
    assert ("run", run_id(RUN)) in overview.rows
    assert sum(int(row[2]) for row in clusters.rows) == RUN.batch_size
    assert [row[0] for row in pairs.rows if row[1] == "query"] == ["1", "2"] and "14 more pairs" in pairs.notes[0]
    assert len(parts.rows) == len(explained.parts)
    rows = make_batch_exhibit(explained)
    assert BATCH_EXHIBIT == "batch" and len(rows) == RUN.batch_size and json.dumps(rows)
    for row, pair in zip(rows, explained.pairs, strict=True):
        assert row["pair"] == pair.place and (row["removed"] == "–") == (not pair.removed)
        assert all(f"{other.place} ({other.score:.3f})" in str(row["hardest"]) for other in pair.hardest)
    one = Other(place=3, document="d", score=0.5, why="same text")
    many = [replace(one, place=place, why="nearer") for place in range(1, 8)]
    crowded = replace(explained, pairs=(replace(explained.pairs[0], removed=(one, *many)),))
    (row,) = make_batch_exhibit(crowded)
    assert row["removed"] == ("same text: 3 (0.500); nearer: 1 (0.500), 2 (0.500), 3 (0.500), 4 (0.500) and 3 more")


def test_explain_batch_finds_its_run(home: Path) -> None:
    """The command finds a run by its values or by the start of its id."""

    def repro(*words: str) -> Result:
        return CliRunner().invoke(app, ["explain-batch", *words], env={"COLUMNS": "200"})

    query = ("table1", "--scale", "smoke", "--where", "sampler=cluster", "--where", "architecture=biencoder")
    done = repro(*query, "--batch", "2", "--json")
    explained = json.loads(done.stdout)
    assert done.exit_code == 0 and explained["batch"] == 2 and explained["run"] == run_id(RUN)
    shown = repro("--run", explained["run"][:10], "--batch", "2", "--pairs", "1")
    assert explained["batch_hash"] in shown.stdout and "Difficulty over the training" in shown.stdout
    for words, message in ((("--run", "zzz"), "no run is known by it"), ((), "which run?")):
        error = repro(*words).exception
        assert isinstance(error, ValueError) and message in str(error)
    message = str(repro("table1", "--scale", "smoke", "--where", "sampler=nope").exception)
    assert "--where sampler=nope: table1 at scale 'smoke' has sampler domain, cluster, random" in message
    assert "did you mean 'sampler'? expected field=value" in str(repro("table1", "--where", "samplr=x").exception)
