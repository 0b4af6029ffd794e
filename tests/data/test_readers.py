"""Readers of users' files: every format gives the same pairs, no text is changed, and malformed rows are refused."""

import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Value

from repro.data.beir import load_beir, write_beir_folder
from repro.data.columns import Columns
from repro.data.folders import list_pair_files
from repro.data.readers import ForeignRow, explain_unread, read_beir_pairs, read_foreign_rows
from tests.data.files import make_judged, write_rows

ODD_TEXTS = ["null", "NA", "None", "nan", "007", "7.0", "2024-01-02", "true", "1e5", " x ", '"', "a,b;c\td", "1_0", "#"]
"""Texts that other readers turn into missing values, numbers or dates."""


def read(path: Path, **names: str) -> list[ForeignRow]:
    """Read a file with these columns."""
    return list(read_foreign_rows(path, Columns(names)))


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_texts_are_not_changed(tmp_path: Path, ending: str) -> None:
    """Neither values that look like numbers, nor lines within texts, nor leading zeros of a domain."""
    texts = [*ODD_TEXTS, "two\nlines", "ü€\U0001f600\u2028x"]
    rows = [{"query": f"{text}?", "document": text, "domain": "007"} for text in texts]
    pairs = read(write_rows(tmp_path / f"x{ending}", rows))
    assert [(pair.document, pair.domain) for pair in pairs] == [(text, "007") for text in texts]


def test_quotes_are_letters_in_tsv(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text('query\tdocument\n"a" b\t5" screen\n')
    assert read(tmp_path / "x.tsv")[0][:2] == ('"a" b', '5" screen')


@pytest.mark.parametrize("codec", ["gz", "zstd"])
@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "X.TSV"])
def test_compressed_files_are_read(tmp_path: Path, name: str, codec: str) -> None:
    """With a byte-order mark, as some programs write it."""
    write_rows(tmp_path / name.lower(), [{"query": "a", "document": "b"}])
    data = b"\xef\xbb\xbf" + (tmp_path / name.lower()).read_bytes()
    path = tmp_path / f"{name}.{'gz' if codec == 'gz' else 'zst'}"
    path.write_bytes(gzip.compress(data) if codec == "gz" else pa.compress(data, codec=codec, asbytes=True))
    assert read(path)[0][:2] == ("a", "b")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=path.name):
        read(path)


def test_replaced_file_is_read_again(tmp_path: Path) -> None:
    """A file that is replaced with the same time and size has new rows."""
    for ending in (".jsonl", ".parquet"):
        path = write_rows(tmp_path / f"x{ending}", [{"query": "a", "document": "b"}])
        times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
        assert read(path)[0].document == "b"
        os.utime(write_rows(path, [{"query": "a", "document": "c"}]), ns=times)
        assert read(path)[0].document == "c"


def test_late_columns_are_read(tmp_path: Path) -> None:
    """Optional columns may begin in any row of a jsonl file. A side of the pair must be the same column in all rows."""
    rows: list[dict[str, Any]] = [{"query": "a", "document": "b"}] * 3
    rows.append({"query": "a", "document": "c", "negative_1": "d", "negative_2": None, "domain": 10**30, "label": 1})
    pair = read(write_rows(tmp_path / "x.jsonl", rows))[-1]
    assert (pair.negatives, pair.domain, pair.label) == (("d",), str(10**30), 1)
    for last in ({"query": "a", "text": "b"}, {"query": "a"}):
        with pytest.raises(ValueError, match=r"x\.jsonl, line 5: "):
            read(write_rows(tmp_path / "x.jsonl", [*rows, last]))


def test_domains_have_one_form(tmp_path: Path) -> None:
    """7, 7.0 and "7" are one domain: a missing value turns the integers of a column into floats. "07" is another."""
    values: list[Any] = [7, 7.0, "7", "7.0", "07", None, math.nan]
    rows = [{"query": "q", "document": "d", "domain": value} for value in values]
    domains = [pair.domain for pair in read(write_rows(tmp_path / "a.jsonl", rows))]
    assert domains == ["7", "7", "7", "7", "07", "", ""]
    assert [pair.domain for pair in read(write_rows(tmp_path / "b.parquet", [rows[1], rows[5]]))] == ["7", ""]


def test_lists_give_several_pairs(tmp_path: Path) -> None:
    """Each text of a list that is not empty gives a pair with the same negatives. Two lists are refused."""
    rows: list[dict[str, Any]] = [{"query": "x", "pos": ["", "a", None, "b"], "neg": ["n", "", "m"]}]
    first = [("x", "a", ("n", "m")), ("x", "b", ("n", "m"))]
    assert [pair[:3] for pair in read(write_rows(tmp_path / "x.parquet", rows))] == first
    pairs = read(write_rows(tmp_path / "x.jsonl", [*rows, {"query": ["u", "v"], "pos": "c", "neg": []}]))
    assert [pair[:3] for pair in pairs] == [*first, ("u", "c", ()), ("v", "c", ())]
    assert [pair.is_further for pair in pairs] == [False, True, False, True]
    with pytest.raises(ValueError, match="2 queries and 2 documents"):
        read(write_rows(tmp_path / "x.jsonl", [{"query": ["a", "b"], "document": ["c", "d"]}]))


