"""Scores on the run's suite: NDCG@10 and others for each dataset, under own, other, random and null contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from repro.analyses import Measured
from repro.analyses.context_effect import Seen, context_effect
from repro.analyses.context_example import context_example
from repro.analyses.first_stage import first_stage
from repro.analyses.keeping import keep_in
from repro.batches.fixed_encoder import get_surrogate
from repro.data.beir import Retrieval
from repro.evaluate.collections import Collection, read_collections
from repro.evaluate.first_stage import tokenizer_of_run
from repro.evaluate.retrieval import Hits
from repro.evaluate.suites import Encoder, Evaluation, Keeping, Setting, evaluate_bm25, evaluate_setting
from repro.pipeline.inputs import Inputs, draw_training_rows
from repro.pipeline.wanted import count_test_contexts
from repro.spec import Run

if TYPE_CHECKING:
    from repro.model.contextual import ContextualModel


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Score the model (or the reference system that stands in its place) on the run's suite."""
    collections = read_collections(inputs.suite)
    evaluation = evaluate(inputs, model, folder / "trec", collections)
    if inputs.run.architecture != "contextual":
        return Measured(evaluation.metrics, evaluation.per_query, evaluation.provenance)
    pool = training_pool(inputs) if "random" in inputs.run.test_contexts.split("+") else None
    seen = Seen(inputs, contextual_encoder(inputs.run, model), evaluation, collections, pool)
    metrics, example = evaluation.metrics | context_effect(seen), context_example(seen, folder / "trec")
    return Measured(metrics, evaluation.per_query, evaluation.provenance, example)


def evaluate(inputs: Inputs, model: Encoder | None, folder: Path, collections: Mapping[str, Collection]) -> Evaluation:
    """Score a run's system on the run's suite, a contextual model under each of the run's `test_contexts`.

    Results are kept beside `folder` as collections end, and an evaluation that was stopped goes on behind the last one.
    By the run's `protocol` all documents are searched, or a first stage's candidates are ranked, whose recall is kept.
    """
    first = first_stage(inputs)
    stage = None if first is None else first.provenance["stage"]
    keeping = Keeping(runs=folder, kept=keep_in(folder.parent, inputs.run, model, first_stage=stage))
    found = _evaluate(inputs, model, collections, keeping, None if first is None else first.candidates)
    if first is None:
        return found
    return replace(found, provenance={**found.provenance, "first_stage": dict(first.provenance)})


def _evaluate(
    inputs: Inputs,
    model: Encoder | None,
    collections: Mapping[str, Collection],
    keeping: Keeping,
    candidates: Mapping[str, Hits] | None,
) -> Evaluation:
    run, suite = inputs.run, inputs.suite
    if run.architecture == "bm25":
        how: dict[str, Any] = {"candidates": candidates, "tokenizer": tokenizer_of_run(run)}
        return evaluate_bm25(suite, keeping=keeping, collections=collections, **how)
    reference = get_surrogate(run) if model is None else model
    encoder = contextual_encoder(run, model) if run.architecture == "contextual" else reference
    return evaluate_setting(encoder, suite, make_setting(inputs, candidates=candidates), keeping, collections)


def make_setting(inputs: Inputs, **more: Any) -> Setting:
    """Return how a run's system is scored: a contextual one under each of its contexts; `more` as a setting has it."""
    run = inputs.run
    if run.architecture != "contextual":
        return Setting(**more)
    contexts = run.test_contexts.split("+")
    if len(inputs.suite.datasets) == 1:  # alone, a collection has no wrong corpus
        contexts = [kind for kind in contexts if kind != "wrong"]
    pool = training_pool(inputs) if "random" in contexts else None
    return Setting(contexts=contexts, num_contexts=count_test_contexts(run), seed=run.context_seed, pool=pool, **more)


def training_pool(inputs: Inputs) -> Retrieval:
    """Return the documents of the context "random": as many training documents as an own context has, each once."""
    count = min(len(inputs.pairs), count_test_contexts(inputs.run))
    rows = draw_training_rows(inputs, count)
    texts = tuple(inputs.pairs.texts("document", rows))
    return Retrieval(f"training documents of {inputs.run.corpus}", tuple(inputs.pairs.ids(rows)), texts, (), (), {})


def contextual_encoder(run: Run, model: Encoder | None) -> Encoder:
    """Return a contextual model as it is scored: one that is given another number of contexts fills up with nulls."""
    trained = cast("ContextualModel", model)
    return trained if run.num_test_contexts is None else WithNulls(trained)


@dataclass(frozen=True)
class WithNulls:
    """A contextual model given fewer context documents than it has places for: the other places hold its null vector.

    The paper's way to "supply any number of contextual inputs" (figure 16).
    """

    model: ContextualModel

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Embed the texts as context, and put the null vector in the places that are left."""
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
