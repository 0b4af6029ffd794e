"""Exports that carry their code: they open where this project is not installed, and train in the stock trainer."""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from transformers import AutoModel

from repro.interop.contextual_module import MODULE_FOLDER
from repro.interop.opening import open_model
from repro.interop.self_contained import load_self_contained_model, write_self_contained
from repro.interop.sentence_transformers_folder import as_sentence_transformer, open_sentence_transformers
from repro.model.contextual import ContextualModel
from repro.model.texts import texts_from
from repro.train.feed import draw_contexts
from repro.train.gradcache import Stages, StepTexts, add_gradients
from repro.train.loss import info_nce
from tests.interop.test_sentence_transformers import CLOSE, CORPUS, KINDS, TEXTS, model_of

VARIANTS: list[dict[str, Any]] = [
    {},
    {"tokens_per_document": 2, "residual": True},
    {"pooling": "frequency"},
    {"prefix_is_pooled": True, "num_soft_prompts": 0, "instruction_end": 1024},
]
QUIET = {"show_progress_bar": False}


def opened(model: Any, folder: Path) -> SentenceTransformer:
    write_self_contained(model, folder)
    return SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")


@pytest.mark.parametrize(("kind", "changes"), [*((kind, {}) for kind in KINDS), *(("nomic", one) for one in VARIANTS)])
def test_exported_code_matches_our_vectors(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    """Every backbone, and every choice of the second stage, in both libraries."""
    model = model_of("contextual", backbone=kind, **changes)
    theirs = opened(model, tmp_path)
    other = AutoModel.from_pretrained(tmp_path, trust_remote_code=True)
    for one in (model, theirs, other):
        one.set_context(CORPUS, seed=3)
    for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        wanted = model.encode(TEXTS, role)
        np.testing.assert_allclose(encode(TEXTS, batch_size=2, **QUIET), wanted, **CLOSE)
        np.testing.assert_allclose(other.encode(TEXTS, role), wanted, **CLOSE)


def test_biencoder_code_matches_our_vectors(tmp_path: Path) -> None:
    """A biencoder opens with AutoModel alone, also in a process that opened a contextual model before."""
    for architecture in ("contextual", "biencoder", "contextual"):
        model, folder = model_of(architecture), tmp_path / architecture / "model"
        write_self_contained(model, folder)
        theirs = AutoModel.from_pretrained(folder, trust_remote_code=True)
        if architecture == "contextual":
            for one in (model, theirs):
                one.set_context(CORPUS)
        np.testing.assert_allclose(theirs.encode(TEXTS, "query"), model.encode(TEXTS, "query"), **CLOSE)


ELSEWHERE = """
import json, sys, warnings

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("repro", "experiments"):
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocked())

def main():
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from transformers import AutoModel
    folder, out, texts, corpus = json.loads(sys.argv[1])
    model = SentenceTransformer(folder, trust_remote_code=True, device="cpu")
    model.set_context(corpus, seed=0)
    found = {"query": model.encode_query(texts), "document": model.encode_document(texts)}
    judged = {str(n): {str(n)} for n in range(len(corpus))}
    named = {str(n): text for n, text in enumerate(corpus)}
    found["ir"] = np.array([InformationRetrievalEvaluator(named, named, judged)(model)["cosine_ndcg@10"]])
    pool = model.start_multi_process_pool(["cpu"])
    found["pool"] = model.encode(texts, prompt_name="document", pool=pool, chunk_size=2)
    model.stop_multi_process_pool(pool)
    model.save_pretrained(folder + "-again")
    again = SentenceTransformer(folder + "-again", trust_remote_code=True, device="cpu")
    found["again"] = again.encode_document(texts)
    other = AutoModel.from_pretrained(folder + "-again", trust_remote_code=True)
    found["auto"] = other.encode(texts, "document")
    assert "repro" not in sys.modules
    np.savez(out, **found)

if __name__ == "__main__":
    main()
"""


def test_folder_opens_without_this_project(tmp_path: Path) -> None:
    """In a process of its own that cannot import `repro`: vectors, evaluation, a process pool, saving, AutoModel."""
    model, folder, out = model_of("contextual"), tmp_path / "model", tmp_path / "vectors.npz"
    write_self_contained(model, folder)
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    asked = json.dumps([str(folder), str(out), TEXTS, CORPUS])
    words = [sys.executable, "-I", str(tmp_path / "elsewhere.py"), asked]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    model.set_context(CORPUS, seed=0)
    with np.load(out) as found:
        np.testing.assert_allclose(found["query"], model.encode(TEXTS, "query"), **CLOSE)
        for name in ("document", "pool", "again", "auto"):
            np.testing.assert_allclose(found[name], model.encode(TEXTS, "document"), **CLOSE)
        assert 0 < found["ir"][0] <= 1


def test_missing_context_warns_once(tmp_path: Path) -> None:
    """Vectors are those of the null context; a model that learned none raises."""
    model = model_of("contextual")
    theirs = opened(model, tmp_path / "out")
    model.set_context(None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            found = theirs.encode_document(TEXTS, batch_size=1, **QUIET)
    assert sum("no context is set" in str(one.message) for one in caught) == 1
    np.testing.assert_allclose(found, model.encode(TEXTS), **CLOSE)
    with pytest.raises(ValueError, match="no null context"):
        opened(model_of("contextual", sequence_dropout=0.0), tmp_path / "none").encode(TEXTS, **QUIET)


def test_vectors_of_texts_are_no_context(tmp_path: Path) -> None:
    """A wrapper that asks for first-stage vectors in the authors' way would get those of the null context."""
    theirs = opened(model_of("contextual"), tmp_path)
    with pytest.raises(ValueError, match="unit length"):
        theirs.encode(TEXTS, dataset_embeddings=theirs.encode(CORPUS[:4]), **QUIET)
    first = theirs.encode(CORPUS[:4], prompt_name="document", without_context="first_stage", **QUIET)
    found = theirs.encode(TEXTS, dataset_embeddings=first, without_context="first_stage", **QUIET)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("context", [CORPUS, None])
def test_context_is_saved_with_the_model(tmp_path: Path, context: list[str] | None) -> None:
    """It is there after `save_pretrained` in their classes, and when we open the folder."""
    theirs = opened(model_of("contextual"), tmp_path / "out")
    theirs.set_context(context, seed=1)
    wanted = theirs.encode_document(TEXTS, **QUIET)
    theirs.save_pretrained(str(tmp_path / "again"))
    for folder in (tmp_path / "again", open_sentence_transformers(tmp_path / "again")):
        again = SentenceTransformer(str(folder), trust_remote_code=True) if isinstance(folder, Path) else folder
        np.testing.assert_allclose(again.encode_document(TEXTS, **QUIET), wanted, **CLOSE)
    np.testing.assert_allclose(load_self_contained_model(tmp_path / "again").encode(TEXTS), wanted, **CLOSE)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_missing_weights_are_refused(tmp_path: Path, architecture: str) -> None:
    """transformers would draw a missing weight at random and go on."""
    write_self_contained(model_of(architecture), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in sorted(weights) if "layers.0" in name)
    del weights[lost]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=lost):
        AutoModel.from_pretrained(tmp_path, trust_remote_code=True)


def test_other_code_is_not_run(tmp_path: Path) -> None:
    """The folder's weights open with our own classes all the same."""
    model = model_of("contextual")
    write_self_contained(model, tmp_path)
    with (tmp_path / "modeling_cde.py").open("a") as file:
        file.write("raise SystemExit('was run')\n")
    with pytest.raises(ValueError, match="code that is not of this version"):
        open_sentence_transformers(tmp_path)
    ours = open_model(str(tmp_path)).ours
    for one in (model, ours):
        one.set_context(CORPUS)
    np.testing.assert_array_equal(ours.encode(TEXTS), model.encode(TEXTS))


def test_folder_of_version_0_1_opens(tmp_path: Path) -> None:
    """It names `repro.interop.contextual_module.ContextualModule`, which must stay where it is."""
    model, folder = model_of("contextual"), tmp_path / "old"
    as_sentence_transformer(model).save_pretrained(str(folder), create_model_card=False)
    modules = json.loads((folder / "modules.json").read_text())
    assert modules[0]["type"] == "repro.interop.contextual_module.ContextualModule"
    assert modules[0]["path"] == MODULE_FOLDER
    model.set_context(CORPUS)
    for theirs in (SentenceTransformer(str(folder), trust_remote_code=True), open_sentence_transformers(folder)):
        found = theirs.encode(TEXTS, prompt_name="document", context=CORPUS, **QUIET)
        np.testing.assert_allclose(found, model.encode(TEXTS), **CLOSE)


PAIRS = [
    {"anchor": f"what is {word}", "positive": f"{word} is a thing of kind {n}", "negative": f"nothing about {word} {n}"}
    for n, word in enumerate(["rain", "snow", "hills", "bread", "copper", "iron"])
]


def our_gradients(model: ContextualModel, number: int) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss and the gradients of our own engine for these pairs as one batch."""
    texts = [row[name] for name in ("positive", "negative") for row in PAIRS]

    def tokens(found: list[str], role: str) -> Any:
        made = model.tokenize(found, role)
        return texts_from(*made.pad(range(len(made))))

    places = draw_contexts(len(texts), model.config.num_contexts, seed=7, number=number)
    contexts = tokens([texts[place] for place in places], "document")
    step = StepTexts(tokens([row["anchor"] for row in PAIRS], "query"), tokens(texts, "document"), contexts)
    parts = add_gradients(Stages(model.second_stage, lambda a, b: info_nce(a, b, 0.05), model.first_stage), step)
    return float(parts.loss), {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("cached", [False, True])
def test_stock_losses_give_our_gradients(tmp_path: Path, cached: bool) -> None:
    """For one batch, whose context is drawn from its own documents."""
    model = model_of("contextual", sequence_dropout=0.0).train()
    theirs = opened(model, tmp_path).train()
    collate = theirs[0].make_collator(seed=7)
    collate(PAIRS)  # another number of batch is another draw
    batch = collate(PAIRS)
    names = ("input_ids", "attention_mask", "context")
    features = [{name: batch[f"{column}_{name}"] for name in names} for column in ("anchor", "positive", "negative")]
    if cached:
        loss = CachedMultipleNegativesRankingLoss(theirs, scale=20.0, mini_batch_size=4)(features, None)
    else:
        loss = MultipleNegativesRankingLoss(theirs, scale=20.0)(features, None)
    loss.backward()
    wanted, gradients = our_gradients(model, number=1)
    assert float(loss.detach()) == pytest.approx(wanted, abs=1e-5)
    found = {name.removeprefix("0.model."): weight.grad for name, weight in theirs.named_parameters()}
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        if gradient is not None:
            np.testing.assert_allclose(found[name], gradient, atol=2e-5, err_msg=name)


def test_training_without_a_context_is_refused(tmp_path: Path) -> None:
    """The message names the collator; under a set context vectors are made again after training."""
    theirs = opened(model_of("contextual"), tmp_path)
    theirs.set_context(CORPUS)
    before = theirs.encode(TEXTS, **QUIET)
    batch = theirs[0].make_collator()(PAIRS)
    theirs.train()
    with pytest.raises(ValueError, match="make_collator"):
        theirs({name: batch[f"anchor_{name}"] for name in ("input_ids", "attention_mask")})
    theirs({name: batch[f"anchor_{name}"] for name in ("input_ids", "attention_mask", "context")})
    with torch.no_grad():
        for weight in theirs[0].model.first_stage_model.parameters():
            weight.mul_(1.5)
    after = theirs.encode(TEXTS, **QUIET)
    assert np.abs(after - before).max() > 1e-4
    theirs.set_context(CORPUS)
    np.testing.assert_allclose(theirs.encode(TEXTS, **QUIET), after, **CLOSE)