def test_classes_have_their_names(tmp_path: Path) -> None:
    """`datasets` stores a class as a number, and a missing one as -1."""
    rows = [{"query": "a", "document": "b", "label": n, "domain": n} for n in (1, 0, -1)]
    dataset = Dataset.from_list(rows).cast_column("label", ClassLabel(names=["no", "yes"]))
    dataset.cast_column("domain", ClassLabel(names=["x", "y"])).to_parquet(tmp_path / "x.parquet")
    dataset.cast_column("domain", ClassLabel(names=["x", "y"])).save_to_disk(tmp_path / "saved")
    for path in (tmp_path / "x.parquet", tmp_path / "saved"):
        assert [(pair.label, pair.domain) for pair in read(path)] == [("yes", "y"), ("no", "x"), (None, "")]
    table = pq.read_table(tmp_path / "x.parquet")
    pq.write_table(table.set_column(2, table.schema.field(2), [[1, 0, 2]]), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="number 2"):
        read(tmp_path / "x.parquet")


def test_saved_datasets_are_read(tmp_path: Path) -> None:
    """In order, without the caches that the library leaves there. Of several splits, only "train" is read."""
    dataset = Dataset.from_list([{"query": f"q {n}", "document": "d", "vector": [0.5]} for n in range(8)])
    dataset = dataset.cast_column("document", Value("large_string"))
    dataset.save_to_disk(tmp_path / "one", num_shards=2)
    DatasetDict({"train": dataset, "test": dataset.select([0])}).save_to_disk(tmp_path / "splits")
    DatasetDict({"dev": dataset}).save_to_disk(tmp_path / "untrained")
    (tmp_path / "one" / "cache-1.arrow").write_bytes(b"no rows")
    for name in ("one", "splits"):
        assert [pair.query for pair in read(tmp_path / name)] == [f"q {n}" for n in range(8)]
    with pytest.raises(ValueError, match=r"'dev'"):
        read(tmp_path / "untrained")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        # the ends of the first texts, of which one is far behind the end of all
        ("data-00000-of-00001.arrow", np.int32([0, 3, 6, 9]).tobytes(), np.int32([0, 3, 2**30, 9]).tobytes()),
        ("state.json", b"_format_columns", b"_farmat_columns"),
    ],
)
def test_damaged_datasets_are_refused(tmp_path: Path, file: str, old: bytes, new: bytes) -> None:
    """Otherwise the process would end, or read other text."""
    Dataset.from_list([{"query": f"q {n}", "document": "d"} for n in range(8)]).save_to_disk(tmp_path / "x")
    data = (tmp_path / "x" / file).read_bytes()
    assert old in data
    (tmp_path / "x" / file).write_bytes(data.replace(old, new))
    with pytest.raises(ValueError, match=str(tmp_path / "x")):
        read(tmp_path / "x")


@pytest.mark.parametrize("header", ["Query, Document ", " query ,DOCUMENT", "ANCHOR,Positive", "query;document"])
def test_headers_are_matched(tmp_path: Path, header: str) -> None:
    """Names ignore case and spaces. A table without a comma in its header may have semicolons."""
    separator = ";" if ";" in header else ","
    (tmp_path / "a.csv").write_text(f"{header}\nwhy{separator}because\n")
    assert read(tmp_path / "a.csv")[0][:2] == ("why", "because")


def test_columns_may_be_named(tmp_path: Path) -> None:
    """A column that is named for one part is not one of another part."""
    row = {"source": "a", "target": "b", "negative_1": "c", "negative_2": "", "y": "1"}
    path = write_rows(tmp_path / "x.csv", [row])
    (pair,) = read(path, query="source", document="target")
    assert pair[:4] == ("a", "b", ("c",), "")
    (pair,) = read(path, query="source", document="target", negatives="negative_2")
    assert pair.negatives == ()
    with pytest.raises(ValueError, match="subject"):
        read(path, query="source", document="target", domain="subject")
    with pytest.raises(ValueError, match="several of"):
        Columns({"query": "text", "document": "text"})


