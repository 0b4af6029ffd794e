"""The summary of models trained on an imported corpus: the winner, intervals, notes, hints and commands."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.records.store import Record
from repro.report import own_corpus
from repro.report.own_corpus import format_own_corpus_lines
from repro.spec import Run, base
from repro.spec.identity import run_id

SIZES = {"one": {"num_documents": 300, "num_queries": 60}, "two": {"num_documents": 100, "num_queries": 20}}
BIENCODER = base("smoke", num_steps=12)
BM25 = replace(BIENCODER, architecture="bm25")
MINILM = replace(BIENCODER, architecture="surrogate", surrogate="minilm")


def make_record(run: Run, scores_Q: np.ndarray, sizes: Sequence[int] = (60, 20), **provenance: Any) -> Record:
    """Return a record with a score per query, on collections of these sizes."""
    datasets = [{"name": f"c{index}", "family": "", "num_queries": size} for index, size in enumerate(sizes)]
    record = Record(run_id(run), run, {}, {"suite": {"datasets": datasets}} | provenance, Path("nowhere.json"))
    vars(record)["arrays"] = {run.suite: scores_Q.astype(np.float32)}  # fills the cached property that reads the arrays
    return record


def spread_scores(level: float) -> np.ndarray:
    return np.clip(level + 0.05 * np.random.default_rng(1).standard_normal(80), 0, 1)


Summarise = Callable[..., list[str]]


@pytest.fixture
def summarise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that summarises records."""

    def summarise(*records: Record) -> list[str]:
        monkeypatch.setattr(own_corpus, "find_records", lambda runs: list(records))
        return format_own_corpus_lines([BIENCODER], SIZES)

    return summarise


def make_three(ours: float, bm25: float, minilm: float, start: str = "words", **provenance: Any) -> list[Record]:
    """Return the records of three systems, whose queries score around these levels."""
    trained = make_record(replace(BIENCODER, start=start), spread_scores(ours), **provenance)
    references = [make_record(run, spread_scores(level)) for run, level in ((BM25, bm25), (MINILM, minilm))]
    return [trained, *references]


def test_winner_comes_first(summarise: Summarise) -> None:
    """The best system is named first, and the last lines are its commands. Each reference that is ahead has its line."""
    lines = summarise(*make_three(0.7, 0.5, 0.6))
    assert lines[0].startswith("your biencoder wins over off-the-shelf MiniLM: +10.0 points")
    assert "80 queries searched among 400 documents in 2 collections" in lines[1]
    assert [line[2:23].strip() for line in lines[2:5]] == ["your biencoder", "off-the-shelf MiniLM", "BM25"]
    assert lines[-3].startswith("Deploy your biencoder") and "clearly above all others" in lines[-3]
    assert "repro export" in lines[-1]
    assert "not clearly above off-the-shelf MiniLM" in summarise(*make_three(0.6, 0.5, 0.6))[-3]
    for bm25, minilm, model in ((0.7, 0.6, "bm25"), (0.6, 0.7, "minilm")):
        lines = summarise(*make_three(0.5, bm25, minilm))
        assert [("wins over your biencoder: +" in line) for line in lines[:3]] == [True, True, False]
        assert "repro export" not in "".join(lines) and f"--model {model}" in lines[-2]


def test_whitened_vectors_are_a_system(summarise: Summarise) -> None:
    """A record of MiniLM also has the scores of its whitened vectors. If they win, `adapt` makes the model."""
    trained, minilm = make_record(BIENCODER, spread_scores(0.5)), make_record(MINILM, spread_scores(0.4))
    minilm.arrays[f"{MINILM.suite}+whitened"] = trained.arrays[BIENCODER.suite] + 0.2
    lines = summarise(trained, minilm)
    assert lines[0].startswith("off-the-shelf MiniLM, whitened wins over your biencoder: +20.0")
    assert [line.startswith("  off-the-shelf MiniLM") for line in lines[2:5]] == [True, False, True]
    assert "repro adapt" in lines[-1]
    other = make_record(replace(MINILM, max_tokens=8), spread_scores(0.3))
    other.arrays[f"{MINILM.suite}+whitened"] = minilm.arrays[f"{MINILM.suite}+whitened"]
    assert "repro adapt" in summarise(trained, minilm, other)[-1], "also if its name ends with an id"


def test_parts_count_once(summarise: Summarise) -> None:
    """Two forums are one dataset in the mean of a record, and so in the summary."""
    records = [
        make_record(run, np.repeat(levels, 10), (10, 10, 10))
        for run, levels in ((BIENCODER, [0.9, 0.3, 0.3]), (BM25, [0.5, 0.6, 0.6]))
    ]
    for record in records:
        for row, part in zip(record.provenance["suite"]["datasets"], ("", "forum", "forum"), strict=True):
            row["part_of"] = part
    lines = summarise(*records)
    assert lines[0].startswith("your biencoder wins over BM25: +5.0 points.")
    assert [line.split()[-2] for line in lines[2:4]] == ["60.0", "55.0"], "equal scores have no interval"


def test_context_blind_models_are_listed(summarise: Summarise) -> None:
    """A model that is scored under the null context only is compared, and its context is named."""
    blind = replace(BIENCODER, architecture="contextual", sequence_dropout=1.0, test_contexts="null")
    record = make_record(blind, spread_scores(0.7))
    record.arrays[f"{blind.suite}+null"] = record.arrays.pop(blind.suite)
    lines = summarise(record, make_record(BM25, spread_scores(0.5)))
    assert lines[0].startswith("your contextual, null context wins over BM25: +20.0 points")


def test_model_before_training_is_reference(summarise: Summarise) -> None:
    untrained = replace(BIENCODER, architecture="contextual", num_steps=0, num_warmup_steps=0)
    records = [make_record(run, spread_scores(level)) for run, level in ((BIENCODER, 0.5), (untrained, 0.7))]
    assert summarise(*records)[0].startswith("your untrained contextual wins over your biencoder: +20.0 points")


def test_single_queries_decide_no_winner(summarise: Summarise) -> None:
    lines = summarise(*(make_record(run, np.full(2, level), (1, 1)) for run, level in ((BIENCODER, 0.9), (BM25, 0.5))))
    assert lines[0].startswith("your biencoder wins over BM25: +40.0 points. The difference is not clear")
    assert lines[2].split()[2:4] == ["90.0", "–"]


def test_interval_is_that_of_queries(summarise: Summarise) -> None:
    """The interval of a system is about two standard errors wide on either side of its mean."""
    cells = summarise(*make_three(0.5, 0.3, 0.2))[2].split()
    mean, low, high = (float(cells[place]) for place in (2, 3, 5))
    standard_error = 100 * 0.05 * np.sqrt(1 / 60 + 1 / 20) / 2
    assert low < mean < high and high - low == pytest.approx(2 * 1.96 * standard_error, rel=0.35)
