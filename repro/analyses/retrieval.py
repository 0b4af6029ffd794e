"""Score a run on its suite: NDCG@10 and other measures per dataset, under own, wrong, random and null contexts.

In the truncated protocol (§5), the model reranks the candidates of a first stage:

1. The first stage is the surrogate of the run (GTR at `small`), or BM25 for the protocol "rerank-bm25". It searches each
   collection of the suite in full and returns the `rerank_depth` best documents of every query.
2. The result is a shared stage with one TREC run per collection, named by suite, first stage and depth.
3. Its recall is the upper limit of any reranking: the share of relevant documents among the candidates of a query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from repro.analyses import Measured
from repro.analyses.caching import open_cache
from repro.analyses.context_effect import measure_context_effect
from repro.data.beir import Retrieval
from repro.evaluate.collections import Collection, read_collections
from repro.evaluate.contexts import have_wrong_corpora
from repro.evaluate.first_stage import RECALL_FILE, RUN_ENDING, get_bm25_options, get_first_stage_name
from repro.evaluate.retrieval import Hits, read_run
from repro.evaluate.suites import Encoder, Evaluation, EvaluationOutputs, Setting, evaluate_bm25, evaluate_setting
from repro.pipeline.inputs import Inputs, draw_training_rows
from repro.pipeline.needs import count_test_contexts
from repro.spec import Run

if TYPE_CHECKING:
    from repro.model.contextual import ContextualModel


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Score the model, or the reference system of the run, on the run's suite."""
    collections = read_collections(inputs.suite)
    evaluation = evaluate(inputs, model, folder / "trec", collections)
    if inputs.run.architecture != "contextual":
        return Measured(evaluation.metrics, evaluation.per_query, evaluation.provenance)
    pool = draw_training_pool(inputs) if "random" in inputs.run.test_contexts.split("+") else None
    encoder = wrap_contextual_encoder(inputs.run, model)
    effect = measure_context_effect(inputs, encoder, evaluation, collections, pool)
    return Measured(evaluation.metrics | effect, evaluation.per_query, evaluation.provenance)


def evaluate(inputs: Inputs, model: Encoder | None, folder: Path, collections: Mapping[str, Collection]) -> Evaluation:
    """Score the system of a run on its suite, a contextual model under each of the run's `test_contexts`.

    Results are cached next to `folder` per collection, so an interrupted evaluation resumes. The `protocol` of the run
    decides between full search and reranking the candidates of a first stage, whose recall is recorded.
    """
    run, suite, first_stage = inputs.run, inputs.suite, load_first_stage(inputs)
    stage, candidates = None, None
    if first_stage is not None:
        stage, candidates = first_stage.provenance["stage"], first_stage.candidates
    outputs = EvaluationOutputs(runs=folder, cache=open_cache(folder.parent, run, model, first_stage=stage))
    if run.architecture == "bm25":
        options = get_bm25_options(run) | {"candidates": candidates}
        evaluation = evaluate_bm25(suite, outputs=outputs, collections=collections, **options)
    else:
        setting = make_setting(inputs, candidates=candidates)
        evaluation = evaluate_setting(choose_encoder(inputs, model), suite, setting, outputs, collections)
    if first_stage is None:
        return evaluation
    return replace(evaluation, provenance={**evaluation.provenance, "first_stage": dict(first_stage.provenance)})


@dataclass(frozen=True)
class FirstStage:
    """The candidates of every query by dataset, and their provenance for the record."""

    candidates: Mapping[str, Hits]
    provenance: Mapping[str, Any]


def load_first_stage(inputs: Inputs) -> FirstStage | None:
    """Return the candidates of a reranking run, building the stage if needed. None for a run that searches in full."""
    run = inputs.run
    if run.protocol == "full":
        return None
    stage = inputs.graph.candidates
    folder = stage.build()
    names = [dataset.name for dataset in inputs.suite.datasets]
    recall = json.loads((folder / RECALL_FILE).read_text(encoding="utf-8"))
    provenance = {
        "stage": folder.name,
        "system": get_first_stage_name(run),
        "depth": run.rerank_depth,
        "recall": recall,
    }
    return FirstStage({name: read_run(folder / f"{name}{RUN_ENDING}") for name in names}, provenance)


def make_setting(inputs: Inputs, **fields: Any) -> Setting:
    """Return the setting of a run's system, with all test contexts for a contextual model. `fields` are further fields."""
    run = inputs.run
    if run.architecture != "contextual":
        return Setting(**fields)
    contexts = run.test_contexts.split("+")
    if "wrong" in contexts and not have_wrong_corpora(inputs.suite.datasets):
        contexts.remove("wrong")
    if not contexts:
        raise ValueError(
            f"test_contexts='wrong' with suite={run.suite!r}, whose collections have no other corpus: set it to own"
        )
    pool = draw_training_pool(inputs) if "random" in contexts else None
    return Setting(contexts=contexts, num_contexts=count_test_contexts(run), seed=run.context_seed, pool=pool, **fields)


def draw_training_pool(inputs: Inputs) -> Retrieval:
    """Return the source of the context "random": as many training documents as an own context has, without repeats."""
    num_documents = min(len(inputs.pairs), count_test_contexts(inputs.run))
    rows = draw_training_rows(inputs, num_documents)
    texts = tuple(inputs.pairs.texts("document", rows))
    return Retrieval(f"training documents of {inputs.run.corpus}", tuple(inputs.pairs.ids(rows)), texts, (), (), {})


def choose_encoder(inputs: Inputs, model: Encoder | None) -> Encoder:
    """Return the run's model as it is scored, or its surrogate if nothing is trained."""
    if inputs.run.architecture == "contextual":
        return wrap_contextual_encoder(inputs.run, model)
    return inputs.surrogate if model is None else model


def wrap_contextual_encoder(run: Run, model: Encoder | None) -> Encoder:
    """Return a contextual model as it is scored. Another number of contexts than in training is filled with nulls."""
    trained = cast("ContextualModel", model)
    return trained if run.num_test_contexts is None else WithNulls(trained)


@dataclass(frozen=True)
class WithNulls:
    """A contextual model with fewer context documents than slots. The other slots hold its null vector.

    This is the paper's way to "supply any number of contextual inputs" (figure 16).
    """

    model: ContextualModel

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Embed the texts as context, and put the null vector into the remaining slots."""
        self.model.set_context(None)
        if texts:
            nulls_CD = self.model.context_CE
            self.model.set_context_tokens(self.model.tokenize(list(texts), prompt))
            assert nulls_CD is not None and self.model.context_CE is not None, "both contexts have just been set"
            given_CD = self.model.context_CE[: len(nulls_CD)]
            nulls_CD[: len(given_CD)] = given_CD
            self.model.context_CE = nulls_CD

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return unit vectors, float32 (N, D)."""
        vectors_ND: np.ndarray = self.model.encode(texts, prompt)
        return vectors_ND
