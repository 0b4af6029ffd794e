"""`repro evaluate`: comparisons of systems, wrong corpora, cached results and refused requests."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.data.beir import Retrieval, write_beir_folder
from repro.data.tokens import load_tokenizer
from repro.evaluate.collections import read_collections
from repro.interop.corpus import open_suite
from repro.interop.evaluating import EvaluationRequest, get_default_folder
from repro.interop.opening import open_model
from repro.interop.read_share import estimate_unread_shares
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.interop.trained_on import SeenQueries, find_training_run, write_trained_on
from repro.spec import base
from tests.commands import run_command
from tests.interop.small import COMMIT, WORDS, evaluate, make_collection, make_hub_snapshot, make_model

FILLERS = {"near": "it is said that", "far": "some time ago one heard " * 12}


def make_zoo(name: str) -> Retrieval:
    """Return a collection that BM25 solves. Its documents differ in their first words, as a model reads only these."""
    pairs = [(word, other) for word in WORDS[:10] for other in WORDS[:4]]
    documents = [f"{word} then {other} {FILLERS[name]} {word} and {other}" for word, other in pairs]
    return make_collection(name, documents, [" ".join(pair) for pair in pairs])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two collections and four models with random weights. No test changes them."""
    folder = tmp_path_factory.mktemp("zoo")
    for name in FILLERS:
        write_beir_folder(folder / "zoo" / name, make_zoo(name))
    shutil.copytree(folder / "zoo" / "near", folder / "twice" / "near")
    shutil.copytree(folder / "zoo" / "near", folder / "twice" / "again")
    path = folder / "twice" / "again" / "corpus.jsonl"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    for name, dropout in (("contextual", 0.1), ("blind", 1.0), ("without-null", 0.0)):
        make_model("contextual", sequence_dropout=dropout).save_pretrained(folder / name)
    make_model("biencoder").save_pretrained(folder / "plain")
    return folder


@pytest.fixture(autouse=True)
def here(folder: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder as the current one. Results are cached for the whole file."""
    monkeypatch.chdir(folder)
    # The default, `desk`, takes a minute to mine.
    monkeypatch.setattr("repro.interop.corpus.DEFAULT_SUITE", "zoo")
    return folder


def assert_difference(row: dict[str, Any], first: float, second: float) -> None:
    """The row holds the difference of two scores in points, inside its interval if it has one."""
    assert row["points"] == pytest.approx(100 * (first - second), abs=1e-4)
    assert row["low"] is row["high"] is None or row["low"] <= row["points"] <= row["high"]


CONTEXTS = ("--context", "own", "--context", "wrong", "--context", "null")


def test_contexts_are_compared() -> None:
    """Each context has the scores that it has alone, and the first one is compared with all others."""
    result = evaluate("--model", "contextual", *CONTEXTS, "--bm25")
    own, *others = (result["metrics"][f"{name}/mean/ndcg_at_10"] for name in ("zoo", "zoo+wrong", "zoo+null"))
    others.append(result["beside"]["bm25"]["zoo/mean/ndcg_at_10"])
    assert others[-1] > 0.9 and len({own, *others}) == 4
    for row, other in zip(result["differences"], others, strict=True):
        assert_difference(row, own, other)
    for context in ("wrong", "null"):
        alone = evaluate("--model", "contextual", "--context", context)
        expected = {path: value for path, value in result["metrics"].items() if path.startswith(f"zoo+{context}/")}
        assert alone["metrics"] == expected and alone["differences"] == []


@pytest.mark.parametrize("model", ["plain", "contextual"])
def test_whitened_gain_has_interval(model: str) -> None:
    result = evaluate("--model", model, "--whiten", "own", "--whiten", "wrong")
    for view, row in zip(("whitened", "whitened-wrong"), result["differences"], strict=True):
        assert row["first"] == f"{model} {view}"
        assert_difference(row, *(result["metrics"][f"{path}/mean/ndcg_at_10"] for path in (f"zoo+{view}", "zoo")))
    sources = {(each["dataset"], each["kind"]): each for each in result["provenance"]["suite"]["whitened"]}
    expected = {"dataset": "far", "kind": "wrong", "corpus": "near", "num_documents": 40, "shrinkage": 0.95}
    assert sources["far", "wrong"] == expected and sources["far", "own"]["corpus"] == "far" and len(sources) == 4


def test_two_models_are_compared_by_query() -> None:
    """Options of contexts apply to the contextual model alone."""
    result = evaluate("--compare", "plain", "contextual", "--context", "wrong")
    scores = result["metrics"]["zoo/mean/ndcg_at_10"], result["beside"]["contextual"]["zoo+wrong/mean/ndcg_at_10"]
    (row,) = result["differences"]
    assert (row["first"], row["other"]) == ("plain", "contextual wrong")
    assert_difference(row, *scores)
    (row,) = evaluate("--compare", "plain", "plain")["differences"]
    assert (row["first"], row["other"]) == ("A plain", "B plain")
    assert row["points"] == 0 and row["low"] is row["high"] is None


def test_wrong_corpus_has_other_documents() -> None:
    """One collection, and two with the same documents, borrow one from the default suite."""
    for suite in ("zoo/near", "twice"):
        result = evaluate("--model", "contextual", "--context", "wrong", suite=suite)
        assert {row["corpus"] for row in result["provenance"]["suite"]["contexts"]} == {"far"}


def test_equal_names_are_refused(tmp_path: Path) -> None:
    for name in ("so near", "so-near"):
        shutil.copytree("zoo/near", tmp_path / name)
    with pytest.raises(ValueError, match="more than one"):
        open_suite(str(tmp_path))


def test_excluded_collection_is_wrong_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong corpora come from the whole suite, also if all queries of a collection were trained on."""
    seen = SeenQueries({"near": {*make_zoo("near").query_ids}})
    monkeypatch.setattr("repro.interop.trained_on.find_seen_queries", lambda *arguments: seen)
    words = ("--model", "contextual", "--context", "wrong")
    result = evaluate(*words, "--leave-out-seen")
    assert [row["corpus"] for row in result["provenance"]["suite"]["contexts"]] == ["near"]
    path = "zoo+wrong/far/ndcg_at_10"
    assert result["metrics"][path] == evaluate(*words)["metrics"][path]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model bm25 --context wrong", "--context"),
        ("--model contextual --revision main", "--revision main"),
        ("--model contextual --context odd", r"unknown context \['odd'\]"),
        ("--compare contextual without-null --context null", "--context null: without-null"),
        ("--compare bm25 blind --whiten own", "--whiten: bm25 and blind have no vectors"),
        ("--model contextual --context null --whiten own", "add --context own"),
        ("--model bm25 --whiten own", "--whiten"),
    ],
)
def test_impossible_requests_are_refused(monkeypatch: pytest.MonkeyPatch, words: str, message: str) -> None:
    """Nothing is scored before."""
    for name in ("evaluate_setting", "evaluate_bm25"):
        monkeypatch.setattr(f"repro.interop.evaluating.{name}", None)
    with pytest.raises(ValueError, match=message):
        evaluate(*words.split())


