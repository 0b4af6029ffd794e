"""Models inside other programs: containers of texts, threads, half precision, padding and tokenizers."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from transformers import AutoModel

from repro.interop.sentence_transformers_folder import export_sentence_transformers
from tests.interop.small import make_contextual, make_model, open_folder

pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = [f"{word} number {n}" for n in range(4) for word in ("apple", "river", "engine")]
SHUFFLED = pd.DataFrame({"text": WORDS}).sample(frac=1, random_state=3)["text"]
QUERIES = ["how much is it", "a much longer question about the price of bread and of copper", "x"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the contextual model for sentence-transformers."""
    folder = tmp_path_factory.mktemp("exported") / "out"
    export_sentence_transformers(make_contextual(), folder)
    return folder


@pytest.fixture(scope="module")
def exported(folder: Path) -> Any:
    """The opened export. Tests that change more than its context open their own."""
    return open_folder(folder)


COLUMNS = {
    "shuffled": SHUFFLED,
    "array": np.array(WORDS),
    "datasets": Dataset.from_dict({"text": WORDS})["text"],
    "arrow": pa.array(SHUFFLED),
    "chunked": pa.chunked_array([SHUFFLED]),
}


@pytest.mark.parametrize("texts", COLUMNS.values(), ids=COLUMNS)
def test_containers_keep_their_order(exported: Any, texts: Any) -> None:
    """Each container is read like the list of its texts, by our classes and by the code in an export."""
    model = make_contextual()
    listed = texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts)
    for encoder, name in ((model, "context_CE"), (exported[0].model, "context_embeddings")):
        encoder.set_context(texts)
        context = getattr(encoder, name)
        encoder.set_context(listed)
        assert torch.equal(context, getattr(encoder, name))
        assert np.array_equal(encoder.encode(texts), encoder.encode(listed))
    assert exported[0].drawn_from(texts) == exported[0].drawn_from(listed)
    actual, expected = (exported.encode(QUERIES, context=corpus, show_progress_bar=False) for corpus in (texts, listed))
    assert np.array_equal(actual, expected)


REFUSED = {
    "text": "one",
    "set": {"a", "b"},
    # A frame would give its column names.
    "frame": pd.DataFrame({"text": WORDS}),
    "NaN": ["a", float("nan")],
    "dicts": [{"text": "a"}],
    "2d": np.array([["a", "b"]]),
    "surrogate": ["a\ud800b"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_containers_are_refused(exported: Any, name: str) -> None:
    model = make_contextual()
    calls = [model.set_context, model.encode]
    inner = exported[0].model
    calls.append(lambda texts: exported[0]._embed_context(texts, 0))
    calls += [exported.set_context, exported[0].drawn_from, exported[0].preprocess, inner.encode, inner.set_context]
    for call in calls:
        with pytest.raises(ValueError, match="text"):
            call(REFUSED[name])


def test_context_vectors_need_model_sizes(exported: Any) -> None:
    """Vectors of another width and too many vectors are refused. Fewer vectors give a warning."""
    model = make_contextual()
    size, width = model.config.num_contexts, model.config.hidden_size
    tokens = model.tokenize(QUERIES, "query")
    ids, mask = (torch.from_numpy(array) for array in tokens.pad(range(3)))
    calls = [
        lambda vectors: exported.encode(QUERIES, dataset_embeddings=vectors, show_progress_bar=False),
        lambda vectors: exported[0].model(ids, mask, dataset_embeddings=vectors),
    ]
    for call in calls:
        for shape in ((size + 1, width), (size, 2 * width), (2 * size, width // 2), (0, width)):
            with pytest.raises(ValueError, match="context"):
                call(torch.ones(shape))
        with pytest.warns(UserWarning, match=f"takes {size}"):
            call(torch.ones(size - 1, width))
        call(torch.ones(size, width))


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

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert wrong == []


@pytest.mark.parametrize("source", ["ours", "exported"])
def test_calls_keep_their_first_context(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """The context stays the same if another thread sets one during a call."""
    if source == "ours":
        model, step, buffer = make_contextual(), "second_stage", "context_CE"
    else:
        model, step, buffer = open_folder(folder)[0].model, "tokenize", "context_embeddings"
    model.set_context(WORDS[:4])
    expected = model.encode(QUERIES, batch_size=1)
    undisturbed = getattr(type(model), step)

    def disturbed(self: Any, *args: Any, **options: Any) -> Any:
        result = undisturbed(self, *args, **options)
        setattr(self, buffer, torch.zeros_like(getattr(self, buffer)))
        return result

    monkeypatch.setattr(type(model), step, disturbed)
    assert np.array_equal(model.encode(QUERIES, batch_size=1), expected)


def test_half_precision_gives_close_vectors(folder: Path) -> None:
    """The cosine with the vectors in float32 is above 0.998, however the precision is chosen."""
    model, context, dtype = make_contextual(), WORDS[:4], torch.bfloat16
    model.set_context(context)
    expected = model.encode(QUERIES, "query")
    options = {"prompt_name": "query", "context": context, "show_progress_bar": False}
    for theirs in (open_folder(folder).to(dtype), open_folder(folder, model_kwargs={"dtype": dtype})):
        assert {weight.dtype for weight in theirs.parameters()} == {dtype}
        assert (theirs.encode(QUERIES, **options).astype(np.float32) * expected).sum(1).min() > 0.998
    own = make_contextual().to(dtype)
    own.set_context(context)
    assert (own.encode(QUERIES, "query") * expected).sum(1).min() > 0.998


def test_left_padding_changes_no_vector(folder: Path) -> None:
    """Neither in the texts nor in the documents of the context."""
    theirs = AutoModel.from_pretrained(folder, trust_remote_code=True)
    ids, mask = theirs.tokenize(QUERIES).values()
    shifts = [int(row.sum()) for row in mask]
    left = [torch.stack([row.roll(-by) for row, by in zip(rows, shifts, strict=True)]) for rows in (ids, mask)]
    with torch.no_grad():
        (actual,) = theirs(*left, dataset_input_ids=left[0], dataset_attention_mask=left[1], return_dict=False)
        expected = theirs(ids, mask, dataset_input_ids=ids, dataset_attention_mask=mask)
    torch.testing.assert_close(actual, expected.pooler_output)
