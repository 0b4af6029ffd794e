"""Models of sentence-transformers are scored by their own similarity and prompts, or refused in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from typer.testing import CliRunner

from repro.cli.main import app
from repro.data.beir import Retrieval, write_beir_folder
from repro.data.tokens import load_tokenizer
from repro.evaluate.result_cache import ResultCache
from repro.evaluate.retrieval import score, search
from repro.interop.evaluating import describe_model
from repro.interop.opening import open_model
from repro.interop.sentence_transformers_folder import as_sentence_transformer, open_sentence_transformers
from repro.interop.stock_encoder import TEXTS_PER_BLOCK
from tests.commands import run_command
from tests.interop.small import WORDS, make_collection, make_model


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Retrieval:
    """A collection of short texts of unequal length, written to the current folder."""
    monkeypatch.chdir(tmp_path)
    documents = [" ".join((word, other, *WORDS[:n])) for n, word in enumerate(WORDS[:10]) for other in WORDS[n:10]]
    collection = make_collection("things", documents, [" ".join(text.split()[:2]) for text in documents])
    write_beir_folder(tmp_path / "things", collection)
    return collection


def evaluate(model: str, *words: str) -> dict[str, Any]:
    """Return what `repro evaluate --json` prints."""
    return json.loads(run_command("evaluate", "--suite", "things", "--no-bm25", "--json", "--model", model, *words))


def test_unlimited_length_is_scored(things: Retrieval) -> None:
    tokenizer = load_tokenizer("minilm")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    static = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")
    static.save_pretrained("model", create_model_card=False)
    result = evaluate("model")
    assert result["provenance"]["cut"] == {"things": None} and result["provenance"]["model"]["max_tokens"] is None
    assert result["metrics"]["things/things/ndcg_at_10"] > 0


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
        result = evaluate("model")
        scores[name] = result["metrics"]["things/things/ndcg_at_10"]
        assert scores[name] == pytest.approx(compute_ndcg(theirs, things), abs=1e-6)
        assert result["provenance"]["model"]["similarity"] == name
    assert abs(scores["dot"] - scores["cosine"]) > 0.01


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_vectors_are_normalised(things: Retrieval, kind: torch.dtype) -> None:
    """Lengths are exact in one call and in blocks. With the dot product they are those of the model."""
    theirs = write_stock("model").to(kind)
    theirs.save_pretrained("half", create_model_card=False)
    opened = open_model("half").model
    assert next(opened.theirs.parameters()).dtype == kind
    texts = list(things.documents) * 6
    assert len(things.documents) < TEXTS_PER_BLOCK < len(texts)
    for part in (texts[: len(things.documents)], texts):
        vectors = opened.encode(part)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors.astype(float), axis=1), 1, atol=1e-6)
    theirs.similarity_fn_name = "dot"
    theirs.save_pretrained("dot", create_model_card=False)
    lengths = np.linalg.norm(open_model("dot").model.encode(texts), axis=1)
    assert lengths.std() > 0.01


def test_cached_scores_belong_to_a_device(things: Retrieval, monkeypatch: pytest.MonkeyPatch) -> None:
    systems = []

    def make_cache(folder: Path, system: dict[str, Any]) -> ResultCache:
        systems.append(system)
        return ResultCache(folder, system)

    monkeypatch.setattr("repro.interop.evaluating.ResultCache", make_cache)
    write_stock("model")
    evaluate("model")
    assert [system["device"] for system in systems] == [str(open_model("model").model.theirs.device)]


@pytest.mark.parametrize("name", ["euclidean", "manhattan"])
def test_unsearchable_similarity_is_refused(things: Retrieval, name: str) -> None:
    write_stock("model", similarity_fn_name=name)
    with pytest.raises(ValueError, match=rf"'{name}' .*one of \['cosine', 'dot'\]"):
        open_model("model")


@pytest.mark.parametrize("kind", ["CrossEncoder", "SparseEncoder"])
def test_models_without_vectors_are_refused(things: Retrieval, kind: str) -> None:
    write_stock("model")
    settings = Path("model", "config_sentence_transformers.json")
    content = json.loads(settings.read_text())
    settings.write_text(json.dumps(content | {"model_type": kind}))
    with pytest.raises(ValueError, match=f"^model is a {kind}"):
        open_model("model")
    # Older versions wrote no type.
    del content["model_type"]
    settings.write_text(json.dumps(content))
    assert len(open_sentence_transformers("model")) == len(open_model("model").model.theirs)


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
    used = evaluate("model")["provenance"]["model"]["prompts_used"]
    assert used == {"query": "query: ", "document": "passage: "}


@pytest.mark.parametrize("in_route", [False, True])
def test_lost_weight_is_refused(things: Retrieval, in_route: bool) -> None:
    """transformers would draw it at random and log a line."""
    if in_route:
        stock = as_sentence_transformer(make_model("biencoder"))
        router = Router({"query": [stock[0]], "document": [stock[0]]}, default_route="document")
        SentenceTransformer(modules=[router, stock[1]], device="cpu").save_pretrained("model", create_model_card=False)
    else:
        write_stock("model")
    file, *_ = (path for path in Path("model").rglob("model.safetensors") if "Dense" not in str(path))
    weights = load_file(file)
    lost = next(name for name in weights if ".0." in name and name.endswith("weight"))
    save_file({name: weight for name, weight in weights.items() if name != lost}, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks \d weights, the first is '.*weight': export or download it again"):
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


def test_model_without_prompts_is_reported(things: Retrieval) -> None:
    for prompts, is_reported in (({}, True), ({"query": "query: "}, False)):
        write_stock("model", prompts=prompts)
        result = CliRunner().invoke(app, ["evaluate", "--suite", "things", "--no-bm25", "--model", "model"])
        assert ("model stores no prompts: texts are embedded without any" in result.output) == is_reported, (
            result.output
        )


def test_type_of_weights_is_recorded(things: Retrieval) -> None:
    write_stock("model").to(torch.float16).save_pretrained("half", create_model_card=False)
    assert [evaluate(name)["provenance"]["machine"]["dtype"] for name in ("model", "half")] == ["float32", "float16"]
