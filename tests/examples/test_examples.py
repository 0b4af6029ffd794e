"""Every file of examples/ runs unchanged from end to end."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("biencoder", "contextual", "contextual_trainer", "mteb_contexts")
Import = Callable[[str], ModuleType]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Return a function that imports an example as `python examples/NAME.py` would."""
    monkeypatch.syspath_prepend(str(FOLDER))
    # Examples set REPRO_HOME themselves. monkeypatch restores it.
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "out"))
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


def test_every_example_is_tested() -> None:
    """NAMES lists every file."""
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(NAMES)


def test_contextual_trainer_improves_the_ranking(example: Import, tmp_path: Path) -> None:
    """Training improves NDCG@10. The saved folder opens with its context and its own code."""
    scores = example("contextual_trainer").main(tmp_path)
    assert scores["after"] > scores["before"]
    opened = SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=True)
    assert opened[0].config.context["num_documents"] == 32


def test_biencoder_trains_on_our_batches(example: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both epochs have four batches of eight pairs each, in different batches. The saved folder gives the same vectors."""
    module, batches = example("biencoder"), []
    compute_loss = module.MultipleNegativesRankingLoss.forward

    def record_batch(self: object, features: list[dict[str, Any]], labels: Any) -> Any:
        batches.append(features[0]["input_ids"].tolist())
        return compute_loss(self, features, labels)

    monkeypatch.setattr(module.MultipleNegativesRankingLoss, "forward", record_batch)
    model = module.main(tmp_path)
    assert [len(batch) for batch in batches] == [8] * 8
    assert sorted(batches[:4]) != sorted(batches[4:])
    texts = module.make_pairs()["anchor"][:3]
    opened = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(opened.encode(texts), model.encode(texts), atol=1e-5)


def test_contextual_scores_depend_on_corpus(example: Import, tmp_path: Path) -> None:
    """A process without this project has our scores under each corpus."""
    module = example("contextual")
    scores, model = module.main(tmp_path), module.make_untrained_model()
    for name, corpus in (("weather", module.WEATHER), ("kitchen", module.KITCHEN)):
        model.set_context(corpus)
        expected = model.encode(list(scores[name])) @ model.encode(["what does rain do?"], "query")[0]
        np.testing.assert_allclose([*scores[name].values()], expected, atol=1e-5)
    assert all(abs(scores["weather"][text] - score) > 1e-5 for text, score in scores["kitchen"].items())


def test_mteb_measures_the_three_contexts(example: Import, tmp_path: Path) -> None:
    scores = example("mteb_contexts").main(tmp_path)
    assert scores["own"] > max(scores["wrong"], scores["null"]) + 0.1
    assert len(list(tmp_path.rglob("plants-*.json"))) == 3, "each context has its own result"
