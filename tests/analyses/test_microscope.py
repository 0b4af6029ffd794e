"""The microscope rebuilds a training batch without training: its pairs, removed texts, reasons and difficulty."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from repro.analyses.batches import BATCH_EXHIBIT, make_batch_exhibit
from repro.analyses.microscope import Explanation, Other, explain
from repro.batches.mask import KnownPositives, compute_content_keys
from repro.batches.surrogate import Surrogate, load_surrogate
from repro.cli.main import app
from repro.data.pairs import Indices, Pairs, Side
from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.report.batch import make_explanation_views
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
    return explain(run, batch, progress=ignore)


def test_difficulty_needs_no_training() -> None:
    explained = explain_batch()
    assert not run_folder(run_id(RUN)).exists()
    judge, sampler = build_filter(Inputs(RUN)), build_sampler(Inputs(RUN))
    assert explained.difficulty == pytest.approx(judge(sampler.at(BATCH - 1)).difficulty, abs=1e-6)


def test_documents_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    explain_batch()  # builds the stages, which read texts, too
    sides: list[Side] = []
    read_texts = Pairs.texts

    def texts(self: Pairs, side: Side, rows: Indices) -> list[str]:
        sides.extend(side for _ in rows)
        return read_texts(self, side, rows)

    monkeypatch.setattr(Pairs, "texts", texts)
    assert len(explain_batch().pairs) == RUN.batch_size
    assert sides.count("document") == sides.count("query") == RUN.batch_size


def test_hardest_negatives_match_brute_force() -> None:
    explained, inputs = explain_batch(), Inputs(RUN)
    rows = build_sampler(inputs).at(BATCH - 1)
    assert [pair.id for pair in explained.pairs] == inputs.pairs.ids(rows)
    scores = np.asarray(inputs.embeddings("query")[rows], np.float32) @ inputs.embeddings("document")[rows].T
    for index, pair in enumerate(explained.pairs):
        excluded = {index, *(other.place - 1 for other in pair.removed)}
        others = [column for column in np.argsort(-scores[index], kind="stable") if column not in excluded]
        assert [other.place - 1 for other in pair.hardest] == others[:3]
        assert pair.score == pytest.approx(scores[index, index], abs=1e-6)
        assert pair.cluster == inputs.clusters.assignment_N[rows[index]]


@pytest.mark.parametrize("changes", [{}, {"filter": "none"}, {"filter_margin": -0.1}, {"num_hard_negatives": 2}])
def test_removed_texts_are_those_masked(changes: dict[str, object]) -> None:
    run = replace(RUN, **changes)
    batches = [explain_batch(run, step + 1) for step in range(3)]
    judge, sampler = build_filter(Inputs(run)), build_sampler(Inputs(run))
    near = (
        "its score is at least that of its own document -0.1"
        if run.filter_margin
        else "as near as its own document, or nearer"
    )
    for step, explained in enumerate(batches):
        masked_BM = judge(sampler.at(step)).masked
        for pair, masked_M in zip(explained.pairs, masked_BM, strict=True):
            assert {other.place - 1 for other in pair.removed} == set(np.flatnonzero(masked_M))
            for other in pair.removed:
                is_same = len(set(compute_content_keys([pair.document, other.document]))) == 1
                assert other.why == ("the same text" if is_same else near)
                assert is_same or other.score >= pair.score + run.filter_margin


@pytest.fixture
def fourth_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the fourth document of a batch a known positive of the first query."""

    def find_in_batch(self: KnownPositives, pairs_B: np.ndarray, document_keys_M: np.ndarray) -> np.ndarray:
        known_BM = np.eye(len(pairs_B), len(document_keys_M), dtype=bool)
        known_BM[0, 3] = True
        return known_BM

    monkeypatch.setattr(KnownPositives, "find_in_batch", find_in_batch)


@pytest.mark.usefixtures("fourth_is_known")
def test_known_positives_have_their_own_reason() -> None:
    """A document of another pair with the same query is removed without a filter. Its stage is built on demand."""
    explained = explain_batch(replace(RUN, filter="none", known_positives="mask"))
    assert {other.place: other.why for other in explained.pairs[0].removed}[4] == "another document of the same query"
    overview = dict(make_explanation_views(explained)[0].rows)
    assert overview["filter"] == "none" and "same query" in overview["always removed"]
    assert "same query" not in dict(make_explanation_views(explain_batch())[0].rows)["always removed"]


@pytest.mark.usefixtures("fourth_is_known")
def test_query_as_document_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(RUN, filter="none", known_positives="mask")
    batch = explain_batch(run).pairs
    read_texts = Pairs.texts

    def texts(self: Pairs, side: Side, rows: Indices) -> list[str]:
        read = read_texts(self, side, rows)
        # the first query is read as the fourth document
        return [batch[3].document if text == batch[0].query else text for text in read]

    monkeypatch.setattr(Pairs, "texts", texts)
    assert {other.place: other.why for other in explain_batch(run).pairs[0].removed}[4] == "the text of the query"


