"""BEIR folders: read as the beir library reads them. Malformed ones are refused with file and line."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from beir.datasets.data_loader import GenericDataLoader

from repro.data.beir import Retrieval, SuiteDataset, load_beir, load_dataset, load_suite, write_beir_folder, write_suite
from repro.data.paper.collection_rules import CollectionRules
from repro.evaluate.collections import Collection
from repro.evaluate.suites import evaluate_bm25
from repro.interop.comparison import Column, compute_differences
from repro.interop.corpus import open_suite
from repro.report.query_scores import QueryScores
from tests.commands import ignore
from tests.data.files import write_rows

SMALL = Retrieval(
    name="small",
    document_ids=("d1", "d2", "d3"),
    documents=("One “quoted” text.", "Two\ttabs", "Three"),
    query_ids=("q1", "q2"),
    queries=("first?", "second"),
    judgements={"q1": {"d1": 2, "d3": 0}, "q2": {"d2": 1}},
)
HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_beir_folder(tmp_path / "small", SMALL)
    return tmp_path / "small"


def test_beir_library_reads_the_same(folder: Path) -> None:
    logging.getLogger("beir").setLevel(logging.ERROR)
    corpus, queries, judgements = GenericDataLoader(str(folder)).load(split="test")
    texts = {key: row["text"] for key, row in corpus.items()}
    assert texts == dict(zip(SMALL.document_ids, SMALL.documents, strict=True))
    assert queries == dict(zip(SMALL.query_ids, SMALL.queries, strict=True))
    assert judgements == SMALL.judgements


def test_document_fields_are_normalised(folder: Path) -> None:
    """Title and text are joined, either may be missing, and an id may be a number."""
    rows = [{"_id": "d1", "title": "Head", "text": "body"}, {"_id": "d2", "text": "x"}]
    write_rows(folder / "corpus.jsonl", [*rows, {"_id": "d3", "title": "y"}, {"_id": 4, "text": None}])
    collection = load_beir(folder)
    assert collection.documents == ("Head body", "x", "y", "")
    assert collection.document_ids == ("d1", "d2", "d3", "4")


def test_queries_of_other_splits_are_skipped(folder: Path) -> None:
    """Unjudged queries are skipped. They are counted if no split judges them."""
    (folder / "qrels/test.tsv").write_text(HEADER + "q1\td1\t1\n")
    collection, rules = load_dataset(SuiteDataset("small", "family", folder))
    assert (collection.query_ids, collection.num_unjudged) == (("q1",), 1)
    assert rules.note.startswith("1 query without a judgement in any split")
    (folder / "qrels/dev.tsv").write_text("q2\td2\t1\n")
    collection, rules = load_dataset(SuiteDataset("small", "family", folder))
    assert (collection.query_ids, collection.num_unjudged, rules) == (("q1",), 0, CollectionRules())
    assert load_beir(folder, "dev").query_ids == ("q2",)
    with pytest.raises(ValueError, match=r"train\.tsv is missing.*'dev', 'test'"):
        load_beir(folder, "train")
    (folder / "queries.jsonl").unlink()
    with pytest.raises(ValueError, match=r"queries\.jsonl is missing"):
        load_beir(folder)


@pytest.mark.parametrize(
    "entry",
    [None, {"family": "mean"}, {"family": "small"}]
    + [{"quirks": rules} for rules in (5, {"splat": "dev"}, {"says": 3}, {"removes_self_hits": "yes"})],
)
def test_malformed_suites_are_refused(folder: Path, entry: dict[str, object] | None) -> None:
    write_suite(folder.parent, "mine", [("small", "family")], {"small": CollectionRules(split="dev")})
    dataset = SuiteDataset("small", "family", folder, CollectionRules(split="dev"))
    assert load_suite(folder.parent).datasets == (dataset,)
    datasets = None if entry is None else [{"name": "small", "family": "family"} | entry]
    (folder.parent / "suite.json").write_text(json.dumps({"name": "mine", "datasets": datasets}))
    with pytest.raises((ValueError, TypeError)):
        load_suite(folder.parent)


ROWS = "q1\td1\t2\nq1\td3\t0\nq2\td2\t1\n"


@pytest.mark.parametrize(
    "content",
    [f"\nquery_id\tdoc_id\trelevance\n{ROWS}", ROWS, HEADER + 2 * ROWS, ROWS.replace("\t2", "\t2.0")],
    ids=["other header", "no header", "repeated judgements count once", "whole grades may have a point"],
)
def test_unusual_judgements_are_read(folder: Path, content: str) -> None:
    (folder / "qrels/test.tsv").write_text(content)
    assert load_beir(folder) == SMALL


def test_query_named_like_header_is_judged(folder: Path) -> None:
    write_rows(folder / "queries.jsonl", [{"_id": "query-id", "text": "a"}, {"_id": "q2", "text": "b"}])
    (folder / "qrels/test.tsv").write_text("query-id\td1\t2\nq2\td2\t1\n")
    assert load_beir(folder).judgements == {"query-id": {"d1": 2}, "q2": {"d2": 1}}


MALFORMED = [
    ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n{"_id": broken\n', "line 2: no JSON"),
    ("corpus.jsonl", '{"_id": "d1", "text": ""}\n{"_id": "d1", "text": ""}\n', "line 2: the id 'd1' occurs twice"),
    *(
        ("corpus.jsonl", line + "\n", "line 1")
        for line in (
            "[1]",
            '{"text": "a"}',
            '{"_id": "d1", "contents": "all of it"}',
            '{"_id": null, "text": "a"}',
            '{"_id": true, "text": "a"}',
            '{"_id": "d1", "text": 0}',
            '{"_id": "d1", "text": "\\ud800"}',  # half of a surrogate pair
        )
    ),
    ("corpus.jsonl", "", "is empty"),
    *(
        ("corpus.jsonl", f'{{"_id": "{key}", "text": "a"}}\n', f"line 1: .*the id '{key}' is empty or has a space")
        for key in ("d 1", "d1 ")
    ),
    *((name, "\udcff\n", "line 1: .*UTF-8") for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")),
    ("qrels/test.tsv", HEADER + "q1\td9\t1\n", "line 2: the document 'd9' is not in corpus"),
    ("qrels/test.tsv", HEADER + "q9\td1\t1\n", "line 2: the query 'q9' is not in queries"),
    ("qrels/test.tsv", "query-id\tscore\tcorpus-id\nq1\td1\t1\n", "line 1: expected query-id, corpus-id"),
    ("qrels/test.tsv", HEADER + "q1\td1\n", "line 2: expected query-id, corpus-id and grade"),
    ("qrels/test.tsv", HEADER, "has no grade above 0"),
    ("qrels/test.tsv", HEADER + "q1\td1\t-1\nq2\td1\t0\n", "has no grade above 0"),
    ("qrels/test.tsv", HEADER + "q1\td1\t999999999\n", "line 2: .*999999999 is not from -100 to 1000"),
    ("qrels/test.tsv", HEADER + "q1\td1\t1.5\n", "line 2: .*'1.5' is not a whole number"),
    ("qrels/test.tsv", HEADER + "q1\td1\t1\nq1\td1\t0\n", "line 3: .*judged 1 before, and 0 here"),
]


@pytest.mark.parametrize(("file", "content", "words"), MALFORMED)
def test_malformed_folders_are_refused(folder: Path, file: str, content: str, words: str) -> None:
    (folder / file).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=f"{file}.* {words}|{file}, {words}"):
        load_beir(folder)


def test_nested_collections_count_once(tmp_path: Path) -> None:
    """The forums of cqadupstack/<forum>, as BEIR's downloader leaves them, are all read and count once in the mean."""
    folders = {"scifact": "scifact", "cqadupstack-a": "cqadupstack/a", "cqadupstack-b": "cqadupstack/b"}
    texts = ("one small thing", "two large things", "three odd words")
    for name, place in folders.items():
        judgements = {"q0": {"d0": 1}, "q1": {"d2" if name == "scifact" else "d1": 1}}
        collection = Retrieval(name, ("d0", "d1", "d2"), texts, ("q0", "q1"), ("small", "two"), judgements)
        write_beir_folder(tmp_path / place, collection)
    suite = open_suite(str(tmp_path), ignore)
    assert sorted(dataset.name for dataset in suite.datasets) == sorted(folders)
    result = evaluate_bm25(suite)
    values = {name: result.metrics[f"{suite.name}/{name}/ndcg_at_10"] for name in (*folders, "cqadupstack", "mean")}
    assert values["cqadupstack"] == values["cqadupstack-a"] == 1.0
    assert values["mean"] == pytest.approx((values["scifact"] + values["cqadupstack"]) / 2)
    column = QueryScores.of("bm25", result.per_query[suite.name], result.provenance["datasets"])
    zeros = replace(column, label="zeros", values_Q=np.zeros_like(column.values_Q))
    assert column.mean == pytest.approx(100 * values["mean"])
    assert compute_differences([Column(column), Column(zeros)])[0].points == pytest.approx(100 * values["mean"])


def test_empty_texts_are_counted_or_refused(tmp_path: Path) -> None:
    """Empty documents and queries are noted next to the scores. A collection without any text is refused."""
    mixed = replace(SMALL, documents=("\u200b", "two", " "), queries=("", "second"))
    write_beir_folder(tmp_path / "mixed", mixed)
    notes = Collection(load_beir(tmp_path / "mixed"), CollectionRules()).notes
    assert [note[:6] for note in notes] == ["2 of 3", "1 of 2"]
    for texts in ({"documents": ("", "\u200b\ufeff", " ")}, {"queries": ("", " ")}):
        write_beir_folder(tmp_path / "empty", replace(SMALL, **texts))
        with pytest.raises(ValueError, match=f"all of its {len(*texts.values())} "):
            load_beir(tmp_path / "empty")
