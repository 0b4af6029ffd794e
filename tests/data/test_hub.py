"""The paper's data sources: local copies, domains, prompts and the table of quirks."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from repro.data.paper import hub
from repro.data.paper.hub import BGE, EMPTY, SUPERVISED_NAMES, get_local_copy, get_prompts_by_domain, load_source
from repro.data.paper.local_copies import fetch
from repro.data.paper.quirks import QUIRKS, find_quirks
from repro.data.tokens import load_tokenizer, tokenize
from repro.pipeline.inputs import Inputs
from repro.pipeline.stages import list_stages
from repro.spec import Run, base
from tests.commands import ignore
from tests.data.files import write_rows

ROWS = [{"query": "a", "document": "b", "dataset": "paq"}, {"query": "c", "document": "", "dataset": "npr"}]


@pytest.fixture(autouse=True)
def declare_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare two rows for the unsupervised source."""
    small = replace(hub.SOURCES["nomic-unsupervised"], num_rows=2)
    monkeypatch.setattr(hub, "SOURCES", {**hub.SOURCES, "nomic-unsupervised": small})


def write_copy(data_folder: Path, rows: list[dict[str, str]] = ROWS) -> Path:
    """Write a local copy of the unsupervised source, and return its folder."""
    folder = data_folder / "nomic-unsupervised"
    folder.mkdir(exist_ok=True)
    write_rows(folder / "train-00000-of-00001.parquet", rows)
    return folder


def test_local_copy_is_read(data_folder: Path) -> None:
    """Empty texts are marked as in the authors' loader. Files that a system adds are ignored."""
    folder = write_copy(data_folder)
    for name in ("._train-00000-of-00001.parquet", ".cache/part.jsonl", "__MACOSX/train.parquet"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"a file that a system adds")
    assert [row[1:5] for row in load_source("nomic-unsupervised")] == [
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
    for read in (lambda: next(load_source("nomic-unsupervised")), lambda: fetch("nomic-unsupervised", progress=ignore)):
        with pytest.raises(ValueError, match=r"has 4 rows in 2 files, and 2 are declared"):
            read()
    assert not (folder / hub.CHECKSUMS).exists()


def test_undeclared_domain_is_named_first(data_folder: Path) -> None:
    """The column of domains is read before any pair."""
    write_copy(data_folder, [ROWS[0], ROWS[1] | {"dataset": "wikihow_new"}])
    with pytest.raises(ValueError, match="wikihow_new"):
        next(load_source("nomic-unsupervised"))


@pytest.mark.parametrize("name", ["fiqa/part-1.parquet", "fiqa-train-00000-of-00002.parquet"])
def test_domain_follows_file_or_folder(data_folder: Path, name: str) -> None:
    path = data_folder / "bge-full-data" / name
    path.parent.mkdir(parents=True)
    write_rows(path, [{"query": "a", "pos": ["b"], "neg": ["d"]}])
    assert [row.domain for row in load_source("bge-full-data")] == ["fiqa"]


def test_domains_have_their_own_prompts(data_folder: Path) -> None:
    write_copy(data_folder, [ROWS[0], ROWS[1] | {"document": "d"}])
    fields = {"corpus": "nomic-unsupervised", "num_pairs": None, "suite": "planted"}
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
    rows = load_source("bge-full-data")
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
    assert len(BGE) == 33
    for short, long in SUPERVISED_NAMES.items():
        one, other = get_prompts_by_domain("nomic-supervised", [short, long]).values()
        assert one == other
    assert get_prompts_by_domain("nomic-supervised", ["reddit_triples"])["reddit_triples"] == topic


def test_unknown_domain_has_no_prompts() -> None:
    with pytest.raises(ValueError, match="wild"):
        get_prompts_by_domain("nomic-supervised", ["nq_triples", "wild"])


def test_quirks_are_found_by_either_name() -> None:
    assert find_quirks("ArguAna").removes_self_hits and find_quirks("QuoraRetrieval").asks_on_both_sides
    assert find_quirks("MSMARCO").split == "dev" and find_quirks("Touche2020").says
    assert find_quirks("scifact").split == "test" and not find_quirks("scifact").removes_self_hits
    assert all(quirk.says for quirk in QUIRKS.values())
