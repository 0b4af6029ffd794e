"""Two values of any field of a run give different ids and different results.

A field is followed to what it changes: stages, batches, vectors of the untrained model, weights after some steps, or
the settings of the evaluation. It is not enough that some settings have the field.
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
from repro.spec.identity import get_training_id, run_id
from repro.spec.run import CONTEXT_FIELDS
from repro.train.batch_view import BatchViewer
from repro.train.feed import iter_step_feeds
from repro.train.setup import build_sampler, make_base_config, make_train_settings
from repro.train.trainer import make_optimizer, stages_for, take_step
from tests.commands import ignore
from tests.model.samples import build_small_model
from tests.train.fixtures import make_small_data

TEXTS = Texts(torch.arange(1, 19).view(3, 6), torch.ones(3, 6, dtype=torch.long))


def build_inputs(run: Run) -> Inputs:
    inputs = Inputs(run)
    inputs.build(ignore)
    return inputs


def get_stages(run: Run) -> Any:
    """Return the titles of the run's stages, which have a hash of their inputs."""
    return {stage.title for stage in list_stages(run)}


def get_batches(run: Run) -> Any:
    """Return the pairs of the first batches."""
    sampler = build_sampler(build_inputs(run))
    return [sampler.at(number).tolist() for number in range(4)]


def get_masked(run: Run) -> Any:
    """Return the mask of a batch."""
    return BatchViewer(build_inputs(run))(np.arange(24)).masked.tolist()


def get_vectors(run: Run) -> Any:
    """Return vectors of the untrained model in training mode with a context, and the shapes of its weights."""
    model = build_model(replace(make_base_config(run), vocab_size=200), start=run.start, seed=run.seed, heads=run.heads)
    contextual = isinstance(model, ContextualModel)
    rows = torch.arange(2, 2 + 4 * model.config.num_contexts).view(-1, 4) % 190
    torch.manual_seed(0)
    with torch.no_grad():
        vectors = model.train()(TEXTS, Texts(rows, torch.ones_like(rows))) if contextual else model(TEXTS)
    return vectors.tolist(), [tuple(weight.shape) for weight in model.parameters()]


def get_weights(run: Run) -> Any:
    """Return the weights of a small model after at most four steps with the run's settings."""
    settings = make_train_settings(run, 8)
    model = build_small_model(sequence_dropout=0.0).train()
    optimizer = make_optimizer(model, settings)
    feeds = iter_step_feeds(
        replace(make_small_data(), filter=None),
        range(min(4, settings.num_steps)),
        settings.batches_a_step,
        num_contexts=6,
        seed=settings.seed,
    )
    for number, step in enumerate(feeds, 1):
        assert stages_for(model, step.feeds[0], settings).first is not None
        take_step(model, optimizer, step.feeds, settings, step=number)
    return [weight.tolist() for weight in model.parameters()]


