"""The interface of a model: setting a context, encoding texts, saving and loading. Also gradients of word vectors."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from repro.data.prompts import PROMPTS
from repro.data.tokens import Tokens
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from repro.model.contextual import Model
from repro.model.encoding import compute_canonical_order, write_tensors
from repro.model.modeling_cde import fill_context
from repro.model.packed import look_up_words
from repro.model.start import build_model, load_model
from repro.model.texts import Texts
from tests.model.samples import build_small_model

TEXTS = ["one", "a somewhat longer text about rain", "rain falls", "snow falls on the hills", "hills"]


def build_text_model(**changes: Any) -> Model:
    values = {"hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "num_contexts": 4}
    return build_model(ModelConfig(**({"architecture": "contextual"} | values | changes)))


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_vectors_do_not_depend_on_batches(architecture: str) -> None:
    model = build_text_model(architecture=architecture)
    model.set_context(TEXTS)
    vectors = model.encode(TEXTS, batch_size=2)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(model.encode(TEXTS[::-1], batch_size=2)[::-1], vectors)
    np.testing.assert_array_equal(model.encode(TEXTS, batch_size=2), vectors)
    np.testing.assert_allclose(model.encode(TEXTS, batch_size=64), vectors, atol=1e-6)
    np.testing.assert_allclose(np.concatenate([model.encode([text]) for text in TEXTS]), vectors, atol=1e-6)


def test_encoding_keeps_the_mode() -> None:
    model = build_text_model(sequence_dropout=0.9)
    model.train()
    model.set_context(TEXTS)
    np.testing.assert_array_equal(model.encode(TEXTS), model.encode(TEXTS))
    assert model.training


@pytest.mark.parametrize(
    ("method", "texts", "message"),
    [
        ("encode", TEXTS, "set_context"),
        ("encode", "hello", "'hello' is one text"),
        ("set_context", "a corpus", "'a corpus' is one text"),
        ("set_context", [], "empty"),
    ],
)
def test_meaningless_texts_are_refused(method: str, texts: list[str] | str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(build_text_model(), method)(texts)


def test_batches_without_texts_are_refused() -> None:
    """They would leave the vectors as allocated."""
    with pytest.raises(ValueError, match="batch_size is -1"):
        build_text_model(architecture="biencoder").encode(TEXTS, batch_size=-1)


def test_few_contexts_are_repeated() -> None:
    model = build_text_model(num_contexts=8)
    with pytest.warns(UserWarning, match="5 context documents for a model that takes 8"):
        model.set_context(TEXTS, seed=3)
    assert model.context_CE.shape == (8, 16)
    with pytest.warns(UserWarning):
        first, repeated, other_seed = (fill_context(5, 8, seed).tolist() for seed in (3, 3, 4))
    assert first == repeated != other_seed
    assert first[:5] == [0, 1, 2, 3, 4] and set(first[5:]) <= set(range(5))


def test_surplus_contexts_are_drawn_by_seed() -> None:
    """A corpus may be sorted by domain, so the context is a sample of all of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(fill_context(4, 4, 7), [0, 1, 2, 3])
        drawn_S4 = np.stack([fill_context(9, 4, seed) for seed in range(900)])
    assert (np.diff(drawn_S4, axis=1) > 0).all(), "sorted without repetition"
    counts_9 = np.bincount(drawn_S4.ravel(), minlength=9)
    assert abs(counts_9 - 400).max() < 75, "each of nine texts is drawn 400 times, with a deviation of 15"
    model, corpus = build_text_model(), [f"text {number}" for number in range(9)]
    model.set_context(corpus, seed=5)
    sampled_CE = model.context_CE
    model.set_context([corpus[row] for row in drawn_S4[5]])
    torch.testing.assert_close(model.context_CE, sampled_CE)


def test_contexts_get_the_document_prompt() -> None:
    with_task, without = build_text_model(prompts="task"), build_text_model(prompts="none")
    with_task.set_context(TEXTS[:4])
    without.set_context([PROMPTS["task"].document + text for text in TEXTS[:4]])
    torch.testing.assert_close(with_task.context_CE, without.context_CE)


@pytest.mark.parametrize(
    ("kind", "architecture"), [("nomic", "biencoder"), ("bert", "contextual"), ("modernbert", "contextual")]
)
def test_saved_model_loads_equal(tmp_path: Path, kind: str, architecture: str) -> None:
    model = build_small_model(backbone=kind, architecture=architecture, prompts="task")
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config and not loaded.training
    for name, value in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=0, atol=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1, "weights are readable for whom the config is"


def add_config_fields(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"num_layer": 2, "colour": "red"}))


