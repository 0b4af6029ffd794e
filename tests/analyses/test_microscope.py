"""The microscope rebuilds a training batch without training: its pairs, removed texts, reasons and difficulty."""

import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from repro.analyses.microscope import Explanation, explain
from repro.batches.mask import compute_content_keys
from repro.batches.surrogate import Surrogate, load_surrogate
from repro.cli.main import app
from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.spec import TRAINED, Run, base
from repro.spec.identity import run_id
from repro.spec.registry import find_experiment
from repro.storage.paths import run_folder
from repro.train.batch_view import BatchViewer
from repro.train.checkpoint import read_metrics
from repro.train.setup import build_filter, build_sampler
from tests.commands import ignore

pytestmark = pytest.mark.usefixtures("shared_home")
RUN = base("smoke", sampler="cluster", cluster_size=8, packing="greedy", filter="surrogate")
BATCH = 5


def explain_batch(run: Run = RUN, batch: int = BATCH) -> Explanation:
    return explain(run, batch, ignore)


def test_hardest_negatives_match_brute_force() -> None:
    explained, inputs = explain_batch(), Inputs(RUN)
    rows = build_sampler(inputs).at(BATCH - 1)
    assert [pair.query for pair in explained.pairs] == list(inputs.pairs.texts("query", rows))
    scores = np.asarray(inputs.embeddings("query")[rows], np.float32) @ inputs.embeddings("document")[rows].T
    for index, pair in enumerate(explained.pairs):
        excluded = {index, *(other.place - 1 for other in pair.removed)}
        others = [column for column in np.argsort(-scores[index], kind="stable") if column not in excluded]
        assert [other.place - 1 for other in pair.hardest] == others[:3]
        assert pair.score == pytest.approx(scores[index, index], abs=1e-6)
        assert pair.cluster == inputs.clusters.assignment_N[rows[index]]


@pytest.mark.parametrize(
    "changes", [{}, {"filter": "none"}, {"filter": "random"}, {"filter_margin": -0.1}, {"num_hard_negatives": 2}]
)
def test_removed_texts_are_those_masked(changes: dict[str, object]) -> None:
    run = replace(RUN, **changes)
    explained, judged = explain_batch(run), build_filter(Inputs(run))(build_sampler(Inputs(run)).at(BATCH - 1))
    near = "its score is at least" if run.filter_margin else "as near as its own document, or nearer"
    assert explained.difficulty == pytest.approx(judged.difficulty, abs=1e-6)
    for pair, masked_M in zip(explained.pairs, judged.masked, strict=True):
        assert {other.place - 1 for other in pair.removed} == set(np.flatnonzero(masked_M))
        for other in pair.removed:
            is_same = len(set(compute_content_keys([pair.document, other.document]))) == 1
            if run.filter == "random" and not is_same:
                assert other.why == "drawn at random"
                continue
            assert other.why.startswith("the same text" if is_same else near)
            assert is_same or other.score >= pair.score + run.filter_margin


def test_other_encoder_of_the_filter_is_named() -> None:
    """The reason for a removal has the scores of the encoder that decided, which is not the surrogate."""
    explained = explain_batch(replace(RUN, filter_model="minilm"))
    reasons = [other.why for pair in explained.pairs for other in pair.removed if "minilm" in other.why]
    scores = [tuple(map(float, re.findall(r"-?\d\.\d{3}", reason))) for reason in reasons]
    assert scores and all(other >= own for other, own in scores)


@pytest.mark.parametrize("changes", [{}, {"loss": "icl", "num_hard_negatives": 2}], ids=["infonce", "icl"])
def test_batch_matches_training_log(changes: dict[str, object]) -> None:
    """The improved loss has four directions, and the removed share counts all of them."""
    run = replace(RUN, seed=3, **changes)
    before = explain_batch(run)
    assert not run_folder(run_id(run)).exists()
    execute(run, progress=ignore)
    after, line = explain_batch(run), read_metrics(run_folder(run_id(run)))[BATCH - 1]
    assert before.batch_hash == after.batch_hash == line["batch"] and line["step"] == BATCH
    assert before.difficulty == after.difficulty == pytest.approx(line["difficulty"], abs=1e-6)
    assert before.masked_fraction == after.masked_fraction == pytest.approx(line["masked_fraction"], abs=1e-6)
    assert 0 < line["masked_fraction"] < 1


def test_batches_without_surrogate_are_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without a surrogate's vectors embeds the texts of the batch alone, with its surrogate."""
    names: list[str] = []

    def load(name: str) -> Surrogate:
        names.append(name)
        return load_surrogate(name)

    explain_batch()  # stores the vectors of RUN
    monkeypatch.setattr("repro.batches.fixed_encoder.load_surrogate", load)
    plain = base("smoke", sampler="random")
    assert explain_batch(plain).pairs[0].cluster is None and names == [RUN.surrogate]
    rows = build_sampler(Inputs(plain)).at(BATCH - 1)
    computed = BatchViewer(Inputs(plain), always_scores=True)(rows)
    assert computed.scores_BM == pytest.approx(BatchViewer(Inputs(RUN))(rows).scores_BM, abs=5e-3)
    assert BatchViewer(Inputs(plain))(rows).scores_BM is None


def test_missing_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="batches 1 to 12"):
        explain_batch(batch=13)
    with pytest.raises(ValueError, match="has no batches"):
        explain_batch(base("smoke", architecture="bm25"), 1)


def test_explain_batch_finds_its_run() -> None:
    """The command takes the start of a run's id, or an artefact for its first run with batches."""
    first = next(run for run in find_experiment("table1").runs("smoke") if run.architecture in TRAINED)
    for run, words in ((RUN, [run_id(RUN)[:10], "--pairs", "1"]), (first, ["table1", "--scale", "smoke"])):
        result = CliRunner().invoke(app, ["explain-batch", *words, "--batch", "2"], env={"COLUMNS": "200"})
        assert explain_batch(run, 2).batch_hash in result.stdout