def get_evaluation(run: Run) -> Any:
    """Return the suite, contexts and encoder of the evaluation."""
    inputs = build_inputs(run)
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
    "corpus": (get_stages, {}, {"corpus": "planted"}),
    "sources": (get_stages, {}, {"sources": "planted"}),
    "num_pairs": (get_stages, {}, {"num_pairs": 96}),
    "domain_column": (get_batches, {"sampler": "domain"}, {"domain_column": "source"}),
    "sampler": (get_batches, {}, {"sampler": "domain"}),
    "mixing_alpha": (get_batches, {"sampler": "domain"}, {"mixing_alpha": 0.5}),
    "batch_size": (get_batches, {}, {"batch_size": 8}),
    "cluster_size": (get_stages, CLUSTERS, {"cluster_size": 16}),
    "cluster_dimensions": (get_stages, CLUSTERS, {"cluster_dimensions": 4}),
    "packing": (get_batches, CLUSTERS, {"packing": "greedy"}),
    "surrogate": (get_stages, CLUSTERS, {"surrogate": "minilm"}),
    "filter": (get_masked, CLUSTERS, {"filter": "surrogate"}),
    "filter_model": (get_stages, FILTER, {"filter_model": "minilm"}),
    "filter_margin": (get_masked, FILTER, {"filter_margin": -0.5}),
    "num_hard_negatives": (get_masked, CLUSTERS, {"num_hard_negatives": 1}),
    "mined_negatives": (get_stages, {"num_hard_negatives": 1}, {"mined_negatives": "any"}),
    "known_positives": (get_stages, {}, {"known_positives": "mask"}),
    "architecture": (get_vectors, {}, CONTEXTUAL),
    "backbone": (get_vectors, {}, {"backbone": "bert"}),
    "start": (get_stages, {}, {"start": "someone/encoder"}),
    "num_layers": (get_vectors, {}, {"num_layers": 2}),
    "num_first_stage_layers": (get_vectors, CONTEXTUAL, {"num_first_stage_layers": 2}),
    "hidden_size": (get_vectors, {}, {"hidden_size": 64}),
    "num_contexts": (get_vectors, CONTEXTUAL, {"num_contexts": 4}),
    "tokens_per_document": (get_vectors, CONTEXTUAL, {"tokens_per_document": 2}),
    "num_soft_prompts": (get_vectors, CONTEXTUAL, {"num_soft_prompts": 3}),
    "first_position": (get_vectors, {"backbone": "bert"}, {"first_position": 3}),
    "sequence_dropout": (get_vectors, CONTEXTUAL, {"sequence_dropout": 0.5}),
    "pooling": (get_vectors, CONTEXTUAL, {"pooling": "frequency"}),
    "residual": (get_vectors, CONTEXTUAL, {"residual": True}),
    "prompts": (get_stages, {}, {"prompts": "task"}),
    "max_tokens": (get_stages, {}, {"max_tokens": 9}),
    "heads": (get_vectors, CONTEXTUAL, {"heads": "identity"}),
    "seed": (get_batches, {}, {"seed": 1}),
    "loss": (get_weights, SHORT, {"loss": "icl"}),
    "nested_sizes": (get_weights, SHORT | {"hidden_size": 16}, {"nested_sizes": "4+16"}),
    "batches_a_step": (get_weights, SHORT, {"batches_a_step": 2}),
    "num_steps": (get_weights, SHORT, {"num_steps": 3}),
    "num_epochs": (get_weights, SHORT, {"num_steps": None, "num_epochs": 1}),
    "learning_rate": (get_weights, SHORT, {"learning_rate": 1e-3}),
    "first_stage_rate": (get_weights, SHORT, {"first_stage_rate": 0.5}),
    "num_warmup_steps": (get_weights, SHORT, {"num_warmup_steps": 2}),
    "weight_decay": (get_weights, SHORT, {"weight_decay": 0.5}),
    "temperature": (get_weights, SHORT, {"temperature": 0.1}),
    "max_grad_norm": (get_weights, SHORT, {"max_grad_norm": 1e-9}),
    "pretraining_corpus": (get_stages, {}, PHASES),
    "suite": (get_evaluation, {}, {"suite": "planted-validation"}),
    "protocol": (get_stages, {}, {"protocol": "rerank-bm25", "rerank_depth": 5}),
    "rerank_depth": (get_stages, {"protocol": "rerank", "rerank_depth": 4}, {"rerank_depth": 5}),
    "context_seed": (get_evaluation, CONTEXTUAL, {"context_seed": 1}),
    "num_test_contexts": (get_evaluation, CONTEXTUAL, {"num_test_contexts": 2}),
    "test_contexts": (get_evaluation, CONTEXTUAL, {"test_contexts": "own+random"}),
}
"""By field: what it changes, the run, and the change."""
ELSEWHERE = {
    "scale": "gives the other fields their values",
    "kept_weights": "needs pairs set apart: tests/train/test_set_apart",
    "measure": "names the module of repro.analyses that is called",
    "num_pretraining_steps": "a field of the first phase: test_first_phase_fields_count",
    "num_pretraining_epochs": "a field of the first phase: test_first_phase_fields_count",
    "pretraining_batch_size": "a field of the first phase: test_first_phase_fields_count",
    "pretraining_cluster_size": "a field of the first phase: test_first_phase_fields_count",
}
"""Fields that are tested in another way."""


EVALUATED = {"suite", "context_seed", "num_test_contexts", "test_contexts", "measure", "protocol", "rerank_depth"}
"""Fields that training does not depend on."""


def test_every_field_has_a_row() -> None:
    assert set(FIELDS) == set(ROWS) | set(ELSEWHERE)


def assert_ids_differ(run: Run, other: Run, name: str) -> None:
    """Two values of a field give two ids, and two ids of the training run if training depends on the field."""
    assert getattr(run, name) != getattr(other, name)
    assert run_id(run) != run_id(other)
    assert (get_training_id(run) == get_training_id(other)) == (name in EVALUATED)


@pytest.mark.usefixtures("shared_home")
@pytest.mark.parametrize("name", ROWS)
def test_two_values_differ(name: str) -> None:
    observe, changes, change = ROWS[name]
    run = base("smoke", **changes)
    other = replace(run, **change)
    assert_ids_differ(run, other, name)
    result = observe(run)
    assert observe(run) == result != observe(other), f"{name} changes nothing"


@pytest.mark.parametrize("change", [{"scale": "desk"}, {"kept_weights": "best"}, {"measure": "batches"}])
def test_other_fields_move_the_id(change: dict[str, Any]) -> None:
    (name,) = change
    assert_ids_differ(base("smoke"), replace(base("smoke"), **change), name)


@pytest.mark.parametrize(
    "change",
    [
        {"num_pretraining_steps": 6},
        {"num_pretraining_epochs": 1, "num_pretraining_steps": None},
        {"pretraining_batch_size": 8},
        {"pretraining_cluster_size": 8},
    ],
)
def test_first_phase_fields_count(change: dict[str, Any]) -> None:
    """A field of the first phase changes the run of that phase, whose fields are tested above."""
    run = base("smoke", **PHASES)
    other = replace(run, **change)
    assert_ids_differ(run, other, next(iter(change)))
    assert get_first_phase(run) != get_first_phase(other)


@pytest.mark.parametrize("name", sorted(set(CONTEXT_FIELDS) - {"pooling", "first_stage_rate"}))
def test_context_fields_leave_biencoder_unchanged(name: str) -> None:
    """Grids do not multiply a biencoder by these fields."""
    run = base("smoke", architecture="biencoder")
    changed = replace(run, **ROWS[name][2])
    assert get_vectors(run) == get_vectors(changed)
