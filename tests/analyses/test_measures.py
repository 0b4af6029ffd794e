"""Parts of the analyses against brute force, and runs of them that need no training."""

import math
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from experiments.e19_mteb import CATEGORIES
from experiments.e19_mteb import runs as mteb_runs
from experiments.e20_two_phases import TASKS
from experiments.e20_two_phases import runs as two_phases
from repro.analyses import mteb as mteb_measure
from repro.analyses.cross import choose_domains
from repro.analyses.divergence import compute_idf_divergence
from repro.analyses.mteb import average_by_category, compute_moves, evaluate_tasks, list_mteb_tasks
from repro.analyses.neighbours import find_nearest_rows
from repro.analyses.spread import NUM_CONTEXTS, choose_context_datasets, compute_distances, project_to_plane
from repro.batches.mask import compute_content_keys
from repro.batches.surrogate import MiniLMWords
from repro.data.beir import SuiteDataset
from repro.data.tokens import load_tokenizer
from repro.evaluate.lexical import count_document_frequency
from repro.evaluate.result_cache import ResultCache
from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.spec import base, get_first_phase
from repro.train.trainer import make_model_config, start_model
from tests.commands import ignore

TEXTS = ["a red apple", "a green apple apple", "the sky is green", "a sky"]
OTHERS = ["apple and sky", "an apple", "the sea"]


def test_document_frequency_counts_documents() -> None:
    tokenizer = load_tokenizer("minilm")
    found = count_document_frequency([TEXTS[:2], TEXTS[2:]])
    expected: Counter[int] = Counter()
    for text in TEXTS:
        encoded = tokenizer.encode(text)
        expected.update({word for word, is_real in zip(encoded.ids, encoded.attention_mask, strict=True) if is_real})
    assert {word: int(count) for word, count in enumerate(found) if count} == dict(expected)


def test_one_document_has_no_idf() -> None:
    counts = count_document_frequency([OTHERS[:1]])
    with pytest.raises(ValueError, match="no word distinguishes its"):
        compute_idf_divergence(count_document_frequency([TEXTS]), len(TEXTS), counts, 1)


def test_idf_divergence_is_weighted_mean() -> None:
    train, test = count_document_frequency([TEXTS]), count_document_frequency([OTHERS])
    found = compute_idf_divergence(train, len(TEXTS), test, len(OTHERS))
    gaps, weights = [], []
    for word in range(len(test)):
        if 0 < test[word] < len(OTHERS):
            gaps.append(
                abs(math.log((train[word] + 0.5) / (len(TEXTS) + 1)) - math.log((test[word] + 0.5) / (len(OTHERS) + 1)))
            )
            weights.append(test[word])
    assert found == pytest.approx(np.average(gaps, weights=weights))
    assert compute_idf_divergence(train, len(TEXTS), train, len(TEXTS)) == 0.0


@pytest.mark.parametrize("size", [1, 7, 49, 1000])
def test_nearest_rows_match_brute_force(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.analyses.neighbours.DOCUMENTS_PER_CHUNK", size)
    monkeypatch.setattr("repro.analyses.neighbours.ROWS_PER_CHUNK", 2)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "vectors.npy", rng.normal(size=(50, 8)).astype(np.float16))
    stored = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    vectors = np.asarray(stored, np.float32)
    keys = compute_content_keys([f"text {n % 45}" for n in range(50)])  # the last five texts repeat the first
    drawn = np.array([0, 7, 49])
    found = find_nearest_rows(stored, keys, drawn, 6)
    for row, near in zip(drawn, found, strict=True):
        order = [other for other in np.argsort(-(vectors @ vectors[row]), kind="stable") if keys[other] != keys[row]]
        assert near.tolist() == order[:6]


def test_neighbours_need_memory_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.analyses.neighbours.DOCUMENTS_PER_CHUNK", 1000)
    vectors = np.random.default_rng(0).normal(size=(40_000, 64)).astype(np.float16)
    keys, drawn = np.arange(len(vectors)), np.arange(100)
    tracemalloc.start()
    find_nearest_rows(vectors, keys, drawn, 6)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < vectors.nbytes / 2, "a float32 copy would need twice the stored size"


def test_distances_are_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(3, 5, 7))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    found = compute_distances(vectors)
    for document in range(5):
        own = cdist(vectors[:, document], vectors[:, document])
        assert found["spread/within"][document] == pytest.approx(own[np.triu_indices(3, 1)].mean())
        others = [cdist(vectors[:, document], vectors[:, other]).mean() for other in range(5) if other != document]
        assert found["spread/between"][document] == pytest.approx(np.mean(others))
        assert found["spread/nearest"][document] == pytest.approx(min(others))


def test_documents_come_from_trec_covid(tmp_path: Path) -> None:
    names = ["arguana", *(f"c{number}" for number in range(20)), "trec-covid"]
    datasets = [SuiteDataset(name, "beir", tmp_path) for name in names]
    assert [one.name for one in choose_context_datasets(datasets)] == ["trec-covid", *names[: NUM_CONTEXTS - 1]]
    assert choose_context_datasets(datasets[:3]) == tuple(datasets[:3])


def test_principal_plane_keeps_most_variance() -> None:
    rng = np.random.default_rng(2)
    plane = rng.normal(size=(4, 6, 2)) * [5.0, 2.0]
    turned = np.linalg.qr(rng.normal(size=(9, 9)))[0][:2]
    found = project_to_plane(plane @ turned + 1e-6 * rng.normal(size=(4, 6, 9)))
    flat, expected = found.reshape(-1, 2), plane.reshape(-1, 2)
    assert cdist(flat, flat) == pytest.approx(cdist(expected, expected), abs=1e-4), "distances in the plane are kept"
    assert flat[:, 0].var() > flat[:, 1].var()


