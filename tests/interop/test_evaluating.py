"""`repro evaluate`: comparisons of systems, intervals and refused requests."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest
import torch
from scipy.stats import bootstrap

from repro.data.beir import write_beir_folder
from repro.data.tokens import load_tokenizer
from repro.evaluate.collections import read_collections
from repro.interop.arguments import to_device
from repro.interop.comparison import (
    Column,
    compute_differences,
    make_differences_view,
)
from repro.interop.corpus import open_suite
from repro.interop.evaluating import format_whitening_lines
from repro.interop.opening import open_model
from repro.interop.read_share import estimate_unread_shares
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.report.query_scores import QueryScores
from tests.commands import run_command
from tests.interop.small import COMMIT, WORDS, make_collection, make_hub_snapshot, make_model


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two collections that BM25 solves, and two models with random weights."""
    folder = tmp_path_factory.mktemp("template")
    for name, filler in (("near", "it is said that"), ("far", "some time ago one heard " * 12)):
        queries = [f"{word} {other}" for word in WORDS[:10] for other in WORDS[:4]]
        documents = [f"{filler} {word} and {other}" for word in WORDS[:10] for other in WORDS[:4]]
        write_beir_folder(folder / "zoo" / name, make_collection(name, documents, queries))
    make_model("contextual").save_pretrained(folder / "contextual")
    make_model("biencoder").save_pretrained(folder / "plain")
    return folder


