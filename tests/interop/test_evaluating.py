"""Promises of `repro evaluate`: systems beside each other, intervals, hints; the numbers checked by other means."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Never

import numpy as np
import pytest
from scipy.stats import bootstrap
from typer.testing import CliRunner

from repro.cli.main import app
from repro.data.beir import Retrieval, write_beir_folder
from repro.data.tokens import load_tokenizer
from repro.evaluate.collections import read_collections
from repro.interop.comparison import Column, Difference, compute_differences, list_suggestions
from repro.interop.opening import open_model, open_suite
from repro.interop.read_share import estimate_read_share
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from tests.commands import run_command
from tests.interop.test_sentence_transformers import model_of

WORDS = ("rain", "snow", "hills", "bread", "copper", "iron", "violin", "drum", "kettle", "lamp")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two collections that words alone decide, and models that know nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "home"))
    for name, filler in (("near", "it is said that"), ("far", "some time ago one heard " * 12)):
        documents = tuple(f"{filler} {one} and {other}" for one in WORDS for other in WORDS[:4])
        ids = tuple(f"d{n:02d}" for n in range(len(documents)))
        queries = tuple(f"{one} {other}" for one in WORDS for other in WORDS[:4])
        judged = {f"q{n:02d}": {f"d{n:02d}": 1} for n in range(len(queries))}
        write_beir_folder(tmp_path / "zoo" / name, Retrieval(name, ids, documents, tuple(judged), queries, judged))
    model_of("contextual").save_pretrained(tmp_path / "contextual")
    model_of("biencoder").save_pretrained(tmp_path / "plain")
    return tmp_path


def typed(*words: str) -> str:
    return run_command("evaluate", "--suite", "zoo", *words)


def test_contexts_are_compared_with_intervals(desk: Path) -> None:
    words = ("--model", "contextual", "--context", "own", "--context", "wrong", "--context", "null")
    shown = typed(*words)
    header = next(line for line in shown.splitlines() if "collection" in line)
    assert header.split() == ["collection", "own", "wrong", "null", "bm25"]
    for pair in ("own − wrong", "own − null", "own − bm25"):
        assert pair in shown
    assert "contextual: 1 of 2, far: NDCG@10 own" in shown and "left" in shown
    assert "not another training seed" in shown
    found = json.loads(typed(*words, "--json"))
    means = [found["metrics"][f"{name}/mean/ndcg_at_10"] for name in ("zoo", "zoo+wrong", "zoo+null")]
    means.append(found["beside"]["bm25"]["zoo/mean/ndcg_at_10"])
    for one, other in zip(found["differences"], means[1:], strict=True):
        assert one["points"] == pytest.approx(100 * (means[0] - other), abs=1e-4)
        assert one["low"] <= one["points"] <= one["high"]
    assert "Differences by collection" in shown
    by_collection = {(one["collection"], one["other"]): one for one in found["by_collection"]}
    assert set(by_collection) == {(name, kind) for name in ("near", "far") for kind in ("wrong", "null")}
    for (name, kind), one in by_collection.items():
        own, other = (found["metrics"][f"{path}/{name}/ndcg_at_10"] for path in ("zoo", f"zoo+{kind}"))
        assert (
            one["points"] == pytest.approx(100 * (own - other), abs=1e-4) and one["low"] <= one["points"] <= one["high"]
        )


def test_whitened_gain_has_interval(desk: Path) -> None:
    """The gain of whitening is printed with its interval for both kinds of models. Vectors are needed for it."""
    documents = tuple(f"{one} then {other}" for one in WORDS for other in WORDS[:4])  # the fixture's are cut alike
    far = read_collections(open_suite("zoo"))["far"].retrieval
    write_beir_folder(desk / "zoo" / "far", replace(far, documents=documents))
    for model in ("plain", "contextual"):
        words = ("--model", model, "--whiten", "own", "--whiten", "wrong", "--no-bm25", "--shrinkage", "0.9")
        found = json.loads(typed(*words, "--json"))
        by_view = {one["other"]: one for one in found["differences"]}
        assert set(by_view) == {"whitened", "whitened-wrong"}
        for view, one in by_view.items():
            plain, adapted = (found["metrics"][f"{path}/mean/ndcg_at_10"] for path in ("zoo", f"zoo+{view}"))
            assert one["points"] == pytest.approx(100 * (plain - adapted), abs=1e-4)
            assert one["low"] <= one["points"] <= one["high"]
        shown = typed(*words)
        for view, one in by_view.items():
            line = next(line for line in shown.splitlines() if line.startswith(f"{view} − {one['first']}:"))
            assert f"{-one['points']:+.1f} points" in line and ("not above zero" in line) == (one["high"] >= 0)
    for wrong in (("plain", "--whiten", "mine"), ("plain", "--shrinkage", "0.5"), ("bm25", "--whiten", "own")):
        with pytest.raises(ValueError, match=r"--whiten|--shrinkage"):
            typed("--model", *wrong)


def test_single_collection_borrows_wrong_corpus(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.interop.wrong_corpus.ELSEWHERE", "zoo")  # `desk` takes a minute to mine
    (desk / "one").mkdir()
    (desk / "zoo" / "near").rename(desk / "one" / "near")
    words = ("--suite", "one", "--model", "contextual", "--context", "own", "--context", "wrong", "--no-bm25")
    shown = typed(*words)
    assert "wrong context: drawn from far of zoo, 40 documents; one has one collection only" in shown
    for more in ((), ("--wrong-from", "zoo")):
        found = json.loads(typed(*words, *more, "--json"))
        drawn = {row["kind"]: row["corpus"] for row in found["provenance"]["suite"]["contexts"]}
        assert drawn == {"own": "near", "wrong": "far"}
    for more, says in (
        (("--context", "own", "--wrong-from", "zoo"), "add --context wrong"),
        (("--context", "wrong", "--wrong-from", "one"), "no other corpus than the one that is searched"),
    ):
        with pytest.raises(ValueError, match=says):
            typed("--suite", "one", "--model", "contextual", *more)


def test_one_context_has_no_differences(desk: Path) -> None:
    assert "by collection" not in typed("--model", "contextual")
    assert json.loads(typed("--model", "contextual", "--json"))["by_collection"] == []


def test_repeated_command_reads_the_cache(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = typed("--model", "plain", "--json")

    def refuse(self: object, tokens: object, **options: object) -> Never:
        raise AssertionError("encoded again")

    monkeypatch.setattr("repro.model.encoding.TextEncoder.encode_tokens", refuse)
    assert json.loads(typed("--model", "plain", "--json"))["metrics"] == json.loads(first)["metrics"]
    assert typed("--model", "plain").count("(cached)") == 4


def test_other_pooling_is_another_model(desk: Path) -> None:
    export_sentence_transformers(model_of("biencoder", backbone="bert"), desk / "stock")
    (pooling,) = desk.glob("stock/*Pooling/config.json")
    words = ("--model", "stock", "--no-bm25", "--json")
    as_mean = json.loads(typed(*words))
    settings = json.loads(pooling.read_text())
    name = "pooling_mode" if "pooling_mode" in settings else "pooling_mode_mean_tokens"
    pooling.write_text(json.dumps(settings | ({name: "cls"} if name == "pooling_mode" else
                                              {name: False, "pooling_mode_cls_token": True})))  # fmt: skip
    as_cls = json.loads(typed(*words))
    assert as_cls["metrics"] != as_mean["metrics"]
    assert as_cls["metrics"] == json.loads(typed(*words, "--out", "fresh"))["metrics"]


def test_impossible_folder_names_are_replaced(desk: Path) -> None:
    (desk / "zoo").rename(desk / "my zoo (2)")
    (desk / "my zoo (2)" / "near").rename(desk / "my zoo (2)" / "so near")
    suite = open_suite("my zoo (2)")
    assert (suite.name, [one.name for one in suite.datasets]) == ("my-zoo-2", ["far", "so-near"])
    (desk / "my zoo (2)" / "far").rename(desk / "my zoo (2)" / "given")
    with pytest.raises(ValueError, match="name both a dataset and a mean"):
        open_suite("my zoo (2)")
    (desk / "my zoo (2)" / "given").rename(desk / "my zoo (2)" / "so-near")
    with pytest.raises(ValueError, match="two of its folders would have one name"):
        open_suite("my zoo (2)")


def test_zero_context_documents_are_refused(desk: Path) -> None:
    with pytest.raises(ValueError, match=r"--num-contexts 0: must be at least 1 .* --context null gives none"):
        typed("--model", "contextual", "--num-contexts", "0")


def test_two_models_are_compared_by_query(desk: Path) -> None:
    shown = typed("--compare", "plain", "contextual", "--no-bm25")
    assert "plain − contextual" in shown and "bm25" not in shown
    found = json.loads(typed("--compare", "plain", "contextual", "--no-bm25", "--json"))
    ours, theirs = found["metrics"], found["beside"]["contextual"]
    assert found["differences"][0]["points"] == pytest.approx(
        100 * (ours["zoo/mean/ndcg_at_10"] - theirs["zoo/mean/ndcg_at_10"]), abs=1e-4
    )
    (one,) = json.loads(typed("--compare", "plain", "plain", "--no-bm25", "--json"))["differences"]
    assert one["points"] == one["low"] == one["high"] == 0


def test_the_interval_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(300), rng.random(300) * 0.9
    strata = np.zeros(300, int)
    (found,) = compute_differences([Column("a", a, strata, ("x",)), Column("b", b, strata, ("x",))])
    reference = bootstrap(
        (a, b), lambda x, y, axis=-1: 100 * (x - y).mean(axis), paired=True, method="percentile", rng=1
    )
    low, high = reference.confidence_interval
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.15 * (high - low))
    assert found.points == pytest.approx(100 * (a - b).mean())


def test_bm25_lead_gives_advice(desk: Path) -> None:
    found = json.loads(typed("--model", "bm25", "--json"))
    assert found["metrics"]["zoo/mean/ndcg_at_10"] > 0.5 and found["beside"] == {}
    shown = typed("--model", "plain")
    assert "points ahead" in shown and "tokens)" in shown and "--scale mini" in shown and "num_steps" in shown


def test_small_leads_give_no_advice() -> None:
    behind = Difference("own", "bm25", -9.0, -12.0, -6.0, 0, 2)
    assert list_suggestions([behind], {"x": 0.25}, 40)[1].endswith("(25% of the documents are cut at 40 tokens)")
    assert not list_suggestions([Difference("own", "bm25", -9.0, -19.0, 1.0, 0, 2)], {}, 40)
    assert not list_suggestions([Difference("own", "bm25", -3.0, -4.0, -2.0, 0, 2)], {}, 40)
    assert not list_suggestions([Difference("own", "wrong", -9.0, -12.0, -6.0, 0, 2)], {}, 40)


def test_cut_share_is_of_whole_lengths(desk: Path) -> None:
    tokenizer = load_tokenizer("minilm")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    export_sentence_transformers(open_model("plain").model, "exported")
    for name, collection in read_collections(open_suite("zoo")).items():
        texts = [f"search_document: {text}" for text in collection.retrieval.documents]
        share = np.mean([len(tokenizer.encode(text).ids) > 40 for text in texts])
        assert (share > 0) == (name == "far")
        for source in ("plain", "exported"):
            assert estimate_read_share(open_model(source).model, collection).cut == pytest.approx(share), source


@pytest.mark.parametrize("context", ["null", "wrong"])
def test_context_is_scored_alone(desk: Path, context: str) -> None:
    alone = json.loads(typed("--model", "contextual", "--context", context, "--no-bm25", "--json"))["metrics"]
    three = ("--context", "own", "--context", "wrong", "--context", "null")
    beside = json.loads(typed("--model", "contextual", *three, "--no-bm25", "--json"))["metrics"]
    assert alone and alone == {path: beside[path] for path in alone}
    assert all(path.startswith(f"zoo+{context}/") for path in alone)
    shown = typed("--model", "contextual", "--context", context, "--width", "8,full")
    assert "is not known to be trained for prefixes of 8 dimensions; they lose" in " ".join(shown.split())


def test_too_many_context_documents_are_refused(desk: Path) -> None:
    words = ("--model", "contextual", "--num-contexts", "5")
    with pytest.raises(ValueError, match="--num-contexts 5: contextual takes 1 to 4") as evaluated:
        typed(*words)
    explained = CliRunner().invoke(app, ["explain-context", "--suite", "zoo", "--query", "rain bread", *words])
    assert str(explained.exception) == str(evaluated.value)
    assert json.loads(typed(*words[:3], "4", "--no-bm25", "--json"))["metrics"]


@pytest.mark.parametrize("names", [("so near", "données"), ("c++docs", "a+wrong")])
def test_collections_may_have_any_name(desk: Path, names: tuple[str, str]) -> None:
    words = ("--model", "contextual", "--context", "own", "--context", "wrong")
    before = json.loads(typed(*words, "--json"))["metrics"]
    for old, new in zip(("near", "far"), names, strict=True):
        (desk / "zoo" / old).rename(desk / "zoo" / new)
    found = json.loads(typed(*words, "--json"))["metrics"]
    assert {path.count("/") for path in found} == {2} and len(found) == len(before)
    assert names[0].replace(" ", "-") in {path.split("/")[1] for path in found}


def test_folder_name_may_have_plus(desk: Path) -> None:
    (desk / "zoo" / "near").rename(desk / "c++docs")
    words = ("evaluate", "--suite", "c++docs", "--model", "contextual", "--context", "own", "--context", "null")
    done = CliRunner().invoke(app, [*words])
    assert done.exception is None, done.exception
    header = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["collection"])
    assert header.split() == ["collection", "own", "null", "bm25"]


def test_options_without_effect_are_refused(desk: Path) -> None:
    for words in (("--context", "wrong"), ("--num-contexts", "3")):
        with pytest.raises(ValueError, match="bm25 has no context: evaluate it without --context and --num-contexts"):
            typed("--model", "bm25", *words)
    for model in ("bm25", "contextual"):
        with pytest.raises(ValueError, match=f"--revision main: .*{model} is none"):
            typed("--model", model, "--revision", "main")


@pytest.mark.parametrize("words", [("--context", "wrong"), ("--num-contexts", "3")])
def test_context_needs_a_contextual_model(desk: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    model_of("biencoder").save_pretrained(desk / "other")
    monkeypatch.setattr("repro.interop.evaluating.evaluate_setting", None)
    for two in (("plain", "other"), ("plain", "bm25")):
        with pytest.raises(ValueError, match=f"^{' and '.join(two)} have no context: compare them without --context"):
            typed("--compare", *two, *words)
    monkeypatch.undo()
    monkeypatch.chdir(desk)
    assert "plain − contextual" in typed("--compare", "plain", "contextual", "--no-bm25", *words)


def scores_folders(desk: Path) -> set[str]:
    return {path.parent.name for path in (desk / "home" / "evaluations").glob("*/scores.json")}


def test_evaluations_have_separate_folders(desk: Path) -> None:
    model_of("contextual", num_contexts=3).save_pretrained(desk / "other" / "contextual")
    asked = [("contextual",), ("other/contextual",), ("contextual", "--context-seed", "1"),
             ("contextual", "--context", "null"), ("contextual", "--num-contexts", "2")]  # fmt: skip
    found = [json.loads(typed("--no-bm25", "--json", "--model", *words)) for words in asked]
    folders = scores_folders(desk)
    assert len(folders) == len(asked) and all(name.startswith("contextual-zoo-") for name in folders)
    kept = [json.loads((desk / "home" / "evaluations" / name / "scores.json").read_text()) for name in folders]
    assert all(one in kept for one in found)
    typed("--no-bm25", "--model", str(desk / "contextual"), "--device", "cpu")
    assert scores_folders(desk) == folders, "the same folder by its whole path, or on another device, is the same"


@pytest.mark.parametrize("to", ["sentence-transformers", "transformers", "official"])
@pytest.mark.parametrize("architecture", ["contextual", "biencoder"])
def test_cached_export_opens_by_id(desk: Path, monkeypatch: pytest.MonkeyPatch, architecture: str, to: str) -> None:
    if (architecture, to) == ("biencoder", "official"):
        return
    source = {"contextual": "contextual", "biencoder": "plain"}[architecture]
    here = CliRunner().invoke(app, ["export", source, "out", "--to", to])
    assert here.exception is None, here.exception
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(desk / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    commit, repo = "0123456789abcdef0123456789abcdef01234567", desk / "hub" / "models--me--mine"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    (repo / "snapshots").mkdir()
    (desk / "out").rename(repo / "snapshots" / commit)
    expected = json.loads(typed("--model", source, "--no-bm25", "--json"))["metrics"]
    for words in (("me/mine",), ("me/mine", "--revision", commit)):
        found = json.loads(typed("--no-bm25", "--json", "--model", *words))
        assert found["metrics"] == pytest.approx(expected, abs=1e-6)
        assert found["provenance"]["model"]["revision"] == commit
    with pytest.raises(ValueError, match=r"me/other is not a folder, not in the hub's cache"):
        typed("--model", "me/other")


def test_export_needs_a_free_folder(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk / "real").mkdir()
    (desk / "link").symlink_to(desk / "real")
    assert CliRunner().invoke(app, ["export", "plain", "link", "--to", "transformers"]).exception is None
    assert open_model("link").num_contexts == 0 and (desk / "link").is_symlink()
    (desk / "empty").mkdir()
    monkeypatch.chdir(desk / "empty")
    monkeypatch.setattr("repro.interop.exporting.open_model", None)
    done = CliRunner().invoke(app, ["export", str(desk / "plain"), ".", "--to", "transformers"])
    assert isinstance(done.exception, ValueError) and "the current folder: name a new one" in str(done.exception)


def test_one_or_two_models_are_needed(desk: Path) -> None:
    for words in ((), ("--model", "plain", "--compare", "plain", "contextual")):
        with pytest.raises(ValueError, match="--compare A B"):
            typed(*words)
