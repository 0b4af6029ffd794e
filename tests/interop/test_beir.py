"""The loader, search and evaluation of beir give our scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beir.datasets.data_loader import GenericDataLoader

from repro.data.beir import Retrieval, Suite, SuiteDataset, get_legal_name, write_beir_folder
from repro.data.paper.collection_rules import find_rules
from repro.evaluate.suites import Setting, evaluate_setting
from repro.interop.beir import BeirModel, beir_retriever
from repro.interop.sentence_transformers_folder import as_sentence_transformer
from repro.interop.stock_encoder import StockEncoder
from tests.interop.small import make_model


@pytest.fixture
def suite(request: pytest.FixtureRequest, tmp_path: Path) -> Suite:
    """A collection of random words with graded judgements."""
    rng = np.random.default_rng(4)
    words = np.array(["rain", "snow", "hills", "bread", "copper", "iron", "violin", "drum", "kettle", "lamp", "oak"])
    texts = [" ".join(rng.choice(words, rng.integers(3, 12))) + f" {n}" for n in range(170)]
    documents, queries = tuple(texts[:150]), tuple(texts[150:])
    judged = {f"q{n}": {f"d{m:03d}": int(rng.integers(1, 3)) for m in rng.choice(150, 5, False)} for n in range(20)}
    name = request.param
    ids = tuple(f"d{n:03d}" for n in range(150))
    write_beir_folder(tmp_path / name, Retrieval(name, ids, documents, tuple(judged), queries, judged))
    dataset = SuiteDataset(get_legal_name(name), "given", tmp_path / name, rules=find_rules(name))
    return Suite("given", (dataset,))


@pytest.mark.parametrize(
    ("architecture", "context", "suite"),
    [("biencoder", "own", "words"), ("stock", "own", "words"), ("contextual", "own", "words"),
     ("contextual", "null", "words"), ("contextual", "own", "my words"), ("contextual", "own", "quora")],
    indirect=["suite"],
)  # fmt: skip
def test_beir_scores_equal_ours(suite: Suite, architecture: str, context: str) -> None:
    """Our models and those of sentence-transformers have our scores, and a folder may have any name."""
    (dataset,) = suite.datasets
    if architecture == "stock":
        model: Any = StockEncoder(as_sentence_transformer(make_model("biencoder")))
    else:
        model = make_model(architecture)
    count = 4 if architecture == "contextual" else 0
    ours = evaluate_setting(model, suite, Setting(contexts=(context,), num_contexts=count, seed=3)).metrics
    corpus, queries, judgements = GenericDataLoader(str(dataset.path)).load(split="test")
    wrapped = BeirModel(model).set_context(corpus if context == "own" else None, name=dataset.path.name, seed=3)
    retriever = beir_retriever(wrapped)
    ndcg, _, recall, _ = retriever.evaluate(judgements, retriever.retrieve(corpus, queries), [10, 100])
    name = "given" if context == "own" else "given+null"
    assert ndcg["NDCG@10"] == pytest.approx(ours[f"{name}/{dataset.name}/ndcg_at_10"], abs=2e-5)
    assert recall["Recall@100"] == pytest.approx(ours[f"{name}/{dataset.name}/recall_at_100"], abs=2e-5)
    assert 0.02 < ndcg["NDCG@10"] < 0.98
