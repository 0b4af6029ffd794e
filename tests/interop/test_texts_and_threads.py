"""Promises of opened models in other people's programs: texts in any container, threads, half precision, padding."""

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

import repro.interop.transformers_model
from repro.interop.sentence_transformers_folder import as_sentence_transformer, export_sentence_transformers
from repro.interop.transformers_model import CdeModel
from repro.model.contextual import ContextualModel
from tests.interop.test_sentence_transformers import model_of

assert repro.interop.transformers_model, "importing it registers the models"
WORDS = [f"{word} number {n}" for n in range(4) for word in ("apple", "river", "engine")]
SHUFFLED = pd.DataFrame({"text": WORDS}).sample(frac=1, random_state=3)["text"]
QUERIES = ["how much is it", "a much longer question about the price of bread and of copper", "x"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def contextual() -> ContextualModel:
    model = model_of("contextual")
    assert isinstance(model, ContextualModel)
    return model


@pytest.mark.parametrize(
    "texts",
    [
        SHUFFLED,
        SHUFFLED[SHUFFLED.str.contains("apple|river")],
        SHUFFLED.iloc[:4],
        np.array(WORDS),
        np.array(WORDS, dtype=object),
        tuple(WORDS),
        Dataset.from_dict({"text": WORDS})["text"],
    ],
    ids=["shuffled", "filtered", "exact", "array", "objects", "tuple", "datasets"],
)
def test_containers_mean_their_texts_in_order(texts: Any) -> None:
    model, listed = contextual(), list(texts)
    theirs = as_sentence_transformer(model)
    model.set_context(texts)
    given = model.context_CE
    model.set_context(listed)
    assert given is not None and torch.equal(given, model.given_context())
    assert np.array_equal(model.encode(texts), model.encode(listed))
    module: Any = theirs[0]
    assert module.drawn_from(texts) == module.drawn_from(listed)
    one, other = (theirs.encode(QUERIES, context=each, show_progress_bar=False) for each in (texts, listed))
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    "texts",
    [
        "one",
        {"a", "b"},
        {"a": "b"},
        (word for word in WORDS),
        pd.DataFrame({"text": WORDS}),
        ["a", None],
        ["a", float("nan")],
        [{"text": "a"}],
        [["a", "b"]],
        [b"a"],
        ["a\ud800b"],
        np.array("a"),
        np.array([["a", "b"]]),
    ],
    ids=[
        "text",
        "set",
        "dict",
        "generator",
        "frame",
        "None",
        "NaN",
        "dicts",
        "lists",
        "bytes",
        "surrogate",
        "0d",
        "2d",
    ],
)
def test_other_containers_are_refused(texts: Any) -> None:
    model = contextual()
    module: Any = as_sentence_transformer(model)[0]
    for call in (model.set_context, model.encode, module.drawn_from, lambda given: module._embed_context(given, 0)):
        with pytest.raises(ValueError, match=r"text"):
            call(texts)


ODD = [["a", None], [None], {"a", "b"}, pd.DataFrame({"text": WORDS}), "one", ["a", 0], ["a", []]]


@pytest.mark.parametrize("texts", ODD, ids=["None", "only_None", "set", "frame", "text", "zero", "list"])
def test_exports_refuse_other_containers(tmp_path: Path, texts: Any) -> None:
    """A frame would give its column names as context, and None would be skipped over."""
    export_sentence_transformers(contextual(), tmp_path / "out")
    theirs: Any = SentenceTransformer(str(tmp_path / "out"), trust_remote_code=True, device="cpu")
    inner = theirs[0].model
    for call in (theirs.set_context, theirs[0].drawn_from, theirs[0].preprocess, inner.encode, inner.set_context):
        with pytest.raises(ValueError, match=r"text"):
            call(texts)


