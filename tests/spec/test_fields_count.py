"""Two values of any field of a run give different results, or one is refused: a field that reaches nothing fails here.

A field is followed to what it changes: the stages, the batches, the untrained model's vectors, the weights after some
steps of training, or how the model is scored. That settings have the field is not enough.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from repro.analyses import retrieval
from repro.model.contextual import ContextualModel
from repro.model.start import build_model
from repro.model.texts import Texts
from repro.pipeline.inputs import Inputs
from repro.pipeline.stages import list_stages
from repro.spec import FIELDS, Run, base, get_first_phase
from repro.train.batch_view import BatchViewer
from repro.train.feed import iter_step_feeds
from repro.train.loop import optimizer_for, stages_for, take_step
from repro.train.trainer import build_sampler, make_base_config, make_train_settings
from tests.model.samples import small_model
from tests.train.fixtures import small_data

TEXTS = Texts(torch.arange(1, 19).view(3, 6), torch.ones(3, 6, dtype=torch.long))


def stages(run: Run) -> Any:
    """What is built for the run: names of stages, each a hash of all that decides it."""
    return {stage.title for stage in list_stages(run)}


def batches(run: Run) -> Any:
    """The pairs of the first batches."""
    inputs = Inputs(run)
    inputs.build(lambda line: None)
    return [build_sampler(inputs).at(number).tolist() for number in range(4)]


def masked(run: Run) -> Any:
    """What the filter leaves out of a batch."""
    inputs = Inputs(run)
    inputs.build(lambda line: None)
    return BatchViewer(inputs)(np.arange(24)).masked.tolist()


def vectors(run: Run) -> Any:
    """Vectors of the untrained model in training mode, behind its documents, and the shapes of its weights."""
    model = build_model(replace(make_base_config(run), vocab_size=200), start=run.start, seed=run.seed, heads=run.heads)
    contextual = isinstance(model, ContextualModel)
    rows = torch.arange(2, 2 + 4 * model.config.num_contexts).view(-1, 4) % 190
    torch.manual_seed(0)
    with torch.no_grad():
        found = model.train()(TEXTS, Texts(rows, torch.ones_like(rows))) if contextual else model(TEXTS)
    return found.tolist(), [tuple(weight.shape) for weight in model.parameters()]


def trained(run: Run) -> Any:
    """Weights of a small model after the steps of the run's settings, which take at most four."""
    settings = make_train_settings(run, 8)
    model = small_model(sequence_dropout=0.0).train()
    optimizer = optimizer_for(model, settings)
    feeds = iter_step_feeds(
        replace(small_data(), filter=None),
        range(min(4, settings.num_steps)),
        settings.batches_a_step,
        num_contexts=6,
        seed=settings.seed,
    )
    for number, step in enumerate(feeds, 1):
        assert stages_for(model, step.feeds[0], settings).first is not None
        take_step(model, optimizer, step.feeds, settings, step=number)
    return [weight.tolist() for weight in model.parameters()]


def scored(run: Run) -> Any:
    """How the model is scored."""
    inputs = Inputs(run)
    inputs.build(lambda line: None)
    setting = retrieval.make_setting(inputs)
    encoder = type(retrieval.wrap_contextual_encoder(run, None)).__name__
    return inputs.suite.name, setting.contexts, setting.num_contexts, setting.seed, encoder