def test_other_encoder_of_the_filter_is_named() -> None:
    """The reason for a removal has the scores of the encoder that decided, which is not the surrogate."""
    explained = explain_batch(replace(RUN, filter_model="minilm"))
    assert explained.filter == "minilm"
    reasons = [other.why for pair in explained.pairs for other in pair.removed if "minilm" in other.why]
    scores = [tuple(map(float, re.findall(r"-?\d\.\d{3}", reason))) for reason in reasons]
    assert scores and all(other >= own for other, own in scores)


@pytest.mark.parametrize("changes", [{}, {"loss": "icl", "num_hard_negatives": 2}], ids=["infonce", "icl"])
def test_batch_matches_training_log(changes: dict[str, object]) -> None:
    """The improved loss has four directions, and the removed share counts all of them."""
    run = replace(RUN, seed=3, **changes)
    before = explain_batch(run)
    execute(run, progress=ignore)
    after, log = explain_batch(run), read_metrics(run_folder(run_id(run)))
    line = log[BATCH - 1]
    assert before.batch_hash == after.batch_hash == line["batch"] and line["step"] == BATCH
    assert before.difficulty == after.difficulty == pytest.approx(line["difficulty"], abs=1e-6)
    assert before.masked_fraction == after.masked_fraction == pytest.approx(line["masked_fraction"], abs=1e-6)
    assert 0 < line["masked_fraction"] < 1


def test_runs_without_vectors_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of the texts of a batch are computed if they are not stored. The surrogate is loaded once."""
    names: list[str] = []

    def load(name: str) -> Surrogate:
        names.append(name)
        return load_surrogate(name)

    explain_batch()  # stores the vectors of RUN
    monkeypatch.setattr("repro.batches.fixed_encoder.load_surrogate", load)
    plain = base("smoke", sampler="random")
    explained = explain_batch(plain)
    assert names == [RUN.surrogate]
    assert explained.pairs[0].cluster is None and Inputs(plain).embeddings("query") is None
    rows = build_sampler(Inputs(plain)).at(BATCH - 1)
    computed = BatchViewer(Inputs(plain), always_scores=True)(rows)
    assert computed.scores_BM == pytest.approx(BatchViewer(Inputs(RUN))(rows).scores_BM, abs=5e-3)
    assert BatchViewer(Inputs(plain))(rows).scores_BM is None


def test_missing_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="batches 1 to 12"):
        explain_batch(batch=13)
    with pytest.raises(ValueError, match="has no batches"):
        explain_batch(base("smoke", architecture="bm25"), 1)


def test_explanation_becomes_tables_and_rows() -> None:
    explained = explain_batch()
    overview, clusters, pairs = make_explanation_views(explained, num_pairs=2)
    assert ("run", run_id(RUN)) in overview.rows
    assert sum(int(row[2]) for row in clusters.rows) == RUN.batch_size
    assert [row[0] for row in pairs.rows if row[1] == "query"] == ["1", "2"] and "14 more pairs" in pairs.notes[0]
    rows = make_batch_exhibit(explained)
    assert BATCH_EXHIBIT == "batch" and json.dumps(rows)
    for row, pair in zip(rows, explained.pairs, strict=True):
        assert row["pair"] == pair.place and (row["removed"] == "–") == (not pair.removed)
        assert all(f"{other.place} ({other.score:.3f})" in str(row["hardest"]) for other in pair.hardest)


def test_removed_texts_are_listed_by_reason() -> None:
    """At most four texts per reason are listed, and the others are counted."""
    explained = explain_batch()
    same = Other(place=3, document="d", score=0.5, why="same text")
    nearer = [replace(same, place=place, why="nearer") for place in range(1, 8)]
    pair = replace(explained.pairs[0], removed=(same, *nearer))
    (row,) = make_batch_exhibit(replace(explained, pairs=(pair,)))
    assert row["removed"] == "same text: 3 (0.500); nearer: 1 (0.500), 2 (0.500), 3 (0.500), 4 (0.500) and 3 more"


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["explain-batch", *words], env={"COLUMNS": "200"})


def test_explain_batch_finds_its_run() -> None:
    """The command takes the start of a run's id, or an artefact for its first run with batches."""
    assert explain(RUN, 2).batch_hash in invoke(run_id(RUN)[:10], "--batch", "2", "--pairs", "1").stdout
    first = next(run for run in find_experiment("table1").runs("smoke") if run.architecture in TRAINED)
    assert explain(first, 2).batch_hash in invoke("table1", "--scale", "smoke", "--batch", "2").stdout
