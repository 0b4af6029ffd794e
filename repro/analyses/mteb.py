"""Score mteb tasks under up to three contexts (table 2). Tasks are offline ones, or those of MTEB if its data is cached.

- `own`: the context comes from the corpus of each task, never from its queries (§9.12).
- `random`: the same documents of the training text for every task.
- `null`: no context.

References are a fixed encoder on the same tasks (MiniLM, at smoke word vectors), and BM25 on the retrieval tasks only.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.analyses import Measured
from repro.analyses.caching import open_cache
from repro.data.beir import HEADLINE, Retrieval, Suite
from repro.evaluate.collections import read_collections
from repro.evaluate.first_stage import get_bm25_options
from repro.evaluate.result_cache import ResultCache
from repro.evaluate.suites import evaluate_bm25
from repro.pipeline.inputs import Inputs, draw_training_rows
from repro.spec import MTEB_SUITES

if TYPE_CHECKING:
    from repro.model.contextual import Model


CONTEXTS = {"own": ("own", "own"), "random": ("wrong", "fixed"), "null": ("null", "null")}
"""Each context with its name in the run's `test_contexts` and in `MtebModel`."""
BENCHMARK = "MTEB(eng, v1)"
MAIN_SCORES = {"Retrieval": "ndcg_at_10"}
"""The main score in mteb of categories with a suite of their own."""


def measure(inputs: Inputs, model: Model | None, folder: Path) -> Measured:
    """Return `{suite}/CATEGORY/score`, `{suite}/tasks/TASK/score` and `{suite}/mean/score` under each context."""
    import torch

    run = inputs.run
    metrics: dict[str, float] = {}
    arrays: dict[str, np.ndarray] = {}
    scores: dict[str, dict[str, float]] = {}
    cache = open_cache(folder, run, model)
    for context, encoder in _build_encoders(inputs, model).items():
        # new objects, because a task consumes its own random generator
        tasks = list_tasks(inputs)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if encoder is None:
                scores[context] = _score_bm25(inputs, tasks)
            else:
                # offline tasks draw contexts from mteb's first call, as in published records
                scores[context] = evaluate_tasks(
                    encoder, tasks, cache, kind=context, from_data=run.suite in MTEB_SUITES
                )
        suite = run.suite if context == "own" else f"{run.suite}+{context}"
        categories = {task.metadata.name: task.metadata.type for task in tasks if task.metadata.name in scores[context]}
        metrics |= {f"{suite}/tasks/{name}/score": value for name, value in scores[context].items()}
        metrics |= {
            f"{suite}/{name}/score": value for name, value in average_by_category(scores[context], categories).items()
        }
        kinds = set(categories.values())
        if main_score := "score" if len(kinds) > 1 else MAIN_SCORES.get(MTEB_SUITES.get(run.suite) or ""):
            arrays[f"{suite}/mean/{main_score}"] = np.array(list(scores[context].values()))
            metrics[f"{suite}/mean/{main_score}"] = float(arrays[f"{suite}/mean/{main_score}"].mean())
    # The comparison of contexts needs STS tasks and other tasks.
    if {"own", "random"} <= scores.keys() and {"STS"} < set(categories.values()):
        moves = compute_moves(scores["own"], scores["random"], categories)
        arrays |= moves
        metrics |= {name: float(values.mean()) for name, values in moves.items()}
    # One value per task: mteb's main scores are not means over our queries.
    rows = [{"name": task.metadata.name, "family": task.metadata.type, "num_queries": 1} for task in tasks]
    provenance = {
        "name": run.suite,
        "datasets": rows,
        "is_mteb": run.suite in MTEB_SUITES,
        "protocol": "that of mteb's tasks",
    }
    return Measured(metrics, arrays, provenance)


def list_tasks(inputs: Inputs) -> list[Any]:
    """Return the tasks of MTEB for a suite of MTEB, or the offline tasks for any other suite."""
    if inputs.run.suite in MTEB_SUITES:
        return list_mteb_tasks(inputs.run.suite)
    from repro.evaluate.mteb.suite import RERANKED_ENDING, list_offline_tasks
    from repro.evaluate.mteb.task import BOTH_SIDES

    families: dict[str, list[Retrieval]] = {}
    collections = read_collections(inputs.suite)
    for dataset in inputs.suite.datasets:
        families.setdefault(dataset.family, []).append(collections[dataset.name].retrieval)
    tasks: list[Any] = list_offline_tasks(families)
    for task in tasks:
        if collection := collections.get(task.metadata.name.removesuffix(RERANKED_ENDING)):
            task.ignore_identical_ids = collection.rules.removes_self_hits
            if collection.rules.asks_on_both_sides:
                BOTH_SIDES.add(task.metadata.name)
    return tasks


def list_mteb_tasks(suite: str) -> list[Any]:
    """Return the English MTEB tasks of a suite: all, or those of one category. Their data is not loaded yet."""
    import mteb

    category = MTEB_SUITES[suite]
    return [task for task in mteb.get_benchmark(BENCHMARK).tasks if category in (None, task.metadata.type)]


