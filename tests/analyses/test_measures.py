"""Parts of the analyses against brute force, and runs of them that need no training."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, pdist

from experiments.e19_mteb import CATEGORIES
from experiments.e19_mteb import runs as mteb_runs
from experiments.e20_two_phases import TASKS
from experiments.e20_two_phases import runs as two_phases
from repro.analyses import mteb as mteb_measure
from repro.analyses.contexts import (
    NUM_CONTEXTS,
    choose_context_datasets,
    choose_domains,
    compute_distances,
    project_to_plane,
)
from repro.analyses.mteb import average_by_category, compute_moves, evaluate_tasks, list_mteb_tasks
from repro.analyses.pairs import find_nearest_rows
from repro.batches.mask import compute_content_keys
from repro.batches.surrogate import MiniLMWords
from repro.data.beir import SuiteDataset
from repro.evaluate.result_cache import ResultCache
from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.spec import base, get_first_phase
from repro.train.setup import make_model_config
from repro.train.trainer import start_model
from tests.commands import ignore


@pytest.mark.parametrize("size", [1, 7, 49, 1000])
def test_nearest_rows_match_brute_force(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.analyses.pairs.DOCUMENTS_PER_CHUNK", size)
    monkeypatch.setattr("repro.analyses.pairs.ROWS_PER_CHUNK", 2)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "vectors.npy", rng.normal(size=(50, 8)).astype(np.float16))
    stored = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    vectors = np.asarray(stored, np.float32)
    keys = compute_content_keys([f"text {n % 45}" for n in range(50)])  # the last five texts repeat the first
    rows = np.array([0, 7, 49])
    for row, nearest in zip(rows, find_nearest_rows(stored, keys, rows, 6), strict=True):
        order = np.argsort(-(vectors @ vectors[row]), kind="stable")
        assert nearest.tolist() == [other for other in order if keys[other] != keys[row]][:6]


@pytest.mark.parametrize("noise", [1.0, 1e-3])
def test_distances_are_those_of_scipy(noise: float) -> None:
    """One minus a float32 cosine would lose all digits at a distance of 0.001."""
    rng = np.random.default_rng(1)
    vectors_CDH = rng.normal(size=(1, 5, 64)) + noise * rng.normal(size=(3, 5, 64))
    vectors_CDH = (vectors_CDH / np.linalg.norm(vectors_CDH, axis=2, keepdims=True)).astype(np.float32)
    distances = compute_distances(vectors_CDH)
    by_document = vectors_CDH.transpose(1, 0, 2).astype(np.float64)
    for document, own in enumerate(by_document):
        assert distances["spread/within"][document] == pytest.approx(pdist(own).mean(), rel=1e-9)
        others = [cdist(own, other).mean() for other in np.delete(by_document, document, axis=0)]
        assert distances["spread/between"][document] == pytest.approx(np.mean(others))
        assert distances["spread/nearest"][document] == pytest.approx(min(others))


def test_principal_plane_keeps_most_variance() -> None:
    rng = np.random.default_rng(2)
    plane = rng.normal(size=(4, 6, 2)) * [5.0, 2.0]
    rotation = np.linalg.qr(rng.normal(size=(9, 9)))[0][:2]
    actual = project_to_plane(plane @ rotation + 1e-6 * rng.normal(size=(4, 6, 9))).reshape(-1, 2)
    assert pdist(actual) == pytest.approx(pdist(plane.reshape(-1, 2)), abs=1e-4), "distances in the plane are kept"
    assert actual[:, 0].var() > actual[:, 1].var()


def test_chosen_datasets_have_the_order_of_the_paper(tmp_path: Path) -> None:
    """Domains of figure 7 take families in turn. The documents of figure 15 come from TREC-COVID."""
    datasets = tuple(SuiteDataset(f"{family}{n}", family, tmp_path) for family in "ab" for n in range(5))
    assert [dataset.name for dataset in choose_domains(datasets, 5)] == ["a0", "a1", "a2", "b0", "b1"]
    covid = SuiteDataset("trec-covid", "beir", tmp_path)
    assert choose_context_datasets((*datasets, covid)) == (covid, *datasets)
    assert len(choose_context_datasets(2 * datasets)) == NUM_CONTEXTS


def test_categories_are_means_of_tasks() -> None:
    categories = {"x": "STS", "y": "STS", "z": "Retrieval", "w": "Clustering"}
    own, other = {"x": 0.5, "y": 0.4, "z": 0.6, "w": 0.2}, {"x": 0.4, "y": 0.4, "z": 0.9, "w": 0.3}
    assert average_by_category(own, categories) == pytest.approx({"STS": 0.45, "Retrieval": 0.6, "Clustering": 0.2})
    moves = compute_moves(own, other, categories)
    assert moves["moved/sts"] == pytest.approx([0.1, 0.0]) and moves["moved/others"] == pytest.approx([0.2, 0.2])


def test_shape_counts_weights_of_model(tmp_path: Path) -> None:
    record = execute(base("smoke", measure="shape", architecture="none"), progress=ignore)
    contextual = base("smoke", architecture="contextual")
    model = start_model(Inputs(contextual), tmp_path, lambda: False, ignore)
    assert isinstance(model, torch.nn.Module)
    assert make_model_config(contextual).hidden_size == record.metrics["shape/hidden_size"]
    stages = [record.metrics[f"shape/num_{stage}_stage_weights"] for stage in ("first", "second")]
    assert sum(stages) == sum(weight.numel() for weight in model.parameters())


def test_batches_may_have_hard_negatives() -> None:
    """They are mined for a run without training, too."""
    run = base("smoke", architecture="none", measure="batches", num_hard_negatives=2)
    assert "negatives" in {stage.name for stage in Inputs(run).graph.stages}
    assert execute(run, progress=ignore).metrics["batches/difficulty"] > 0


def test_mteb_suite_needs_no_collection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tasks of a suite of MTEB score like the same tasks of an offline suite."""
    offline = base("smoke", architecture="surrogate", measure="mteb")
    inputs = Inputs(offline)
    inputs.build(ignore)
    tasks = [task for task in mteb_measure.list_tasks(inputs) if task.metadata.type == "Retrieval"]
    with monkeypatch.context() as patch:
        patch.setattr(mteb_measure, "list_tasks", lambda inputs: tasks)
        expected = mteb_measure.measure(inputs, None, tmp_path).metrics
    monkeypatch.setattr(mteb_measure, "list_mteb_tasks", lambda suite: tasks)
    run = replace(offline, suite="mteb-retrieval")
    assert "corpus" not in {stage.kind for stage in Inputs(run).graph.stages}
    metrics = execute(run, progress=ignore).metrics
    assert len(tasks) > 1
    assert metrics["mteb-retrieval/mean/ndcg_at_10"] == pytest.approx(expected["planted/Retrieval/score"])
    with pytest.raises(ValueError, match="measure='mteb'"):
        replace(run, measure="retrieval")


