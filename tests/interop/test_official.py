"""The authors' checkpoints give the specified vectors.

The last two tests need the released weights and their data. REPRO_CDE_V1 and REPRO_CDE_V2 name the folders of the
checkpoints. REPRO_NATURAL_QUESTIONS names a jsonl or parquet copy of sentence-transformers/natural-questions in its
order, with the columns query and answer.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from repro.interop.official.config import read_official_config
from repro.interop.official.folder import load_official
from repro.interop.official.keys import make_key_table
from repro.interop.opening import open_model
from repro.model.contextual import ContextualModel
from repro.model.start import load_model
from repro.model.texts import Texts
from tests.interop.checkpoints import (
    EMBEDDERS,
    NULL,
    V1,
    V2,
    checkpoint_shapes,
    random_weights,
    write_checkpoint,
    write_usable_checkpoint,
)
from tests.interop.rederived import first_stage, second_stage
from tests.interop.small import CORPUS, TEXTS

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
COLON = 1024
KINDS = ("nomic", "modernbert")


def make_batch(end: int | None = None) -> Texts:
    """Return right-padded texts of different lengths. If `end` is given, texts have it first, once, twice, last or never."""
    generator = torch.Generator().manual_seed(0)
    longest = 14
    lengths = torch.randint(4, longest + 1, (6,), generator=generator)
    lengths[:2] = torch.tensor([longest, 1])
    mask = (torch.arange(longest)[None] < lengths[:, None]).long()
    ids = torch.randint(1, 1000, mask.shape, generator=generator) * mask
    if end is not None:
        ids[0, [3, 7]], ids[2, 0], ids[3, [0, 2]], ids[4, lengths[4] - 1] = end, end, end, end
    return Texts(ids, mask)


def list_rows(texts: Texts) -> list[np.ndarray]:
    return [ids[: int(mask.sum())].numpy() for ids, mask in zip(texts.ids_NS, texts.mask_NS, strict=True)]


def write_and_load(folder: Path, kind: str = "nomic", **fields: Any) -> tuple[ContextualModel, dict[str, np.ndarray]]:
    weights = write_checkpoint(folder, kind, **fields)
    return load_official(folder, tokenizer="minilm"), weights


def encode(model: ContextualModel, texts: Texts, contexts: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model.second_stage(texts, torch.tensor(contexts, dtype=torch.float32)).numpy()


def draw_context_vectors(num_contexts: int = 5) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(num_contexts, 16))


@pytest.mark.parametrize("kind", KINDS)
def test_first_stage_matches_specification(tmp_path: Path, kind: str) -> None:
    model, weights = write_and_load(tmp_path, kind)
    texts = make_batch()
    with torch.no_grad():
        vectors = model.first_stage(texts).numpy()
    np.testing.assert_allclose(vectors, [first_stage(weights, ids, kind) for ids in list_rows(texts)], **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_contexts", [1, 5, 40])
def test_second_stage_matches_specification(tmp_path: Path, kind: str, num_contexts: int) -> None:
    """The specification rotates by absolute positions, so a shift of the text by one position changes its vectors."""
    model, weights = write_and_load(tmp_path, kind, transductive_corpus_size=num_contexts)
    end = COLON if kind == "modernbert" else None
    texts, contexts = make_batch(end=COLON), draw_context_vectors(num_contexts)
    expected = [second_stage(weights, ids, contexts, kind, instruction_end=end) for ids in list_rows(texts)]
    np.testing.assert_allclose(encode(model, texts, contexts), expected, **CLOSE)


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("pools", [False, True])
def test_pooling_follows_the_config(tmp_path: Path, drops: bool, pools: bool) -> None:
    """The second release alone has these options."""
    fields = {"pool_ignore_instruction_tokens": drops, "pool_ignore_contextual_tokens": not pools}
    model, weights = write_and_load(tmp_path, "modernbert", **fields)
    texts, contexts = make_batch(end=COLON), draw_context_vectors()
    options = {"instruction_end": COLON if drops else None, "pools_prefix": pools}
    expected = [second_stage(weights, ids, contexts, "modernbert", **options) for ids in list_rows(texts)]
    np.testing.assert_allclose(encode(model, texts, contexts), expected, **CLOSE)


@pytest.mark.parametrize("null", [True, False])
def test_null_vector_fills_every_context(tmp_path: Path, null: bool) -> None:
    """A checkpoint without null vector has no null context, also if its config has a dropout."""
    weights = random_weights("nomic", null=null)
    model, _ = write_and_load(tmp_path, weights=weights, transductive_sequence_dropout_prob=0.01)
    if null:
        model.set_context(None)
        np.testing.assert_array_equal(model.context_CE, weights[NULL].expand(5, 16))
        assert model.config.sequence_dropout == 0.01
    else:
        with pytest.raises(ValueError, match="no null context"):
            model.set_context(None)


def test_modules_of_the_authors_are_not_run(tmp_path: Path) -> None:
    """Their checkpoints have a modules.json with a module of theirs. They open as our classes."""
    write_usable_checkpoint(tmp_path)
    types = ("sentence_transformers_impl.Transformer", "sentence_transformers.models.Pooling")
    modules = [{"idx": n, "name": str(n), "path": "", "type": name} for n, name in enumerate(types)]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    opened, expected = open_model(str(tmp_path)).ours, load_official(tmp_path)
    for encoder in (opened, expected):
        encoder.set_context(CORPUS)
    np.testing.assert_array_equal(opened.encode(TEXTS), expected.encode(TEXTS))


@pytest.mark.parametrize(
    ("kind", "sizes", "total"), [("nomic", V1, 281_140_992), ("modernbert", V2, 305_706_240)], ids=["v1", "v2"]
)
@pytest.mark.parametrize("null", [False, True])
def test_full_sizes_match_published_totals(kind: str, sizes: dict[str, int], total: int, null: bool) -> None:
    values = {"embedder": EMBEDDERS[kind], "transductive_corpus_size": 512}
    config = read_official_config(values, has_null_vector=null, tokenizer="minilm", instruction_end=COLON)
    shapes = checkpoint_shapes(kind, **sizes, null=null)
    assert {row.theirs for row in make_key_table(config)} == set(shapes)
    # The shapes of all tests are those of the releases.
    assert sum(math.prod(shape) for shape in shapes.values()) == total + 768 * null
    with torch.device("meta"):
        model = ContextualModel(config)
    assert sum(weight.numel() for weight in model.parameters()) == total + 768 * null


def test_config_defaults_are_the_documented_ones() -> None:
    options = {"tokenizer": "minilm", "instruction_end": COLON}
    v1 = {"embedder": "nomic-ai/nomic-bert-2048", "dataset_backbone": None, "logit_scale": 50, "cache_dir": "x"}
    config = read_official_config(v1, has_null_vector=False, **options)
    assert (config.num_contexts, config.max_tokens, config.residual, config.instruction_end) == (1, 512, False, None)
    assert (config.prompts, config.num_soft_prompts, config.sequence_dropout) == ("task", 8, 0.0)
    v2 = {"embedder": "answerdotai/ModernBERT-base", "transductive_corpus_size": 512}
    config = read_official_config(v2, has_null_vector=True, **options)
    assert config.residual and config.text_normalised_twice and config.instruction_end == COLON
    assert (config.num_contexts, config.prefix_is_pooled, config.sequence_dropout) == (512, False, 0.005)


def test_checkpoint_saved_as_ours_is_equal(tmp_path: Path) -> None:
    model, _ = write_and_load(tmp_path / "a", "modernbert")
    model.save_pretrained(tmp_path / "b")
    texts, contexts = make_batch(end=COLON), draw_context_vectors()
    np.testing.assert_array_equal(encode(load_model(tmp_path / "b"), texts, contexts), encode(model, texts, contexts))


TOP_VALUES = """
0.5495 0.5426 0.5423 0.5292 0.5286 0.6357 0.6334 0.6177 0.5862 0.5794 0.7648 0.5452 0.5000 0.4959 0.4881
0.6802 0.5225 0.5178 0.5160 0.5075 0.6947 0.5843 0.5619 0.5344 0.5298 0.7742 0.7742 0.7742 0.7231 0.6224
0.8853 0.6667 0.5829 0.5795 0.5769 0.6911 0.6127 0.6003 0.5986 0.5936 0.6796 0.6053 0.6000 0.5911 0.5884
0.7624 0.5589 0.5428 0.5278 0.5275
"""
TOP_PLACES = """
0 296 234 1651 1184 1542 466 438 1207 1911 2 1562 632 1852 382 3 694 932 1765 662 4 35 747 26 432 534 175 5 1495 575
6 1802 1875 747 21 7 1913 1936 640 6 8 747 167 1318 1743 9 1583 1145 219 357
"""
V2_SCORES = [[0.8778, 0.7851, 0.7810, 0.7781, 0.7966], [0.7916, 0.8648, 0.7845, 0.7865, 0.8136]]


def get_path(name: str) -> Path:
    """Return the path in an environment variable. Skip the test if it is not set."""
    if name not in os.environ:
        pytest.skip(f"{name} is not set: the published numbers need the released weights and their data")
    return Path(os.environ[name])


def read_questions_and_answers() -> tuple[list[str], list[str]]:
    path = get_path("REPRO_NATURAL_QUESTIONS")
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_json(path, lines=True)
    return table["query"].tolist(), table["answer"].tolist()


def compute_scores(folder: Path, num_queries: int, num_documents: int) -> np.ndarray:
    queries, answers = read_questions_and_answers()
    model = load_official(folder)
    model.set_context(answers[-model.config.num_contexts :])
    return model.encode(queries[:num_queries], "query") @ model.encode(answers[:num_documents], "document").T


@pytest.mark.slow
def test_v1_matches_its_readme() -> None:
    """Slow: needs the released checkpoint."""
    folder = get_path("REPRO_CDE_V1")
    expected = np.array(TOP_VALUES.split(), float).reshape(10, 5)
    places = np.array(TOP_PLACES.split(), int).reshape(10, 5)
    scores = compute_scores(folder, 10, 2000)
    np.testing.assert_allclose(np.take_along_axis(scores, places, 1), expected, atol=5e-3)


@pytest.mark.slow
def test_v2_matches_published_similarities() -> None:
    """Slow: needs the released checkpoint."""
    np.testing.assert_allclose(compute_scores(get_path("REPRO_CDE_V2"), 2, 5), V2_SCORES, atol=1e-3)