@pytest.fixture
def desk(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the template, as the current folder."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluate(*words: str) -> str:
    """Return what `repro evaluate` prints for the suite of both collections."""
    return run_command("evaluate", "--suite", "zoo", *words)


def evaluate_json(*words: str) -> dict[str, Any]:
    return json.loads(evaluate("--json", *words))


def assert_difference(row: dict[str, Any], first: float, second: float) -> None:
    """The row holds the difference of two scores in points, inside its interval if it has one."""
    assert row["points"] == pytest.approx(100 * (first - second), abs=1e-4)
    assert row["low"] is row["high"] is None or row["low"] <= row["points"] <= row["high"]


def get_header(output: str) -> list[str]:
    """Return the header of the table of scores."""
    return next(line.split() for line in output.splitlines() if line.split()[:1] == ["collection"])


def test_contexts_are_compared_with_intervals(desk: Path) -> None:
    words = ("--model", "contextual", "--context", "own", "--context", "wrong", "--context", "null")
    output = evaluate(*words)
    assert get_header(output) == ["collection", "own", "wrong", "null", "bm25"]
    assert all(pair in output for pair in ("own − wrong", "own − null", "own − bm25"))
    assert "contextual: 1 of 2, far: NDCG@10 own" in output
    result = evaluate_json(*words)
    own, *others = (result["metrics"][f"{name}/mean/ndcg_at_10"] for name in ("zoo", "zoo+wrong", "zoo+null"))
    others.append(result["beside"]["bm25"]["zoo/mean/ndcg_at_10"])
    for row, other in zip(result["differences"], others, strict=True):
        assert_difference(row, own, other)


def test_whitened_gain_has_interval(desk: Path) -> None:
    """The gain of whitening has an interval for both kinds of models."""
    # The documents of the fixture are equal after truncation.
    documents = tuple(f"{word} then {other}" for word in WORDS[:10] for other in WORDS[:4])
    far = read_collections(open_suite("zoo"))["far"].retrieval
    write_beir_folder(desk / "zoo" / "far", replace(far, documents=documents))
    for model in ("plain", "contextual"):
        words = ("--model", model, "--whiten", "own", "--whiten", "wrong", "--no-bm25")
        result = evaluate_json(*words)
        lines = evaluate(*words).splitlines()
        rows = {row["first"]: row for row in result["differences"]}
        assert set(rows) == {"whitened", "whitened-wrong"}
        for view, row in rows.items():
            assert_difference(row, *(result["metrics"][f"{path}/mean/ndcg_at_10"] for path in (f"zoo+{view}", "zoo")))
            line = next(line for line in lines if line.startswith(f"{view} − {row['other']}:"))
            # whitening by another corpus is a control, without advice
            is_warned = view == "whitened" and row["low"] <= 0
            assert f"{row['points']:+.1f} points" in line and ("do not deploy" in line) == is_warned
        sources = {(each["dataset"], each["kind"]): each for each in result["provenance"]["suite"]["whitened"]}
        assert sources["far", "wrong"] == {
            "dataset": "far", "kind": "wrong", "corpus": "near", "num_documents": 40, "shrinkage": 0.95
        }  # fmt: skip
        assert len(sources) == 4 and sources["far", "own"]["corpus"] == "far"
    (second,) = evaluate_json("--compare", "bm25", *words[1:])["provenance"]["beside"]
    assert second["whitened"] == result["provenance"]["suite"]["whitened"]


def test_whitening_needs_own_context(desk: Path) -> None:
    """The whitened vectors are those of the own context, so no other context is compared with them."""
    words = ("--suite", "zoo/near", "--no-bm25", "--whiten", "own", "--context", "null")
    for models in (("--model", "contextual"), ("--compare", "plain", "contextual")):
        with pytest.raises(ValueError, match=r"--whiten: .*contextual.*add --context own"):
            evaluate(*models, *words)
    rows = evaluate_json("--model", "contextual", *words, "--context", "own")["differences"]
    assert [(row["first"], row["other"]) for row in rows] == [("own", "null"), ("whitened", "own")]


def test_name_is_no_whitening(desk: Path) -> None:
    """A folder may be called "whitened-minilm". The order of a comparison is kept, and there is no verdict."""
    Path("plain").rename("whitened-minilm")
    words = ("--compare", "contextual", "whitened-minilm", "--no-bm25")
    (row,) = evaluate_json(*words)["differences"]
    assert (row["first"], row["other"]) == ("contextual", "whitened-minilm")
    assert "deploy" not in evaluate("--model", "whitened-minilm")
    # with whitening, the labels of both models end in their views
    first, *others = evaluate_json(*words, "--suite", "zoo/near", "--whiten", "own")["differences"]
    assert first["first"] == "contextual whitened" and first["other"] == "contextual own"
    pairs = [(row["first"], row["other"]) for row in others]
    assert pairs == [
        ("contextual own", "whitened-minilm unchanged"),
        ("whitened-minilm whitened", "whitened-minilm unchanged"),
    ]


def test_single_collection_borrows_wrong_corpus(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The default, `desk`, takes a minute to mine.
    monkeypatch.setattr("repro.interop.wrong_corpus.DEFAULT_SUITE", "zoo")
    (desk / "one").mkdir()
    (desk / "zoo" / "near").rename(desk / "one" / "near")
    words = ("--suite", "one", "--model", "contextual", "--context", "own", "--context", "wrong", "--no-bm25")
    Path("far.txt").write_text("\n".join(read_collections(open_suite("zoo"))["far"].retrieval.documents))
    for more, name in (((), "far"), (("--wrong-from", "zoo"), "far"), (("--wrong-from", "far.txt"), "far.txt")):
        contexts = evaluate_json(*words, *more)["provenance"]["suite"]["contexts"]
        assert {row["kind"]: row["corpus"] for row in contexts} == {"own": "near", "wrong": name}
    for more, message in (
        (("--context", "own", "--wrong-from", "zoo"), "add --context wrong"),
        (("--context", "wrong", "--wrong-from", "one"), "no other corpus than the one that is searched"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate("--suite", "one", "--model", "contextual", *more)


def test_copy_borrows_wrong_corpus(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collections with the same documents in another order are no wrong corpora of each other."""
    monkeypatch.setattr("repro.interop.wrong_corpus.DEFAULT_SUITE", "zoo")
    near = desk / "zoo" / "near"
    shutil.copytree(near, desk / "twice" / "near")
    shutil.copytree(near, desk / "twice" / "again")
    path = desk / "twice" / "again" / "corpus.jsonl"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    words = ("--model", "contextual", "--context", "own", "--context", "wrong", "--no-bm25")
    contexts = evaluate_json("--suite", "twice", *words)["provenance"]["suite"]["contexts"]
    assert {row["corpus"] for row in contexts if row["kind"] == "wrong"} == {"far"}
    with pytest.raises(ValueError, match="no other corpus than the one that is searched"):
        evaluate("--suite", "zoo/near", *words, "--wrong-from", "twice/again")


def test_excluded_collection_is_wrong_corpus(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong corpora come from the whole suite, also if all queries of a collection were trained on."""
    seen = {"near": dict.fromkeys(read_collections(open_suite("zoo"))["near"].retrieval.query_ids, True)}
    monkeypatch.setattr("repro.interop.trained_on.find_seen_queries", lambda *arguments: seen)
    monkeypatch.setattr("repro.interop.wrong_corpus.DEFAULT_SUITE", "nowhere")
    words = ("--model", "contextual", "--context", "wrong", "--no-bm25")
    result = evaluate_json(*words, "--leave-out-seen")
    assert [row["corpus"] for row in result["provenance"]["suite"]["contexts"]] == ["near"]
    path = "zoo+wrong/far/ndcg_at_10"
    assert result["metrics"][path] == evaluate_json(*words)["metrics"][path]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("evaluate", "--compare A B"),
        ("evaluate --model plain --compare plain contextual", "--compare A B"),
        ("evaluate --model bm25 --context wrong", "bm25 has no context"),
        ("evaluate --compare plain bm25 --num-contexts 3", "^plain and bm25 have no context"),
        ("evaluate --model contextual --revision main", "--revision main: .*contextual is none"),
        ("evaluate --model contextual --context odd", r"unknown context \['odd'\]"),
        ("evaluate --compare bm25 contextual --num-contexts 5", "--num-contexts 5: contextual takes 1 to 4"),
        ("evaluate --compare contextual without-null --context null", "--context null: without-null"),
        ("evaluate --compare bm25 blind --whiten own", "--whiten: blind was trained without documents"),
        ("evaluate --model blind --num-contexts 3", "without documents.* --num-contexts"),
        ("evaluate --model plain --whiten mine", "--whiten"),
        ("evaluate --model bm25 --whiten own", "--whiten"),
        ("evaluate --model bm25 --device mars", "device 'mars'"),
        ("evaluate --model bm25 --out taken/out", "taken.* is not a folder"),
    ],
)
def test_impossible_requests_are_refused(desk: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str) -> None:
    """Nothing is scored before. Refused runs are in test_named_runs.py, other words in tests/cli/test_words_typed.py."""
    make_model("contextual", sequence_dropout=1.0).save_pretrained("blind")
    make_model("contextual", sequence_dropout=0.0).save_pretrained("without-null")
    Path("taken").write_text("mine")
    for name in ("evaluate_setting", "evaluate_bm25"):
        monkeypatch.setattr(f"repro.interop.evaluating.{name}", None)
    command, *options = words.split()
    with pytest.raises(ValueError, match=message):
        run_command(command, "--suite", "zoo", *options)
    assert Path("taken").read_text() == "mine"


@pytest.mark.parametrize("device", ["mars", "cpu:99", "meta", "cuda:77"])
def test_impossible_device_is_refused(device: str) -> None:
    model: Any = torch.nn.Linear(1, 1)
    to_device(model, None)
    with pytest.raises(ValueError, match=f"device '{device}' is not on this machine"):
        to_device(model, device)


def test_repeated_command_reads_the_cache(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = evaluate_json("--model", "plain")

    def refuse(self: object, tokens: object, **options: object) -> Never:
        raise AssertionError("encoded again")

    monkeypatch.setattr("repro.model.encoding.TextEncoder.encode_tokens", refuse)
    assert evaluate_json("--model", "plain")["metrics"] == first["metrics"]
    assert evaluate("--model", "plain").count("(cached)") == 4


def test_other_pooling_is_another_model(desk: Path) -> None:
    export_sentence_transformers(make_model("biencoder", backbone="bert"), desk / "stock")
    (pooling,) = desk.glob("stock/*Pooling/config.json")
    words = ("--model", "stock", "--no-bm25")
    as_mean = evaluate_json(*words)
    settings = json.loads(pooling.read_text())
    name = "pooling_mode" if "pooling_mode" in settings else "pooling_mode_mean_tokens"
    pooling.write_text(json.dumps(settings | ({name: "cls"} if name == "pooling_mode" else
                                              {name: False, "pooling_mode_cls_token": True})))  # fmt: skip
    as_cls = evaluate_json(*words)
    assert as_cls["metrics"] != as_mean["metrics"]
    assert as_cls["metrics"] == evaluate_json(*words, "--out", "fresh")["metrics"]


@pytest.mark.parametrize(
    ("suite", "names"), [("my zoo (2)", ("so near", "données")), ("c++docs", ("c++docs", "a+wrong"))]
)
def test_folders_may_have_any_name(desk: Path, suite: str, names: tuple[str, str]) -> None:
    """Characters that metrics cannot hold are replaced. A plus is not read as the mark of a context."""
    for old, new in zip(("near", "far"), names, strict=True):
        Path("zoo", old).rename(Path("zoo", new))
    Path("zoo").rename(suite)
    words = ("--suite", suite, "--model", "contextual", "--context", "own", "--context", "wrong", "--no-bm25")
    metrics = evaluate_json(*words)["metrics"]
    suite_name = suite.replace("my zoo (2)", "my-zoo-2")
    # Collections without a family have the family "given".
    collections = [names[0].replace(" ", "-"), names[1], "given", "mean"]
    expected = {f"{suite_name}{view}/{name}" for view in ("", "+wrong") for name in collections}
    assert {path.rpartition("/")[0] for path in metrics} == expected
    assert get_header(evaluate(*words)) == ["collection", "own", "wrong"]


def test_equal_names_are_refused(desk: Path) -> None:
    shutil.copytree("zoo/near", "zoo/so near")
    shutil.copytree("zoo/near", "zoo/so-near")
    with pytest.raises(ValueError, match="two of its folders would have one name"):
        open_suite("zoo")
    shutil.rmtree("zoo/so near")
    Path("zoo/so-near").rename("zoo/given")
    with pytest.raises(ValueError, match=r"\['given'\] name more than one"):
        open_suite("zoo")


def test_two_models_are_compared_by_query(desk: Path) -> None:
    # Context options apply to the contextual model alone. Its label has any context but the default one.
    for *options, label in (
        ("contextual",),
        ("--context", "wrong", "contextual wrong"),
        ("--context", "null", "contextual null"),
        ("--num-contexts", "3", "contextual"),
    ):
        (row,) = evaluate_json("--compare", "plain", "contextual", "--no-bm25", *options)["differences"]
        assert (row["first"], row["other"]) == ("plain", label)
    result = evaluate_json("--compare", "plain", "contextual", "--no-bm25")
    scores = (metrics["zoo/mean/ndcg_at_10"] for metrics in (result["metrics"], result["beside"]["contextual"]))
    assert_difference(result["differences"][0], *scores)
    (row,) = evaluate_json("--compare", "plain", "plain", "--no-bm25")["differences"]
    assert row["points"] == 0 and row["low"] is row["high"] is None


def test_interval_matches_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(300), rng.random(300) * 0.9
    strata = np.zeros(300, int)
    (difference,) = compute_differences(
        [Column(QueryScores(name, values, strata, ("x",), ())) for name, values in (("a", a), ("b", b))]
    )

    def mean_points(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return 100 * (x - y).mean(axis)

    low, high = bootstrap((a, b), mean_points, paired=True, method="percentile", rng=1).confidence_interval
    assert (difference.low, difference.high) == pytest.approx((low, high), abs=0.15 * (high - low))
    assert difference.points == pytest.approx(mean_points(a, b))


def test_single_queries_have_no_interval() -> None:
    """With one query per collection every resample is the same, so an interval would have no width."""
    names, strata = ("x", "y"), np.arange(2)
    columns = (
        Column(QueryScores("unchanged", np.array([0.5, 0.2]), strata, names, ())),
        Column(QueryScores("whitened", np.ones(2), strata, names, ()), "unchanged"),
    )
    gains = compute_differences(columns)
    assert {(difference.low, difference.high) for difference in gains} == {(None, None)}
    view = make_differences_view(gains)
    assert view.rows[0][:3] == ("whitened − unchanged", "+65.00", "–")
    (line,) = format_whitening_lines(gains, ["whitened"])
    assert "+65.0 points (no interval" in line and "do not deploy" in line


def test_repeated_context_counts_once(desk: Path) -> None:
    for model in ("plain", "contextual"):
        words = ("--model", model, "--suite", "zoo/near", "--no-bm25")
        twice, once = evaluate_json(*words, "--context", "own", "--context", "own"), evaluate_json(*words)
        assert twice["metrics"] == once["metrics"] and twice["provenance"]["asked"] == once["provenance"]["asked"]


def test_bm25_is_scored_alone(desk: Path) -> None:
    result = evaluate_json("--model", "bm25")
    assert result["metrics"]["zoo/mean/ndcg_at_10"] > 0.5 and result["beside"] == {}


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
            assert estimate_unread_shares(open_model(source).model, collection)[0] == pytest.approx(share), source


@pytest.mark.parametrize("context", ["null", "wrong"])
def test_context_is_scored_alone(desk: Path, context: str) -> None:
    """The scores equal those of an evaluation under three contexts."""
    alone = evaluate_json("--model", "contextual", "--context", context, "--no-bm25")
    three = ("--context", "own", "--context", "wrong", "--context", "null")
    together = evaluate_json("--model", "contextual", *three, "--no-bm25")["metrics"]
    metrics = alone["metrics"]
    assert metrics and metrics == {path: together[path] for path in metrics}
    assert all(path.startswith(f"zoo+{context}/") for path in metrics)
    assert alone["differences"] == []


def test_blind_model_is_scored_and_exported(desk: Path) -> None:
    """A model trained without documents has the null context by default, and its card gives our vectors."""
    make_model("contextual", sequence_dropout=1.0).save_pretrained(desk / "blind")
    result = evaluate_json("--no-bm25", "--compare", "blind", "plain")
    expected = evaluate_json("--model", "blind", "--no-bm25", "--context", "null")
    assert result["metrics"] == expected["metrics"] and "zoo+null/mean/ndcg_at_10" in expected["metrics"]
    # next to another model: under its only context, and not whitened
    for options in (("--context", "own", "--context", "null"), ("--context", "wrong"), ("--num-contexts", "2")):
        both = evaluate_json("--no-bm25", "--compare", "contextual", "blind", *options)
        assert both["beside"]["blind"] == expected["metrics"]
    words = ("--suite", "zoo/near", "--no-bm25", "--compare", "contextual", "blind", "--whiten", "own")
    assert list_suites(evaluate_json(*words)["beside"]["blind"]) == {"near+null"}
    run_command("export", "blind", "out", "--to", "sentence-transformers")
    code = Path("out", "README.md").read_text().split("```python\n")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(code, found)
    ours = open_model("blind").model
    ours.set_context(None)
    np.testing.assert_allclose(found["document_vectors"], ours.encode(found["documents"]), atol=1e-5)


def list_suites(metrics: Mapping[str, float]) -> set[str]:
    """Return the first components of metric paths."""
    return {path.split("/")[0] for path in metrics}


def list_evaluations(desk: Path) -> set[str]:
    return {path.parent.name for path in (desk / "home" / "evaluations").glob("*/scores.json")}


def test_evaluations_have_separate_folders(desk: Path) -> None:
    """Models, seeds, contexts and their number separate evaluations. The path of a model and the device do not."""
    make_model("contextual", num_contexts=3).save_pretrained(desk / "other" / "contextual")
    requests = [("contextual",), ("other/contextual",), ("contextual", "--context-seed", "1"),
                ("contextual", "--context", "null"), ("contextual", "--num-contexts", "2")]  # fmt: skip
    results = [evaluate_json("--no-bm25", "--model", *words) for words in requests]
    folders = list_evaluations(desk)
    assert len(folders) == len(requests) and all(name.startswith("contextual-zoo-") for name in folders)
    stored = [json.loads((desk / "home" / "evaluations" / name / "scores.json").read_text()) for name in folders]
    assert all(result in stored for result in results)
    first, *_, other_seed = (result["provenance"]["suite"]["contexts"][0] for result in results[:3])
    assert (first["seed"], other_seed["seed"]) == (0, 1) and first["ids_sha256"] != other_seed["ids_sha256"]
    evaluate("--no-bm25", "--model", str(desk / "contextual"), "--device", "cpu")
    assert list_evaluations(desk) == folders


@pytest.mark.parametrize(
    ("source", "to"),
    [("contextual", "sentence-transformers"), ("contextual", "transformers"),
     ("plain", "sentence-transformers"), ("plain", "transformers")],
)  # fmt: skip
def test_cached_export_opens_by_id(desk: Path, monkeypatch: pytest.MonkeyPatch, source: str, to: str) -> None:
    """An export in the cache of the hub is opened by its id, with the scores of its source."""
    run_command("export", source, "out", "--to", to)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(desk / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (desk / "out").rename(make_hub_snapshot(desk / "hub", "me/mine"))
    expected = evaluate_json("--model", source, "--no-bm25")["metrics"]
    for words in (("me/mine",), ("me/mine", "--revision", COMMIT)):
        result = evaluate_json("--no-bm25", "--model", *words)
        assert result["metrics"] == pytest.approx(expected, abs=1e-6)
        assert result["provenance"]["model"]["revision"] == COMMIT
    with pytest.raises(ValueError, match="me/other is not a folder, not in the hub's cache"):
        evaluate("--model", "me/other")


def test_export_keeps_a_link(desk: Path) -> None:
    """A link to an empty folder stays. The folder that it points to is written."""
    export_sentence_transformers(make_model("biencoder"), desk / "stock")
    corpus = str(desk / "zoo" / "near")
    for words in (
        ("export", "plain", "link", "--to", "transformers"),
        ("adapt", "stock", "--corpus", corpus, "--to", "link"),
    ):
        Path("real").mkdir()
        Path("link").symlink_to("real")
        run_command(*words)
        assert open_model("link").num_contexts == 0 and Path("link").is_symlink()
        Path("link").unlink()
        shutil.rmtree("real")


def test_folder_of_another_process_stays(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export does not replace a folder that was filled while it was written."""

    def write_slowly(*arguments: object) -> None:
        Path("out").mkdir()
        Path("out", "mine").touch()

    monkeypatch.setattr("repro.interop.exporting._write", write_slowly)
    with pytest.raises(ValueError, match="another process"):
        run_command("export", "plain", "out", "--to", "transformers")
    assert [path.name for path in Path("out").iterdir()] == ["mine"]