def test_cut_share_is_of_whole_lengths(tmp_path: Path) -> None:
    tokenizer = load_tokenizer("minilm")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    export_sentence_transformers(open_model("plain").model, tmp_path / "exported")
    for name, collection in read_collections(open_suite("zoo")).items():
        texts = [f"search_document: {text}" for text in collection.retrieval.documents]
        share = np.mean([len(tokenizer.encode(text).ids) > 40 for text in texts])
        assert (share > 0) == (name == "far")
        for source in ("plain", str(tmp_path / "exported")):
            assert estimate_unread_shares(open_model(source).model, collection)[0] == pytest.approx(share), source


def test_blind_model_has_one_context() -> None:
    """A model trained without documents has the null context by default, also next to another model."""
    expected = evaluate("--model", "blind")["metrics"]
    assert {path.split("/")[0] for path in expected} == {"zoo+null"}
    options = ("--context", "own", "--whiten", "own")
    assert evaluate("--compare", "contextual", "blind", *options)["beside"]["blind"] == expected


def test_evaluations_have_separate_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models and seeds separate evaluations."""
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    make_model("contextual", num_contexts=3).save_pretrained(tmp_path / "contextual")
    requests = [("contextual",), (str(tmp_path / "contextual"),), ("contextual", "--context-seed", "1")]
    results = [evaluate("--model", *words, suite="zoo/near") for words in requests]
    files = list(tmp_path.glob("evaluations/*/scores.json"))
    stored = [json.loads(path.read_text()) for path in files]
    assert len(files) == len(requests) and all(result in stored for result in results)
    first, _, other_seed = (result["provenance"]["suite"]["contexts"][0] for result in results)
    assert (first["seed"], other_seed["seed"]) == (0, 1) and first["ids_sha256"] != other_seed["ids_sha256"]


def test_relative_paths_have_separate_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    for name in ("first", "second"):
        (tmp_path / name / "model").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        folders += [get_default_folder(EvaluationRequest(model, "zoo"), "zoo") for model in ("./model", "model")]
    assert folders[0] == folders[1] != folders[2] == folders[3]


def test_cached_export_opens_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export in the cache of the hub is opened by its id, with the scores of its source."""
    run_command("export", "contextual", str(tmp_path / "out"))
    write_trained_on(tmp_path / "out", base("smoke"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "out").rename(make_hub_snapshot(tmp_path / "hub", "me/mine"))
    result = evaluate("--model", "me/mine", "--revision", COMMIT)
    assert result["metrics"] == pytest.approx(evaluate("--model", "contextual")["metrics"], abs=1e-6)
    assert result["provenance"]["model"]["revision"] == COMMIT
    assert find_training_run("me/mine") == base("smoke")
    again = evaluate("--compare", "me/mine", "plain", "--revision", COMMIT)
    assert again["provenance"]["model"]["revision"] == COMMIT and "revision" not in again["provenance"]["beside"][0]
