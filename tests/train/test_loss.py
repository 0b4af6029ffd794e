"""The contrastive loss against a plain loop, and GradCache against one graph of autograd."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from repro.model.biencoder import Biencoder
from repro.model.contextual import ContextualModel
from repro.model.texts import Texts
from repro.train.chunks import ChunkSizes
from repro.train.gradcache import Stages, StepTexts, add_gradients
from repro.train.loss import info_nce
from tests.model.samples import build_small_model, draw_texts


def compute_by_loop(
    queries: torch.Tensor,
    documents: torch.Tensor,
    temperature: float,
    targets: Sequence[int],
    masked: torch.Tensor | None,
) -> tuple[torch.Tensor, float]:
    """Return cross entropy and accuracy, query by query."""
    losses, hits = [], []
    for row, (query, target) in enumerate(zip(queries, targets, strict=True)):
        columns = [m for m in range(len(documents)) if m == target or not (masked is not None and masked[row][m])]
        scores = {m: torch.cosine_similarity(query, documents[m], dim=0) / temperature for m in columns}
        losses.append(torch.logsumexp(torch.stack(list(scores.values())), 0) - scores[target])
        hits.append(max(scores, key=lambda m: float(scores[m])) == target)
    return torch.stack(losses).mean(), sum(hits) / len(hits)


@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 10_000), st.booleans(), st.sampled_from([0.02, 0.5]))
def test_loss_equals_cross_entropy(
    num_pairs: int, num_hard: int, seed: int, with_mask: bool, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(num_pairs, 5, generator=generator, dtype=torch.float64).float()
    documents = torch.randn(num_pairs * (1 + num_hard), 5, generator=generator)
    masked = torch.rand(num_pairs, len(documents), generator=generator) < 0.4 if with_mask else None
    parts = info_nce(queries, documents, temperature=temperature, masked_QM=masked)
    expected, accuracy = compute_by_loop(queries, documents, temperature, range(num_pairs), masked)
    torch.testing.assert_close(parts.loss, expected, rtol=1e-4, atol=1e-4)
    assert float(parts.accuracy) == pytest.approx(accuracy)


def test_positive_is_never_masked() -> None:
    queries, documents = torch.randn(3, 4), torch.randn(3, 4)
    parts = info_nce(queries, documents, masked_QM=torch.ones(3, 3, dtype=torch.bool))
    assert float(parts.loss) == 0 and float(parts.accuracy) == 1 and float(parts.masked_fraction) == 1


def test_masked_fraction_is_of_negatives() -> None:
    masked = torch.tensor([[True, True, False], [False, False, False]])
    assert float(info_nce(torch.randn(2, 4), torch.randn(3, 4), masked_QM=masked).masked_fraction) == 0.25


def test_masked_document_gets_no_gradient() -> None:
    queries, documents = torch.randn(2, 4), torch.randn(2, 4, requires_grad=True)
    info_nce(queries, documents, masked_QM=torch.tensor([[False, True], [False, False]])).loss.backward()
    only_second = documents.detach().flip(0).requires_grad_()
    info_nce(queries[1:], only_second).loss.backward()
    torch.testing.assert_close(documents.grad, only_second.grad.flip(0) / 2)


def test_misfitting_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="3 queries but 2 documents"):
        info_nce(torch.randn(3, 4), torch.randn(2, 4))
    with pytest.raises(ValueError, match=r"\(2, 2\), not \(2, 3\)"):
        info_nce(torch.randn(2, 4), torch.randn(3, 4), masked_QM=torch.ones(2, 2, dtype=torch.bool))


NUM_PAIRS, NUM_CONTEXTS = 7, 6
QUERIES, DOCUMENTS = draw_texts(NUM_PAIRS, seed=1), draw_texts(NUM_PAIRS * 2, seed=2)
CONTEXTS = draw_texts(NUM_CONTEXTS, seed=3)


def make_stages(model: Biencoder | ContextualModel) -> Stages:
    if model.config.architecture == "biencoder":
        return Stages(second=lambda texts, contexts: model(texts), loss=info_nce)
    return Stages(second=model.second_stage, loss=info_nce, first=model.first_stage)


def make_step(model: Biencoder | ContextualModel) -> StepTexts:
    return StepTexts(QUERIES, DOCUMENTS, CONTEXTS if model.config.architecture == "contextual" else None)


def take_gradients(model: Biencoder | ContextualModel) -> dict[str, torch.Tensor]:
    dense = {}
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} has no gradient"
        dense[name] = weight.grad.clone()
    model.zero_grad()
    return dense


def compute_by_autograd(model: Biencoder | ContextualModel) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    contexts = model.first_stage(CONTEXTS) if model.config.architecture == "contextual" else None
    second = make_stages(model).second
    loss = info_nce(second(QUERIES, contexts), second(DOCUMENTS, contexts)).loss
    loss.backward()
    return loss.detach(), take_gradients(model)


def assert_same(
    actual: tuple[torch.Tensor, dict[str, torch.Tensor]], expected: tuple[torch.Tensor, dict[str, torch.Tensor]]
) -> None:
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-9, atol=0)
    assert actual[1].keys() == expected[1].keys()
    largest = max(float(gradient.abs().max()) for gradient in expected[1].values())
    for name, gradient in expected[1].items():
        assert gradient.abs().max() > 0, f"{name} has a zero gradient"
        torch.testing.assert_close(actual[1][name], gradient, rtol=1e-7, atol=1e-9 * largest, msg=name)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
@pytest.mark.parametrize("kind", ["nomic", "bert", "modernbert"])
@pytest.mark.parametrize(
    ("num_texts", "num_contexts", "piece"),
    [(7, 3, 100), (3, 6, 2), (5, 4, 100), (1, 1, 1), (1000, 2, 100), (4, 1000, 100), (1000, 1000, 4)],
)
def test_equals_plain_autograd(architecture: str, kind: str, num_texts: int, num_contexts: int, piece: int) -> None:
    model = build_small_model(architecture=architecture, backbone=kind, sequence_dropout=0.0).double().train()
    expected = compute_by_autograd(model)
    parts = add_gradients(make_stages(model), make_step(model), ChunkSizes(num_texts, num_contexts, piece))
    assert not parts.loss.requires_grad
    assert_same((parts.loss, take_gradients(model)), expected)


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


@pytest.mark.parametrize("num_vectors", [2, 3])
def test_several_context_vectors_match_autograd(num_vectors: int) -> None:
    model = build_small_model(tokens_per_document=num_vectors, sequence_dropout=0.0).double().train()
    expected = compute_by_autograd(model)
    parts = add_gradients(make_stages(model), make_step(model), ChunkSizes(3, 2))
    assert_same((parts.loss, take_gradients(model)), expected)


class Tape:
    """Stages that draw a random number at every call, which shows whether a replay has the same randomness."""

    def __init__(self, model: ContextualModel) -> None:
        self.model, self.seen = model, []

    def _draw(self, what: str, texts: Texts) -> None:
        self.seen.append((what, torch.is_grad_enabled(), float(torch.rand(())), tuple(texts.ids_NS.flatten().tolist())))

    def first(self, texts: Texts) -> torch.Tensor:
        self._draw("first", texts)
        return self.model.first_stage(texts)

    def second(self, texts: Texts, contexts: torch.Tensor | None) -> torch.Tensor:
        self._draw("second", texts)
        return self.model.second_stage(texts, contexts)


def set_dropout(model: ContextualModel, probability: float) -> ContextualModel:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = probability
    return model


def test_replay_repeats_randomness() -> None:
    tape = Tape(set_dropout(build_small_model(), 0.3).double().train())
    add_gradients(Stages(tape.second, info_nce, tape.first), make_step(tape.model), ChunkSizes(3, 2))
    without_graph = {(what, ids): number for what, graph, number, ids in tape.seen if not graph}
    replayed = {(what, ids): number for what, graph, number, ids in tape.seen if graph}
    assert without_graph == replayed
    assert len(set(without_graph.values())) == len(without_graph) == 3 + 3 + 5


@pytest.mark.parametrize("sizes", [ChunkSizes(3, 2), ChunkSizes(4, 6), ChunkSizes(7, 1)])
@pytest.mark.parametrize("kind", ["nomic", "bert"])
def test_dropout_matches_autograd(kind: str, sizes: ChunkSizes) -> None:
    """The reference keeps one graph over the same chunks in the same order, so it draws the same dropout masks."""
    model = set_dropout(build_small_model(backbone=kind, sequence_dropout=0.3), 0.2).double().train()
    torch.manual_seed(11)
    parts = add_gradients(make_stages(model), make_step(model), sizes)
    actual = (parts.loss, take_gradients(model))
    torch.manual_seed(11)
    assert_same(actual, compute_one_graph(model, sizes))
    torch.manual_seed(12)
    assert abs(float(compute_one_graph(model, sizes)[0] - actual[0])) > 1e-3, "dropout is on"


def compute_one_graph(model: ContextualModel, sizes: ChunkSizes) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return loss and gradients of one graph over chunks of texts in order of length."""

    def chunks(texts: Texts, size: int) -> list[tuple[torch.Tensor, Texts]]:
        order = texts.mask_NS.sum(1).argsort(stable=True)
        return [(index, texts.rows(index)) for index in order.split(size)]

    def run(stage: Callable[[Texts], torch.Tensor], texts: Texts, size: int, num_vectors: int = 1) -> torch.Tensor:
        rows = [None] * texts.num_texts
        for index, chunk in chunks(texts, size):
            for index_in_batch, row in zip(index.tolist(), stage(chunk), strict=True):
                rows[index_in_batch] = row
        return torch.stack(rows)

    contexts = run(model.first_stage, CONTEXTS, sizes.contexts)
    second = lambda texts: model.second_stage(texts, contexts)  # noqa: E731
    loss = info_nce(run(second, QUERIES, sizes.texts), run(second, DOCUMENTS, sizes.texts)).loss
    loss.backward()
    return loss.detach(), take_gradients(model)