def test_chosen_domains_take_families_in_turn(tmp_path: Path) -> None:
    datasets = tuple(SuiteDataset(f"{family}{n}", family, tmp_path) for family in "ab" for n in range(5))
    assert [one.name for one in choose_domains(datasets, 5)] == ["a0", "a1", "a2", "b0", "b1"]


def test_categories_are_means_of_tasks() -> None:
    categories = {"x": "STS", "y": "STS", "z": "Retrieval", "w": "Clustering"}
    own, other = {"x": 0.5, "y": 0.4, "z": 0.6, "w": 0.2}, {"x": 0.4, "y": 0.4, "z": 0.9, "w": 0.3}
    assert average_by_category(own, categories) == pytest.approx({"STS": 0.45, "Retrieval": 0.6, "Clustering": 0.2})
    found = compute_moves(own, other, categories)
    assert found["moved/sts"] == pytest.approx([0.1, 0.0]) and found["moved/others"] == pytest.approx([0.2, 0.2])


def test_clusters_are_denser_than_domains() -> None:
    run = base(
        "smoke", measure="cluster", architecture="none", sampler="cluster", cluster_size=8, domain_column="source"
    )
    record = execute(run, progress=ignore)
    assert record.metrics["cluster/similarity"] > record.metrics["domain/similarity"]
    assert len(record.arrays["cluster/similarity"]) == len(record.arrays["domain/similarity"])
    assert record.exhibits["pairs"][0].keys() == {"query", "document", "domain"}


def test_shape_counts_weights_of_model() -> None:
    record = execute(base("smoke", measure="shape", architecture="none"), progress=ignore)
    contextual = base("smoke", architecture="contextual")
    model = start_model(Inputs(contextual), lambda: False, ignore)
    assert isinstance(model, torch.nn.Module)
    assert make_model_config(contextual).hidden_size == record.metrics["shape/hidden_size"]
    stages = [record.metrics[f"shape/num_{stage}_stage_weights"] for stage in ("first", "second")]
    assert sum(stages) == sum(weight.numel() for weight in model.parameters())


def test_mteb_suite_needs_no_collection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    ours = base("smoke", architecture="surrogate", measure="mteb")
    expected = execute(ours, progress=ignore).metrics
    tasks = [task for task in mteb_measure.list_tasks(Inputs(ours)) if task.metadata.type == "Retrieval"]
    monkeypatch.setattr(mteb_measure, "list_mteb_tasks", lambda suite: tasks)
    run = replace(ours, suite="mteb-retrieval")
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
    run, seen, embed = base("smoke", architecture="surrogate", measure=measure), list[str](), MiniLMWords.embed
    monkeypatch.setattr("repro.batches.fixed_encoder.ENCODER_PROMPTS", {run.surrogate: "task"})
    monkeypatch.setattr(MiniLMWords, "embed", lambda *given: [seen.extend(given[1]), embed(*given)][1])
    tasks_of = mteb_measure.list_tasks
    monkeypatch.setattr(mteb_measure, "list_tasks", lambda inputs: tasks_of(inputs)[:1])
    execute(run, progress=ignore)
    assert {text[: text.find(": ") + 2] for text in seen} == prompts


def test_large_tables_are_mteb_tasks() -> None:
    names = {task.metadata.name for task in list_mteb_tasks("mteb-retrieval")}
    assert names == set(TASKS) and len(list_mteb_tasks("mteb")) == sum(count for _, _, count in CATEGORIES)
    runs = (*two_phases("large"), *mteb_runs("large"))
    assert {(run.suite, run.measure) for run in runs} == {("mteb", "mteb"), ("mteb-retrieval", "mteb")}
    final = [run for run in mteb_runs("large") if run.architecture == "contextual"]
    assert {(run.corpus, run.num_epochs, run.num_hard_negatives) for run in final} == {("bge-full-data", 4, 1)}
    assert {first.corpus for first in map(get_first_phase, final) if first} == {"nomic-unsupervised"}


def test_scored_tasks_survive_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached scores are exact. Another model, revision or context is scored for itself."""
    scored: list[str] = []

    def score(encoder: str, task: SimpleNamespace, from_data: bool) -> float:
        scored.append(f"{encoder} {task.metadata.name}")
        if scored == ["a one", "a two"]:
            raise KeyboardInterrupt
        return len(scored) / 3

    def tasks(revision: int) -> list[SimpleNamespace]:
        rows = [{"name": name, "dataset": {"revision": revision}, "main_score": "map"} for name in ("one", "two")]
        return [SimpleNamespace(metadata=SimpleNamespace(**row)) for row in rows]

    monkeypatch.setattr("repro.analyses.mteb.score_task", score)
    cache, other = (ResultCache(tmp_path, {"model": name}) for name in ("a", "b"))
    with pytest.raises(KeyboardInterrupt):
        evaluate_tasks("a", tasks(1), cache)
    for _ in range(2):
        assert evaluate_tasks("a", tasks(1), cache) == {"one": 1 / 3, "two": 1.0}
        assert scored == ["a one", "a two", "a two"]
    scored.clear()
    evaluate_tasks("b", tasks(1), other)
    evaluate_tasks("a", tasks(2), cache)
    evaluate_tasks("a", tasks(1), cache, kind="null")
    assert scored == [f"{name} {task}" for name in ("b", "a", "a") for task in ("one", "two")]
