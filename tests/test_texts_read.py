"""Promises about tokens: what a tokenizer does not know or a model cuts is counted before, in and after training."""

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


def share_of(texts: list[str], max_tokens: int) -> tuple[float, int]:
    """Return the share of unknown tokens among all that are read, but special ones, and the number of cut texts."""
    tokenizer = load_tokenizer("minilm")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    found = [tokenizer.encode(text).tokens for text in texts]
    read = [token for one in found for token in one[1:-1][: max_tokens - 2]]
    return sum(token == "[UNK]" for token in read) / len(read), sum(len(one) > max_tokens for one in found)


def test_unknown_and_cut_texts_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan, training and evaluation print the share of unknown tokens, which brute force gives too, and warn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "home"))
    rows = [
        {"query": f"where is {n}", "document": (f"กขคง จฉ {n}" if n % 3 else f"thing {n}") + " and one more" * (n % 7)}
        for n in range(400)
    ]
    Path("x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run_command("data", "import", "x.jsonl", "--name", "mixed", "--scale", "smoke")
    (path,) = tmp_path.glob("home/corpora/mixed/mixed-smoke.json")
    run = next(one for one in read_runs(path) if one.architecture == "biencoder")
    pairs = read_pairs(make_corpus_stage(find_imported("mixed").corpus).path / "train.arrow")
    every = [pairs.texts(side, range(len(pairs))) for side in ("query", "document")]
    share, _ = share_of(every[0] + every[1], run.max_tokens + 1)
    _, num_cut = share_of(every[1], run.max_tokens)
    assert share > 0.05 and 0 < num_cut < len(pairs)
    planned = json.loads(run_command("plan", run_id(run), "--json"))["texts"]
    assert [(one["num_cut"], one["max_tokens"]) for one in planned] == [(num_cut, run.max_tokens)]
    assert planned[0]["unknown_share"] == pytest.approx(share)
    lines: list[str] = []
    trained_model(run, lines.append)
    (told,) = (line for line in lines if "unknown tokens" in line)
    assert "warning:" in told and any(f"{num_cut} of {len(pairs)} documents" in line for line in lines)
    shown = run_command("evaluate", "--model", run_id(run), "--suite", "mixed", "--no-bm25")
    assert "warning: unknown tokens: mixed " in shown
    found = json.loads(run_command("evaluate", "--model", run_id(run), "--suite", "mixed", "--no-bm25", "--json"))
    suite = load_beir(make_corpus_stage(find_imported("mixed").corpus).path / "suites" / "mixed" / "mixed")
    expected, _ = share_of([*suite.documents, *suite.queries], run.max_tokens + 1)
    assert found["provenance"]["unknown_tokens"]["mixed"] == pytest.approx(expected)
