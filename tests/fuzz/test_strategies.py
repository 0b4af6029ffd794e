"""Readers of foreign files return what was written, or raise an error that names the file.

hypothesis generates the files. Valid files are compared with their content. Other files must be read or refused.
Each test runs twenty-five examples from a fixed seed. `FUZZ=1 pytest -m fuzz` runs four hundred.
"""

import csv
import json
import math
import os
import string
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro.data.beir import QRELS_HEADER, load_beir
from repro.data.columns import Columns
from repro.data.labels import read_labels, split_by_label
from repro.data.readers import read_foreign_rows
from repro.records.lookup import read_runs
from repro.records.store import read_record, write_record
from repro.spec import FIELDS, Run, base
from repro.spec.identity import run_id
from repro.spec.validation import RANGES

pytestmark = pytest.mark.fuzz
ALL = os.environ.get("FUZZ") == "1"
with_examples = settings(
    max_examples=400 if ALL else 25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
words = st.text(st.sampled_from(string.ascii_letters + string.digits + "_.:-ü"), min_size=1, max_size=8)
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.sampled_from(["\ud800", "1", "nan"]))
anything = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
labels = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*"01", "1e999", 10**400, "１", "yes"])
)
column_names = st.sampled_from(["query", "document", "negatives", "negative_1", "domain", "anchor", "positive", "x"])
pairs = st.lists(st.tuples(texts, texts, st.lists(texts.filter(bool), max_size=3), words), min_size=1, max_size=5)


def read_or_refuse(read: Callable[[], Any], path: Path) -> Any:
    """Return the result of a reader, or None if it raises a short error that names the path."""
    try:
        return read()
    except (ValueError, OSError) as error:
        assert str(path) in str(error), repr(error)
        assert len(str(error)) < 5000 and not isinstance(error, UnicodeError), repr(error)
        return None


def dump(value: Any) -> str:
    """Return JSON with NaN and lone surrogates, as some programs write it."""
    return json.dumps(value)


# ---- pairs