def change_weights(folder: Path) -> None:
    """Change the shape of one tensor and rename another."""
    weights = load_file(folder / "model.safetensors")
    weights["first_stage_model.mlp.0.bias"] = torch.zeros(3)
    weights["more"] = weights.pop("first_stage_model.mlp.2.bias")
    write_tensors(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "load", "message"),
    [
        (lambda folder: None, Biencoder.from_pretrained, "holds a contextual model, not a biencoder"),
        (add_config_fields, load_model, "unexpected keyword argument '(colour|num_layer)'"),
        (change_weights, load_model, r"\['first_stage_model.mlp.2.bias'\] \['more'\] \['\S*mlp.0.bias is "),
        (lambda folder: (folder / "config.json").unlink(), load_model, r"config\.json cannot be read"),
    ],
)
def test_damaged_model_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], load: Callable[[Path], object], message: str
) -> None:
    build_small_model().save_pretrained(tmp_path)
    damage(tmp_path)
    with pytest.raises((TypeError, ValueError), match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompts", "e5"),
        ("num_heads", 3),
        ("residual", "false"),
        ("num_contexts", 0),
    ],
)
def test_meaningless_config_is_refused(field: str, value: str | int) -> None:
    with pytest.raises(ValueError, match=f"{value}"):
        ModelConfig(**({"architecture": "biencoder", "hidden_size": 16} | {field: value}))


@pytest.mark.parametrize(("most", "num_words"), [(0, 2), (3, 2), (9, 30_000)])
def test_order_is_by_length_then_bytes(most: int, num_words: int) -> None:
    """Ties keep their order, empty texts come first, and word 0 counts like any other."""
    rng = np.random.default_rng(most)
    for count in (0, 1, 2, 500):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(0, most + 1, count))]).astype(np.int64)
        tokens = Tokens(rng.integers(0, num_words, offsets[-1]).astype(np.int32), offsets)
        texts = [tokens.ids[offsets[n] : offsets[n + 1]].tobytes() for n in range(count)]
        expected = sorted(range(count), key=lambda n: (len(texts[n]), texts[n]))
        order = compute_canonical_order(tokens)
        assert order.tolist() == expected and order.dtype == np.int64


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_gpu_batches_count_tokens(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches on a GPU have a maximum number of tokens. Here the CPU is treated as a GPU."""
    texts = [" ".join(["rain"] * (1 + index % 9)) for index in range(60)]
    model = build_text_model(architecture=architecture)
    model.set_context(texts)
    expected, shapes, real = model.encode(texts), [], type(model).embed_texts

    def embed_texts(self: Any, batch: Texts, *context: Any) -> torch.Tensor:
        shapes.append(tuple(batch.ids_NS.shape))
        return real(self, batch, *context)

    monkeypatch.setattr(type(model), "embed_texts", embed_texts)
    monkeypatch.setattr("repro.model.encoding.GPU", "cpu")
    monkeypatch.setattr("repro.model.encoding.TOKENS_PER_CHUNK", 100)
    np.testing.assert_allclose(model.encode(texts), expected, atol=1e-6)
    ahead = {"biencoder": 0, "contextual": model.config.num_contexts + model.config.num_soft_prompts}[architecture]
    assert len(shapes) > 3 and all(rows * (ahead + length) <= 100 for rows, length in shapes)
    assert all((rows + 1) * (ahead + length) > 100 for rows, length in shapes[:-1]), "only the last has room"
    shapes.clear()
    model.encode(texts, batch_size=7)
    assert [rows for rows, _ in shapes] == [7] * 8 + [4], "a given batch size is kept"
    model.is_narrow = True
    narrow = model.encode(texts)
    np.testing.assert_allclose(narrow, expected, atol=0.05)
    np.testing.assert_allclose(np.linalg.norm(narrow, axis=1), 1, atol=1e-6)
    assert narrow.dtype == np.float32 and not np.array_equal(narrow, expected)


NUM_WORDS, WIDTH = 50, 7
IDS = [
    torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(1)) for shape in ((4, 6), (3,), (2, 1), (0, 5))
]


def draw_weights() -> nn.Parameter:
    return nn.Parameter(torch.randn(NUM_WORDS, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.double))


def compute_gradient(
    look_up: Callable[[Tensor, Tensor], Tensor], weight_VD: nn.Parameter, *, at_once: bool = True
) -> Tensor:
    """Return the gradient of a sum over all pieces, by one backward pass or by one per piece."""
    parts = [(look_up(ids, weight_VD).tanh() * (index + 1)).sum() for index, ids in enumerate(IDS)]
    for loss in [torch.stack(parts).sum()] if at_once else parts:
        loss.backward()
    assert weight_VD.grad is not None and not weight_VD.grad.is_sparse
    return weight_VD.grad


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("has_gradient", [True, False])
def test_word_vectors_match_torch(at_once: bool, has_gradient: bool) -> None:
    weight_VD, reference_VD = draw_weights(), draw_weights()
    if has_gradient:
        weight_VD.grad, reference_VD.grad = torch.ones_like(weight_VD), torch.ones_like(reference_VD)
    gradient = compute_gradient(look_up_words, weight_VD, at_once=at_once)
    expected = compute_gradient(nn.functional.embedding, reference_VD, at_once=at_once)
    assert expected[:9].abs().min() > 0
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


def test_gradient_passes_saved_tensor_hooks() -> None:
    """Hooks of checkpointing or offloading may give the backward pass a copy of a saved tensor."""
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        gradient = compute_gradient(look_up_words, draw_weights())
    torch.testing.assert_close(gradient, compute_gradient(nn.functional.embedding, draw_weights()))
