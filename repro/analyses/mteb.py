"""Scores by mteb's own tasks: the offline ones, or MTEB's where its data is at hand, under three contexts (table 2).

`own`: the context is drawn from the corpus of each task (§5, never from its queries). `random`: the same documents of
the training text for every task. `null`: none. References: an untrained surrogate through the same tasks; BM25 on the
retrieval tasks alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from repro.analyses import Measured
from repro.analyses.keeping import keep_in
from repro.batches.fixed_encoder import get_surrogate
from repro.data.beir import HEADLINE, Retrieval, Suite
from repro.evaluate.collections import read_collections
from repro.evaluate.first_stage import tokenizer_of_run
from repro.evaluate.kept import Kept
from repro.evaluate.mteb.texts import collect_task_texts
from repro.evaluate.suites import evaluate_bm25
from repro.pipeline.inputs import Inputs, draw_training_rows
from repro.spec import MTEB_SUITES

if TYPE_CHECKING:
    from repro.model.contextual import Model


class TaskContext(NamedTuple):
    """One context that tasks are scored under."""

    asked_as: str  # of the run's `test_contexts`
    context: str  # of MtebModel


CONTEXTS = {
    "own": TaskContext(asked_as="own", context="own"),
    "random": TaskContext(asked_as="wrong", context="fixed"),
    "null": TaskContext(asked_as="null", context="null"),
}
BENCHMARK = "MTEB(eng, v1)"
MAIN_SCORES = {"Retrieval": "ndcg_at_10"}
"""What mteb's main score is, of categories that are a suite of their own."""


def measure(inputs: Inputs, model: Model | None, folder: Path) -> Measured:
    """Return `{suite}/CATEGORY/score`, `{suite}/tasks/TASK/score` and `{suite}/mean/score` under each context."""
    import torch

    run = inputs.run
    metrics: dict[str, float] = {}
    arrays: dict[str, np.ndarray] = {}
    scores: dict[str, dict[str, float]] = {}
    kept = keep_in(folder, run, model)
    for kind, encoder in _encoders(inputs, model).items():
        tasks = list_tasks(inputs)  # fresh ones: a task draws on a generator of its own as it is evaluated
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if encoder is None:
                scores[kind] = _bm25(inputs, tasks)
            else:  # offline tasks stay as published records have them: contexts of the texts of mteb's first call
                scores[kind] = evaluate_tasks(encoder, tasks, kept, kind=kind, from_data=run.suite in MTEB_SUITES)
        suite = run.suite if kind == "own" else f"{run.suite}+{kind}"
        categories = {task.metadata.name: task.metadata.type for task in tasks if task.metadata.name in scores[kind]}
        metrics |= {f"{suite}/tasks/{name}/score": value for name, value in scores[kind].items()}
        metrics |= {f"{suite}/{name}/score": value for name, value in by_category(scores[kind], categories).items()}
        kinds = set(categories.values())
        if main := "score" if len(kinds) > 1 else MAIN_SCORES.get(MTEB_SUITES.get(run.suite) or ""):
            arrays[f"{suite}/mean/{main}"] = np.array(list(scores[kind].values()))
            metrics[f"{suite}/mean/{main}"] = float(arrays[f"{suite}/mean/{main}"].mean())
    if {"own", "random"} <= scores.keys() and {"STS"} < set(categories.values()):
        moved = moves(scores["own"], scores["random"], categories)
        arrays |= moved
        metrics |= {name: float(values.mean()) for name, values in moved.items()}
    rows = [{"name": task.metadata.name, "family": task.metadata.type, "num_queries": 1} for task in tasks]
    told = {
        "name": run.suite,
        "datasets": rows,
        "is_mteb": run.suite in MTEB_SUITES,
        "protocol": "that of mteb's tasks",
    }
    return Measured(metrics, arrays, told)


def list_tasks(inputs: Inputs) -> list[Any]:
    """Return MTEB's own tasks for a suite that is some of them, the offline ones for every other suite."""
    if inputs.run.suite in MTEB_SUITES:
        return tasks_of_mteb(inputs.run.suite)
    from repro.evaluate.mteb.suite import RERANKED_ENDING, list_offline_tasks
    from repro.evaluate.mteb.task import BOTH_SIDES

    families: dict[str, list[Retrieval]] = {}
    collections = read_collections(inputs.suite)
    for dataset in inputs.suite.datasets:
        families.setdefault(dataset.family, []).append(collections[dataset.name].retrieval)
    tasks: list[Any] = list_offline_tasks(families)
    for task in tasks:
        if one := collections.get(task.metadata.name.removesuffix(RERANKED_ENDING)):
            task.ignore_identical_ids = one.quirks.removes_self_hits
            if one.quirks.asks_on_both_sides:
                BOTH_SIDES.add(task.metadata.name)
    return tasks


