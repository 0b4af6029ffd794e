"""Promises of scoring models of sentence-transformers: as they say they are to be scored, or refused in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from repro.data.beir import Retrieval, write_beir_folder
from repro.data.tokens import load_tokenizer
from repro.evaluate.retrieval import score, search
from repro.interop.opening import open_model
from repro.interop.sentence_transformers_folder import as_sentence_transformer, open_sentence_transformers
from tests.commands import run_command
from tests.interop.test_sentence_transformers import model_of

WORDS = ("rain", "snow", "hills", "bread", "copper", "iron", "violin", "drum", "kettle", "lamp")


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Retrieval:
    """A collection of short texts of unequal length, in the folder that the reader is in."""
    monkeypatch.chdir(tmp_path)
    documents = tuple(" ".join((one, other, *WORDS[:n])) for n, one in enumerate(WORDS) for other in WORDS[n:])
    ids = tuple(f"d{n:02d}" for n in range(len(documents)))
    queries = tuple(" ".join(text.split()[:2]) for text in documents)
    judged = {f"q{n:02d}": {f"d{n:02d}": 1} for n in range(len(queries))}
    found = Retrieval("things", ids, documents, tuple(judged), queries, judged)
    write_beir_folder(tmp_path / "things", found)
    return found


def scored(model: str, *words: str) -> dict:
    """What `repro evaluate --json` prints."""
    return json.loads(run_command("evaluate", "--suite", "things", "--no-bm25", "--json", "--model", model, *words))


def test_unlimited_length_is_scored(things: Retrieval) -> None:
    words = load_tokenizer("minilm")
    words.no_padding()
    words.no_truncation()
    added_up = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=16)], device="cpu")
    added_up.save_pretrained("model", create_model_card=False)
    found = scored("model")
    assert found["provenance"]["cut"] == {"things": None} and found["provenance"]["model"]["max_tokens"] is None
    assert found["metrics"]["things/things/ndcg_at_10"] > 0


def write_stock(folder: str, **settings: Any) -> SentenceTransformer:
    """Write a model of stock modules whose vectors differ in length, as few but normalised ones do not."""
    theirs = as_sentence_transformer(model_of("biencoder"))
    modules = [one for one in theirs if not isinstance(one, Normalize)]
    with torch.no_grad():
        modules[-1].linear.bias.add_(torch.randn(16, generator=torch.Generator().manual_seed(3)))
    told = {"prompts": theirs.prompts} | settings
    SentenceTransformer(modules=modules, device="cpu", **told).save_pretrained(folder, create_model_card=False)
    return SentenceTransformer(folder, device="cpu")


def similarity_ndcg(theirs: SentenceTransformer, things: Retrieval, **how: Any) -> float:
    """NDCG@10 of a ranking by the model's own `similarity`."""
    queries = theirs.encode(list(things.queries), prompt_name="query", **how)
    documents = theirs.encode(list(things.documents), prompt_name="document", **how)
    scores = theirs.similarity(queries, documents).numpy()
    hits = search(scores, np.eye(len(things.documents)), things.query_ids, things.document_ids, 100)
    return float(score(hits, things.judgements)["ndcg_at_10"].mean())


def test_inner_products_score_every_width(things: Retrieval) -> None:
    ways = {name: write_stock(name, similarity_fn_name=name) for name in ("dot", "cosine")}
    wanted = {name: similarity_ndcg(theirs, things) for name, theirs in ways.items()}
    assert abs(wanted["dot"] - wanted["cosine"]) > 0.01
    for name, theirs in ways.items():
        found = scored(name, "--width", "4")
        assert found["metrics"]["things/things/ndcg_at_10"] == pytest.approx(wanted[name], abs=1e-6)
        narrow = similarity_ndcg(theirs, things, truncate_dim=4)
        assert found["metrics"]["things+width4/things/ndcg_at_10"] == pytest.approx(narrow, abs=1e-6)
        assert found["provenance"]["model"]["similarity"] == name


def test_similarities_are_cached_apart(things: Retrieval) -> None:
    write_stock("model", similarity_fn_name="cosine")
    before = scored("model")["metrics"]
    settings = Path("model", "config_sentence_transformers.json")
    settings.write_text(settings.read_text().replace('"cosine"', '"dot"'))
    assert scored("model")["metrics"] != before


@pytest.mark.parametrize("name", ["euclidean", "manhattan"])
def test_unsearchable_similarity_is_refused(things: Retrieval, name: str) -> None:
    write_stock("model", similarity_fn_name=name)
    with pytest.raises(ValueError, match=rf"model compares its vectors by '{name}' .*one of \['cosine', 'dot'\]"):
        open_model("model")


@pytest.mark.parametrize("kind", ["CrossEncoder", "SparseEncoder"])
def test_models_without_vectors_are_refused(things: Retrieval, kind: str) -> None:
    write_stock("model")
    settings = Path("model", "config_sentence_transformers.json")
    told = json.loads(settings.read_text())
    settings.write_text(json.dumps(told | {"model_type": kind}))
    with pytest.raises(ValueError, match=f"^model is a {kind} of sentence-transformers, expected a SentenceTransf"):
        open_model("model")
    del told["model_type"]  # as older versions wrote it
    settings.write_text(json.dumps(told))
    assert len(open_sentence_transformers("model")) == len(open_model("model").model.theirs)


@pytest.mark.parametrize("name", ["passage", "corpus"])
def test_document_prompt_is_found_by_name(things: Retrieval, name: str) -> None:
    theirs = write_stock("model", prompts={"query": "query: ", name: "passage: ", "sorting": "sort: "})
    lines: list[str] = []
    opened = open_model("model", progress=lines.append).model
    for role, of_theirs in (("query", "query"), ("document", name)):
        own = theirs.encode(list(WORDS), prompt_name=of_theirs, normalize_embeddings=True)
        np.testing.assert_allclose(opened.encode(WORDS, role), own, atol=1e-6)
    assert lines == [
        "model: prompts ['sorting'] are not used; used are 'query: ' before query texts and 'passage: ' before "
        "document texts"
    ]
    told = scored("model")["provenance"]["model"]["prompts_used"]
    assert told == {"query": "query: ", "document": "passage: "}
