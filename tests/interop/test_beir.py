"""Promise of the way into beir: its loader, search and evaluation give our scores."""

from pathlib import Path

import numpy as np
import pytest
from beir.datasets.data_loader import GenericDataLoader

from repro.data.beir import Retrieval, Suite, SuiteDataset, write_beir_folder
from repro.evaluate.suites import evaluate_suite
from repro.interop.beir import BeirModel, beir_retriever
from tests.interop.test_sentence_transformers import model_of


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """A collection of random words with graded judgements."""
    rng = np.random.default_rng(4)
    words = np.array(["rain", "snow", "hills", "bread", "copper", "iron", "violin", "drum", "kettle", "lamp", "oak"])
    texts = [" ".join(rng.choice(words, rng.integers(3, 12))) + f" {n}" for n in range(170)]
    documents, queries = tuple(texts[:150]), tuple(texts[150:])
    judged = {f"q{n}": {f"d{m:03d}": int(rng.integers(1, 3)) for m in rng.choice(150, 5, False)} for n in range(20)}
    found = Retrieval("words", tuple(f"d{n:03d}" for n in range(150)), documents, tuple(judged), queries, judged)
    write_beir_folder(tmp_path / "words", found)
    return Suite("given", (SuiteDataset("words", "given", tmp_path / "words"),))


@pytest.mark.parametrize(
    ("architecture", "context"), [("biencoder", "own"), ("contextual", "own"), ("contextual", "null")]
)
def test_beir_measures_what_we_measure(suite: Suite, architecture: str, context: str) -> None:
    model = model_of(architecture)
    count = 4 if architecture == "contextual" else 0
    ours = evaluate_suite(model, suite, contexts=(context,), num_contexts=count, seed=3).metrics
    corpus, queries, judgements = GenericDataLoader(str(suite.datasets[0].path)).load(split="test")
    wrapped = BeirModel(model).set_context(corpus if context == "own" else None, name="words", seed=3)
    retriever = beir_retriever(wrapped)
    ndcg, _, recall, _ = retriever.evaluate(judgements, retriever.retrieve(corpus, queries), [10, 100])
    name = "given" if context == "own" else "given+null"
    assert ndcg["NDCG@10"] == pytest.approx(ours[f"{name}/words/ndcg_at_10"], abs=2e-5)
    assert recall["Recall@100"] == pytest.approx(ours[f"{name}/words/recall_at_100"], abs=2e-5)
    assert 0.02 < ndcg["NDCG@10"] < 0.98
