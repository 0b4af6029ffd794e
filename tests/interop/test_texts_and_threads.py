"""Models inside other programs: containers of texts, threads, half precision, padding and tokenizers."""

from collections.abc import Callable
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
from tests.interop.small import make_model

pytestmark = pytest.mark.filterwarnings("ignore")
# Importing this module registers the models.
assert repro.interop.transformers_model
WORDS = [f"{word} number {n}" for n in range(4) for word in ("apple", "river", "engine")]
SHUFFLED = pd.DataFrame({"text": WORDS}).sample(frac=1, random_state=3)["text"]
QUERIES = ["how much is it", "a much longer question about the price of bread and of copper", "x"]


def make_contextual() -> ContextualModel:
    model = make_model("contextual")
    assert isinstance(model, ContextualModel)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the contextual model for sentence-transformers."""
    folder = tmp_path_factory.mktemp("exported") / "out"
    export_sentence_transformers(make_contextual(), folder)
    return folder


def open_export(folder: Path, **options: Any) -> Any:
    return SentenceTransformer(str(folder), trust_remote_code=True, device="cpu", **options)


COLUMNS = {
    "shuffled": SHUFFLED,
    "filtered": SHUFFLED[SHUFFLED.str.contains("apple|river")],
    "exact": SHUFFLED.iloc[:4],
    "array": np.array(WORDS),
    "objects": np.array(WORDS, dtype=object),
    "tuple": tuple(WORDS),
    "datasets": Dataset.from_dict({"text": WORDS})["text"],
}


@pytest.mark.parametrize("texts", COLUMNS.values(), ids=COLUMNS)
def test_containers_keep_their_order(texts: Any) -> None:
    """Each container is read like the list of its texts."""
    model, listed = make_contextual(), list(texts)
    theirs = as_sentence_transformer(model)
    model.set_context(texts)
    given = model.context_CE
    model.set_context(listed)
    assert given is not None and torch.equal(given, model.current_context())
    assert np.array_equal(model.encode(texts), model.encode(listed))
    module: Any = theirs[0]
    assert module.drawn_from(texts) == module.drawn_from(listed)
    one, other = (theirs.encode(QUERIES, context=each, show_progress_bar=False) for each in (texts, listed))
    assert np.array_equal(one, other)


REFUSED = {
    "text": "one",
    "set": {"a", "b"},
    "dict": {"a": "b"},
    "generator": (word for word in WORDS),
    "frame": pd.DataFrame({"text": WORDS}),
    "None": ["a", None],
    "NaN": ["a", float("nan")],
    "dicts": [{"text": "a"}],
    "lists": [["a", "b"]],
    "bytes": [b"a"],
    "surrogate": ["a\ud800b"],
    "0d": np.array("a"),
    "2d": np.array([["a", "b"]]),
}


@pytest.mark.parametrize("texts", REFUSED.values(), ids=REFUSED)
def test_other_containers_are_refused(texts: Any) -> None:
    model = make_contextual()
    module: Any = as_sentence_transformer(model)[0]
    for call in (model.set_context, model.encode, module.drawn_from, lambda given: module._embed_context(given, 0)):
        with pytest.raises(ValueError, match=r"text"):
            call(texts)


def test_exports_refuse_other_containers(folder: Path) -> None:
    """A frame would give its column names as context, and None would be skipped."""
    theirs = open_export(folder)
    inner = theirs[0].model
    for texts in (["a", None], [None], {"a", "b"}, pd.DataFrame({"text": WORDS}), "one", ["a", 0], ["a", []]):
        for call in (theirs.set_context, theirs[0].drawn_from, theirs[0].preprocess, inner.encode, inner.set_context):
            with pytest.raises(ValueError, match=r"text"):
                call(texts)


def test_exports_read_columns_in_order(folder: Path) -> None:
    theirs = open_export(folder)
    theirs.set_context(list(SHUFFLED))
    expected = theirs[0].model.encode(list(SHUFFLED))
    for column in (SHUFFLED, pa.array(SHUFFLED), pa.chunked_array([SHUFFLED]), np.array(SHUFFLED)):
        theirs.set_context(column)
        assert np.array_equal(theirs[0].model.encode(column), expected)
    for options in ({"prompt": "passage"}, {"batch_size": 0}, {"batch_size": -1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            theirs[0].model.encode(WORDS, **options)


def test_context_vectors_need_model_sizes(folder: Path) -> None:
    """Vectors of another width and too many vectors are refused. Fewer vectors give a warning."""
    model, exported = make_contextual(), open_export(folder)
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


def run_in_threads(work: Callable[[int], None], count: int) -> None:
    """Call `work` with the numbers 0 to count − 1, each in a thread."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def test_threads_cut_at_their_own_length() -> None:
    """Two models of different lengths share one tokenizer object."""
    models = [make_model("biencoder", max_tokens=size) for size in (8, 256)]
    texts = ["bread rises with yeast and rain falls from clouds over the copper mine " * 40] * 40
    wrong: list[int] = []

    def work(number: int) -> None:
        model = models[number % 2]
        for _ in range(8):
            lengths = set(model.tokenize(texts, "query").lengths.tolist())
            wrong.extend(length for length in lengths if length != model.config.max_tokens)

    run_in_threads(work, 4)
    assert wrong == []