@pytest.mark.parametrize(
    ("measure", "prompts"), [("polarity", {"search_document: "}), ("mteb", {"search_query: ", "search_document: "})]
)
def test_surrogate_always_gets_prompts(measure: str, prompts: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = base("smoke", architecture="surrogate", measure=measure)
    texts: list[str] = []
    embed, list_tasks = MiniLMWords.embed, mteb_measure.list_tasks

    def record_texts(self: MiniLMWords, batch: list[str], *options: object) -> np.ndarray:
        texts.extend(batch)
        return embed(self, batch, *options)

    monkeypatch.setattr("repro.batches.fixed_encoder.PROMPTED_ENCODERS", (run.surrogate,))
    monkeypatch.setattr(MiniLMWords, "embed", record_texts)
    monkeypatch.setattr(mteb_measure, "list_tasks", lambda inputs: list_tasks(inputs)[:1])
    execute(run, progress=ignore)
    assert {text[: text.find(": ") + 2] for text in texts} == prompts


def test_large_tables_are_mteb_tasks() -> None:
    names = {task.metadata.name for task in list_mteb_tasks("mteb-retrieval")}
    assert names == set(TASKS) and len(list_mteb_tasks("mteb")) == sum(count for _, _, count in CATEGORIES)
    runs = (*two_phases("large"), *mteb_runs("large"))
    assert {(run.suite, run.measure) for run in runs} == {("mteb", "mteb"), ("mteb-retrieval", "mteb")}
    final = [run for run in mteb_runs("large") if run.architecture == "contextual"]
    assert {(run.corpus, run.num_epochs, run.num_hard_negatives) for run in final} == {("bge-full-data", 4, 1)}
    assert {first.corpus for first in map(get_first_phase, final) if first} == {"nomic-unsupervised"}


def test_cached_tasks_have_their_own_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached scores are exact. Another model, revision or context is scored for itself."""
    calls: list[str] = []

    def score(encoder: str, task: SimpleNamespace, from_data: bool) -> float:
        calls.append(encoder)
        return len(calls) / 3

    def evaluate(encoder: str, revision: int, kind: str) -> float:
        metadata = SimpleNamespace(name="one", dataset={"revision": revision}, main_score="map")
        task, cache = SimpleNamespace(metadata=metadata), ResultCache(tmp_path, {"model": encoder})
        return evaluate_tasks(encoder, [task], cache, kind=kind)["one"]

    monkeypatch.setattr("repro.analyses.mteb.score_task", score)
    evaluations = [("a", 1, "own"), ("b", 1, "own"), ("a", 2, "own"), ("a", 1, "null")]
    scores = {evaluation: evaluate(*evaluation) for evaluation in evaluations}
    assert len(set(scores.values())) == len(calls) == 4
    assert scores["a", 1, "null"] == evaluate("a", 1, "null") and len(calls) == 4