def list_task_datasets(task: Any) -> list[dict[str, str]]:
    """Return path and hub revision of every dataset of an mteb task."""
    singles = (single.metadata.dataset for single in getattr(task, "tasks", None) or [task])
    return [{name: str(dataset[name]) for name in ("path", "revision")} for dataset in singles]


def evaluate_tasks(
    encoder: Any, tasks: list[Any], cache: ResultCache | None = None, *, kind: str = "own", from_data: bool = False
) -> dict[str, float]:
    """Return the main score of each task by name, as a share. Cached tasks are not evaluated again.

    The cache holds scores only, because mteb stores result files under a model name, whatever its weights. If
    `from_data` is set and a task has no searched corpus, its context is drawn from its whole data.
    """
    scores = {}
    for task in tasks:
        metadata = task.metadata
        key = {"kind": kind, "data": str(metadata.dataset), "measure": metadata.main_score}
        score = partial(score_task, encoder, task, from_data)
        scores[metadata.name] = score() if cache is None else cache.score(f"{metadata.name}-{kind}", key, score)
    return scores


def score_task(encoder: Any, task: Any, from_data: bool) -> float:
    """Return the main score of one task. With `from_data`, tasks without a corpus draw contexts from all their data."""
    import mteb

    # A function: the data of a task is loaded only while mteb evaluates it.
    encoder.find_corpus = partial(collect_task_texts, task) if from_data else None
    result = mteb.evaluate(encoder, [task], cache=None, show_progress_bar=False)
    assert not result.exceptions, result.exceptions
    return float(result.task_results[0].get_score())


def collect_task_texts(task: Any, subset: str) -> list[str]:
    """Return the distinct texts of the evaluated splits of a loaded task, without labels.

    The paper's appendix on MTEB subsamples context documents "from the full corpus available in each dataset". A
    classification task first passes a few balanced examples, which would make a poor context.
    """
    data = task.dataset.get(subset, task.dataset)
    if task.metadata.type == "Summarization":
        # Only summaries are embedded, not the texts that they summarise.
        columns: Iterable[str] = [task.human_summaries_column_name, task.machine_summaries_column_name]
    else:
        # mteb has no public function for it
        columns = task._get_content_columns()
    cells = (data[split][column] for split in task.eval_splits for column in columns)
    return list(dict.fromkeys(text for cell in cells for text in _flatten(cell) if text.strip()))


def _flatten(cell: Any) -> Iterator[str]:
    if isinstance(cell, str):
        yield cell
    else:
        # cells of older tasks hold lists of texts, possibly nested
        for inner in cell:
            yield from _flatten(inner)


def average_by_category(scores: Mapping[str, float], categories: Mapping[str, str]) -> dict[str, float]:
    """Return the mean score of each category."""
    return {
        category: float(np.mean([value for name, value in scores.items() if categories[name] == category]))
        for category in dict.fromkeys(categories[name] for name in scores)
    }


def compute_moves(
    own: Mapping[str, float], other: Mapping[str, float], categories: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Return the absolute change of scores between two contexts: per STS task, and the mean of all other tasks.

    The mean is repeated for each STS task, because claims compare arrays that pair up by index.
    """
    changes = {name: abs(own[name] - other[name]) for name in own}
    sts = np.array([value for name, value in changes.items() if categories[name] == "STS"])
    others = [value for name, value in changes.items() if categories[name] != "STS"]
    return {"moved/sts": sts, "moved/others": np.full(len(sts), float(np.mean(others)))}


def _build_encoders(inputs: Inputs, model: Model | None) -> dict[str, Any]:
    """Return the mteb model for each context. None stands for BM25."""
    run = inputs.run
    if run.architecture == "bm25":
        return {"own": None}
    if run.architecture == "surrogate":
        from repro.evaluate.mteb.model import SurrogateForMteb

        return {"own": SurrogateForMteb(inputs.surrogate)}
    from repro.evaluate.mteb.model import MtebModel

    assert model is not None, f"{run.architecture} is trained, so it has a model"
    if run.architecture == "biencoder":
        return {"own": MtebModel(model)}
    # with repeats if there are too few pairs
    texts = tuple(inputs.pairs.texts("document", draw_training_rows(inputs, inputs.run.num_contexts)))
    return {
        kind: MtebModel(
            model, context=context, context_seed=run.context_seed, fixed_context=texts if context == "fixed" else ()
        )
        for kind, (asked_as, context) in CONTEXTS.items()
        if asked_as in run.test_contexts.split("+")
    }


def _score_bm25(inputs: Inputs, tasks: list[Any]) -> dict[str, float]:
    """Score BM25 on the retrieval tasks that are collections of the run's suite."""
    names = {task.metadata.name for task in tasks if task.metadata.type == "Retrieval"}
    suite = Suite(inputs.suite.name, tuple(dataset for dataset in inputs.suite.datasets if dataset.name in names))
    metrics = evaluate_bm25(suite, **get_bm25_options(inputs.run)).metrics
    return {dataset.name: metrics[f"{suite.name}/{dataset.name}/{HEADLINE}"] for dataset in suite.datasets}
