"""Promises of the paper's sources and of the table of oddities."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repro.data.paper.hub import EMPTY, SOURCES, list_pair_files, load_source, local_copy, prompts_by_domain
from repro.data.paper.quirks import QUIRKS, find_quirks
from repro.data.tokens import load_tokenizer, tokenize
from repro.pipeline.inputs import Inputs
from repro.pipeline.stages import list_stages
from repro.spec import base


def test_domains_match_table_5() -> None:
    domains = SOURCES["nomic-unsupervised"].domains
    assert len(domains) == 29
    assert sum(domain.num_rows for domain in domains.values()) == 234_553_344
    assert all(domain.num_rows % 16_384 == 0 for domain in domains.values())


def test_absent_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"about 300 GB.*hf download nomic-ai/nomic_embed_unsupervised --repo-type"):
        local_copy("nomic-unsupervised", tmp_path)
    with pytest.raises(ValueError, match="bge-full-data"):
        local_copy("laion", tmp_path)


def test_local_copy_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "nomic_embed_unsupervised"
    folder.mkdir()
    rows = [{"query": "a", "document": "b", "dataset": "paq"}, {"query": "c", "document": "", "dataset": "npr"}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet")
    plain = list(load_source("nomic-unsupervised", tmp_path))
    assert [row[1:5] for row in plain] == [("a", "b", "paq", "paq"), ("c", EMPTY, "npr", "npr")]


def test_hidden_files_are_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "nomic_embed_unsupervised"
    for name in ("._train-00000-of-00001.parquet", ".cache/part.jsonl", "__MACOSX/train.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"what a system leaves")
    with pytest.raises(ValueError, match="is not in"):
        local_copy("nomic-unsupervised", tmp_path)
    rows = [{"query": "a", "document": "b", "dataset": "paq"}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet")
    assert [path.name for path in list_pair_files(folder)] == ["train-00000-of-00001.parquet"]
    assert [row.query for row in load_source("nomic-unsupervised", tmp_path)] == ["a"]


def test_domains_have_their_own_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    folder = tmp_path / "nomic_embed_unsupervised"
    folder.mkdir()
    rows = [{"query": "a", "document": "b", "dataset": "paq"}, {"query": "c", "document": "d", "dataset": "npr"}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet")
    asked = {"corpus": "nomic-unsupervised", "num_pairs": None, "suite": "planted"}
    run, tokenizer = base("smoke", **asked, prompts="task"), load_tokenizer("minilm")
    for stage in (*list_stages(run), *list_stages(base("smoke", **asked))):
        stage.build(print)
    own, plain = Inputs(run), Inputs(base("smoke", **asked))
    place_of = {text: place for place, text in enumerate(own.pairs.texts("query", [0, 1]))}

    def tokens_of(inputs: Inputs, side: str, place: int) -> list[int]:
        return inputs.tokens(side).pad([place])[0][0].tolist()

    def expected(text: str) -> list[int]:
        return tokenize([text], tokenizer, run.max_tokens).pad([0])[0][0].tolist()

    assert tokens_of(own, "query", place_of["a"]) == expected("search_query: a")
    assert tokens_of(own, "document", place_of["a"]) == expected("search_document: b")
    assert tokens_of(own, "query", place_of["c"]) == expected("classification: c")
    assert tokens_of(plain, "query", place_of["c"]) == expected("c")


def test_first_positive_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "bge-full-data" / "data"
    folder.mkdir(parents=True)
    row = {"query": "a", "pos": ["b", "c"], "neg": ["d", ""], "prompt": "x"}
    pq.write_table(pa.Table.from_pylist([row]), folder / "fiqa-00000-of-00002.parquet")
    (folder / "nq.jsonl").write_text(json.dumps(row) + "\n")
    found = list(load_source("bge-full-data", tmp_path))
    assert [(one.document, one.domain, one.negatives) for one in found] == [("b", "fiqa", ("d",)), ("b", "nq", ("d",))]
    assert prompts_by_domain("bge-full-data", ["fiqa", "nq"]) == {}  # the run's own prompts are for all


def test_row_without_document_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bge-full-data"
    folder.mkdir()
    (folder / "paq.jsonl").write_text('{"query": "a", "pos": ["b"]}\n{"query": "c"}\n')
    rows = load_source("bge-full-data", tmp_path)
    assert next(rows).document == "b"
    with pytest.raises(ValueError, match=r"paq\.jsonl, line 2: no column for the document"):
        next(rows)


def test_unknown_domain_has_no_prompts(tmp_path: Path) -> None:
    folder = tmp_path / "nomic_embed_supervised"
    folder.mkdir()
    (folder / "x.jsonl").write_text('{"query": "a", "document": "b", "negative": ["c"], "dataset": "wild"}\n')
    assert next(load_source("nomic-supervised", tmp_path)).negatives == ("c",)
    with pytest.raises(ValueError, match="wild"):
        prompts_by_domain("nomic-supervised", ["nq", "wild"])


def test_quirks_are_found_by_either_name() -> None:
    assert find_quirks("ArguAna").removes_self_hits and find_quirks("QuoraRetrieval").asks_on_both_sides
    assert find_quirks("MSMARCO").split == "dev" and find_quirks("Touche2020").says
    assert find_quirks("scifact").split == "test" and not find_quirks("scifact").removes_self_hits
    assert all(quirk.says for quirk in QUIRKS.values())