def write_pairs(path: Path, rows: list[Any], end: str) -> None:
    """Write rows of a query, a document, negatives and a domain in the format of the file's ending."""
    names = ("query", "document", "negatives", "domain")
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=len(row[0]) % 2 == 0) for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    elif path.suffix == ".parquet":
        text = pa.string()
        fields = list(zip(names, (text, text, pa.list_(text), text), strict=True))
        rows_by_name = [dict(zip(names, row, strict=True)) for row in rows]
        pq.write_table(pa.Table.from_pylist(rows_by_name, pa.schema(fields)), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            # All fields are quoted. Otherwise Python writes a lone carriage return unchanged, which ends a line.
            writer = csv.writer(file, "unix", lineterminator=end)
            writer.writerow(["domain", "query", "document"])
            writer.writerows([domain, query, document] for query, document, _, domain in rows)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
@with_examples
@given(pairs, st.sampled_from(["\n", "\r\n"]))
def test_pairs_survive_every_format(tmp_path: Path, kind: str, rows: list[Any], end: str) -> None:
    path = tmp_path / f"x.{kind}"
    write_pairs(path, rows, end)
    if kind == "csv":
        rows = [(query, document, [], domain) for query, document, _, domain in rows]
    assert [(row.query, row.document, list(row.negatives), row.domain) for row in read_foreign_rows(path)] == rows


@with_examples
@given(st.lists(anything | st.dictionaries(column_names, anything), max_size=4))
def test_odd_lines_are_texts_or_refused(tmp_path: Path, rows: list[Any]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(dump(row) + "\n" for row in rows))
    for pair in read_or_refuse(lambda: list(read_foreign_rows(path)), path) or ():
        for text in (pair.query, pair.document, pair.domain, *pair.negatives):
            # The text can be stored.
            text.encode()
        row = rows[int(pair.line.rpartition(" ")[2]) - 1]
        assert pair.query in (row.get("query") or row.get("anchor") or "")
        assert (pair.domain == "") == (row.get("domain") in (None, ""))


@with_examples
@given(st.lists(column_names, min_size=1, max_size=4), st.lists(st.lists(texts, max_size=4), max_size=4))
def test_columns_are_never_confused(tmp_path: Path, header: list[str], rows: list[list[str]]) -> None:
    path = tmp_path / "x.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    read = read_or_refuse(lambda: list(read_foreign_rows(path)), path)
    if read:
        assert max(header.count(name) for name in ("query", "document", "domain", "negatives")) == 1
        assert len(read) == len([row for row in rows if row])


@with_examples
@given(st.lists(labels, min_size=1, max_size=6))
def test_odd_labels_mean_themselves(tmp_path: Path, values: list[Any]) -> None:
    """Under a threshold, a number is compared as Python reads it, and everything else is no pair and no negative."""
    path, columns = tmp_path / "x.jsonl", Columns(threshold="1")
    path.write_text("".join(dump({"query": "q", "document": f"d{n}", "label": v}) + "\n" for n, v in enumerate(values)))
    rule = read_or_refuse(lambda: read_labels([path], columns), path)
    if rule is None or isinstance(rule.threshold, frozenset):
        return
    numbers = {f"d{n}": float(v) for n, v in enumerate(values) if isinstance(v, int | float) or v in ("0", "1")}
    for row in split_by_label(read_foreign_rows(path, columns), rule):
        assert row.is_low == (not numbers.get(row.document, math.nan) >= 1)
        assert all(numbers[text] < 1 for text in row.negatives)


# ---- collections


text_lines = st.lists(
    anything | st.fixed_dictionaries({}, optional={"_id": anything, "text": anything, "title": anything}), max_size=3
)


@with_examples
@given(text_lines, text_lines, st.lists(st.lists(plain.map(str), min_size=1, max_size=4), max_size=3))
def test_odd_folders_are_texts_or_refused(
    tmp_path: Path, corpus: list[Any], queries: list[Any], judged: list[list[str]]
) -> None:
    folder = tmp_path / "x"
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(dump(row) + "\n" for row in [{"_id": "d", "text": "a"}, *corpus]))
    (folder / "queries.jsonl").write_text("".join(dump(row) + "\n" for row in [{"_id": "q", "text": "a"}, *queries]))
    lines = ["\t".join(row) for row in [list(QRELS_HEADER), ["q", "d", "1"], *judged]]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
    collection = read_or_refuse(lambda: load_beir(folder), folder)
    if collection is not None:
        for row, text, key in zip(corpus, collection.documents[1:], collection.document_ids[1:], strict=True):
            assert isinstance(row["_id"], str | int) and not isinstance(row["_id"], bool) and key == str(row["_id"])
            assert {"text", "title"} & set(row) and (row.get("text") or "").strip() in text
            text.encode()


# ---- runs and records


numbers = st.dictionaries(st.sampled_from(sorted(RANGES)), st.integers(0, 9) | st.floats(0, 2), max_size=2)
odd_fields = st.dictionaries(st.sampled_from([*FIELDS, "id", "x"]), anything, max_size=3)


@settings(with_examples, max_examples=400 if ALL else 100)
@given(numbers | odd_fields)
def test_run_files_survive(tmp_path: Path, values: dict[str, Any]) -> None:
    path = tmp_path / "x.json"
    path.write_text(dump([{"scale": "smoke", **values}]))
    for run in read_or_refuse(lambda: read_runs(path), path) or ():
        path.write_text(json.dumps([asdict(run)]))
        assert [run_id(again) for again in read_runs(path)] == [run_id(run)]
        fields = {name: value for name, value in values.items() if name in {*FIELDS} - {"scale"}}
        whole = [name for name, value in fields.items() if type(value) is int and "float" in Run.__annotations__[name]]
        floats = {name: float(fields[name]) for name in whole}
        assert run_id(base(run.scale, **(fields | floats))) == run_id(run), "1 and 1.0 give one id"


@with_examples
@given(st.dictionaries(st.sampled_from(["metrics", "provenance", "exhibits", "run", "id", "format", "x"]), anything))
def test_changed_records_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    written = write_record(tmp_path, base("smoke", architecture="bm25"), metrics={"train/loss": 1.5},
                        arrays={"train/loss": np.array([1.0, 2.0])}, provenance={"a": 1})  # fmt: skip
    whole = json.loads(written.path.read_text())
    written.path.write_text(dump(whole | changes))
    if read_or_refuse(lambda: read_record(written.path), written.path) is not None:
        assert dump(whole | changes) == dump(whole)
