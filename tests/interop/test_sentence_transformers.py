"""Exports for sentence-transformers give our vectors, and its trainer accepts our batches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

from repro.batches.cluster import Clusters
from repro.batches.sampler import BatchSampler
from repro.interop.opening import open_model
from repro.interop.sentence_transformers_folder import (
    as_sentence_transformer,
    export_sentence_transformers,
    open_sentence_transformers,
)
from repro.interop.stock_trainer import cluster_batch_sampler
from tests.interop.small import CLOSE, CORPUS, TEXTS, make_model

KINDS = ["nomic", "bert", "modernbert"]


@pytest.mark.parametrize("kind", KINDS)
def test_biencoder_opens_with_stock_modules(tmp_path: Path, kind: str) -> None:
    model = make_model("biencoder", backbone=kind)
    export_sentence_transformers(model, tmp_path / "out")
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert all(type(module).__module__.startswith("sentence_transformers.") for module in theirs)
    for prompt in ("query", "document"):
        found = theirs.encode(TEXTS, prompt_name=prompt, batch_size=2, show_progress_bar=False)
        np.testing.assert_allclose(found, model.encode(TEXTS, prompt), atol=1e-6, rtol=0)
    found = theirs.encode_query(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(found, model.encode(TEXTS, "query"), **CLOSE)


@pytest.mark.parametrize(("kind", "num_vectors"), [("nomic", 1), ("nomic", 2), ("bert", 1), ("modernbert", 1)])
def test_contextual_export_uses_its_context(tmp_path: Path, kind: str, num_vectors: int) -> None:
    model = make_model("contextual", backbone=kind, tokens_per_document=num_vectors)
    export_sentence_transformers(model, tmp_path / "out")
    model.set_context(CORPUS)
    for theirs in (
        SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True),
        open_sentence_transformers(tmp_path / "out"),
    ):
        options = {"show_progress_bar": False, "batch_size": 2, "convert_to_tensor": True}
        first_stage = {"prompt_name": "document", "without_context": "first_stage"}
        context = theirs.encode(theirs[0].drawn_from(CORPUS), **first_stage, **options)
        assert len(context) == theirs[0].config.transductive_corpus_size == 4
        for prompt in ("query", "document"):
            for given in ({"dataset_embeddings": context}, {"context": CORPUS}):
                found = theirs.encode(TEXTS, prompt_name=prompt, **given, **options)
                np.testing.assert_allclose(found, model.encode(TEXTS, prompt), atol=1e-6, rtol=0)


def test_routers_embed_queries_as_queries(tmp_path: Path) -> None:
    queries, documents = (
        list(as_sentence_transformer(make_model("biencoder", num_layers=number))) for number in (1, 2)
    )
    SentenceTransformer(modules=[Router.for_query_document(queries, documents)], device="cpu").save(str(tmp_path / "m"))
    model = open_model(str(tmp_path / "m")).model
    theirs = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    for prompt, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        np.testing.assert_allclose(model.encode(TEXTS, prompt), encode(TEXTS, normalize_embeddings=True), **CLOSE)
    assert np.abs(model.encode(TEXTS, "query") - model.encode(TEXTS, "document")).max() > 0.1


def test_context_is_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("contextual")
    theirs, calls = as_sentence_transformer(model), []
    real = type(model).context_from
    monkeypatch.setattr(type(model), "context_from", lambda self, *a: [calls.append(a), real(self, *a)][1])
    for _ in range(2):
        before = theirs.encode(TEXTS, context=CORPUS, batch_size=1)
    assert len(calls) == 1 and model.context_CE is None
    assert np.abs(theirs.encode(TEXTS, context=CORPUS[::-1]) - before).max() > 1e-4 and len(calls) == 2
    with torch.no_grad():
        for weight in model.first_stage_model.parameters():
            weight.mul_(1.5)
    assert np.abs(theirs.encode(TEXTS, context=CORPUS) - before).max() > 1e-4


def test_ambiguous_context_is_refused() -> None:
    theirs = as_sentence_transformer(make_model("contextual"))
    with pytest.raises(ValueError, match="give one of them"):
        theirs.encode(TEXTS, context=CORPUS, dataset_embeddings=torch.zeros(4, 16))
    with pytest.raises(ValueError, match="one text"):
        theirs.encode(TEXTS, context="rain")


def test_missing_context_is_refused() -> None:
    model = make_model("contextual")
    theirs = as_sentence_transformer(model)
    for encode in (theirs.encode, theirs.encode_query, theirs.encode_document, model.encode):
        with pytest.raises(ValueError, match="no context is set"):
            encode(TEXTS)
    with pytest.raises(ValueError, match="the only one is 'first_stage'"):
        theirs.encode(TEXTS, without_context="zeros")
    vectors = theirs.encode(TEXTS[:4], without_context="first_stage", prompt_name="document")
    model.set_context(TEXTS[:4])
    np.testing.assert_allclose(vectors, model.context_CE.numpy(), atol=1e-6)


def test_context_seed_draws_other_documents() -> None:
    model = make_model("contextual")
    theirs, found = as_sentence_transformer(model), []
    for seed in (0, 3):
        found.append(theirs.encode(TEXTS, context=CORPUS, context_seed=seed, prompt_name="document"))
        model.set_context(CORPUS, seed)
        np.testing.assert_allclose(found[-1], model.encode(TEXTS, "document"), atol=1e-6)
    assert np.abs(found[0] - found[1]).max() > 1e-4


def test_exported_folder_can_move(tmp_path: Path) -> None:
    model = make_model("contextual")
    export_sentence_transformers(model, tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    opened = open_sentence_transformers(tmp_path / "there")
    assert opened[0].model.name_or_path == str(tmp_path / "there")
    names = {path.suffix for path in (tmp_path / "there").rglob("*") if path.is_file()}
    assert names <= {".json", ".safetensors", ".md", ".py"}


def test_no_pickle_is_written(tmp_path: Path) -> None:
    export_sentence_transformers(make_model("contextual"), tmp_path / "out")
    opened = open_sentence_transformers(tmp_path / "out")
    with pytest.raises(ValueError, match="pickle"):
        opened.save_pretrained(str(tmp_path / "again"), safe_serialization=False, create_model_card=False)


def test_other_modules_are_refused(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}]')
    with pytest.raises(ValueError, match="evil"):
        open_sentence_transformers(tmp_path)
    with pytest.raises(ValueError, match=r"modules\.json is missing"):
        open_sentence_transformers(tmp_path / "nowhere")


def make_clusters() -> tuple[np.ndarray, Clusters]:
    assignment, domains = np.repeat(np.arange(4, dtype=np.int32), 8), np.repeat([0, 1], 16).astype(np.int32)
    return domains, Clusters(assignment, np.zeros((4, 2), np.float32), np.array([0, 0, 1, 1], np.int32))


def test_stock_trainer_gets_our_batches() -> None:
    domains, clusters = make_clusters()
    sampler = cluster_batch_sampler(domains, clusters)(range(32), batch_size=8, drop_last=False, seed=5)
    ours = BatchSampler("cluster", domains, batch_size=8, seed=5, clusters=clusters)
    for epoch in range(3):
        assert list(sampler) == ours.epoch(epoch).tolist()
    sampler.set_epoch(1)
    assert list(sampler) == ours.epoch(1).tolist() and len(sampler) == 4
    assert ours.epoch(0).tolist() != ours.epoch(1).tolist()


def test_clusters_of_other_data_are_refused() -> None:
    domains, clusters = make_clusters()
    with pytest.raises(ValueError, match="31 rows, the clusters 32"):
        cluster_batch_sampler(domains, clusters)(range(31), batch_size=8)
