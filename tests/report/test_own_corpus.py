"""Promises of the summary after a run on one's own corpus: who wins comes first, with intervals, counts and hints."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.records.store import Record
from repro.report import own_corpus
from repro.report.own_corpus import format_own_corpus_lines
from repro.spec import Run, base, grid
from repro.spec.identity import run_id

SIZES = {"one": {"num_documents": 300, "num_queries": 60}, "two": {"num_documents": 100, "num_queries": 20}}


def record(run: Run, level: float, loss: float | None = None) -> Record:
    """A record whose queries score around a level."""
    rng = np.random.default_rng(1)
    values = np.clip(level + 0.05 * rng.standard_normal(80), 0, 1).astype(np.float32)
    rows = [{"name": name, "family": "", "num_queries": size["num_queries"]} for name, size in SIZES.items()]
    metrics = {} if loss is None else {"train/loss": loss}
    provenance = {"suite": {"datasets": rows}}
    found = Record(id=run_id(run), run=run, metrics=metrics, provenance=provenance, path=Path("nowhere.json"))
    vars(found)["arrays"] = {run.suite: values}  # as if they had been read
    return found


def lines(
    monkeypatch: pytest.MonkeyPatch, ours: float, bm25: float, minilm: float, loss: float = 0.5, **told: Any
) -> list[str]:
    """The summary of three systems at these levels."""
    run = base("smoke", num_steps=12)
    systems = grid(run, architecture=("bm25", "surrogate"))
    found = [record(run, ours, loss), record(systems[0], bm25), record(replace(systems[1], surrogate="minilm"), minilm)]
    found[0] = replace(found[0], provenance={**found[0].provenance, **told})
    vars(found[0])["arrays"] = record(run, ours).arrays
    monkeypatch.setattr(own_corpus, "find_records", lambda runs: found)
    return format_own_corpus_lines([run], SIZES)


def test_winner_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wins is named first, with counts; BM25 and MiniLM as it is both, if both are ahead."""
    won = lines(monkeypatch, 0.7, 0.5, 0.6)
    assert won[0].startswith("your biencoder wins over MiniLM as it is: +10.0 points")
    assert "80 held-out queries searched among 400 documents in 2 collections" in won[1]
    assert [line[2:17].strip() for line in won[2:]] == ["your biencoder", "MiniLM as it is", "BM25"]
    lost = lines(monkeypatch, 0.5, 0.7, 0.6)
    assert lost[0].startswith("BM25 wins over your biencoder: +20.0")
    assert lost[1].startswith("MiniLM as it is wins over your biencoder: +10.0")


def test_interval_is_that_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval of a system holds its mean and is about two standard errors on either side."""
    shown = lines(monkeypatch, 0.5, 0.3, 0.2)[2].split()
    mean, low, high = (float(shown[place]) for place in (2, 3, 5))
    assert low < mean < high
    spread = 100 * 0.05 * np.sqrt(1 / 60 + 1 / 20) / 2
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.35)


def test_hints_follow_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """More steps are suggested only while the loss can still fall, and nothing is where the model wins."""
    assert any("num_steps" in line for line in lines(monkeypatch, 0.5, 0.7, 0.6, loss=1.2))
    learned = lines(monkeypatch, 0.5, 0.7, 0.6, loss=0.0)
    assert not any("num_steps" in line for line in learned) and any("more pairs" in line for line in learned)
    kept = {"training": {"kept_weights": {"step": 6}, "num_steps": 10}}
    overfitted = lines(monkeypatch, 0.5, 0.7, 0.6, loss=1.2, **kept)
    assert not any("num_steps" in line for line in overfitted) and any("step 6" in line for line in overfitted)
    assert not any("hint" in line for line in lines(monkeypatch, 0.7, 0.5, 0.6, loss=1.2))