GOOD = b'{"query": "a", "document": "b"}\n'
MALFORMED = [
    ("x.jsonl", GOOD + b'{"query": \n', "line 2: no JSON"),
    ("x.jsonl", b'{"query": "a", "query": "c", "document": "b"}\n', "line 1: .*'query' occurs twice"),
    ("x.jsonl", GOOD + b'{"query": "\xff", "document": "b"}', "line 2: .*UTF-8"),
    ("x.jsonl", b'{"query": "\\udc00b", "document": "b"}\n', "line 1"),  # half of a surrogate pair
    ("x.jsonl", b'{"query": "a", "document": ' + b"9" * 5000 + b"}\n", "line 1"),
    ("x.jsonl", GOOD[:-2] + b', "domain": true}\n', "line 1: the domain"),
    ("x.jsonl", GOOD[:-2] + b', "domain": 9007199254740993.0}\n', "line 1: the domain"),
    ("x.jsonl", b'{"query": 5, "document": "a"}\n', "line 1: .*found 5"),
    ("x.jsonl", b'{"_id": "1", "text": "a"}\n', "line 1: .*--query COLUMN.* BEIR folder"),
    ("x.tsv", b'query\tdocument\na\t"two\nlines"\n', r"line 3: 1 cells, the header has 2"),
    ("x.tsv", b"query;document\nx;y\n", r"line 2: no column .*tabs in a \.tsv"),
    ("x.csv", b"query,document\na,b,c\n", "line 2: 3 cells"),
    ("x.csv", b"query;document\na\n", "line 2: 1 cells"),
    ("x.csv", b"query,document,negatives\na,b,\"['c', 'd']\"\n", "line 2: .*list is written as text"),
    ("x.csv", b"query,pos\na,\"['c', 'd']\"\n", "line 2: .*list is written as text"),
    ("x.csv", b'query,document\n"say \\"hi\\" to","the, answer"\n', "line 1: "),
    ("x.csv", b"query,document,query\na,b,c\n", "line 1: .*twice"),
    ("x.csv", "query,document\nx,caf\xe9\n".encode("latin-1"), "line 1: .*utf-8"),
]
"""Malformed files, and the place or remedy in the error."""


@pytest.mark.parametrize(("name", "content", "message"), MALFORMED)
def test_malformed_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)


def test_repeated_parquet_columns_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["query", "document", "query"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="twice"):
        read(tmp_path / "x.parquet")


def test_only_train_is_read_of_splits(tmp_path: Path) -> None:
    """A folder of the hub has a file per split. Hidden files are ignored, and others are named."""
    names = ("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl.gz", "test-00000-of-00001.jsonl", "trained.csv")
    others = ("evaluation.csv", "nq-test.jsonl", "pairs_dev.jsonl", "testing.csv")
    for name in (*names, *others, "README.md", "._trained.csv", "__MACOSX"):
        (tmp_path / name).touch()
    assert [path.name for path in list_pair_files(tmp_path)] == [*names[:2], names[3]]
    (line,) = explain_unread(tmp_path, list_pair_files(tmp_path))
    assert line.endswith(
        "README.md, evaluation.csv, nq-test.jsonl, pairs_dev.jsonl, test-00000-of-00001.jsonl, testing.csv"
    )
    for name in names[:2]:
        (tmp_path / name).unlink()
    assert [path.name for path in list_pair_files(tmp_path)] == ["trained.csv"], "test files are never trained on"
    (tmp_path / "trained.csv").unlink()
    with pytest.raises(ValueError, match="other splits"):
        list_pair_files(tmp_path)


def test_beir_pairs_match_evaluation(tmp_path: Path) -> None:
    """Titles and texts are joined as in an evaluation. Judgements below the threshold are low."""
    write_beir_folder(tmp_path, make_judged(4), "train")
    rows = [
        {"_id": "d0", "title": "a title", "text": None},
        *({"_id": f"d{n}", "text": f"text {n}"} for n in range(1, 4)),
    ]
    write_rows(tmp_path / "corpus.jsonl", rows)
    collection = load_beir(tmp_path, "train")
    expected = list(zip(collection.queries, collection.documents, strict=True))
    assert [(pair.query, pair.document) for pair in read_beir_pairs(tmp_path, 1)] == expected
    with (tmp_path / "qrels" / "train.tsv").open("a") as file:
        file.write("q0\td1\t2\nq0\td2\t0\n")
    assert [pair.is_low for pair in read_beir_pairs(tmp_path, 2)] == [True] * 5 + [False]
    write_rows(tmp_path / "corpus.jsonl", [*rows, json.loads('{"_id": "d0", "text": "another"}')])
    with pytest.raises(ValueError, match=r"line 5: the id 'd0' occurs twice"):
        list(read_beir_pairs(tmp_path, 1))
    with (tmp_path / "qrels" / "train.tsv").open("a") as file:
        file.write("q0\td1\t1\n")
    with pytest.raises(ValueError, match="judged 2 before, and 1"):
        list(read_beir_pairs(tmp_path, 1))
