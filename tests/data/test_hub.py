"""The paper's data sources: local copies, domains, prompts and the table of rules."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from repro.batches.sampler import StoredSampler
from repro.data import external
from repro.data.pairs import Row, read_pairs
from repro.data.paper import hub
from repro.data.paper.collection_rules import KNOWN_RULES, find_rules
from repro.data.paper.hub import EMPTY, SOURCES, get_local_copy, get_prompts_by_domain, list_source_files
from repro.data.paper.local_copies import fetch
from repro.data.tokens import load_tokenizer, tokenize
from repro.pipeline.corpora import make_corpus_stage
from repro.pipeline.inputs import Inputs
from repro.pipeline.stages import StageGraph, list_stages, make_batch_sampler
from repro.spec import Run, base
from repro.storage.digests import hash_folder
from repro.storage.shards import build_from_shards
from repro.train.setup import build_sampler
from tests.commands import ignore
from tests.data.files import write_rows

ROWS = [{"query": "a", "document": "b", "dataset": "paq"}, {"query": "c", "document": "", "dataset": "npr"}]


@pytest.fixture(autouse=True)
def declare_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare two rows for the unsupervised source."""
    declare(monkeypatch, 2)


def declare(monkeypatch: pytest.MonkeyPatch, num_rows: int) -> None:
    """Declare a number of rows for the unsupervised source."""
    small = replace(hub.SOURCES["nomic-unsupervised"], num_rows=num_rows)
    monkeypatch.setattr(hub, "SOURCES", {**hub.SOURCES, "nomic-unsupervised": small})


def write_copy(data_folder: Path, rows: list[dict[str, str]] = ROWS) -> Path:
    """Write a local copy of the unsupervised source, and return its folder."""
    folder = data_folder / "nomic-unsupervised"
    folder.mkdir(exist_ok=True)
    write_rows(folder / "train-00000-of-00001.parquet", rows)
    return folder


def read_source(name: str) -> list[Row]:
    """Return the pairs of a local copy."""
    return [row for file in list_source_files(name) for row in file.read()]


def test_local_copy_is_read(data_folder: Path) -> None:
    """Empty texts are marked as in the authors' loader. Files that a system adds are ignored."""
    folder = write_copy(data_folder)
    for name in ("._train-00000-of-00001.parquet", ".cache/part.jsonl", "__MACOSX/train.parquet"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"a file that a system adds")
    assert [row[1:5] for row in read_source("nomic-unsupervised")] == [
        ("a", "b", "paq", "paq"),
        ("c", EMPTY, "npr", "npr"),
    ]
    (folder / "train-00000-of-00001.parquet").unlink()
    with pytest.raises(ValueError, match="is not in"):
        get_local_copy("nomic-unsupervised")


def test_repeated_rows_are_refused(data_folder: Path) -> None:
    """A second download next to the first would double every pair. The message has both numbers."""
    folder = write_copy(data_folder)
    shutil.copy(folder / "train-00000-of-00001.parquet", folder / "0.parquet")
    for read in (lambda: read_source("nomic-unsupervised"), lambda: fetch("nomic-unsupervised", progress=ignore)):
        with pytest.raises(ValueError, match=r"has 4 rows in 2 files, and 2 are declared"):
            read()
    assert not (folder / hub.CHECKSUMS).exists()


def test_undeclared_domain_is_named_first(data_folder: Path) -> None:
    """The column of domains is read before any pair."""
    write_copy(data_folder, [ROWS[0], ROWS[1] | {"dataset": "wikihow_new"}])
    with pytest.raises(ValueError, match="wikihow_new"):
        list_source_files("nomic-unsupervised")


@pytest.mark.parametrize("name", ["fiqa/part-1.parquet", "fiqa-train-00000-of-00002.parquet"])
def test_domain_follows_file_or_folder(data_folder: Path, name: str) -> None:
    path = data_folder / "bge-full-data" / name
    path.parent.mkdir(parents=True)
    write_rows(path, [{"query": "a", "pos": ["b"], "neg": ["d"]}])
    assert [row.domain for row in read_source("bge-full-data")] == ["fiqa"]


