"""Unknown tokens and truncated texts are counted before, during and after training."""

import json
from pathlib import Path

import pytest

from repro.data.beir import load_beir
from repro.data.own.imported import find_imported
from repro.data.pairs import read_pairs
from repro.data.tokens import load_tokenizer
from repro.pipeline.corpora import make_corpus_stage
from repro.records.lookup import read_runs
from repro.spec.identity import run_id
from repro.train.trainer import trained_model
from tests.commands import run_command
from tests.data.files import write_rows


def count_by_brute_force(texts: list[str], max_tokens: int) -> tuple[float, int]:
    """Return the share of unknown tokens among those that the model reads, and the number of truncated texts.

    Special tokens are not counted.
    """
    tokenizer = load_tokenizer("minilm")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokens = [tokenizer.encode(text).tokens for text in texts]
    read = [token for text in tokens for token in text[1:-1][: max_tokens - 2]]
    return sum(token == "[UNK]" for token in read) / len(read), sum(len(text) > max_tokens for text in tokens)


def test_unknown_and_cut_texts_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import, training and evaluation report the share of unknown tokens and warn. Brute force gives the same share."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"query": f"where is {n}", "document": (f"กขคง จฉ {n}" if n % 3 else f"thing {n}") + " and one more" * (n % 7)}
        for n in range(400)
    ]
    write_rows(Path("x.jsonl"), rows)
    printed = run_command("data", "import", "x.jsonl", "--name", "mixed", "--scale", "smoke")
    (path,) = tmp_path.glob("home/corpora/mixed/mixed-smoke.json")
    run = next(run for run in read_runs(path) if run.architecture == "biencoder")
    pairs = read_pairs(make_corpus_stage(find_imported("mixed").corpus).path / "train.arrow")
    queries, documents = (pairs.texts(side, range(len(pairs))) for side in ("query", "document"))
    share, _ = count_by_brute_force(queries + documents, run.max_tokens + 1)
    _, num_cut = count_by_brute_force(documents, run.max_tokens)
    assert share > 0.05 and 0 < num_cut < len(pairs)
    assert f"{num_cut} of {len(pairs)} documents" in printed and f"unknown tokens: {share:.1%}" in printed
    lines: list[str] = []
    trained_model(run, lines.append)
    (warning,) = (line for line in lines if "unknown tokens" in line)
    assert "warning:" in warning and any(f"{num_cut} of {len(pairs)} documents" in line for line in lines)
    words = ("evaluate", "--model", run_id(run), "--suite", "mixed", "--no-bm25")
    assert "warning: unknown tokens: all " in run_command(*words)
    evaluation = json.loads(run_command(*words, "--json"))
    suite = load_beir(make_corpus_stage(find_imported("mixed").corpus).path / "suites" / "mixed" / "all")
    expected, _ = count_by_brute_force([*suite.documents, *suite.queries], run.max_tokens + 1)
    assert evaluation["provenance"]["unknown_tokens"]["all"] == pytest.approx(expected)
