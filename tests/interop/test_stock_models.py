"""Promises of scoring models of sentence-transformers: as they say they are to be scored, or refused in one line."""

import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from typer.testing import CliRunner

from repro.cli.main import app
from repro.data.beir import Retrieval, write_beir_folder
from repro.data.tokens import load_tokenizer

WORDS = ("rain", "snow", "hills", "bread", "copper", "iron", "violin", "drum", "kettle", "lamp")


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Retrieval:
    """A collection of short texts of unequal length, in the folder that the reader is in."""
    monkeypatch.chdir(tmp_path)
    documents = tuple(" ".join((one, other, *WORDS[:n])) for n, one in enumerate(WORDS) for other in WORDS[n:])
    ids = tuple(f"d{n:02d}" for n in range(len(documents)))
    queries = tuple(" ".join(text.split()[:2]) for text in documents)
    judged = {f"q{n:02d}": {f"d{n:02d}": 1} for n in range(len(queries))}
    found = Retrieval("things", ids, documents, tuple(judged), queries, judged)
    write_beir_folder(tmp_path / "things", found)
    return found


def scored(model: str, *words: str) -> dict:
    """What `repro evaluate --json` prints."""
    done = CliRunner().invoke(app, ["evaluate", "--suite", "things", "--no-bm25", "--json", "--model", model, *words])
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def test_a_model_that_reads_texts_of_any_length_is_scored_and_cuts_none_that_we_know_of(things: Retrieval) -> None:
    words = load_tokenizer("minilm")
    words.no_padding()
    words.no_truncation()
    added_up = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=16)], device="cpu")
    added_up.save_pretrained("model", create_model_card=False)
    found = scored("model")
    assert found["provenance"]["cut"] == {"things": None}
    assert found["metrics"]["things/things/ndcg_at_10"] > 0
