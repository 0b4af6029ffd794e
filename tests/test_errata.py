"""Promises that keep defects of the official code out of ours, where no other test does; ERRATA.md has all."""

from types import SimpleNamespace

import numpy as np

from repro.batches.mask import compute_content_keys
from repro.data.prompts import PROMPTS
from repro.data.tokens import load_tokenizer
from repro.pipeline.inputs import Inputs
from repro.pipeline.stages import list_stages
from repro.spec import base
from repro.train.trainer import build_filter

KEYS = compute_content_keys([f"document {row}" for row in range(12)])


def test_the_filter_compares_queries_with_documents() -> None:
    generator = np.random.default_rng(0)
    vectors = {side: generator.normal(size=(12, 4)).astype(np.float32) for side in ("query", "document")}
    run = base("smoke", filter="surrogate")
    judge = build_filter(
        SimpleNamespace(
            run=run, content_keys=KEYS, embeddings=vectors.__getitem__, negatives=None, known_positives=None
        )
    )
    pairs_B = np.array([7, 2, 9, 4, 0])

    def by_loop(left: str, right: str) -> np.ndarray:
        queries, documents = vectors[left][pairs_B], vectors[right][pairs_B]
        masked = np.zeros((5, 5), dtype=bool)
        for i in range(5):
            for j in range(5):
                masked[i, j] = i != j and queries[i] @ documents[j] >= queries[i] @ documents[i]
        return masked

    expected, swapped = by_loop("query", "document"), by_loop("query", "query")
    assert (expected != swapped).any(), "the defect must show in this data"
    np.testing.assert_array_equal(np.asarray(judge(pairs_B).masked), expected)


def test_own_filter_model_keeps_difficulty() -> None:
    generator = np.random.default_rng(1)
    surrogate, own = (
        {side: generator.normal(size=(12, 4)).astype(np.float32) for side in ("query", "document")} for _ in range(2)
    )
    pairs_B = np.array([7, 2, 9, 4, 0])

    def judged(model: str | None) -> tuple[np.ndarray, float]:
        run = base("smoke", filter="surrogate", filter_model=model)
        vectors = {"embeddings": surrogate.__getitem__, "filter_embeddings": own.__getitem__}
        found = build_filter(
            SimpleNamespace(run=run, content_keys=KEYS, negatives=None, known_positives=None, **vectors)
        )(pairs_B)
        return np.asarray(found.masked), found.difficulty

    def masked_by(vectors: dict[str, np.ndarray]) -> np.ndarray:
        scores = vectors["query"][pairs_B] @ vectors["document"][pairs_B].T
        return (scores >= np.diag(scores)[:, None]) & ~np.eye(5, dtype=bool)

    np.testing.assert_array_equal(judged("another")[0], masked_by(own))
    np.testing.assert_array_equal(judged(None)[0], masked_by(surrogate))
    assert (masked_by(own) != masked_by(surrogate)).any(), "the two must differ in this data"
    assert judged("another")[1] == judged(None)[1]


def test_document_carries_prompt_once() -> None:
    run = base("smoke", prompts="task")
    for stage in list_stages(run):
        stage.build()
    inputs, tokenizer = Inputs(run), load_tokenizer("minilm")
    tokenizer.no_padding()
    for side, prompt in zip(("query", "document"), PROMPTS["task"], strict=True):
        tokens, words = inputs.tokens(side), tokenizer.encode(prompt, add_special_tokens=False).ids
        for row in range(0, len(tokens), 37):
            ids = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]].tolist()
            starts = [place for place in range(len(ids)) if ids[place : place + len(words)] == words]
            assert starts == [1], f"{side} {row}: the prompt stands at {starts}, it belongs behind [CLS] only"