def tasks_of_mteb(suite: str) -> list[Any]:
    """Return the English tasks of MTEB that a suite names, all or those of a category; the data is not loaded yet."""
    import mteb

    category = MTEB_SUITES[suite]
    return [task for task in mteb.get_benchmark(BENCHMARK).tasks if category in (None, task.metadata.type)]


def list_task_datasets(task: Any) -> list[dict[str, str]]:
    """Return path and revision on the hub of every dataset behind a task of mteb."""
    singles = (single.metadata.dataset for single in getattr(task, "tasks", None) or [task])
    return [{name: str(one[name]) for name in ("path", "revision")} for one in singles]


def evaluate_tasks(
    encoder: Any, tasks: list[Any], kept: Kept | None = None, *, kind: str = "own", from_data: bool = False
) -> dict[str, float]:
    """Return each task's main score as a share, by its name; tasks that were kept under this context are not repeated.

    Kept are scores alone: mteb's own result files stand under a model's name, whatever its weights. `from_data`: where
    no corpus is searched, contexts are drawn from a task's whole data.
    """
    scores = {}
    for task in tasks:
        told = task.metadata
        decides = {"kind": kind, "data": str(told.dataset), "measure": told.main_score, "mteb": version("mteb")}
        score = partial(score_task, encoder, task, from_data)
        scores[told.name] = score() if kept is None else kept.score(f"{told.name}-{kind}", decides, score)
    return scores


def score_task(encoder: Any, task: Any, from_data: bool) -> float:
    """Return the main score of one task; `from_data`: where no corpus is searched, contexts are of its whole data."""
    import mteb

    encoder.corpus = partial(collect_task_texts, task) if from_data else None
    found = mteb.evaluate(encoder, [task], cache=None, show_progress_bar=False)
    assert not found.exceptions, found.exceptions
    return float(found.task_results[0].get_score())


def by_category(scores: Mapping[str, float], categories: Mapping[str, str]) -> dict[str, float]:
    """Return the mean score of each category that has one."""
    found: dict[str, list[float]] = {}
    for name, value in scores.items():
        found.setdefault(categories[name], []).append(value)
    return {category: float(np.mean(values)) for category, values in found.items()}


def moves(own: Mapping[str, float], other: Mapping[str, float], categories: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return how far scores move from one context to another: for each STS task, and the mean of all other tasks.

    The two arrays pair up by place, as claims are judged: the mean is repeated for each STS task.
    """
    apart = {name: abs(own[name] - other[name]) for name in own}
    sts = np.array([value for name, value in apart.items() if categories[name] == "STS"])
    others = [value for name, value in apart.items() if categories[name] != "STS"]
    return {"moved/sts": sts, "moved/others": np.full(len(sts), float(np.mean(others)))}


def _encoders(inputs: Inputs, model: Model | None) -> dict[str, Any]:
    """Return a model for mteb for each context; None stands for BM25."""
    run = inputs.run
    if run.architecture == "bm25":
        return {"own": None}
    if run.architecture == "surrogate":
        from repro.evaluate.mteb.surrogate import SurrogateForMteb

        return {"own": SurrogateForMteb(get_surrogate(run))}
    from repro.evaluate.mteb.model import MtebModel

    assert model is not None, f"{run.architecture} is trained, so it has a model"
    if run.architecture == "biencoder":
        return {"own": MtebModel(model)}
    texts = training_documents(inputs)
    return {
        kind: MtebModel(
            model,
            context=context.context,
            context_seed=run.context_seed,
            fixed_context=texts if context.context == "fixed" else (),
        )
        for kind, context in CONTEXTS.items()
        if context.asked_as in run.test_contexts.split("+")
    }


def training_documents(inputs: Inputs) -> tuple[str, ...]:
    """Draw as many documents of the training pairs as the model takes for context, of fewer some twice."""
    return tuple(inputs.pairs.texts("document", draw_training_rows(inputs, inputs.run.num_contexts)))


def _bm25(inputs: Inputs, tasks: list[Any]) -> dict[str, float]:
    """Score BM25 on the retrieval tasks that are collections of the run's suite."""
    wanted = {task.metadata.name for task in tasks if task.metadata.type == "Retrieval"}
    suite = Suite(inputs.suite.name, tuple(one for one in inputs.suite.datasets if one.name in wanted))
    metrics = evaluate_bm25(suite, tokenizer=tokenizer_of_run(inputs.run)).metrics
    return {one.name: metrics[f"{suite.name}/{one.name}/{HEADLINE}"] for one in suite.datasets}
