"""The contrastive losses against a plain loop, and GradCache against one graph of autograd."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from repro.model.contextual import ContextualModel, Model
from repro.model.texts import Texts
from repro.train.gradcache import Loss, Stages, StepTexts, add_gradients
from repro.train.loss import batch_loss, improved_contrastive, info_nce
from repro.train.performance import ChunkSizes
from tests.model.samples import KINDS, build_small_model, draw_texts


def compute_by_loop(
    queries: torch.Tensor,
    documents: torch.Tensor,
    temperature: float,
    targets: Sequence[int],
    masked: torch.Tensor | None,
) -> tuple[torch.Tensor, float, float]:
    """Return cross entropy, accuracy and the masked share of the negatives, query by query."""
    losses, hits, num_masked = [], [], 0
    for row, (query, target) in enumerate(zip(queries, targets, strict=True)):
        columns = [m for m in range(len(documents)) if m == target or not (masked is not None and masked[row][m])]
        scores = {m: torch.cosine_similarity(query, documents[m], dim=0) / temperature for m in columns}
        losses.append(torch.logsumexp(torch.stack(list(scores.values())), 0) - scores[target])
        hits.append(max(scores, key=lambda m: scores[m].item()) == target)
        num_masked += len(documents) - len(columns)
    num_negatives = len(queries) * (len(documents) - 1)
    return torch.stack(losses).mean(), sum(hits) / len(hits), num_masked / max(1, num_negatives)


@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 10_000), st.booleans(), st.sampled_from([0.02, 0.5]))
def test_loss_equals_cross_entropy(
    num_pairs: int, num_hard: int, seed: int, with_mask: bool, temperature: float
) -> None:
    """The random mask also covers positives, which are never removed from the sum."""
    generator = torch.Generator().manual_seed(seed)
    num_documents = num_pairs * (1 + num_hard)
    vectors = torch.randn(num_pairs + num_documents, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    queries, documents = vectors[:num_pairs], vectors[num_pairs:]
    masked = torch.rand(num_pairs, num_documents, generator=generator) < 0.4 if with_mask else None
    parts = info_nce(queries, documents, temperature=temperature, masked_QM=masked)
    expected, accuracy, masked_fraction = compute_by_loop(queries, documents, temperature, range(num_pairs), masked)
    torch.testing.assert_close(parts.loss, expected, rtol=1e-9, atol=1e-9)
    gradient, expected_gradient = (torch.autograd.grad(loss, vectors)[0] for loss in (parts.loss, expected))
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-7, atol=1e-9)
    assert float(parts.accuracy) == pytest.approx(accuracy)
    assert float(parts.masked_fraction) == pytest.approx(masked_fraction)


@pytest.mark.parametrize("loss", [info_nce, improved_contrastive])
def test_half_precision_is_widened(loss: Loss) -> None:
    """At a temperature of 0.02, cosines in half precision would be too coarse."""
    queries, documents = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(loss(queries, documents).loss, loss(queries.float(), documents.float()).loss)


NUM_PAIRS, NUM_CONTEXTS = 7, 6
QUERIES, DOCUMENTS = draw_texts(NUM_PAIRS, seed=1), draw_texts(NUM_PAIRS * 2, seed=2)
CONTEXTS = draw_texts(NUM_CONTEXTS, seed=3)
Result = tuple[torch.Tensor, dict[str, torch.Tensor]]
"""A loss, and the gradient of each weight."""


def make_stages(model: Model, loss: Loss = info_nce) -> Stages:
    if model.config.architecture == "biencoder":
        return Stages(second=lambda texts, contexts: model(texts), loss=loss)
    return Stages(second=model.second_stage, loss=loss, first=model.first_stage)


def make_step(model: Model) -> StepTexts:
    return StepTexts(QUERIES, DOCUMENTS, CONTEXTS if model.config.architecture == "contextual" else None)


def take_gradients(model: Model) -> dict[str, torch.Tensor]:
    dense = {}
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} has no gradient"
        dense[name] = weight.grad.clone()
    model.zero_grad()
    return dense


def compute_by_autograd(model: Model, loss: Loss = info_nce) -> Result:
    contexts = model.first_stage(CONTEXTS) if model.config.architecture == "contextual" else None
    second = make_stages(model).second
    value = loss(second(QUERIES, contexts), second(DOCUMENTS, contexts)).loss
    value.backward()
    return value.detach(), take_gradients(model)


def compute_in_chunks(model: Model, sizes: ChunkSizes, loss: Loss = info_nce) -> Result:
    value = add_gradients(make_stages(model, loss), make_step(model), sizes).loss
    assert not value.requires_grad
    return value, take_gradients(model)


def assert_same(actual: Result, expected: Result) -> None:
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-9, atol=0)
    assert actual[1].keys() == expected[1].keys()
    largest = max(float(gradient.abs().max()) for gradient in expected[1].values())
    for name, gradient in expected[1].items():
        assert gradient.abs().max() > 0, f"{name} has a zero gradient"
        torch.testing.assert_close(actual[1][name], gradient, rtol=1e-7, atol=1e-9 * largest, msg=name)


SHAPES = [{"backbone": kind, "architecture": name} for kind in KINDS for name in ("biencoder", "contextual")]


@pytest.mark.parametrize("shape", [*SHAPES, {"tokens_per_document": 2}, {"tokens_per_document": 3}], ids=str)
@pytest.mark.parametrize(
    ("num_texts", "num_contexts", "piece"), [(3, 6, 2), (1, 1, 1), (1000, 2, 100), (1000, 1000, 4)]
)
def test_equals_plain_autograd(shape: dict[str, Any], num_texts: int, num_contexts: int, piece: int) -> None:
    model = build_small_model(sequence_dropout=0.0, **shape).double().train()
    assert_same(compute_in_chunks(model, ChunkSizes(num_texts, num_contexts, piece)), compute_by_autograd(model))


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
@pytest.mark.parametrize(("loss", "widths"), [("infonce", (2, 4, 8)), ("icl", ()), ("icl", (2, 8))])
def test_masked_losses_match_autograd(architecture: str, loss: str, widths: tuple[int, ...]) -> None:
    model = build_small_model(architecture=architecture, sequence_dropout=0.0).double().train()
    num_columns = {"infonce": 2 * NUM_PAIRS, "icl": 6 * NUM_PAIRS}[loss]
    masked = torch.rand(NUM_PAIRS, num_columns, generator=torch.Generator().manual_seed(1)) < 0.2
    compute_loss = partial(batch_loss, loss=loss, widths=widths, masked=masked)
    assert_same(compute_in_chunks(model, ChunkSizes(3, 2), compute_loss), compute_by_autograd(model, compute_loss))


@pytest.mark.parametrize(
    ("sizes", "largest", "num_passes"),
    [(ChunkSizes(1000, 1000, piece=2), 2, 1), (ChunkSizes(4, 1000, piece=2), 2, 2), (ChunkSizes(4, 100), 4, 2)],
)
def test_chunks_limit_the_texts(sizes: ChunkSizes, largest: int, num_passes: int) -> None:
    """No call has more texts than a chunk or piece. Every text is computed once per pass."""
    model, num_texts = build_small_model(sequence_dropout=0.0), []
    stages = make_stages(model)

    def second(texts: Texts, contexts_CD: torch.Tensor | None) -> torch.Tensor:
        num_texts.append(texts.num_texts)
        return stages.second(texts, contexts_CD)

    add_gradients(replace(stages, second=second), make_step(model), sizes)
    assert max(num_texts) == largest and sum(num_texts) == num_passes * 3 * NUM_PAIRS


def set_dropout(model: ContextualModel, probability: float) -> ContextualModel:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = probability
    return model


@pytest.mark.parametrize("sizes", [ChunkSizes(3, 2), ChunkSizes(7, 1)])
@pytest.mark.parametrize("kind", ["nomic", "bert"])
def test_dropout_matches_autograd(kind: str, sizes: ChunkSizes) -> None:
    """Replayed pieces repeat their dropout masks, and the global generator continues as after the first pass.

    The reference keeps one graph over the same chunks in the same order, so it draws the same masks.
    """
    model = set_dropout(build_small_model(backbone=kind, sequence_dropout=0.3), 0.2).double().train()
    results, states = [], []
    for compute, seed in ((compute_in_chunks, 11), (compute_in_one_graph, 11), (compute_in_one_graph, 12)):
        torch.manual_seed(seed)
        results.append(compute(model, sizes))
        states.append(torch.get_rng_state())
    assert_same(results[0], results[1])
    assert torch.equal(states[0], states[1])
    assert abs(float(results[2][0] - results[0][0])) > 1e-3, "dropout is on"


def compute_in_one_graph(model: ContextualModel, sizes: ChunkSizes) -> Result:
    """Return loss and gradients of one graph over chunks of texts in order of length."""

    def run(stage: Callable[[Texts], torch.Tensor], texts: Texts, size: int) -> torch.Tensor:
        order = texts.mask_NS.sum(1).argsort(stable=True)
        vectors = torch.cat([stage(texts.rows(index)) for index in order.split(size)])
        return vectors[order.argsort()]

    contexts = run(model.first_stage, CONTEXTS, sizes.contexts)
    second = partial(model.second_stage, contexts_CE=contexts)
    loss = info_nce(run(second, QUERIES, sizes.texts), run(second, DOCUMENTS, sizes.texts)).loss
    loss.backward()
    return loss.detach(), take_gradients(model)