def test_exports_take_columns_in_order(tmp_path: Path) -> None:
    export_sentence_transformers(contextual(), tmp_path / "out")
    theirs: Any = SentenceTransformer(str(tmp_path / "out"), trust_remote_code=True, device="cpu")
    theirs.set_context(list(SHUFFLED))
    right = theirs[0].model.encode(list(SHUFFLED))
    for column in (SHUFFLED, pa.array(SHUFFLED), pa.chunked_array([SHUFFLED]), np.array(SHUFFLED)):
        theirs.set_context(column)
        assert np.array_equal(theirs[0].model.encode(column), right)
    for options in ({"prompt": "passage"}, {"batch_size": 0}, {"batch_size": -1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            theirs[0].model.encode(WORDS, **options)


def test_given_contexts_have_the_size_of_the_model(tmp_path: Path) -> None:
    """Rows of another width are not reshaped, more of them are not dropped, and fewer are warned about."""
    model = contextual()
    export_sentence_transformers(model, tmp_path / "out")
    exported: Any = SentenceTransformer(str(tmp_path / "out"), trust_remote_code=True, device="cpu")
    size, width = model.config.num_contexts, model.config.hidden_size
    tokens = model.tokenize(QUERIES, "query")
    ids, mask = (torch.from_numpy(each) for each in tokens.pad(range(3)))
    ours = as_sentence_transformer(model)
    calls = [
        lambda given: ours.encode(QUERIES, dataset_embeddings=given, show_progress_bar=False),
        lambda given: exported.encode(QUERIES, dataset_embeddings=given, show_progress_bar=False),
        lambda given: CdeModel.of(model)(ids, mask, dataset_embeddings=given),
        lambda given: exported[0].model(ids, mask, dataset_embeddings=given),
    ]
    for call in calls:
        for shape in ((size + 1, width), (size, 2 * width), (2 * size, width // 2), (0, width)):
            with pytest.raises(ValueError, match=r"context"):
                call(torch.ones(shape))
        with pytest.warns(UserWarning, match=f"takes {size}"):
            call(torch.ones(size - 1, width))
        call(torch.ones(size, width))


def in_threads(work: Callable[[int], None], count: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def test_threads_cut_at_their_own_length() -> None:
    """Two models of different lengths share one tokenizer object."""
    models = [model_of("biencoder", max_tokens=size) for size in (8, 256)]
    texts = ["bread rises with yeast and rain falls from clouds over the copper mine " * 40] * 40
    wrong: list[int] = []

    def work(number: int) -> None:
        model = models[number % 2]
        for _ in range(8):
            lengths = set(model.tokenize(texts, "query").lengths.tolist())
            wrong.extend(length for length in lengths if length != model.config.max_tokens)

    in_threads(work, 4)
    assert wrong == []


def test_each_request_keeps_its_own_context() -> None:
    model = contextual()
    with torch.no_grad():
        for weight in model.first_stage_model.mlp.parameters():
            weight.mul_(20)
    theirs = as_sentence_transformer(model)
    corpora = [[f"{word} document {n}" for n in range(4)] for word in ("medicine", "law", "cooking")]

    def encode(number: int) -> np.ndarray:
        found: np.ndarray = theirs.encode(QUERIES, context=corpora[number], show_progress_bar=False)
        return found

    right = [encode(number) for number in range(3)]
    assert np.abs(right[0] - right[1]).max() > 1e-3
    far: list[float] = []

    def work(number: int) -> None:
        far.extend(float(np.abs(encode(number % 3) - right[number % 3]).max()) for _ in range(10))

    in_threads(work, 6)
    assert max(far) < 1e-5
    assert model.context_CE is None


def test_encoding_ends_under_its_first_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread sets a context while texts are encoded: the texts keep theirs."""
    model = contextual()
    model.set_context(WORDS[:4])
    right, second_stage = model.encode(QUERIES, batch_size=1), ContextualModel.second_stage

    def disturbed(self: ContextualModel, texts: Any, contexts_CE: torch.Tensor) -> torch.Tensor:
        self.context_CE = torch.zeros_like(contexts_CE)
        return second_stage(self, texts, contexts_CE)

    monkeypatch.setattr(ContextualModel, "second_stage", disturbed)
    assert np.array_equal(model.encode(QUERIES, batch_size=1), right)


def test_exports_encode_under_their_first_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, for the code in the exported folder."""
    export_sentence_transformers(contextual(), tmp_path / "out")
    theirs: Any = SentenceTransformer(str(tmp_path / "out"), trust_remote_code=True, device="cpu")
    model = theirs[0].model
    model.set_context(WORDS[:4])
    right, tokenize = model.encode(QUERIES, batch_size=1), type(model).tokenize

    def disturbed(self: Any, *args: Any, **options: Any) -> Any:
        found = tokenize(self, *args, **options)
        self.context_embeddings = torch.zeros_like(self.context_embeddings)
        return found

    monkeypatch.setattr(type(model), "tokenize", disturbed)
    assert np.array_equal(model.encode(QUERIES, batch_size=1), right)


@pytest.mark.parametrize("kind", ["half", "bfloat16", "double"])
def test_half_precision_gives_nearly_the_same(tmp_path: Path, kind: str) -> None:
    model, context = contextual(), WORDS[:4]
    export_sentence_transformers(model, tmp_path / "out")
    model.set_context(context)
    right = model.encode(QUERIES, "query")
    dtype = {"half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64}[kind]

    def opened(**options: Any) -> SentenceTransformer:
        return SentenceTransformer(str(tmp_path / "out"), trust_remote_code=True, device="cpu", **options)

    used = opened()
    used.encode(QUERIES, prompt_name="query", context=context, show_progress_bar=False)
    for theirs in (
        getattr(used, kind)(),
        opened(model_kwargs={"dtype": dtype}),
        opened(model_kwargs={"torch_dtype": dtype}),
    ):
        assert {weight.dtype for weight in theirs.parameters()} == {dtype}
        found = theirs.encode(QUERIES, prompt_name="query", context=context, show_progress_bar=False)
        assert (found.astype(np.float32) * right).sum(1).min() > 0.998
    first = theirs.encode(context, prompt_name="document", without_context="first_stage", convert_to_tensor=True)
    found = theirs.encode(QUERIES, prompt_name="query", dataset_embeddings=first)
    assert (found.astype(np.float32) * right).sum(1).min() > 0.998
    own = contextual().to(dtype)
    own.set_context(context)
    assert (own.encode(QUERIES, "query") * right).sum(1).min() > 0.998


@pytest.mark.parametrize("options", [{"attn_implementation": "eager"}, {"dtype": "int8"}, {"dtype": "float"[:3]}])
def test_options_without_effect_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    export_sentence_transformers(contextual(), tmp_path / "out")
    with pytest.raises(ValueError, match=r"dtype"):
        SentenceTransformer(str(tmp_path / "out"), trust_remote_code=True, model_kwargs=options)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_left_padding_moves_no_vector(architecture: str) -> None:
    model = model_of(architecture)
    theirs, tokens = CdeModel.of(model), model.tokenize(QUERIES, "query")
    ids, mask = (torch.from_numpy(each) for each in tokens.pad(range(3)))
    shift = [int(ids.shape[1] - length) for length in tokens.lengths]
    left = [torch.stack([row.roll(by) for row, by in zip(each, shift, strict=True)]) for each in (ids, mask)]
    more = {} if architecture == "biencoder" else {"dataset_input_ids": left[0], "dataset_attention_mask": left[1]}
    right = {} if architecture == "biencoder" else {"dataset_input_ids": ids, "dataset_attention_mask": mask}
    with torch.no_grad():
        found = theirs(input_ids=left[0], attention_mask=left[1], return_dict=False, **more)
        expected = theirs(input_ids=ids, attention_mask=mask, **right)
    assert isinstance(found, tuple)
    torch.testing.assert_close(found[0], expected.pooler_output)
    with pytest.raises(ValueError, match="word vectors"):
        theirs(input_ids=ids + model.config.vocab_size, attention_mask=mask, **right)


def test_tokenizer_is_usable_from_outside() -> None:
    theirs = as_sentence_transformer(contextual())
    long = ["bread rises with yeast " * 20]
    theirs.max_seq_length = 6
    assert theirs.max_seq_length == 6 and theirs[0].preprocess(long)["input_ids"].shape == (1, 6)
    assert theirs.tokenizer(long, truncation=True)["input_ids"] == theirs[0].preprocess(long)["input_ids"].tolist()
    with pytest.raises(ValueError, match="max_seq_length"):
        theirs[0].max_seq_length = 2


def test_sharded_checkpoints_open(tmp_path: Path) -> None:
    model = model_of("biencoder")
    CdeModel.of(model).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    files = {name: f"model-{n % 2 + 1:05d}-of-00002.safetensors" for n, name in enumerate(weights)}
    for file in set(files.values()):
        save_file({name: weights[name] for name, where in files.items() if where == file}, tmp_path / file)
    index = str({"metadata": {}, "weight_map": files}).replace("'", '"')
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert np.array_equal(AutoModel.from_pretrained(tmp_path).encoder.encode(QUERIES), model.encode(QUERIES))


def test_tokenizer_of_another_model_is_named() -> None:
    size = 1500  # of the 30,522 ids of the tokenizer
    with pytest.raises(ValueError, match=f"{size} word vectors"):
        model_of("biencoder", vocab_size=size).encode(QUERIES)
