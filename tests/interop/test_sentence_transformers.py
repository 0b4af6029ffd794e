"""Promises of the way into sentence-transformers: the same vectors, and our batches in its trainer."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from repro.batches.cluster import Clusters
from repro.batches.sampler import BatchSampler
from repro.interop.sentence_transformers_folder import export_sentence_transformers, open_sentence_transformers
from repro.interop.stock_trainer import cluster_batch_sampler
from repro.model.config import ModelConfig
from repro.model.start import build_model

CLOSE = {"atol": 1e-5, "rtol": 0}
KINDS = ["nomic", "bert", "modernbert"]
TEXTS = ["one", "a somewhat longer text about rain", "rain falls, it does: on hills", "snow " * 60, "Hills & more"]
CORPUS = [f"document {n} about {word}" for n, word in enumerate(["rain", "snow", "hills", "bread", "copper", "iron"])]


def model_of(architecture, **changes):
    sizes = {"hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "num_contexts": 4, "prompts": "task"}
    model = build_model(ModelConfig(architecture=architecture, **(sizes | changes)))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model.eval()


def unit(vectors):
    vectors = np.asarray(vectors)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_biencoder_opens_with_stock_modules_and_gives_our_vectors(tmp_path, kind):
    model = model_of("biencoder", backbone=kind)
    export_sentence_transformers(model, tmp_path / "out")
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert all(type(module).__module__.startswith("sentence_transformers.") for module in theirs)
    for prompt in ("query", "document"):
        found = theirs.encode(TEXTS, prompt_name=prompt, batch_size=2, show_progress_bar=False)
        np.testing.assert_allclose(found, model.encode(TEXTS, prompt), **CLOSE)
    np.testing.assert_allclose(
        theirs.encode_query(TEXTS, show_progress_bar=False), model.encode(TEXTS, "query"), **CLOSE
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_vectors", [1, 2])
def test_a_contextual_model_takes_its_context_in_encode(tmp_path, kind, num_vectors):
    model = model_of("contextual", backbone=kind, tokens_per_document=num_vectors)
    export_sentence_transformers(model, tmp_path / "out")
    model.set_context(CORPUS)
    for theirs in (
        SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True),
        open_sentence_transformers(tmp_path / "out"),
    ):
        size = theirs[0].config.transductive_corpus_size
        options = {"show_progress_bar": False, "batch_size": 2, "convert_to_tensor": True}
        context = theirs.encode(CORPUS[:size], prompt_name="document", **options)
        for prompt in ("query", "document"):
            found = theirs.encode(TEXTS, prompt_name=prompt, dataset_embeddings=context, **options)
            np.testing.assert_allclose(unit(found), model.encode(TEXTS, prompt), **CLOSE)


def test_the_exported_folder_needs_nothing_from_where_it_was_made(tmp_path):
    model = model_of("contextual")
    export_sentence_transformers(model, tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    opened = open_sentence_transformers(tmp_path / "there")
    assert opened[0].model.config.tokenizer.startswith(str(tmp_path / "there"))
    names = {path.suffix for path in (tmp_path / "there").rglob("*") if path.is_file()}
    assert names <= {".json", ".safetensors", ".md"}


def test_transformers_can_ask_for_the_number_of_contexts(tmp_path):
    from transformers import AutoConfig

    export_sentence_transformers(model_of("contextual"), tmp_path / "out")
    assert AutoConfig.from_pretrained(tmp_path / "out").transductive_corpus_size == 4


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("x")
    with pytest.raises(ValueError, match="not empty"):
        export_sentence_transformers(model_of("biencoder"), tmp_path)


def test_no_pickle_is_written(tmp_path):
    export_sentence_transformers(model_of("contextual"), tmp_path / "out")
    opened = open_sentence_transformers(tmp_path / "out")
    with pytest.raises(ValueError, match="pickle"):
        opened.save_pretrained(str(tmp_path / "again"), safe_serialization=False, create_model_card=False)


def test_other_modules_are_refused(tmp_path):
    (tmp_path / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}]')
    with pytest.raises(ValueError, match="evil"):
        open_sentence_transformers(tmp_path)
    with pytest.raises(ValueError, match=r"modules\.json is missing"):
        open_sentence_transformers(tmp_path / "nowhere")


def four_clusters():
    assignment, domains = np.repeat(np.arange(4, dtype=np.int32), 8), np.repeat([0, 1], 16).astype(np.int32)
    return domains, Clusters(assignment, np.zeros((4, 2), np.float32), np.array([0, 0, 1, 1], np.int32))


def test_the_stock_trainer_gets_our_batches_anew_each_epoch():
    domains, clusters = four_clusters()
    sampler = cluster_batch_sampler(domains, clusters)(range(32), batch_size=8, drop_last=False, seed=5)
    ours = BatchSampler("cluster", domains, batch_size=8, seed=5, clusters=clusters)
    for epoch in range(3):
        assert list(sampler) == ours.epoch(epoch).tolist()
    sampler.set_epoch(1)
    assert list(sampler) == ours.epoch(1).tolist() and len(sampler) == 4
    assert ours.epoch(0).tolist() != ours.epoch(1).tolist()


def test_clusters_of_other_data_are_refused():
    domains, clusters = four_clusters()
    with pytest.raises(ValueError, match="31 rows, the clusters 32"):
        cluster_batch_sampler(domains, clusters)(range(31), batch_size=8)


def test_the_example_trains_on_our_batches(tmp_path, monkeypatch):
    path = Path(__file__).resolve().parents[2] / "examples" / "stock_trainer.py"
    spec = importlib.util.spec_from_file_location("stock_trainer_example", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    seen = []
    real = example.MultipleNegativesRankingLoss.forward

    def spy(self, features, labels):
        seen.append(features)
        return real(self, features, labels)

    monkeypatch.setattr(example.MultipleNegativesRankingLoss, "forward", spy)
    model = example.train(tmp_path)
    texts = example.pairs()["anchor"][:3]
    batches = [batch[0]["input_ids"].shape[0] for batch in seen]
    assert batches == [8] * 8
    first, second = (sorted(str(batch[0]["input_ids"].tolist()) for batch in half) for half in (seen[:4], seen[4:]))
    assert first != second
    opened = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(opened.encode(texts), model.encode(texts), **CLOSE)
