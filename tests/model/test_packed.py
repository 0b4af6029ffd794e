"""Packed texts have the vectors and gradients of transformers' own forward, for any lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from repro.data.tokens import Tokens
from repro.model.backbone import Backbone
from repro.model.contextual import ContextualModel
from repro.model.texts import Texts
from tests.model.samples import WORDS, build_small_model, draw_texts

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
PACKED_KINDS = ("bert", "nomic")


@pytest.fixture(autouse=True, params=["oneDNN", "MKL"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with both kernels, whichever the processor would choose."""
    has_onednn = request.param == "oneDNN" and torch.backends.mkldnn.is_available()
    monkeypatch.setattr("repro.model.packed.has_onednn", lambda: has_onednn)


def make_texts(lengths: list[int]) -> Texts:
    generator = torch.Generator().manual_seed(5)
    mask_NS = (torch.arange(max(lengths) + 2)[None] < torch.tensor(lengths)[:, None]).long()
    return Texts(torch.randint(1, WORDS, mask_NS.shape, generator=generator) * mask_NS, mask_NS)


def compute_both_ways(
    monkeypatch: pytest.MonkeyPatch, texts: Texts, *, training: bool, **changes: object
) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Return vectors and gradients of both stages, with packing and without."""
    results = []
    for packs in (True, False):
        monkeypatch.setattr(Backbone, "packs", packs)
        model = build_small_model(**changes).train(training)
        torch.manual_seed(1)  # decides which context slots are dropped
        contexts_CE = None if model.config.is_blind else model.first_stage(draw_texts(6, seed=3))
        vectors_ND = model.second_stage(texts, contexts_CE)
        (vectors_ND**2).sum().backward()
        dense = {name: weight.grad.to_dense() for name, weight in model.named_parameters() if weight.grad is not None}
        results.append((vectors_ND.detach(), dense))
    return results


def assert_same(packed: tuple[Tensor, dict[str, Tensor]], plain: tuple[Tensor, dict[str, Tensor]]) -> None:
    torch.testing.assert_close(packed[0], plain[0], **CLOSE)
    assert packed[1].keys() == plain[1].keys()
    for name, gradient in plain[1].items():
        torch.testing.assert_close(packed[1][name], gradient, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize(
    ("lengths", "num_soft_prompts", "training"),
    [([3, 9, 1, 3, 9, 7], 3, True), ([4, 4, 4], 0, False), ([2], 3, True), ([5, 4, 3, 2, 1], 0, True)],
)
@pytest.mark.parametrize("backbone", PACKED_KINDS)
def test_packed_texts_match_transformers(
    lengths: list[int], backbone: str, num_soft_prompts: int, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"backbone": backbone, "num_soft_prompts": num_soft_prompts}
    packed, plain = compute_both_ways(monkeypatch, make_texts(lengths), training=training, **changes)
    assert_same(packed, plain)


@pytest.mark.parametrize("backbone", PACKED_KINDS)
def test_null_context_is_trained_in_one_slot(backbone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    num_slots, build_prefix = [], Backbone.build_prefix

    def count_slots(self: Backbone, contexts_NCD: Tensor, *others: Any) -> Tensor:
        num_slots.append(contexts_NCD.shape[1])
        return build_prefix(self, contexts_NCD, *others)

    monkeypatch.setattr(Backbone, "build_prefix", count_slots)
    changes = {"backbone": backbone, "sequence_dropout": 1.0}
    packed, plain = compute_both_ways(monkeypatch, make_texts([3, 9, 1, 3]), training=True, **changes)
    assert num_slots == [1, 6]
    assert_same(packed, plain)
    assert packed[1]["second_stage_model.sequence_dropout_null_embedding"].abs().max() > 1e-3


@pytest.mark.parametrize("first_position", [0, 2, 7])
@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_packed_texts_begin_at_first_position(
    architecture: str, first_position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a prefix and after one, the packed states are those of transformers with the same learned positions."""
    changes = {"backbone": "bert", "architecture": architecture}
    texts, results = make_texts([3, 9, 1, 3]), []
    for packs, position in ((True, first_position), (False, first_position), (False, None)):
        monkeypatch.setattr(Backbone, "packs", packs)
        model = build_small_model(**changes, first_position=position).eval()
        if isinstance(model, ContextualModel):
            vectors_ND = model.second_stage(texts, model.first_stage(draw_texts(6, seed=3)))
        else:
            vectors_ND = model(texts)
        results.append(vectors_ND)
    torch.testing.assert_close(results[0], results[1], **CLOSE)
    moves = architecture == "contextual" or first_position > 0
    assert ((results[0] - results[2]).abs().max() > 1e-3) == moves


def test_packing_skips_transformers_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    for backbone in (*PACKED_KINDS, "modernbert"):
        model = build_small_model(backbone=backbone)
        for stage in (model.first_stage_model.embedder, model.second_stage_model.backbone):
            stage.model.register_forward_hook(lambda *args, name=backbone: called.append(name))
        model.second_stage(draw_texts(3), model.first_stage(draw_texts(6)))
    assert called == ["modernbert", "modernbert"]


def test_empty_text_is_left_to_transformers() -> None:
    model, texts = build_small_model(backbone="bert", architecture="biencoder"), make_texts([3, 1])
    empty = Texts(texts.ids_NS, torch.cat([texts.mask_NS[:1], torch.zeros_like(texts.mask_NS[1:])]))
    assert model(empty).isfinite().all()


@pytest.mark.parametrize(("num_contexts", "num_layers"), [(6, 1), (300, 2)])
@pytest.mark.parametrize("backbone", PACKED_KINDS)
def test_packed_contexts_match_transformers(
    backbone: str, num_layers: int, num_contexts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding under different contexts gives the vectors of transformers' forward.

    A prefix of more than 256 vectors is filled with zero rows for the kernel. They must not be copied before a text.
    """
    changes = {"num_layers": num_layers, "num_contexts": num_contexts, "sequence_dropout": 0.1}
    model = build_small_model(backbone=backbone, **changes).eval()
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 10, 60))])
    tokens = Tokens(rng.integers(1, WORDS, offsets[-1]).astype(np.int32), offsets)
    own_CD = model.first_stage(draw_texts(num_contexts, seed=3)).detach()
    contexts = [own_CD, model.second_stage_model.null_contexts().detach(), own_CD.flip(0) + 1]
    vectors = [model.encode_under(tokens, context_CE) for context_CE in contexts]
    monkeypatch.setattr(Backbone, "packs", False)
    for context_CE, vectors_ND in zip(contexts, vectors, strict=True):
        model.context_CE = context_CE
        torch.testing.assert_close(torch.tensor(vectors_ND), torch.tensor(model.encode_tokens(tokens)), **CLOSE)
    assert abs(vectors[0] - vectors[1]).max() > 1e-3
