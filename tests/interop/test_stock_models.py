"""Models of sentence-transformers are scored by their own similarity and prompts, or refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router

from repro.data.beir import Retrieval, write_beir_folder
from repro.evaluate.retrieval import score, search
from repro.interop.evaluating import describe_model
from repro.interop.opening import open_model
from repro.interop.sentence_transformers_folder import as_sentence_transformer, export_sentence_transformers
from tests.interop.small import WORDS, evaluate, make_collection, make_model


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Retrieval:
    """A collection of short texts of unequal length, written to the current folder."""
    monkeypatch.chdir(tmp_path)
    documents = [" ".join((word, other, *WORDS[:n])) for n, word in enumerate(WORDS[:10]) for other in WORDS[n:10]]
    collection = make_collection("things", documents, [" ".join(text.split()[:2]) for text in documents])
    write_beir_folder(tmp_path / "things", collection)
    return collection


def test_changed_file_is_another_model(things: Retrieval) -> None:
    """A word of the vocabulary and the side of truncation decide vectors, so cached scores do not apply."""
    write_stock("model")
    tokenizer, config = Path("model", "tokenizer.json"), Path("model", "tokenizer_config.json")
    digests = [describe_model(open_model("model"))["weights"]]
    assert digests == [describe_model(open_model("model"))["weights"]]
    tokenizer.write_text(tokenizer.read_text().replace('"winter"', '"Winter"'))
    digests.append(describe_model(open_model("model"))["weights"])
    config.write_text(json.dumps(json.loads(config.read_text()) | {"truncation_side": "left"}))
    digests.append(describe_model(open_model("model"))["weights"])
    assert len({*digests}) == 3


def write_stock(folder: str, **settings: Any) -> SentenceTransformer:
    """Write a model of stock modules whose vectors differ in length."""
    theirs = as_sentence_transformer(make_model("biencoder"))
    modules = [module for module in theirs if not isinstance(module, Normalize)]
    with torch.no_grad():
        modules[-1].linear.bias.add_(torch.randn(16, generator=torch.Generator().manual_seed(3)))
    settings = {"prompts": theirs.prompts} | settings
    SentenceTransformer(modules=modules, device="cpu", **settings).save_pretrained(folder, create_model_card=False)
    return SentenceTransformer(folder, device="cpu")


def compute_ndcg(theirs: SentenceTransformer, things: Retrieval, **options: Any) -> float:
    """Return NDCG@10 of the ranking by the model's own `similarity`."""
    queries = theirs.encode(list(things.queries), prompt_name="query", **options)
    documents = theirs.encode(list(things.documents), prompt_name="document", **options)
    scores = theirs.similarity(queries, documents).numpy()
    hits = search(scores, np.eye(len(things.documents)), things.query_ids, things.document_ids, 100)
    return float(score(hits, things.judgements)["ndcg_at_10"].mean())


def test_similarity_decides_scores(things: Retrieval) -> None:
    """The scores of each similarity are cached separately."""
    theirs = write_stock("model", similarity_fn_name="cosine")
    scores = {}
    for name in ("cosine", "dot"):
        settings = Path("model", "config_sentence_transformers.json")
        settings.write_text(settings.read_text().replace('"cosine"', f'"{name}"'))
        theirs.similarity_fn_name = name
        result = evaluate("--model", "model", suite="things")
        scores[name] = result["metrics"]["things/things/ndcg_at_10"]
        assert scores[name] == pytest.approx(compute_ndcg(theirs, things), abs=1e-6)
        assert result["provenance"]["model"]["similarity"] == name
    assert abs(scores["dot"] - scores["cosine"]) > 0.01


def test_half_precision_vectors_are_normalised(things: Retrieval) -> None:
    """The library's own lengths would be off by up to 1 %."""
    write_stock("model").bfloat16().save_pretrained("half", create_model_card=False)
    opened = open_model("half").model
    assert opened.dtype == "bfloat16"
    vectors = opened.encode(list(things.documents))
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors.astype(float), axis=1), 1, atol=1e-6)


def test_equal_texts_have_equal_vectors(things: Retrieval) -> None:
    """Padding in another batch would change the last digits, and break ties by the order of the corpus."""
    write_stock("model")
    # The library sorts by length, and a batch has 32 texts: it would pad one of the short ones.
    texts = [WORDS[0], *(" ".join(WORDS) + f" {n}" for n in range(31)), WORDS[0]]
    vectors = open_model("model").model.encode(texts)
    assert len(vectors) == len(texts) and np.array_equal(vectors[0], vectors[-1])


