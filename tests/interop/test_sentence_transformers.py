"""Exports for sentence-transformers give our vectors, and its trainer accepts our batches."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from repro.batches.cluster import Clusters
from repro.batches.sampler import BatchSampler
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.interop.stock_trainer import make_cluster_batch_sampler
from tests.interop.small import CLOSE, CORPUS, TEXTS, make_model, open_folder


@pytest.mark.parametrize("kind", ["nomic", "bert", "modernbert"])
def test_biencoder_opens_with_stock_modules(tmp_path: Path, kind: str) -> None:
    model = make_model("biencoder", backbone=kind)
    export_sentence_transformers(model, tmp_path)
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    assert all(type(module).__module__.startswith("sentence_transformers.") for module in theirs)
    for prompt, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        vectors = encode(TEXTS, batch_size=2, show_progress_bar=False)
        np.testing.assert_allclose(vectors, model.encode(TEXTS, prompt), atol=1e-6, rtol=0)


@pytest.fixture
def contextual(tmp_path: Path) -> SentenceTransformer:
    """An export of the small contextual model, opened."""
    export_sentence_transformers(make_model("contextual"), tmp_path / "contextual")
    return open_folder(tmp_path / "contextual")


def test_context_is_embedded_once(contextual: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is embedded again if the documents or the weights change."""
    model: Any = contextual[0].model
    calls = []
    real = type(model).first_stage

    def counted(self: Any, *arguments: Any, **options: Any) -> torch.Tensor:
        calls.append(arguments)
        return real(self, *arguments, **options)

    monkeypatch.setattr(type(model), "first_stage", counted)
    for _ in range(2):
        before = contextual.encode(TEXTS, context=CORPUS, batch_size=1)
    assert len(calls) == 1
    assert np.abs(contextual.encode(TEXTS, context=CORPUS[::-1]) - before).max() > 1e-4
    with torch.no_grad():
        for weight in model.first_stage_model.parameters():
            weight.mul_(1.5)
    assert np.abs(contextual.encode(TEXTS, context=CORPUS) - before).max() > 1e-4


def test_unclear_context_is_refused(contextual: SentenceTransformer) -> None:
    for options in ({"context": CORPUS, "dataset_embeddings": torch.zeros(4, 16)}, {"without_context": "zeros"}):
        for encode in (contextual.encode, contextual.encode_query, contextual.encode_document):
            with pytest.raises(ValueError, match=r"give one of them|first_stage"):
                encode(TEXTS, **options)


def test_blind_export_takes_no_documents(tmp_path: Path) -> None:
    """A model trained without documents refuses them for one call, as `set_context` does."""
    export_sentence_transformers(make_model("contextual", sequence_dropout=1.0), tmp_path)
    blind = open_folder(tmp_path)
    vectors = blind.encode(CORPUS[:4], convert_to_tensor=True, without_context="first_stage")
    tokens = blind[0].preprocess(TEXTS)
    for call in (
        lambda: blind.set_context(CORPUS),
        lambda: blind.encode(TEXTS, context=CORPUS),
        lambda: blind.encode(TEXTS, dataset_embeddings=vectors),
        lambda: blind[0].model(**tokens, dataset_input_ids=tokens["input_ids"]),
    ):
        with pytest.raises(ValueError, match="trained without documents"):
            call()
    np.testing.assert_allclose(blind.encode(TEXTS, prompt_name="document"), blind[0].model.encode(TEXTS), **CLOSE)


def test_stock_trainer_gets_our_batches() -> None:
    """Clusters of other data are refused."""
    assignment = np.repeat(np.arange(4, dtype=np.int32), 8)
    domains = np.repeat([0, 1], 16).astype(np.int32)
    clusters = Clusters(assignment, np.zeros((4, 2), np.float32), np.array([0, 0, 1, 1], np.int32))
    # the trainer stores its arguments with each checkpoint
    make_sampler = pickle.loads(pickle.dumps(make_cluster_batch_sampler(domains, clusters)))
    sampler = make_sampler(range(32), batch_size=8, drop_last=False, seed=5)
    ours = BatchSampler("cluster", domains, batch_size=8, seed=5, clusters=clusters)
    for epoch in range(3):
        assert list(sampler) == ours.epoch(epoch).tolist()
    sampler.set_epoch(1)
    assert list(sampler) == ours.epoch(1).tolist() and len(sampler) == 4
    assert ours.epoch(0).tolist() != ours.epoch(1).tolist()
    with pytest.raises(ValueError, match="31 rows, the clusters 32"):
        make_sampler(range(31), batch_size=8)
