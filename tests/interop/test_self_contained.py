"""Exports with their own code open without this project and can be trained by sentence-transformers."""

import hashlib
import importlib.metadata
import json
import runpy
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from transformers import AutoModel

from repro.data.beir import Retrieval
from repro.data.prompts import PROMPTS
from repro.evaluate.contexts import draw_context
from repro.interop.exporting import export_model
from repro.interop.self_contained import MODULE_CODE, load_self_contained_model, write_self_contained
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.interop.trained_on import TRAINED_ON_FILE, write_trained_on
from repro.model.contextual import ContextualModel
from repro.model.modeling_cde import CdeConfig, CdeModel, draw_batch_context
from repro.model.texts import make_texts
from repro.spec import base
from repro.train.gradcache import Stages, StepTexts, add_gradients
from repro.train.loss import info_nce
from tests.commands import ignore
from tests.interop.small import CLOSE, CORPUS, TEXTS, make_contextual, make_model, open_folder

VARIANTS: list[dict[str, Any]] = [
    {"backbone": "nomic"},
    {"backbone": "bert"},
    {"backbone": "modernbert"},
    {"tokens_per_document": 2, "residual": True},
    {"pooling": "frequency"},
    {"backbone": "bert", "first_position": 2},
    {"prefix_is_pooled": True, "num_soft_prompts": 0, "instruction_end": 1024},
]
QUIET = {"show_progress_bar": False}


def export_and_open(model: Any, folder: Path) -> SentenceTransformer:
    write_self_contained(model, folder)
    return open_folder(folder)