@pytest.mark.parametrize("name", ["passage", "corpus"])
def test_document_prompt_is_found_by_name(things: Retrieval, name: str) -> None:
    theirs = write_stock("model", prompts={"query": "query: ", name: "passage: ", "sorting": "sort: "})
    lines: list[str] = []
    opened = open_model("model", progress=lines.append).model
    for role, prompt in (("query", "query"), ("document", name)):
        expected = theirs.encode(list(WORDS), prompt_name=prompt, normalize_embeddings=True)
        np.testing.assert_allclose(opened.encode(WORDS, role), expected, atol=1e-6)
    (line,) = lines
    assert "['sorting'] are not used" in line
    used = evaluate("--model", "model", suite="things")["provenance"]["model"]["prompts_used"]
    assert used == {"query": "query: ", "document": "passage: "}


def set_field(name: str, value: str) -> Callable[[], object]:
    """Return a function that sets a field of the settings of sentence-transformers."""
    path = Path("model", "config_sentence_transformers.json")
    return lambda: path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))


def rename_modules() -> None:
    """Name modules of another package, whose code would be run."""
    modules = Path("model", "modules.json")
    modules.write_text(modules.read_text().replace("sentence_transformers.", "evil."))


def test_activation_of_the_encoder_may_have_any_name(things: Retrieval) -> None:
    """NomicBERT's config calls its own activation "swiglu". Only that of a Dense module is replaced by the library."""
    write_stock("model")
    path = Path("model", "config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"activation_function": "swiglu"}))
    assert np.isfinite(open_model("model").model.encode(WORDS)).all()


def foreign_activation() -> None:
    """Name an activation that the library would replace by tanh."""
    path = Path("model", "2_Dense", "config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"activation_function": "transformers.GELU"}))


def lose_weight() -> None:
    """Remove a weight, which transformers would draw at random."""
    weights = load_file("model/model.safetensors")
    del weights[next(name for name in weights if ".0." in name and name.endswith("weight"))]
    save_file(weights, "model/model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (set_field("similarity_fn_name", "euclidean"), "euclidean"),
        (set_field("model_type", "CrossEncoder"), "CrossEncoder"),
        (set_field("model_type", "SparseEncoder"), "SparseEncoder"),
        # without modules, a folder does not say how states are pooled
        (lambda: Path("model", "modules.json").unlink(), r"a plain model of transformers \('nomic_bert'\)"),
        (rename_modules, "evil"),
        (foreign_activation, "transformers.GELU"),
        (lose_weight, r"lacks \d weights"),
    ],
)
def test_other_models_are_refused(things: Retrieval, change: Callable[[], object], named: str) -> None:
    write_stock("model")
    change()
    with pytest.raises(ValueError, match=named):
        open_model("model")


@pytest.mark.parametrize("file", ["model.safetensors", "2_Dense/model.safetensors"])
def test_damaged_export_is_refused(things: Retrieval, file: str) -> None:
    """A flipped bit gives weights that look like any others."""
    export_sentence_transformers(make_model("biencoder"), "exported")
    open_model("exported")
    weights = Path("exported", file)
    data = bytearray(weights.read_bytes())
    data[-3] ^= 64
    weights.write_bytes(data)
    with pytest.raises(ValueError, match="digest"):
        open_model("exported")


def test_routers_are_refused(things: Retrieval) -> None:
    stock = as_sentence_transformer(make_model("biencoder"))
    router = Router({"query": [stock[0]], "document": [stock[0]]}, default_route="document")
    SentenceTransformer(modules=[router, stock[1]], device="cpu").save_pretrained("model", create_model_card=False)
    with pytest.raises(ValueError, match="Router"):
        open_model("model")


@pytest.mark.parametrize("module", ["", "2_Dense"])
def test_pickled_weights_are_refused(things: Retrieval, module: str) -> None:
    """They are named before a library reads one."""
    write_stock("model")
    weights = Path("model", module, "model.safetensors")
    pickle = weights.with_name("pytorch_model.bin")
    torch.save(load_file(weights), pickle)
    assert open_model("model").model.similarity == "cosine", "unused next to safetensors"
    weights.unlink()
    with pytest.raises(ValueError, match=str(pickle)):
        open_model("model")
