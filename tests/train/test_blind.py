"""Context-blind training equals dropping every context slot. It has no first stage and is scored under null alone."""

from typing import Any

import numpy as np
import pytest
import torch

from repro.execute import execute
from repro.model.contextual import ContextualModel
from repro.spec import base, get_training_run
from repro.spec.identity import get_training_id
from repro.train.feed import Batch, feed_batch
from repro.train.gradcache import Stages, add_gradients
from repro.train.loss import info_nce
from repro.train.performance import ChunkSizes
from repro.train.trainer import stages_for
from tests.model.samples import KINDS, build_small_model
from tests.train.fixtures import make_settings, make_small_data

BLIND: dict[str, Any] = {"architecture": "contextual", "sequence_dropout": 1.0, "test_contexts": "null"}


def take_gradients(model: ContextualModel) -> dict[str, torch.Tensor]:
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return gradients


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [*(({"backbone": kind}, ChunkSizes()) for kind in KINDS), ({"tokens_per_document": 2}, ChunkSizes(3, 2))],
    ids=str,
)
def test_blind_equals_full_dropout(shape: dict[str, Any], sizes: ChunkSizes) -> None:
    """A step without documents has the loss and gradients of a step with documents that are all dropped."""
    model = build_small_model(sequence_dropout=1.0, **shape).double().train()
    assert isinstance(model, ContextualModel)
    data, batch = make_small_data(), Batch(0, np.arange(8))
    blind = feed_batch(data, batch, seed=0, num_contexts=0, is_shared=False)
    seeing = feed_batch(data, batch, seed=0, num_contexts=6, is_shared=False)
    assert blind.texts.contexts is None and seeing.texts.contexts is not None
    parts = add_gradients(stages_for(model, blind, make_settings()), blind.texts, sizes)
    without = take_gradients(model)

    def loss(queries_QD: torch.Tensor, documents_MD: torch.Tensor) -> Any:
        return info_nce(queries_QD, documents_MD, masked_QM=seeing.masked)

    expected = add_gradients(Stages(model.second_stage, loss, model.first_stage), seeing.texts)
    dropped = take_gradients(model)
    torch.testing.assert_close(parts.loss, expected.loss, rtol=1e-9, atol=0)
    assert {name.partition(".")[0] for name in without} == {"second_stage_model"}
    assert without.keys() == dropped.keys()
    for name, gradient in dropped.items():
        torch.testing.assert_close(without[name], gradient, rtol=1e-7, atol=1e-11, msg=name)
    null = without["second_stage_model.sequence_dropout_null_embedding"]
    assert null.abs().max() > 0


def test_blind_run_is_scored_under_null() -> None:
    """All suites share one training run, and no score under documents is recorded."""
    run = base("smoke", **BLIND, num_steps=4)
    assert get_training_run(run) == run
    assert get_training_id(base("smoke", **BLIND, num_steps=4, suite="planted-validation")) == get_training_id(run)
    metrics = execute(run).metrics
    assert 0 < metrics["planted+null/mean/ndcg_at_10"] <= 1
    assert not [path for path in metrics if path.startswith(("planted/", "context_effect/"))]


def test_random_context_is_training_text() -> None:
    """It is drawn by `context_seed`, equal for all collections, and as large as the in-corpus context."""
    run = base("smoke", architecture="contextual", num_steps=0, test_contexts="own+wrong+random+null")
    record = execute(run)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in record.provenance["suite"]["contexts"]:
        by_kind.setdefault(row["kind"], []).append(row)
    (hashed,) = {row["ids_sha256"] for row in by_kind["random"]}
    assert {row["num_documents"] for row in by_kind["random"] + by_kind["own"]} == {run.num_contexts}
    assert {row["corpus"] for row in by_kind["random"]} == {"training documents of planted-tiny"}
    assert "context_effect/own_minus_random/mean/difference" in record.metrics
    gap = record.metrics["planted/mean/ndcg_at_10"] - record.metrics["planted+random/mean/ndcg_at_10"]
    assert record.metrics["context_effect/own_minus_random/mean/difference"] == pytest.approx(gap, abs=1e-6)
    other_seed = execute(base("smoke", architecture="contextual", num_steps=0, test_contexts="random", context_seed=1))
    assert {row["ids_sha256"] for row in other_seed.provenance["suite"]["contexts"]} != {hashed}
    with pytest.raises(ValueError, match="test_contexts='random' with measure='mteb'"):
        base("smoke", architecture="contextual", measure="mteb", test_contexts="random")