def test_older_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 5.7 would open the folder without `set_context`, so texts would have the null context."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "5.7.0")
    with pytest.raises(ImportError, match="sentence-transformers>=6"):
        runpy.run_path(str(MODULE_CODE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the small contextual model. No test changes it."""
    folder = tmp_path_factory.mktemp("exported") / "out"
    write_self_contained(make_contextual(), folder)
    return folder


@pytest.fixture
def theirs(folder: Path) -> SentenceTransformer:
    """The opened export."""
    return open_folder(folder)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_exported_code_matches_our_vectors(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Both libraries give our vectors, under the context of a call and under one that was set."""
    model = make_contextual(**changes)
    theirs = export_and_open(model, tmp_path)
    other = AutoModel.from_pretrained(tmp_path, trust_remote_code=True)
    model.set_context(CORPUS, seed=3)
    first_stage = {"prompt_name": "document", "without_context": "first_stage", "convert_to_tensor": True}
    assert theirs[0].drawn_from(CORPUS, seed=3) != theirs[0].drawn_from(CORPUS, seed=0)
    context = theirs.encode(theirs[0].drawn_from(CORPUS, seed=3), **first_stage, **QUIET)
    assert len(context) == theirs[0].config.transductive_corpus_size == 4
    for options in ({"dataset_embeddings": context}, {"context": CORPUS, "context_seed": 3}, {}):
        if not options:
            theirs.set_context(CORPUS, seed=3)
        for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
            vectors = encode(TEXTS, batch_size=2, **options, **QUIET)
            np.testing.assert_allclose(vectors, model.encode(TEXTS, role), **CLOSE)
    other.set_context(CORPUS, seed=3)
    np.testing.assert_allclose(other.encode(TEXTS, "query"), model.encode(TEXTS, "query"), **CLOSE)


@pytest.mark.parametrize(("num_documents", "role"), [(6, "query"), (3, "document")])
def test_name_draws_sample_of_evaluate(theirs: SentenceTransformer, num_documents: int, role: str) -> None:
    """With the name of the collection, an export is conditioned on the same documents as in `repro evaluate`."""
    model, documents = make_contextual(), CORPUS[:num_documents]
    ids = tuple(str(number) for number in range(num_documents))
    collection = Retrieval("things", ids, tuple(documents), (), (), {})
    context = draw_context("own", collection, num_contexts=model.config.num_contexts, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_context(context.texts, 3, role)
        theirs.set_context(documents, seed=3, name="things", prompt_name=role)
        drawn = theirs[0].drawn_from(documents, seed=3, name="things")
    assert drawn[: len(context.texts)] == context.texts
    np.testing.assert_allclose(theirs.encode_document(TEXTS, **QUIET), model.encode(TEXTS, "document"), **CLOSE)


def test_stock_export_of_shifted_text_is_refused(tmp_path: Path) -> None:
    """Stock modules read a text at position 0."""
    model = make_model("biencoder", backbone="bert", first_position=2)
    with pytest.raises(ValueError, match="first_position=2"):
        export_sentence_transformers(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_exported_class_draws_the_same_weights() -> None:
    """transformers initialises no weight a second time, and the random generator moves no further."""
    torch.manual_seed(0)
    config = make_contextual(backbone="bert").config
    ours = ContextualModel(config)
    after = torch.rand(1)
    torch.manual_seed(0)
    make_contextual(backbone="bert")
    theirs = CdeModel(CdeConfig(repro=asdict(config)))
    assert torch.equal(torch.rand(1), after)
    for name, weight in ours.state_dict().items():
        assert torch.equal(theirs.state_dict()[name], weight), name


def test_missing_context_warns_once(theirs: SentenceTransformer, tmp_path: Path) -> None:
    """The null context is used. A model without a null context raises."""
    model = make_contextual()
    model.set_context(None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            vectors = theirs.encode_document(TEXTS, batch_size=1, **QUIET)
    assert sum("no context is set" in str(warning.message) for warning in caught) == 1
    np.testing.assert_allclose(vectors, model.encode(TEXTS), **CLOSE)
    with pytest.raises(ValueError, match="no null context"):
        export_and_open(make_contextual(sequence_dropout=0.0), tmp_path / "none").encode(TEXTS, **QUIET)


def test_vectors_of_texts_are_no_context(theirs: SentenceTransformer) -> None:
    """Vectors of unit length are refused as context, since they are not those of the first stage."""
    with pytest.raises(ValueError, match="unit length"):
        theirs.encode(TEXTS, dataset_embeddings=theirs.encode(CORPUS[:4]), **QUIET)
    first = theirs.encode(CORPUS[:4], prompt_name="document", without_context="first_stage", **QUIET)
    vectors = theirs.encode(TEXTS, dataset_embeddings=first, without_context="first_stage", **QUIET)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("context", [CORPUS, None])
def test_context_is_saved_with_the_model(
    theirs: SentenceTransformer, folder: Path, tmp_path: Path, context: list[str] | None
) -> None:
    """The saved folder has the context in their classes and in ours. Another export drops it with a warning."""
    theirs.set_context(context, seed=1)
    expected = theirs.encode_document(TEXTS, **QUIET)
    saved = tmp_path / "saved"
    theirs.save_pretrained(str(saved))
    np.testing.assert_allclose(open_folder(saved).encode_document(TEXTS, **QUIET), expected, **CLOSE)
    np.testing.assert_allclose(load_self_contained_model(saved).encode(TEXTS), expected, **CLOSE)
    for source in (folder, saved):
        lines = export_model(str(source), tmp_path / f"{source.name}-again", progress=ignore)
        assert ("warning" in lines[0]) == (source == saved)


def test_saved_settings_are_kept_or_refused(theirs: SentenceTransformer, tmp_path: Path) -> None:
    """A saved length counts in all classes. A truncation or prompt of sentence-transformers is refused by ours."""
    theirs.max_seq_length = 5
    theirs.set_context(CORPUS)
    theirs.save_pretrained(str(tmp_path / "short"))
    expected = theirs.encode_document(TEXTS, **QUIET)
    np.testing.assert_allclose(open_folder(tmp_path / "short").encode_document(TEXTS, **QUIET), expected, **CLOSE)
    np.testing.assert_allclose(load_self_contained_model(tmp_path / "short").encode(TEXTS), expected, **CLOSE)
    settings = tmp_path / "short" / "config_sentence_transformers.json"
    values = json.loads(settings.read_text())
    for changes, message in (
        ({"truncate_dim": 8}, "truncate_dim is 8"),
        ({"prompts": {"query": "find: "}}, "prompt 'document' is not that of config.json"),
        ({"prompts": values["prompts"] | {"query": "find: "}}, "prompt 'query' is not that of config.json"),
    ):
        settings.write_text(json.dumps(values | changes))
        with pytest.raises(ValueError, match=message):
            load_self_contained_model(tmp_path / "short")


def test_further_modules_are_refused(theirs: SentenceTransformer, tmp_path: Path) -> None:
    """Ours would give the vectors before a Dense, without a message. `Normalize` changes nothing."""
    for name, further in (("same", Normalize()), ("other", Dense(16, 8))):
        SentenceTransformer(modules=[theirs[0], further], prompts=theirs.prompts).save_pretrained(str(tmp_path / name))
    load_self_contained_model(tmp_path / "same")
    with pytest.raises(ValueError, match="Dense"):
        load_self_contained_model(tmp_path / "other")


def test_saved_folder_names_its_run(tmp_path: Path) -> None:
    """Otherwise `evaluate` could not warn about queries that the model was trained on."""
    write_self_contained(make_contextual(), tmp_path / "out")
    write_trained_on(tmp_path / "out", base("smoke", architecture="contextual"))
    expected = (tmp_path / "out" / TRAINED_ON_FILE).read_text()
    for opener in (SentenceTransformer, AutoModel.from_pretrained):
        opener(str(tmp_path / "out"), trust_remote_code=True).save_pretrained(str(tmp_path / "again"))
        assert (tmp_path / "again" / TRAINED_ON_FILE).read_text() == expected
        (tmp_path / "again" / TRAINED_ON_FILE).unlink()


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    """transformers alone would fill a missing weight with random numbers."""
    write_self_contained(make_contextual(), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    missing = next(name for name in sorted(weights) if "layers.0" in name)
    del weights[missing]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=missing):
        AutoModel.from_pretrained(tmp_path, trust_remote_code=True)


PAIRS = [
    {"anchor": f"what is {word}", "positive": f"{word} is a thing of kind {n}", "negative": f"nothing about {word} {n}"}
    for n, word in enumerate(["rain", "snow", "hills", "bread", "copper", "iron"])
]


def compute_gradients(model: ContextualModel) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the loss and the gradients of our own engine for the pairs as one batch."""
    texts = [row[name] for name in ("positive", "negative") for row in PAIRS]

    def tokenize(texts: list[str], role: str) -> Any:
        tokens = model.tokenize(texts, role)
        return make_texts(*tokens.pad(range(len(tokens))))

    prompted = "\0".join(PROMPTS[model.config.prompts].document + text for text in texts)
    number = int(hashlib.sha256(prompted.encode()).hexdigest()[:16], 16)
    places = draw_batch_context(len(texts), model.config.num_contexts, 7, number)
    contexts = tokenize([texts[place] for place in places], "document")
    queries = tokenize([row["anchor"] for row in PAIRS], "query")
    step = StepTexts(queries, tokenize(texts, "document"), contexts)
    parts = add_gradients(Stages(model.second_stage, lambda a, b: info_nce(a, b, 0.05), model.first_stage), step)
    return float(parts.loss), {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("cached", [False, True])
def test_stock_losses_give_our_gradients(tmp_path: Path, cached: bool) -> None:
    """The context of a batch is drawn from its own documents."""
    model = make_contextual(sequence_dropout=0.0).train()
    theirs = export_and_open(model, tmp_path).train()
    collate = theirs[0].make_collator(seed=7)
    # Other batches before this one do not change its context.
    others = [collate(PAIRS[::-1])["anchor_context"], collate(PAIRS)["anchor_context"]]
    batch = collate(PAIRS)
    is_same = [torch.equal(other.tokens["input_ids"], batch["anchor_context"].tokens["input_ids"]) for other in others]
    assert is_same == [False, True]
    names = ("input_ids", "attention_mask", "context")
    features = [{name: batch[f"{column}_{name}"] for name in names} for column in ("anchor", "positive", "negative")]
    options = {"mini_batch_size": 4} if cached else {}
    loss_class = CachedMultipleNegativesRankingLoss if cached else MultipleNegativesRankingLoss
    loss = loss_class(theirs, scale=20.0, **options)(features, None)
    loss.backward()
    expected, gradients = compute_gradients(model)
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-5)
    actual = {name.removeprefix("0.model."): weight.grad for name, weight in theirs.named_parameters()}
    assert actual.keys() == gradients.keys()
    for name, gradient in gradients.items():
        if gradient is not None:
            np.testing.assert_allclose(actual[name], gradient, atol=2e-5, err_msg=name)


def test_each_dataset_has_prompts(theirs: SentenceTransformer) -> None:
    """Batches of several training datasets have other columns. The first column holds queries, the others documents."""
    collate, prompts = theirs[0].make_collator(), PROMPTS["task"]
    for name, (query, document) in {"one": ("anchor", "positive"), "two": ("question", "answer")}.items():
        batch = collate([{"dataset_name": name, query: "rain", document: "snow falls"}] * 2)
        for column, text in ((query, prompts.query + "rain"), (document, prompts.document + "snow falls")):
            expected = theirs[0].tokenizer([text] * 2, return_tensors="pt")["input_ids"]
            assert torch.equal(batch[f"{column}_input_ids"], expected), column


def test_training_without_a_context_is_refused(theirs: SentenceTransformer) -> None:
    """The message names the collator."""
    theirs.set_context(CORPUS)
    batch = theirs[0].make_collator()(PAIRS)
    theirs.train()
    with pytest.raises(ValueError, match="make_collator"):
        theirs({name: batch[f"anchor_{name}"] for name in ("input_ids", "attention_mask")})
