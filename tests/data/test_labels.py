"""Labelled rows: which become pairs, which are negatives, and which labels are not read without being asked for."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset

from repro.data.columns import Columns
from repro.data.labels import Labels, parse_label, read_labels, split_by_label
from repro.data.readers import ForeignRow, read_foreign_rows
from tests.data.files import write_rows

ROWS = [
    {"query": f"what is {n // 4}", "document": f"thing number {n}", "label": int(n % 4 == 0)} for n in range(32)
]  # per query one row of label 1, then three of label 0


def divide(*paths: Path, **options: Any) -> tuple[list[ForeignRow], Labels | None]:
    """Read files and return the rows that are pairs, and the rule."""
    columns = Columns(**options)
    labels = read_labels(paths, columns)
    rows = split_by_label((row for path in paths for row in read_foreign_rows(path, columns)), labels)
    return [row for row in rows if not row.is_low], labels


def write_labels(path: Path, labels: list[Any], column: str = "label") -> Path:
    """Write a row per label: query and document n for label n."""
    rows = [{"query": f"q {n}", "document": f"d {n}", column: label} for n, label in enumerate(labels)]
    return write_rows(path, rows)


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("column", ["label", "relevance", "is_positive", "Gold_Label"])
def test_rows_of_label_zero_are_negatives(tmp_path: Path, ending: str, column: str) -> None:
    """8 pairs remain of 32 rows, each with the 3 negatives of its query."""
    rows = [{column if name == "label" else name: value for name, value in row.items()} for row in ROWS]
    pairs, labels = divide(write_rows(tmp_path / f"x{ending}", rows))
    assert [pair.document for pair in pairs] == [f"thing number {n}" for n in range(0, 32, 4)]
    assert [pair.negatives for pair in pairs] == [
        tuple(f"thing number {n + k}" for k in (1, 2, 3)) for n in range(0, 32, 4)
    ]
    assert labels is not None and labels.count_pairs() == 8
    pairs, labels = divide(tmp_path / f"x{ending}", no_labels=True)
    assert len(pairs) == 32 and labels is None


@pytest.mark.parametrize(
    ("column", "labels", "kept"),
    [
        ("label", [-1, 1, -1, 1], [1, 3]),
        ("score", [1, 0, 1, 0], [0, 2]),
        ("label", [True, False, True, None], [0, 2]),
        ("label", ["1", "0", "1.0", "0.0"], [0, 2]),
        ("label", ["Yes", "no", "YES", "No"], [0, 2]),
        ("label", ["relevant", "not relevant", "irrelevant", "non-relevant"], [0]),
    ],
)
def test_clear_labels_need_no_threshold(tmp_path: Path, column: str, labels: list[Any], kept: list[int]) -> None:
    pairs, _ = divide(write_labels(tmp_path / "x.jsonl", labels, column))
    assert [pair.document for pair in pairs] == [f"d {n}" for n in kept]


def test_offered_threshold_selects_the_counted_rows(tmp_path: Path) -> None:
    """A float32 of parquet is the decimal that was stored, and a level is printed with all of its digits."""
    table = pa.table(
        {"query": list("abcd"), "document": list("efgh"), "score": pa.array([0.1, 0.7, 0.7, 0.9], pa.float32())}
    )
    pq.write_table(table, tmp_path / "x.parquet")
    assert len(divide(tmp_path / "x.parquet", threshold="0.7")[0]) == 3
    votes = write_labels(tmp_path / "x.jsonl", [1, 5039123, 5039123, 6000000, 7000000])
    with pytest.raises(ValueError, match=r"--threshold 5039123 \(4 rows"):
        divide(votes)


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        ("label", [1, 2, 3, 4, 5]),  # stars: is 2 a pair?
        ("label", [0, 40, 75, 100]),
        ("relevance", [0, 1, 2, 3]),  # grades
        ("score", [0, 1, 2, 3]),  # votes
        ("score", [0.1, 0.49, 0.5, 0.9]),  # similarities
        ("score", [0, 17, 3, 250]),
        ("rating", [1, 2, 3, 2]),
        ("score", [-7.5, -1.25, 3.5, 9.0]),  # logits
        ("score", [0.3, 1.7, 0.2, 2.4]),  # distances
        ("label", [1, 2, 3, 4, 5, 6]),  # ranks
        ("label", [0, 1, 2]),  # classes, as 0 for entailment and 2 for contradiction
        ("label", [-2, 0, 1, 2]),
        ("label", ["entailment", "neutral", "contradiction"]),
        ("label", ["sports", "politics", "sports"]),
        ("label", ["yes", 1, 0]),
        ("label", ["1_0", "1", "0"]),
        ("label", ["１", "1", "0"]),
        ("label", ["0x1", "1,0"]),
    ],
)
def test_unclear_labels_are_refused(tmp_path: Path, column: str, labels: list[Any]) -> None:
    """The message has the column and answers."""
    path = write_labels(tmp_path / "x.jsonl", labels, column)
    with pytest.raises(ValueError, match=rf"labels in {column}, .*--threshold .*--no-labels \(all {len(labels)}\)"):
        divide(path)
    assert len(divide(path, no_labels=True)[0]) == len(labels)


@pytest.mark.parametrize(
    ("labels", "options", "kept"),
    [
        ([1, 2, 3, 4, 5], {"threshold": "4"}, [3, 4]),
        ([0.1, 3.5, 0.4, 2.0], {"threshold": "0.4", "lower_is_better": True}, [0, 2]),
        (["entailment", "neutral", "contradiction"], {"threshold": "Entailment,neutral"}, [0, 1]),
        (["yes", "no"], {"threshold": "no"}, [1]),
        ([0, 1, 2, 3], {"threshold": "1"}, [1, 2, 3]),  # judgements, as in trec_eval
    ],
)
def test_asked_threshold_decides(tmp_path: Path, labels: list[Any], options: dict[str, Any], kept: list[int]) -> None:
    path = write_labels(tmp_path / "x.jsonl", labels)
    pairs, _ = divide(path, **options)
    assert [pair.document for pair in pairs] == [f"d {n}" for n in kept]


def test_wrong_thresholds_are_refused(tmp_path: Path) -> None:
    path = write_labels(tmp_path / "x.jsonl", ["yes", "no"])
    for threshold in ("maybe", "0.5"):
        with pytest.raises(ValueError, match=f"--threshold {threshold}"):
            divide(path, threshold=threshold)
    with pytest.raises(ValueError, match="lower-is-better"):
        divide(write_labels(tmp_path / "y.jsonl", [0, 1]), lower_is_better=True)
    with pytest.raises(ValueError, match="no labels"):
        divide(write_rows(tmp_path / "z.jsonl", [{"query": "a", "document": "b"}]), threshold="1")
    with pytest.raises(ValueError, match="without labels"):
        Columns(threshold="1", no_labels=True)


@pytest.mark.parametrize(
    "names", ["relevant irrelevant", "similar dissimilar", "pos neg", "yes no", "true false", "match mismatch",
              "duplicate different", "answer distractor", "same other", "ham spam", "entailment not_entailment"],
)  # fmt: skip
@pytest.mark.parametrize("is_reversed", [False, True])
def test_class_names_decide_not_numbers(tmp_path: Path, names: str, is_reversed: bool) -> None:
    """Whatever the order of classes, rows of the positive name are pairs. Unknown names are refused."""
    classes = names.split()[:: -1 if is_reversed else 1]
    rows = [row | {"label": classes.index(names.split()[1 - row["label"]])} for row in ROWS]
    path = tmp_path / "x.parquet"
    Dataset.from_list(rows).cast_column("label", ClassLabel(names=classes)).to_parquet(path)
    if names in ("same other", "ham spam"):
        with pytest.raises(ValueError, match="--threshold"):
            divide(path)
        return
    assert [pair.document for pair in divide(path)[0]] == [f"thing number {n}" for n in range(0, 32, 4)]


def test_unlabelled_rows_are_dropped(tmp_path: Path) -> None:
    """In a file with labels, a row without one is no pair. In a file without labels, every row is one."""
    rows = [{**ROWS[0], "label": None}, *ROWS[1:8], {"query": "q", "document": "d"}]
    paths = (
        write_rows(tmp_path / "a.jsonl", rows),
        write_rows(tmp_path / "b.jsonl", [{"query": "x", "document": "y"}]),
    )
    pairs, _ = divide(*paths)
    assert [pair.document for pair in pairs] == ["thing number 4", "y"]


def test_names_are_no_negatives_under_numbers(tmp_path: Path) -> None:
    """A row labelled "unsure" among grades is neither a pair nor a negative."""
    rows = [{"query": "q", "document": str(label), "label": label} for label in (3, "unsure", 1)]
    (pair,), _ = divide(write_rows(tmp_path / "x.jsonl", rows), threshold="2")
    assert (pair.document, pair.negatives) == ("3", ("1",))


@pytest.mark.parametrize("labels", [[0.5, 2.5, 5.0], [-1, 1], ["yes"]])
def test_files_of_different_scales_are_refused(tmp_path: Path, labels: list[Any]) -> None:
    binary, others = write_labels(tmp_path / "a.jsonl", [0, 1, 1]), write_labels(tmp_path / "b.jsonl", labels)
    with pytest.raises(ValueError, match="--threshold"):
        divide(binary, others)


@pytest.mark.parametrize("value", [float("inf"), "1e999", 10**400, [1], b"1"])
def test_odd_labels_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="the label is"):
        parse_label(value)
