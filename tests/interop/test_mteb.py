"""Models in mteb: its own checks pass, its scores equal ours, and results state how the context was drawn."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ir_measures
import mteb
import pytest
from mteb.abstasks import AbsTask
from mteb.mocks import ALL_MOCK_TASK_TEST_GRID
from mteb.mocks.mock_tasks.classification import MockClassificationTask
from mteb.mocks.mock_tasks.clustering import MockClusteringTask
from mteb.mocks.mock_tasks.sts import MockMultilingualSTSTask
from mteb.models.models_protocols import EncoderProtocol, SearchProtocol
from mteb.models.search_wrappers import SearchEncoderWrapper
from mteb.results.task_result import TaskError

from repro.analyses.mteb import score_task
from repro.data.beir import Retrieval
from repro.data.paper.collection_rules import CollectionRules
from repro.evaluate.mteb.model import MtebModel, draw_context
from repro.evaluate.mteb.task import retrieval_task
from repro.model.biencoder import Biencoder
from repro.model.contextual import ContextualModel
from tests.interop.small import THINGS, make_model, make_things

pytestmark = pytest.mark.filterwarnings("ignore")
NAME = retrieval_task(make_things()).metadata.name


def evaluate(model: MtebModel, folder: Path, task: AbsTask | None = None, **options: Any) -> dict[str, Any]:
    """Return the scores of a task, by default of the small collection."""
    cache = mteb.ResultCache(cache_path=str(folder))
    results = mteb.evaluate(
        model, task or retrieval_task(make_things()), cache=cache, show_progress_bar=False, **options
    )
    assert not results.exceptions
    return results.task_results[0].scores["test"][0]


def test_other_texts_are_another_task(tmp_path: Path) -> None:
    model, data = MtebModel(make_model("biencoder")), make_things()
    other = replace(data, queries=data.queries[::-1])
    first = evaluate(model, tmp_path / "cache")
    again = evaluate(model, tmp_path / "cache", retrieval_task(other))
    fresh = evaluate(model, tmp_path / "fresh", retrieval_task(other))
    assert again["ndcg_at_10"] == fresh["ndcg_at_10"] != first["ndcg_at_10"]


def compute_ndcg(
    model: Biencoder | ContextualModel,
    data: Retrieval | None = None,
    roles: tuple[str, str] = ("query", "document"),
    *,
    hides_itself: bool = False,
) -> float:
    """Return NDCG@10 of a collection, by default the small one, without mteb."""
    data = data or make_things()
    scores = model.encode(data.queries, roles[0]) @ model.encode(data.documents, roles[1]).T
    run = {}
    for query, row in zip(data.query_ids, scores.tolist(), strict=True):
        hits = dict(zip(data.document_ids, row, strict=True))
        if hides_itself:
            del hits[query]
        run[query] = hits
    return ir_measures.calc_aggregate([ir_measures.nDCG @ 10], data.judgements, run)[ir_measures.nDCG @ 10]


def test_mteb_accepts_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own check passes with a task of each type."""
    model = MtebModel(make_model("contextual"))
    assert isinstance(model, EncoderProtocol) and isinstance(model, SearchProtocol)
    tasks = {task.metadata.type: task for task in ALL_MOCK_TASK_TEST_GRID if task.metadata.modalities == ["text"]}
    monkeypatch.setattr("mteb.mocks.mock_run.ALL_MOCK_TASK_TEST_GRID", list(tasks.values()))
    results = mteb.mock_run(model)
    assert results.all_passed
    skipped = (TaskError, type(None))
    assert sum(not isinstance(result, skipped) for result in results.task_results.values()) > 7


def test_mteb_scores_equal_ours(tmp_path: Path) -> None:
    model = make_model("contextual")
    score = evaluate(MtebModel(model, context_seed=3), tmp_path)["ndcg_at_10"]
    model.set_context(draw_context(make_things().documents, 4, 3, NAME, "default", "test"))
    assert score == pytest.approx(compute_ndcg(model), abs=1e-4)


@pytest.mark.parametrize(
    ("options", "dropout"),
    [({"context": "all"}, 0.1), ({"context": "none"}, 0.1), ({"context": "fixed"}, 0.1), ({"context": "own"}, 1.0)],
)
def test_impossible_contexts_are_refused(options: dict[str, str], dropout: float) -> None:
    """A model trained without documents has the null context only."""
    with pytest.raises(ValueError, match=f"context='{options['context']}'"):
        MtebModel(make_model("contextual", sequence_dropout=dropout), **options)


