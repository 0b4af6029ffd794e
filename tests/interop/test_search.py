"""`repro search` ranks as the model does, from an index that depends on model, context and corpus."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repro.data.beir import Retrieval, write_beir_folder
from repro.data.own.imported import import_source
from repro.data.tokens import get_minilm_folder
from repro.evaluate.contexts import draw_context
from repro.interop.adapting import adapt_model
from repro.interop.corpus import find_corpus
from repro.interop.opening import Opened, open_model
from repro.interop.search.build import encode_queries
from repro.interop.search.index import CONTEXT_FILE, OFFSETS_FILE, TEXTS_FILE, VECTORS_FILE, Index, SearchRequest
from repro.interop.search.query import choose_model, search
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import build_model
from repro.records.store import write_record
from repro.spec import Run, base
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import get_local_records, run_folder
from repro.train.checkpoint import CHECKPOINT_FILE
from tests.commands import get_exit_code, ignore, run_command

TEXTS = [
    "Rain falls on the plain in spring.",
    "A hill rises above the land around it.",
    "Install a package with pip, or build it from source.",
    "The river is wide, slow and brown.",
    "A compiler turns source text into machine code.",
]
QUERIES = ["how do I install software", "weather"]


def refuse(line: str) -> None:
    """Fail if a line is logged, since an existing index needs no work."""
    raise AssertionError(line)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Five documents as jsonl."""
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps({"id": f"d{place}", "text": text}) + "\n" for place, text in enumerate(TEXTS)))
    return path


