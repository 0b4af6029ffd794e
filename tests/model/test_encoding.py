"""The interface of a model: setting a context, encoding texts, saving and loading. Also gradients of word vectors."""

import json
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from repro.data.prompts import PROMPTS, with_prompt
from repro.data.tokens import Tokens
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel, fill_context
from repro.model.encoding import compute_canonical_order, write_tensors
from repro.model.start import build_model, load_model
from repro.model.texts import Texts
from repro.model.word_vectors import look_up_words
from tests.model.samples import KINDS, build_small_model

TEXTS = ["one", "a somewhat longer text about rain", "rain falls", "snow falls on the hills", "hills"]


def build_text_model(**changes: Any) -> Biencoder | ContextualModel:
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


def test_nothing_to_encode_gives_no_rows() -> None:
    assert build_text_model(architecture="biencoder").encode([]).shape == (0, 16)


def test_missing_context_is_refused() -> None:
    with pytest.raises(ValueError, match="set_context"):
        build_text_model().encode(TEXTS)


def test_few_contexts_are_repeated() -> None:
    model = build_text_model(num_contexts=8)
    with pytest.warns(UserWarning, match="5 context documents for a model that takes 8"):
        model.set_context(TEXTS, seed=3)
    assert model.context_CE.shape == (8, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, again, other = (fill_context(5, 8, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert list(first[:5]) == [0, 1, 2, 3, 4] and list(first) != list(other)


def test_surplus_contexts_are_drawn_by_seed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(fill_context(4, 4, 7), [0, 1, 2, 3])
        drawn_S4 = np.stack([fill_context(9, 4, seed) for seed in range(900)])
    assert (np.diff(drawn_S4, axis=1) > 0).all(), "sorted without repetition"
    np.testing.assert_array_equal(drawn_S4[5], fill_context(9, 4, 5))
    counts_9 = np.bincount(drawn_S4.ravel(), minlength=9)
    assert abs(counts_9 - 400).max() < 75, "each of nine texts is drawn 400 times, with a deviation of 15"


def test_sorted_corpus_gives_all_domains() -> None:
    model = build_text_model(num_contexts=8)
    corpus = [f"{domain} {n}" for domain in ("rain", "bread", "copper", "snow") for n in range(100)]
    contexts = []
    for seed in (0, 0, 1):
        model.set_context(corpus, seed=seed)
        contexts.append(model.context_CE)
    torch.testing.assert_close(contexts[0], contexts[1])
    assert not torch.equal(contexts[0], contexts[2])
    model.set_context([corpus[row] for row in fill_context(400, 8, 1)], seed=5)
    torch.testing.assert_close(contexts[2], model.context_CE)
    assert {corpus[row].split()[0] for row in fill_context(400, 8, 0)} != {"rain"}


def test_empty_corpus_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        build_text_model().set_context([])


def test_single_text_is_no_list() -> None:
    model = build_text_model()
    with pytest.raises(ValueError, match=r"'a corpus' is one text, .*: give a list"):
        model.set_context("a corpus")
    model.set_context(None)
    with pytest.raises(ValueError, match="is one text"):
        model.encode("hello")


def test_contexts_get_the_document_prompt() -> None:
    with_task, without = build_text_model(prompts="task"), build_text_model(prompts="none")
    with_task.set_context(TEXTS[:4])
    without.set_context([PROMPTS["task"].document + text for text in TEXTS[:4]])
    torch.testing.assert_close(with_task.context_CE, without.context_CE)


def test_prompts_stand_in_front() -> None:
    assert with_prompt(["rain"], "task", "query") == ["search_query: rain"]
    assert with_prompt(["rain"], "none", "document") == ["rain"]
    with pytest.raises(ValueError, match="search"):
        with_prompt(["rain"], "search", "query")
    with pytest.raises(ValueError, match="passage"):
        with_prompt(["rain"], "task", "passage")


def test_texts_are_cut_to_length() -> None:
    tokens = build_text_model(max_tokens=5).tokenize(["one two three four five six"], "query")
    assert tokens.lengths.tolist() == [5]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_saved_model_loads_equal(tmp_path: Path, kind: str, architecture: str) -> None:
    model = build_small_model(backbone=kind, architecture=architecture, prompts="task")
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config and not loaded.training
    for name, value in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=0, atol=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_other_architecture_is_refused(tmp_path: Path) -> None:
    build_small_model().save_pretrained(tmp_path)
    assert isinstance(ContextualModel.from_pretrained(tmp_path), ContextualModel)
    with pytest.raises(ValueError, match="contextual model, not a biencoder"):
        Biencoder.from_pretrained(tmp_path)


def test_unknown_config_fields_are_listed(tmp_path: Path) -> None:
    build_small_model().save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | {"num_layer": 2, "colour": "red"}))
    with pytest.raises(ValueError, match=r"\['colour', 'num_layer'\]"):
        load_model(tmp_path)


def test_wrong_weights_are_listed(tmp_path: Path) -> None:
    model = build_small_model()
    model.save_pretrained(tmp_path)
    weights = dict(model.state_dict())
    weights["first_stage_model.mlp.0.bias"] = torch.zeros(3)
    weights["more"] = weights.pop("first_stage_model.mlp.2.bias")
    write_tensors(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"\['first_stage_model.mlp.2.bias'\] \['more'\] \['\S*mlp.0.bias is "):
        load_model(tmp_path)


def test_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("architecture", "prefix"), ("backbone", "llama"), ("prompts", "e5"), ("num_heads", 3), ("num_layers", 0)],
)
def test_meaningless_config_is_refused(field: str, value: str | int) -> None:
    with pytest.raises(ValueError, match=f"{value}"):
        ModelConfig(**({"architecture": "biencoder", "hidden_size": 16} | {field: value}))


