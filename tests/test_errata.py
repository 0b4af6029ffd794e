"""Defects of the authors' code that ours must not have, where no other test covers them. docs/ERRATA.md lists all."""

import numpy as np
import pytest

from repro.data.prompts import PROMPTS
from repro.data.tokens import load_tokenizer
from repro.pipeline.inputs import Inputs
from repro.pipeline.stages import list_stages
from repro.spec import base
from repro.train.setup import build_filter
from tests.train.fixtures import make_filter_inputs

PAIRS_B = np.array([7, 2, 9, 4, 0])
Vectors = dict[str, np.ndarray]


@pytest.fixture
def vectors() -> tuple[Vectors, Vectors]:
    """Random vectors of the surrogate and of another filter model, per side (12, 4)."""
    generator = np.random.default_rng(1)
    surrogate, own = (
        {side: generator.normal(size=(12, 4)).astype(np.float32) for side in ("query", "document")} for _ in range(2)
    )
    return surrogate, own


def apply_filter(vectors: tuple[Vectors, Vectors], filter_model: str | None) -> tuple[np.ndarray, float]:
    """Return the mask (B, B) and the difficulty of the batch."""
    run = base("smoke", filter="surrogate", filter_model=filter_model)
    judged = build_filter(make_filter_inputs(run, *vectors))(PAIRS_B)
    return np.asarray(judged.masked), judged.difficulty


def compute_mask(vectors: Vectors, left: str = "query", right: str = "document") -> np.ndarray:
    """Return which documents score at least as high as the query's own (B, B)."""
    queries, documents = vectors[left][PAIRS_B], vectors[right][PAIRS_B]
    own_scores = (queries * documents).sum(1, keepdims=True)
    return (queries @ documents.T >= own_scores) & ~np.eye(len(PAIRS_B), dtype=bool)


def test_the_filter_compares_queries_with_documents(vectors: tuple[Vectors, Vectors]) -> None:
    expected = compute_mask(vectors[0])
    assert (expected != compute_mask(vectors[0], "query", "query")).any(), "the defect must show in this data"
    np.testing.assert_array_equal(apply_filter(vectors, None)[0], expected)


def test_own_filter_model_keeps_difficulty(vectors: tuple[Vectors, Vectors]) -> None:
    """Another filter model changes the mask. The difficulty of a batch is always that of the surrogate."""
    masked, difficulty = apply_filter(vectors, "another")
    np.testing.assert_array_equal(masked, compute_mask(vectors[1]))
    assert (masked != compute_mask(vectors[0])).any(), "the two models must differ in this data"
    assert difficulty == apply_filter(vectors, None)[1]


def test_document_carries_prompt_once() -> None:
    """The tokens of the prompt occur once, directly after [CLS]."""
    run = base("smoke", prompts="task")
    for stage in list_stages(run):
        stage.build()
    inputs, tokenizer = Inputs(run), load_tokenizer("minilm")
    tokenizer.no_padding()
    for side, prompt in zip(("query", "document"), PROMPTS["task"], strict=True):
        tokens, prompt_ids = inputs.tokens(side), tokenizer.encode(prompt, add_special_tokens=False).ids
        for row in range(0, len(tokens), 37):
            ids = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]].tolist()
            starts = [place for place in range(len(ids)) if ids[place : place + len(prompt_ids)] == prompt_ids]
            assert starts == [1], f"{side} {row}"