def save(folder: Path, architecture: str, backbone: str, **changes: object) -> Path:
    """Write a small model with MiniLM's word vectors and random layers."""
    sizes = {"hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "num_contexts": 3, "prompts": "task"}
    config = ModelConfig(architecture=architecture, backbone=backbone, **(sizes | changes))  # type: ignore[arg-type]
    build_model(config, start="words", seed=3).save_pretrained(folder)
    return folder


def brute_force(model: Path | str, corpus: Path, context: str = "own") -> np.ndarray:
    """Return the scores (queries, documents) that the model itself computes."""
    opened = open_model(str(model), progress=ignore).model
    if isinstance(opened, ContextualModel):
        source = Retrieval(corpus.name, tuple(f"d{place}" for place in range(len(TEXTS))), tuple(TEXTS), (), (), {})
        opened.set_context(draw_context(context, source, num_contexts=3, seed=0).texts, 0)
    return opened.encode(QUERIES, "query") @ opened.encode(TEXTS, "document").T


@pytest.mark.parametrize(
    ("architecture", "backbone"),
    [("biencoder", "nomic"), ("contextual", "bert"), ("contextual", "nomic"), ("minilm", "bert"), ("adapted", "bert")],
)
def test_search_matches_model(tmp_path: Path, corpus: Path, architecture: str, backbone: str) -> None:
    """The second search gives the model's own scores. It logs nothing, since the index exists."""
    model: Path | str = tmp_path / "model"
    if architecture == "minilm":
        model = "minilm"
    elif architecture == "adapted":
        adapt_model("minilm", str(corpus), tmp_path / "model", progress=ignore)
    else:
        save(tmp_path / "model", architecture, backbone)
    request = SearchRequest(str(model), str(corpus))
    search(request, QUERIES, 5, ignore)
    expected = brute_force(get_minilm_folder() if architecture == "minilm" else model, corpus)
    results = search(request, QUERIES, 5, refuse)
    for hits, scores in zip(results, expected, strict=True):
        assert [hit.id for hit in hits] == [f"d{place}" for place in np.argsort(-scores, kind="stable")]
        assert [hit.score for hit in hits] == pytest.approx(np.sort(scores)[::-1].tolist(), abs=1e-4)
        assert [hit.text for hit in hits] == [TEXTS[int(hit.id[1:])] for hit in hits]


def test_context_changes_index(tmp_path: Path, corpus: Path) -> None:
    """Each context has its own index. Without documents in training it is the null context. A biencoder refuses one."""
    model = save(tmp_path / "model", "contextual", "nomic", residual=True)
    for kind in ("own", "null"):
        hits, _ = search(SearchRequest(str(model), str(corpus), kind), QUERIES, 1, ignore)
        assert hits[0].score == pytest.approx(float(brute_force(model, corpus, kind)[0].max()), abs=1e-4)
    blind = save(tmp_path / "blind", "contextual", "nomic", sequence_dropout=1.0)
    hits, _ = search(SearchRequest(str(blind), str(corpus)), QUERIES, 1, ignore)
    assert hits[0].score == pytest.approx(float(brute_force(blind, corpus, "null")[0].max()), abs=1e-4)
    # the same index, and no index of own documents
    search(SearchRequest(str(blind), str(corpus), "null"), QUERIES, 1, refuse)
    with pytest.raises(ValueError, match=r"without documents.*: leave out --context"):
        search(SearchRequest(str(blind), str(corpus), "own"), QUERIES, 1, ignore)
    plain = save(tmp_path / "plain", "biencoder", "nomic")
    with pytest.raises(ValueError, match="--context"):
        search(SearchRequest(str(plain), str(corpus), "own"), QUERIES, 1, ignore)
    # also without a corpus, which an unknown model does not explain
    with pytest.raises(ValueError, match="no model 'nope'"):
        search(SearchRequest("nope"), QUERIES, 1, ignore)


@pytest.mark.parametrize(("name", "role"), [("quora", "query"), ("things", "document")])
def test_prompt_follows_collection(tmp_path: Path, name: str, role: str) -> None:
    """Documents and context of a collection of questions have the prompt of queries, as in `evaluate`."""
    model = save(tmp_path / "model", "contextual", "nomic", residual=True)
    ids = tuple(f"d{place}" for place in range(len(TEXTS)))
    # as in Quora, a query is a document, and another document is relevant
    source = Retrieval(name, ids, tuple(TEXTS), ids[:1], tuple(TEXTS[:1]), {"d0": {"d1": 1}})
    write_beir_folder(tmp_path / name, source)
    (hits,) = search(SearchRequest(str(model), str(tmp_path / name)), QUERIES[:1], len(TEXTS), ignore)
    opened = open_model(str(model), progress=ignore).ours
    opened.set_context(draw_context("own", source, num_contexts=3, seed=0).texts, 0, role)
    expected = opened.encode(TEXTS, role) @ opened.encode(QUERIES[:1], "query")[0]
    assert [hit.score for hit in hits] == pytest.approx(np.sort(expected)[::-1].tolist(), abs=1e-4)


def test_context_follows_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored context goes to the device of the model, which is the GPU for a run on a machine with one."""
    model = build_model(ModelConfig(architecture="contextual", hidden_size=32, num_heads=2, num_contexts=3))
    np.save(tmp_path / CONTEXT_FILE, np.ones((3, 32), np.float32))
    # the meta device has no numbers to encode with
    monkeypatch.setattr(ContextualModel, "encode", lambda *arguments: np.zeros((1, 32), np.float32))
    encode_queries(Opened(model.to("meta"), "model"), Index(tmp_path), ["weather"])
    assert isinstance(model, ContextualModel)
    assert model.current_context().device == model.device


def test_index_follows_corpus(tmp_path: Path, corpus: Path) -> None:
    """A new text in the file is found. A malformed line is named."""
    model = save(tmp_path / "model", "biencoder", "nomic")
    search(SearchRequest(str(model), str(corpus)), QUERIES, 1, ignore)
    corpus.write_text(corpus.read_text() + json.dumps({"id": "new", "text": QUERIES[0]}) + "\n")
    (hits,) = search(SearchRequest(str(model), str(corpus)), QUERIES[:1], 6, ignore)
    assert "new" in [hit.id for hit in hits]
    corpus.write_text('{"id": "x", "words": "no text"}\n')
    with pytest.raises(ValueError, match=r"docs\.jsonl, line 1"):
        search(SearchRequest(str(model), str(corpus)), QUERIES, 1, ignore)


def test_equal_bytes_can_be_other_documents(tmp_path: Path) -> None:
    """A .txt file has a document more than a .csv file of the same bytes, whose first line names the column."""
    model = save(tmp_path / "model", "biencoder", "bert")
    for name, expected in (("a.csv", {"rain falls"}), ("a.txt", {"text", "rain falls"})):
        (tmp_path / name).write_text("text\nrain falls\n")
        (results,) = search(SearchRequest(str(model), str(tmp_path / name)), ["rain"], 5, ignore)
        assert {result.text for result in results} == expected


def test_suites_of_one_stage_differ() -> None:
    """Two suites of one corpus have the same digest, which is that of their stage, but other documents."""
    desk, validation = find_corpus("desk"), find_corpus("desk-validation")
    assert desk.digest == validation.digest and desk.key != validation.key


def test_command_reads_stdin(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save(tmp_path / "model", "contextual", "nomic")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(QUERIES)))
    assert get_exit_code("search", str(model), "--corpus", str(corpus), "--top", "2", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["query"] for row in rows] == QUERIES and {len(row["results"]) for row in rows} == {2}
    assert get_exit_code("search", str(model), "x") == 2


def test_messages_are_not_in_json(tmp_path: Path) -> None:
    """A folder of collections has messages about skipped entries and about its name."""
    model = save(tmp_path / "model", "biencoder", "bert")
    write_beir_folder(
        tmp_path / "zoo" / "near", Retrieval("near", ("d",), ("text",), ("q",), ("ask",), {"q": {"d": 1}})
    )
    (tmp_path / "zoo" / "notes.txt").touch()
    (row,) = json.loads(run_command("search", str(model), "x", "--corpus", str(tmp_path / "zoo"), "--json"))
    assert [result["id"] for result in row["results"]] == ["d"]
    search(SearchRequest(str(model), str(tmp_path / "zoo")), ["x"], 1, refuse)


def test_equal_scores_keep_the_order(tmp_path: Path) -> None:
    """Of many documents with the score of the last place, the first ones of the corpus are returned."""
    vectors = np.ones((500, 2), np.float32)
    vectors[321] = 2
    np.save(tmp_path / VECTORS_FILE, vectors)
    lines = [json.dumps({"id": f"d{row}", "text": ""}).encode() + b"\n" for row in range(500)]
    (tmp_path / TEXTS_FILE).write_bytes(b"".join(lines))
    np.save(tmp_path / OFFSETS_FILE, np.cumsum([0, *map(len, lines[:-1])]))
    hits = Index(tmp_path).search(np.ones(2, np.float32), 4)
    assert [hit.id for hit in hits] == ["d321", "d0", "d1", "d2"]
    assert len(Index(tmp_path).search(np.ones(2, np.float32), 600)) == 500


def test_corpus_chooses_its_model(tmp_path: Path) -> None:
    """An imported corpus is searched with its best recorded model that has weights, or with MiniLM.

    Scores on earlier content of the same name do not count, nor those of reranking. MiniLM has its score on the most
    tokens.
    """
    request = SearchRequest("mine", context_seed=3)
    write_beir_folder(tmp_path / "c", Retrieval("c", ("d",), ("text",), ("q",), ("ask",), {"q": {"d": 1}}))
    imported = import_source(tmp_path / "c", name="mine")
    assert choose_model(request) == (SearchRequest("minilm", "mine", context_seed=3), "")
    assert choose_model(replace(request, model=imported.corpus))[0].corpus == "mine"
    own = base("smoke", corpus=imported.corpus, suite="mine")
    runs = [
        replace(own, seed=1),
        replace(own, seed=2, suite=imported.corpus, corpus="planted-tiny"),
        replace(own, seed=3),
    ]
    earlier = [
        replace(own, corpus="mine@01234567"),
        replace(own, corpus="planted-tiny", suite="mine@01234567"),
        replace(own, corpus="planted-tiny"),
        replace(own, protocol="rerank", rerank_depth=10),
    ]
    untrained = base("smoke", suite="mine", corpus=imported.corpus, architecture="surrogate", surrogate="minilm")
    short = sorted((replace(untrained, max_tokens=tokens) for tokens in (8, 9)), key=run_id)
    # records are read in the order of their ids: one of fewer tokens before this one, and one after it
    seeds = (replace(untrained, seed=seed) for seed in range(30))
    untrained = next(run for run in seeds if run_id(short[0]) < run_id(run) < run_id(short[1]))
    scored = zip([*runs, untrained, *earlier, *short], (0.25, 0.5, 0.75, 0.375, *[1] * 6), strict=True)
    for run, score in scored:
        described = {"suite": {"datasets": [{"name": "all", "family": "mine", "num_queries": 1}]}}
        metrics, arrays = {f"{run.suite}/mean/ndcg_at_10": score}, {run.suite: np.array([score])}
        write_record(get_local_records(), run, metrics=metrics, arrays=arrays, provenance=described)
    for run in earlier:
        touch_checkpoint(run)
    for run, best in ((runs[0], "minilm"), (runs[1], run_id(runs[1]))):
        touch_checkpoint(run)
        chosen, note = choose_model(request)
        assert chosen.model == best
        # MiniLM's score at the length of the runs may be lower than at its own
        assert (f"repro evaluate --compare {best} minilm --suite mine" in note) == (best != "minilm")
    (get_local_records() / "aaaaaaaaaaaa.json").write_text("{")
    assert choose_model(replace(request, corpus="other"))[0].corpus == "other", "a damaged record counts as missing"


def touch_checkpoint(run: Run) -> None:
    """Write an empty checkpoint of a run."""
    folder = run_folder(get_training_id(run))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CHECKPOINT_FILE).touch()