def test_each_request_keeps_its_own_context() -> None:
    model = make_contextual()
    with torch.no_grad():
        for weight in model.first_stage_model.mlp.parameters():
            weight.mul_(20)
    theirs = as_sentence_transformer(model)
    corpora = [[f"{word} document {n}" for n in range(4)] for word in ("medicine", "law", "cooking")]

    def encode(number: int) -> np.ndarray:
        return np.asarray(theirs.encode(QUERIES, context=corpora[number], show_progress_bar=False))

    expected = [encode(number) for number in range(3)]
    assert np.abs(expected[0] - expected[1]).max() > 1e-3
    errors: list[float] = []

    def work(number: int) -> None:
        errors.extend(float(np.abs(encode(number % 3) - expected[number % 3]).max()) for _ in range(10))

    run_in_threads(work, 6)
    assert max(errors) < 1e-5
    assert model.context_CE is None


def test_encoding_keeps_its_first_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """The context stays the same if another thread sets one during a call."""
    model = make_contextual()
    model.set_context(WORDS[:4])
    expected, second_stage = model.encode(QUERIES, batch_size=1), ContextualModel.second_stage

    def disturbed(self: ContextualModel, texts: Any, contexts_CE: torch.Tensor) -> torch.Tensor:
        self.context_CE = torch.zeros_like(contexts_CE)
        return second_stage(self, texts, contexts_CE)

    monkeypatch.setattr(ContextualModel, "second_stage", disturbed)
    assert np.array_equal(model.encode(QUERIES, batch_size=1), expected)


def test_exports_keep_their_first_context(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code in the exported folder does the same."""
    model = open_export(folder)[0].model
    model.set_context(WORDS[:4])
    expected, tokenize = model.encode(QUERIES, batch_size=1), type(model).tokenize

    def disturbed(self: Any, *args: Any, **options: Any) -> Any:
        found = tokenize(self, *args, **options)
        self.context_embeddings = torch.zeros_like(self.context_embeddings)
        return found

    monkeypatch.setattr(type(model), "tokenize", disturbed)
    assert np.array_equal(model.encode(QUERIES, batch_size=1), expected)


@pytest.mark.parametrize("kind", ["half", "bfloat16", "double"])
def test_half_precision_gives_close_vectors(folder: Path, kind: str) -> None:
    """The cosine with the vectors in float32 is above 0.998, however the precision is chosen."""
    model, context = make_contextual(), WORDS[:4]
    model.set_context(context)
    expected = model.encode(QUERIES, "query")
    dtype = {"half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64}[kind]

    def assert_close(found: np.ndarray) -> None:
        assert (found.astype(np.float32) * expected).sum(1).min() > 0.998

    used = open_export(folder)
    used.encode(QUERIES, prompt_name="query", context=context, show_progress_bar=False)
    opened = [open_export(folder, model_kwargs={name: dtype}) for name in ("dtype", "torch_dtype")]
    for theirs in (getattr(used, kind)(), *opened):
        assert {weight.dtype for weight in theirs.parameters()} == {dtype}
        assert_close(theirs.encode(QUERIES, prompt_name="query", context=context, show_progress_bar=False))
    first = theirs.encode(context, prompt_name="document", without_context="first_stage", convert_to_tensor=True)
    assert_close(theirs.encode(QUERIES, prompt_name="query", dataset_embeddings=first))
    own = make_contextual().to(dtype)
    own.set_context(context)
    assert_close(own.encode(QUERIES, "query"))


@pytest.mark.parametrize("options", [{"attn_implementation": "eager"}, {"dtype": "int8"}, {"dtype": "flo"}])
def test_options_without_effect_are_refused(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"dtype"):
        open_export(folder, model_kwargs=options)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_left_padding_changes_no_vector(architecture: str) -> None:
    model = make_model(architecture)
    theirs, tokens = CdeModel.of(model), model.tokenize(QUERIES, "query")
    ids, mask = (torch.from_numpy(each) for each in tokens.pad(range(3)))
    shift = [int(ids.shape[1] - length) for length in tokens.lengths]
    left = [torch.stack([row.roll(by) for row, by in zip(each, shift, strict=True)]) for each in (ids, mask)]
    names = ("dataset_input_ids", "dataset_attention_mask") if architecture == "contextual" else ()
    context = dict(zip(names, (ids, mask), strict=False))
    with torch.no_grad():
        left_context = dict(zip(names, left, strict=False))
        found = theirs(input_ids=left[0], attention_mask=left[1], return_dict=False, **left_context)
        expected = theirs(input_ids=ids, attention_mask=mask, **context)
    assert isinstance(found, tuple)
    torch.testing.assert_close(found[0], expected.pooler_output)
    with pytest.raises(ValueError, match="word vectors"):
        theirs(input_ids=ids + model.config.vocab_size, attention_mask=mask, **context)


def test_tokenizer_is_usable_directly() -> None:
    theirs = as_sentence_transformer(make_contextual())
    long = ["bread rises with yeast " * 20]
    theirs.max_seq_length = 6
    assert theirs.max_seq_length == 6 and theirs[0].preprocess(long)["input_ids"].shape == (1, 6)
    assert theirs.tokenizer(long, truncation=True)["input_ids"] == theirs[0].preprocess(long)["input_ids"].tolist()
    with pytest.raises(ValueError, match="max_seq_length"):
        theirs[0].max_seq_length = 2


def test_sharded_checkpoints_open(tmp_path: Path) -> None:
    model = make_model("biencoder")
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
    # The tokenizer has 30,522 ids.
    size = 1500
    with pytest.raises(ValueError, match=f"{size} word vectors"):
        make_model("biencoder", vocab_size=size).encode(QUERIES)