def test_contrastors_layout_is_read(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each data set has a folder of compressed files with counts, and some have other names for folder and columns."""
    rows = {
        "reddit_full": {"title": "a", "body": "b"},
        "amazon_qa_full": {"query": "c", "pos": "d"},
        "npr": {"query": "e", "document": "f"},
    }
    for folder_name, row in rows.items():
        folder = data_folder / "nomic-unsupervised" / folder_name
        folder.mkdir(parents=True)
        with gzip.open(folder / "shard-00000.jsonl.gz", "wt") as file:
            file.write(json.dumps(row) + "\n")
        counts = {f"contrastive/{folder_name}/shard-00000.jsonl.gz": 1}
        (folder / "counts.json").write_text(json.dumps({"count_per_file": counts} if folder_name == "npr" else counts))
    with pytest.raises(ValueError, match="has 3 rows in 3 files, and 2 are declared"):
        list_source_files("nomic-unsupervised")
    declare(monkeypatch, 3)
    domains = [("c", "d", "amazonqa"), ("e", "f", "npr"), ("a", "b", "reddit_title_body")]
    assert [row[1:4] for row in read_source("nomic-unsupervised")] == domains
    (folder / "counts.json").write_text(json.dumps({"shard-00000.jsonl.gz": 2}))
    declare(monkeypatch, 4)
    with pytest.raises(ValueError, match="has 1 rows, and 2 are counted"):
        read_source("nomic-unsupervised")


@pytest.mark.parametrize("num_cores", [1, 2])
def test_parts_of_a_copy_join(num_cores: int, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes depend neither on the number of shards nor on that of processes. A file may be empty."""
    folder = write_copy(data_folder)
    write_rows(folder / "train-00000-of-00003.parquet", [ROWS[0], ROWS[0] | {"query": "x"}])
    pq.write_table(pq.read_table(folder / "train-00000-of-00001.parquet")[:0], folder / "train-00001-of-00003.parquet")
    declare(monkeypatch, 4)
    monkeypatch.setattr(external, "count_usable_cores", lambda: num_cores)
    stage = make_corpus_stage("nomic-unsupervised")
    whole, digests = stage.build(), []
    for number in (None, 2):
        stage = make_corpus_stage("nomic-unsupervised")
        path = whole if number is None else build_from_shards(stage, number)
        digests.append(hash_folder(path)["train.arrow"])
        assert len(set(read_pairs(path / "train.arrow").ids())) == 4
        shutil.rmtree(path)
    assert digests[0] == digests[1]


def test_epochs_are_packed_once(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches of a run on the paper's corpus are a stage. They are those that the run would pack."""
    declare(monkeypatch, 64)
    write_copy(data_folder, [ROWS[number % 2] | {"query": f"query {number}"} for number in range(64)])
    run = base("smoke", corpus="nomic-unsupervised", sampler="cluster", cluster_size=8, batch_size=8, seed=5)
    inputs = Inputs(run)
    inputs.build(ignore)
    stored, packed = build_sampler(inputs), make_batch_sampler(run, inputs.pairs, inputs.clusters)
    assert type(stored) is StoredSampler and len(stored) == len(packed) == 8
    assert stored.dropped_pairs == packed.dropped_pairs
    for step in range(run.num_steps):
        np.testing.assert_array_equal(stored.at(step), packed.at(step))
    assert "order" not in {stage.name for stage in StageGraph(base("desk")).known_stages()}


def test_domains_have_their_own_prompts(data_folder: Path) -> None:
    write_copy(data_folder, [ROWS[0], ROWS[1] | {"document": "d"}])
    fields = {"corpus": "nomic-unsupervised", "num_pairs": None, "suite": "planted", "batch_size": 2}
    with_prompts, plain = base("smoke", **fields, prompts="task"), base("smoke", **fields)
    tokenizer = load_tokenizer("minilm")
    for stage in (*list_stages(with_prompts), *list_stages(plain)):
        stage.build(print)

    def read_ids(run: Run, side: str, text: str) -> list[int]:
        inputs = Inputs(run)
        row = inputs.pairs.texts(side, [0, 1]).index(text)
        return inputs.tokens(side).pad([row])[0][0].tolist()

    for run, side, text, expected in (
        (with_prompts, "query", "a", "search_query: a"),
        (with_prompts, "document", "b", "search_document: b"),
        (with_prompts, "query", "c", "classification: c"),
        (plain, "query", "c", "c"),
    ):
        assert read_ids(run, side, text) == tokenize([expected], tokenizer, run.max_tokens).pad([0])[0][0].tolist()


def test_first_positive_is_taken(data_folder: Path) -> None:
    """A row without a document is refused, with its place."""
    folder = data_folder / "bge-full-data" / "data"
    folder.mkdir(parents=True)
    row = {"query": "a", "pos": ["b", "c"], "neg": ["d", ""], "prompt": "x"}
    write_rows(folder / "fiqa-00000-of-00002.parquet", [row])
    write_rows(folder / "nq.jsonl", [row, {"query": "c"}])
    rows = (row for file in list_source_files("bge-full-data") for row in file.read())
    for domain in ("fiqa", "nq"):
        pair = next(rows)
        assert (pair.document, pair.domain, pair.negatives) == ("b", domain, ("d",))
    with pytest.raises(ValueError, match=r"nq\.jsonl, line 2: no column for"):
        next(rows)


def test_prompts_follow_the_authors() -> None:
    """A supervised set has the same prompts under its name in the data and under that in the authors' configuration."""
    question, document, topic = "search_query: ", "search_document: ", ("clustering: ", "clustering: ")
    of_bge = get_prompts_by_domain("bge-full-data", ["fiqa", "quora", "arXiv_abstract"])
    assert list(of_bge.values()) == [(question, document), (question, question), topic]
    assert len(SOURCES["bge-full-data"].domains) == 33
    for pair in (
        ["msmarco", "msmarco_distillation_simlm_rescored_reranked_min15"],
        ["nli_triplets", "nli_simcse_50negs_fixed"],
    ):
        one, other = get_prompts_by_domain("nomic-supervised", pair).values()
        assert one == other
    assert get_prompts_by_domain("nomic-supervised", ["reddit_triples"])["reddit_triples"] == topic


def test_collection_rules_are_found_by_either_name() -> None:
    assert find_rules("ArguAna").removes_self_hits and find_rules("QuoraRetrieval").asks_on_both_sides
    assert find_rules("MSMARCO").split == "dev" and find_rules("Touche2020").note
    assert find_rules("scifact").split == "test" and not find_rules("scifact").removes_self_hits
    assert all(rules.note for rules in KNOWN_RULES.values())