def test_outer_random_stream_continues() -> None:
    """After a step the global generator is where the passes without a graph leave it."""
    model = build_small_model().double().train()
    torch.manual_seed(5)
    with torch.no_grad():
        small = [model.first_stage(CONTEXTS.rows(index)) for index in torch.arange(6).split(2)]
        contexts = torch.cat(small)
        for texts in (QUERIES, DOCUMENTS):
            for index in torch.arange(texts.num_texts).split(3):
                model.second_stage(texts.rows(index), contexts)
    expected = torch.rand(())
    torch.manual_seed(5)
    add_gradients(make_stages(model), make_step(model), ChunkSizes(3, 2))
    assert float(torch.rand(())) == float(expected)


def test_gradients_are_added() -> None:
    model = build_small_model(sequence_dropout=0.0).double().train()
    _, once = compute_by_autograd(model)
    for _ in range(2):
        add_gradients(make_stages(model), make_step(model), ChunkSizes(3, 2))
    for name, gradient in take_gradients(model).items():
        torch.testing.assert_close(gradient, once[name] * 2, rtol=1e-7, atol=1e-8)


def test_first_stage_needs_contexts() -> None:
    model = build_small_model()
    with pytest.raises(ValueError, match="both or neither"):
        add_gradients(make_stages(model), StepTexts(QUERIES, DOCUMENTS), ChunkSizes(piece=1000))