class Wide(Biencoder):
    """A biencoder with wide vectors that take no time to compute."""

    width = 512

    def embed_texts(self, texts: Texts) -> torch.Tensor:
        return texts.ids_NS.float().mean(1, keepdim=True) + torch.arange(self.width)


@pytest.mark.parametrize("most", [0, 1, 3, 9])
@pytest.mark.parametrize("num_words", [2, 400, 30_000])
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


def test_ordering_needs_little_memory() -> None:
    count, length = 20_000, 6
    ids = np.random.default_rng(0).integers(0, 30_000, count * length).astype(np.int32)
    tokens = Tokens(ids, np.arange(count + 1, dtype=np.int64) * length)
    tracemalloc.start()
    compute_canonical_order(tokens)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < ids.nbytes + 64 * count


def test_vectors_lie_in_memory_once() -> None:
    count = 20_000
    model = Wide(ModelConfig(architecture="biencoder", hidden_size=16, num_heads=2, intermediate_size=24))
    tokens = Tokens(np.arange(2 * count, dtype=np.int32), 2 * np.arange(count + 1))
    model.encode_tokens(Tokens(tokens.ids[:4], tokens.offsets[:3]))  # memory of the first call is not counted
    tracemalloc.start()
    vectors = model.encode_tokens(tokens)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert vectors.nbytes == count * Wide.width * 4 and peak < 1.4 * vectors.nbytes
    last = 2 * count - 1.5 + np.arange(Wide.width)
    np.testing.assert_allclose(vectors[-1], last / np.linalg.norm(last), rtol=1e-5)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_gpu_batches_count_tokens(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches on a GPU have a maximum number of tokens. Here the CPU is treated as a GPU."""
    texts = [" ".join(["rain"] * (1 + index % 9)) for index in range(60)]
    model = build_text_model(architecture=architecture)
    model.set_context(texts)
    wide, shapes, kinds, real = model.encode(texts), [], set(), type(model).embed_texts

    def embed_texts(self: Any, batch: Texts, *context: Any) -> torch.Tensor:
        shapes.append(tuple(batch.ids_NS.shape))
        vectors = real(self, batch, *context)
        kinds.add(vectors.dtype)
        return vectors

    monkeypatch.setattr(type(model), "embed_texts", embed_texts)
    monkeypatch.setattr("repro.model.encoding.GPU", "cpu")
    monkeypatch.setattr("repro.model.encoding.TOKENS_PER_CHUNK", 100)
    np.testing.assert_allclose(model.encode(texts), wide, atol=1e-6)
    ahead = {"biencoder": 0, "contextual": model.config.num_contexts + model.config.num_soft_prompts}[architecture]
    assert len(shapes) > 3 and all(rows * (ahead + length) <= 100 for rows, length in shapes)
    assert all((rows + 1) * (ahead + length) > 100 for rows, length in shapes[:-1]), "only the last has room"
    assert kinds == {torch.float32}
    model.is_narrow = True
    model.set_context(texts)
    narrow = model.encode(texts)
    assert kinds == {torch.float32, torch.bfloat16} and narrow.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(narrow, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(narrow, wide, atol=0.05)
    if architecture == "contextual":
        assert model.context_CE is not None and model.context_CE.dtype == torch.float32
    shapes.clear()
    model.encode(texts, batch_size=7)
    assert [rows for rows, _ in shapes] == [7] * 8 + [4], "a given batch size is kept"


NUM_WORDS, WIDTH = 50, 7
IDS = [
    torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(1)) for shape in ((4, 6), (3,), (2, 1), (0, 5))
]


def draw_weights() -> nn.Parameter:
    return nn.Parameter(torch.randn(NUM_WORDS, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.double))


def compute_gradient(weight_VD: nn.Parameter, *, by_torch: bool, at_once: bool) -> Tensor:
    """Return the gradient of a sum over all pieces, by one backward pass or by one per piece."""
    look_up = nn.functional.embedding if by_torch else look_up_words
    parts = [(look_up(ids, weight_VD).tanh() * (index + 1)).sum() for index, ids in enumerate(IDS)]
    for loss in [torch.stack(parts).sum()] if at_once else parts:
        loss.backward()
    assert weight_VD.grad is not None
    return weight_VD.grad


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("has_gradient", [True, False])
def test_word_vectors_match_torch(at_once: bool, has_gradient: bool) -> None:
    own, reference = draw_weights(), draw_weights()
    for weight_VD in (own, reference) if has_gradient else ():
        weight_VD.grad = torch.ones_like(weight_VD)
    for ids in IDS:
        torch.testing.assert_close(look_up_words(ids, own), nn.functional.embedding(ids, reference), rtol=0, atol=0)
    expected = compute_gradient(reference, by_torch=True, at_once=at_once)
    gradient = compute_gradient(own, by_torch=False, at_once=at_once)
    assert not gradient.is_sparse and expected[:9].abs().min() > 0
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


def test_gradient_passes_saved_tensor_hooks() -> None:
    """Hooks of checkpointing or offloading may give the backward pass a copy of a saved tensor."""
    weight_VD = draw_weights()
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        gradient = compute_gradient(weight_VD, by_torch=False, at_once=True)
    torch.testing.assert_close(
        gradient, compute_gradient(draw_weights(), by_torch=True, at_once=True), rtol=1e-12, atol=1e-12
    )


def test_computed_weights_are_left_to_torch() -> None:
    own, reference = draw_weights(), draw_weights()
    look_up_words(IDS[0], own * 2).sum().backward()
    nn.functional.embedding(IDS[0], reference * 2).sum().backward()
    torch.testing.assert_close(own.grad, reference.grad)


def test_frozen_weights_have_no_gradient() -> None:
    weight_VD = draw_weights().requires_grad_(False)
    assert not look_up_words(IDS[0], weight_VD).requires_grad


def test_other_gradients_are_never_zero() -> None:
    weight_VD = draw_weights()
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(look_up_words(IDS[0], weight_VD).sum(), weight_VD)