Observe = Callable[[Run], Any]
CLUSTERS = {"sampler": "cluster", "cluster_size": 8}
FILTER = {**CLUSTERS, "filter": "surrogate", "architecture": "contextual"}
CONTEXTUAL = {"architecture": "contextual"}
PHASES = {"pretraining_corpus": "planted", "num_pretraining_steps": 5}
SHORT = {"num_steps": 4, "num_warmup_steps": 1}
ROWS: dict[str, tuple[Observe, dict[str, Any], dict[str, Any]]] = {
    "corpus": (stages, {}, {"corpus": "planted"}),
    "sources": (stages, {}, {"sources": "planted"}),
    "num_pairs": (stages, {}, {"num_pairs": 96}),
    "domain_column": (batches, {"sampler": "domain"}, {"domain_column": "source"}),
    "sampler": (batches, {}, {"sampler": "domain"}),
    "mixing_alpha": (batches, {"sampler": "domain"}, {"mixing_alpha": 0.5}),
    "batch_size": (batches, {}, {"batch_size": 8}),
    "cluster_size": (stages, CLUSTERS, {"cluster_size": 16}),
    "packing": (batches, CLUSTERS, {"packing": "greedy"}),
    "surrogate": (stages, CLUSTERS, {"surrogate": "minilm"}),
    "filter": (masked, CLUSTERS, {"filter": "surrogate"}),
    "filter_model": (stages, FILTER, {"filter_model": "minilm"}),
    "filter_margin": (masked, FILTER, {"filter_margin": -0.5}),
    "num_hard_negatives": (masked, CLUSTERS, {"num_hard_negatives": 1}),
    "mined_negatives": (stages, {"num_hard_negatives": 1}, {"mined_negatives": "any"}),
    "known_positives": (stages, {}, {"known_positives": "mask"}),
    "architecture": (vectors, {}, CONTEXTUAL),
    "backbone": (vectors, {}, {"backbone": "bert"}),
    "start": (stages, {}, {"start": "someone/encoder"}),
    "num_layers": (vectors, {}, {"num_layers": 2}),
    "num_first_stage_layers": (vectors, CONTEXTUAL, {"num_first_stage_layers": 2}),
    "hidden_size": (vectors, {}, {"hidden_size": 64}),
    "num_contexts": (vectors, CONTEXTUAL, {"num_contexts": 4}),
    "tokens_per_document": (vectors, CONTEXTUAL, {"tokens_per_document": 2}),
    "num_soft_prompts": (vectors, CONTEXTUAL, {"num_soft_prompts": 3}),
    "sequence_dropout": (vectors, CONTEXTUAL, {"sequence_dropout": 0.5}),
    "pooling": (vectors, CONTEXTUAL, {"pooling": "frequency"}),
    "residual": (vectors, CONTEXTUAL, {"residual": True}),
    "prompts": (stages, {}, {"prompts": "task"}),
    "max_tokens": (stages, {}, {"max_tokens": 9}),
    "heads": (vectors, CONTEXTUAL, {"heads": "identity"}),
    "seed": (batches, {}, {"seed": 1}),
    "loss": (trained, SHORT, {"loss": "icl"}),
    "nested_sizes": (trained, SHORT | {"hidden_size": 16}, {"nested_sizes": "4+16"}),
    "batches_a_step": (trained, SHORT, {"batches_a_step": 2}),
    "num_steps": (trained, SHORT, {"num_steps": 3}),
    "num_epochs": (trained, SHORT, {"num_steps": None, "num_epochs": 1}),
    "learning_rate": (trained, SHORT, {"learning_rate": 1e-3}),
    "first_stage_rate": (trained, SHORT, {"first_stage_rate": 0.5}),
    "num_warmup_steps": (trained, SHORT, {"num_warmup_steps": 2}),
    "weight_decay": (trained, SHORT, {"weight_decay": 0.5}),
    "temperature": (trained, SHORT, {"temperature": 0.1}),
    "max_grad_norm": (trained, SHORT, {"max_grad_norm": 1e-9}),
    "pretraining_corpus": (stages, {}, PHASES),
    "suite": (scored, {}, {"suite": "planted-validation"}),
    "protocol": (stages, {}, {"protocol": "rerank-bm25", "rerank_depth": 5}),
    "rerank_depth": (stages, {"protocol": "rerank", "rerank_depth": 4}, {"rerank_depth": 5}),
    "context_seed": (scored, CONTEXTUAL, {"context_seed": 1}),
    "num_test_contexts": (scored, CONTEXTUAL, {"num_test_contexts": 2}),
    "test_contexts": (scored, CONTEXTUAL, {"test_contexts": "own+random"}),
}
"""Of each field: what it changes, the run, and the change."""
ELSEWHERE = {
    "scale": "gives the others their values",
    "measure": "names the module of repro.analyses that is called",
    "num_pretraining_steps": "of the first phase: test_phases",
    "num_pretraining_epochs": "of the first phase: test_phases",
    "pretraining_batch_size": "of the first phase: test_phases",
    "pretraining_cluster_size": "of the first phase: test_phases",
}
"""Fields that are followed in another way, and why."""


def test_every_field_has_a_row() -> None:
    assert set(FIELDS) == set(ROWS) | set(ELSEWHERE)


@pytest.mark.parametrize("name", ROWS)
def test_two_values_differ(name: str) -> None:
    observe, changes, change = ROWS[name]
    run = base("smoke", **changes)
    other = replace(run, **change)
    assert getattr(run, name) != getattr(other, name)
    assert observe(run) == observe(run), "what is observed is the same for the same run"
    assert observe(run) != observe(other), f"{name} changes nothing"


@pytest.mark.parametrize(
    "change",
    [
        {"num_pretraining_steps": 6},
        {"num_pretraining_steps": None, "num_pretraining_epochs": 1},
        {"pretraining_batch_size": 8},
        {"pretraining_cluster_size": 8},
    ],
)
def test_phases(change: dict[str, Any]) -> None:
    """A field of the first phase is a field of the training that it is, which the rows above follow."""
    run = base("smoke", **PHASES)
    assert get_first_phase(run) != get_first_phase(replace(run, **change))
