"""The paper's data sources: local copies, domains, prompts and the table of quirks."""

from pathlib import Path

import pytest

from repro.data.paper.hub import EMPTY, SOURCES, get_local_copy, get_prompts_by_domain, list_pair_files, load_source
from repro.data.paper.quirks import QUIRKS, find_quirks
from repro.data.tokens import load_tokenizer, tokenize
from repro.pipeline.inputs import Inputs
from repro.pipeline.stages import list_stages
from repro.spec import base
from tests.data.files import write_rows

ROWS = [{"query": "a", "document": "b", "dataset": "paq"}, {"query": "c", "document": "", "dataset": "npr"}]


def write_copy(data_folder: Path, rows: list[dict[str, str]] = ROWS) -> Path:
    """Write a local copy of the unsupervised source, and return its folder."""
    folder = data_folder / "nomic_embed_unsupervised"
    folder.mkdir(exist_ok=True)
    write_rows(folder / "train-00000-of-00001.parquet", rows)
    return folder


def test_domains_match_table_5() -> None:
    domains = SOURCES["nomic-unsupervised"].domains
    assert len(domains) == 29
    assert sum(domain.num_rows for domain in domains.values()) == 234_553_344
    assert all(domain.num_rows % 16_384 == 0 for domain in domains.values())


def test_absent_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"about 300 GB.*hf download nomic-ai/nomic_embed_unsupervised --repo-type"):
        get_local_copy("nomic-unsupervised", tmp_path)
    with pytest.raises(ValueError, match="bge-full-data"):
        get_local_copy("laion", tmp_path)


def test_local_copy_is_read(tmp_path: Path) -> None:
    write_copy(tmp_path)
    assert [row[1:5] for row in load_source("nomic-unsupervised", tmp_path)] == [
        ("a", "b", "paq", "paq"),
        ("c", EMPTY, "npr", "npr"),
    ]


def test_hidden_files_are_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "nomic_embed_unsupervised"
    for name in ("._train-00000-of-00001.parquet", ".cache/part.jsonl", "__MACOSX/train.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"a file that a system adds")
    with pytest.raises(ValueError, match="is not in"):
        get_local_copy("nomic-unsupervised", tmp_path)
    write_copy(tmp_path)
    assert [path.name for path in list_pair_files(folder)] == ["train-00000-of-00001.parquet"]
    assert [row.query for row in load_source("nomic-unsupervised", tmp_path)] == ["a", "c"]


def test_domains_have_their_own_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    write_copy(tmp_path, [ROWS[0], ROWS[1] | {"document": "d"}])
    fields = {"corpus": "nomic-unsupervised", "num_pairs": None, "suite": "planted"}
    run, tokenizer = base("smoke", **fields, prompts="task"), load_tokenizer("minilm")
    for stage in (*list_stages(run), *list_stages(base("smoke", **fields))):
        stage.build(print)
    own, plain = Inputs(run), Inputs(base("smoke", **fields))
    place_of = {text: place for place, text in enumerate(own.pairs.texts("query", [0, 1]))}

    def read_ids(inputs: Inputs, side: str, place: int) -> list[int]:
        return inputs.tokens(side).pad([place])[0][0].tolist()

    def tokenize_alone(text: str) -> list[int]:
        return tokenize([text], tokenizer, run.max_tokens).pad([0])[0][0].tolist()

    assert read_ids(own, "query", place_of["a"]) == tokenize_alone("search_query: a")
    assert read_ids(own, "document", place_of["a"]) == tokenize_alone("search_document: b")
    assert read_ids(own, "query", place_of["c"]) == tokenize_alone("classification: c")
    assert read_ids(plain, "query", place_of["c"]) == tokenize_alone("c")


def test_first_positive_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "bge-full-data" / "data"
    folder.mkdir(parents=True)
    row = {"query": "a", "pos": ["b", "c"], "neg": ["d", ""], "prompt": "x"}
    write_rows(folder / "fiqa-00000-of-00002.parquet", [row])
    write_rows(folder / "nq.jsonl", [row])
    found = list(load_source("bge-full-data", tmp_path))
    assert [(one.document, one.domain, one.negatives) for one in found] == [("b", "fiqa", ("d",)), ("b", "nq", ("d",))]
    assert get_prompts_by_domain("bge-full-data", ["fiqa", "nq"]) == {}  # the run's own prompts apply to all domains


def test_row_without_document_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bge-full-data"
    folder.mkdir()
    write_rows(folder / "paq.jsonl", [{"query": "a", "pos": ["b"]}, {"query": "c"}])
    rows = load_source("bge-full-data", tmp_path)
    assert next(rows).document == "b"
    with pytest.raises(ValueError, match=r"paq\.jsonl, line 2: no column for the document"):
        next(rows)


def test_unknown_domain_has_no_prompts(tmp_path: Path) -> None:
    folder = tmp_path / "nomic_embed_supervised"
    folder.mkdir()
    write_rows(folder / "x.jsonl", [{"query": "a", "document": "b", "negative": ["c"], "dataset": "wild"}])
    assert next(load_source("nomic-supervised", tmp_path)).negatives == ("c",)
    with pytest.raises(ValueError, match="wild"):
        get_prompts_by_domain("nomic-supervised", ["nq", "wild"])


def test_quirks_are_found_by_either_name() -> None:
    assert find_quirks("ArguAna").removes_self_hits and find_quirks("QuoraRetrieval").asks_on_both_sides
    assert find_quirks("MSMARCO").split == "dev" and find_quirks("Touche2020").says
    assert find_quirks("scifact").split == "test" and not find_quirks("scifact").removes_self_hits
    assert all(quirk.says for quirk in QUIRKS.values())