def test_contexts_have_separate_results(tmp_path: Path) -> None:
    model = make_model("contextual", sequence_dropout=0.1)
    fixed = {"context": "fixed", "fixed_context": THINGS}
    settings: tuple[dict[str, Any], ...] = ({"context_seed": 0}, {"context_seed": 1}, {"context": "null"}, fixed)
    scores = [evaluate(MtebModel(model, **options), tmp_path)["main_score"] for options in settings]
    files = sorted(tmp_path.rglob(f"{NAME}.json"))
    assert len(files) == 4
    paths = " ".join(map(str, files))
    assert all(f"context_{name}" in paths for name in ("corpus", "null", "fixed", "seed_0", "seed_1"))
    results = [json.loads(file.read_text()) for file in files]
    assert {result["task_name"] for result in results} == {NAME}
    assert sorted(result["scores"]["test"][0]["main_score"] for result in results) == sorted(scores)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The corpora from which a context was drawn."""
    corpora: list[list[str]] = []

    def draw(texts: Iterable[str], *options: Any) -> list[str]:
        corpora.append(list(texts))
        return corpora[-1][:4]

    monkeypatch.setattr("repro.evaluate.mteb.model.draw_context", draw)
    return corpora


KINDS = (MockClassificationTask, MockClusteringTask, MockMultilingualSTSTask)


@pytest.mark.parametrize("kind", KINDS)
def test_context_covers_whole_task(kind: type[AbsTask], drawn: list[list[str]]) -> None:
    """With `from_data` the context is drawn from all texts of the test split, not only from those of the first call."""
    model, task = MtebModel(make_model("contextual")), kind()
    score_task(model, task, from_data=True)
    task.load_data()
    for subset, texts in zip(task.hf_subsets, drawn, strict=True):
        split = (task.dataset[subset] if task.metadata.is_multilingual else task.dataset)["test"]
        cells = [str(split[name][:]) for name in split.column_names if name in ("text", "sentence1", "sentence2")]
        assert texts and len(set(texts)) == len(texts)
        assert all(text in "".join(cells) for text in texts) or "sentences" in split.column_names
    if kind is MockClassificationTask:
        assert drawn == [list(dict.fromkeys(task.dataset["test"]["text"]))] != [task.dataset["train"]["text"]]
    if kind is MockClusteringTask:
        assert drawn == [list(dict.fromkeys(text for row in task.dataset["test"]["sentences"] for text in row))]
    first = list(drawn)
    drawn.clear()
    model._context_of = None
    score_task(model, kind(), from_data=False)
    assert (drawn != first) == (kind is not MockClusteringTask), "the first call has fewer texts, or another order"


def test_drawn_context_depends_on_seed_and_task() -> None:
    texts = [str(n) for n in range(50)]
    first, again = draw_context(texts, 20, 0, "a"), draw_context(texts, 20, 0, "a")
    assert first == again and len(set(first)) == 20
    assert first != draw_context(texts, 20, 1, "a") and first != draw_context(texts, 20, 0, "b")
    filled = draw_context(texts, 60, 0, "a")
    assert len(filled) == 60 and set(filled) == set(texts)


def test_description_includes_weights() -> None:
    meta = MtebModel(make_model("contextual"), name="me/mine").mteb_model_meta
    assert meta.experiment_kwargs == {"context": "corpus", "context_seed": 0, "num_contexts": 4}
    assert meta.revision != MtebModel(make_model("contextual", residual=True)).mteb_model_meta.revision
    assert MtebModel(make_model("biencoder")).mteb_model_meta.experiment_kwargs is None


@pytest.mark.parametrize("name", ["arguana", "quora", "things", "renamed"])
def test_collection_rules_hold_in_mteb(tmp_path: Path, name: str) -> None:
    """If queries are documents, mteb excludes them and gives both sides one prompt in the same cases as `evaluate`.

    A collection with another name gets the rules that are passed with it.
    """
    ids, texts = make_things().document_ids, tuple(f"{thing} {other}" for thing in THINGS[:4] for other in THINGS[:3])
    judgements = {query: {ids[n - 1]: 1} for n, query in enumerate(ids)}
    queries = texts if name != "things" else tuple(f"what is {thing}" for thing in THINGS)
    odd = Retrieval(name, ids, texts, ids, queries, judgements)
    model = make_model("biencoder", prompts="task")
    roles = ("query", "query" if name == "quora" else "document")
    expected = compute_ndcg(model, odd, roles, hides_itself=name != "things")
    task = retrieval_task(odd, CollectionRules(removes_self_hits=True) if name == "renamed" else None)
    assert evaluate(MtebModel(model), tmp_path, task)["ndcg_at_10"] == pytest.approx(expected, abs=1e-4)


def test_context_never_comes_from_queries(tmp_path: Path) -> None:
    """If a wrapper hides the corpus, the model refuses to encode, or draws from a corpus that the user sets."""
    model = MtebModel(make_model("contextual"))
    wrapped: Any = SearchEncoderWrapper(model)
    with pytest.raises(ValueError, match="never drawn from queries"):
        evaluate(wrapped, tmp_path / "results")
    model = MtebModel(make_model("contextual"), corpus={"default": make_things().documents})
    wrapped = SearchEncoderWrapper(model)
    assert "corpus" in model.mteb_model_meta.experiment_kwargs, "or mteb would repeat the score of another context"
    score = evaluate(wrapped, tmp_path / "results")["ndcg_at_10"]
    ours = make_model("contextual")
    ours.set_context(draw_context(make_things().documents, 4, 0, NAME, "default"))
    assert score == pytest.approx(compute_ndcg(ours), abs=1e-4)
