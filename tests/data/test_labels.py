"""Labelled rows, domains and malformed rows: which become pairs, which are dropped, and that all are counted."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from repro.data.columns import Columns
from repro.data.own.importing import Imported, import_corpus
from repro.data.pairs import read_pairs
from repro.data.readers import read_foreign_rows
from tests.commands import run_command
from tests.data.files import write_rows

ROWS = [
    {"query": f"what is {n // 4}", "document": f"thing number {n}", "label": int(n % 4 == 0)} for n in range(32)
]  # per query one row of label 1, then three of label 0
DROPPED = ("low_label", "used_as_negatives", "unlabelled", "malformed", "empty", "repeated_pair", "evaluated")


def import_rows(tmp_path: Path, source: Path, **options: Any) -> tuple[Imported, list[str], list[list[str]]]:
    """Import a file, check that every row is counted, and return the import, its documents and its negatives."""
    imported = import_corpus(source, tmp_path / "out", name="mine", **options)
    pairs = read_pairs(imported.folder / "pairs.arrow")
    rows = range(len(pairs))
    assert imported.num_read == imported.num_kept + sum(imported.counts.get(name, 0) for name in DROPPED)
    return imported, pairs.texts("document", rows), pairs.negatives(rows)


def rename_label(name: str) -> list[dict[str, Any]]:
    """Return the rows with another name of the column of labels."""
    return [{name if column == "label" else column: value for column, value in row.items()} for row in ROWS]


@pytest.mark.parametrize(
    ("ending", "column"),
    [(".jsonl", "label"), (".csv", "relevance"), (".parquet", "score"), (".jsonl", "is_positive"), (".csv", "label")],
)
def test_rows_of_label_zero_are_negatives(tmp_path: Path, ending: str, column: str) -> None:
    """Rows of label 0 are no pairs but negatives: 8 pairs remain of 32 rows, each with the 3 negatives of its query."""
    source = write_rows(tmp_path / f"rows{ending}", rename_label(column))
    imported, documents, negatives = import_rows(tmp_path, source)
    assert documents == [f"thing number {n}" for n in range(0, 32, 4)]
    assert negatives == [[f"thing number {n + k}" for k in (1, 2, 3)] for n in range(0, 32, 4)]
    assert (imported.counts["used_as_negatives"], imported.counts.get("low_label", 0)) == (24, 0)


@pytest.mark.parametrize(
    ("labels", "threshold", "kept"),
    [
        ([0, 1, 2, 3], None, [1, 2, 3]),  # whole numbers: from 1 on, as in trec_eval
        ([-1, 1, -1, 1], None, [1, 3]),
        ([0.1, 0.49, 0.5, 0.9], None, [2, 3]),  # up to 1: the upper half
        ([0.5, 2.0, 2.6, 5.0], None, [2, 3]),  # longer scales: the upper half
        ([0, 1, 2, 3], 2.0, [2, 3]),
        ([True, False, True, False], None, [0, 2]),
        (["1", "0", "1.0", "0.0"], None, [0, 2]),
        ([1, 2, 3, 4, 5], None, [0, 1, 2, 3, 4]),
        ([1, 2, 3, 4, 5], 4.0, [3, 4]),
    ],
)
def test_graded_labels_have_a_threshold(
    tmp_path: Path, labels: list[Any], threshold: float | None, kept: list[int]
) -> None:
    """If no label is below the default threshold, the audit says so."""
    rows = [{"query": f"q {n}", "document": f"d {n}", "score": label} for n, label in enumerate(labels)]
    source = write_rows(tmp_path / "rows.jsonl", rows)
    imported, documents, _ = import_rows(tmp_path, source, columns=Columns(threshold=threshold))
    assert documents == [f"d {n}" for n in kept]
    assert imported.counts.get("low_label", 0) == len(labels) - len(kept)
    assert ("no label is below" in imported.labels) == (len(kept) == len(labels))


@pytest.mark.parametrize(("ending", "name"), [(".jsonl", "y"), (".csv", "y"), (".parquet", "y"), (".jsonl", "güte")])
def test_unread_columns_are_named(tmp_path: Path, ending: str, name: str) -> None:
    """A column that may contain labels is listed, and --label reads it. JSON escapes "güte" as "g\\u00fcte"."""
    source = write_rows(tmp_path / f"rows{ending}", rename_label(name))
    assert name.isascii() or b"\\u00fc" in source.read_bytes()
    imported, documents, _ = import_rows(tmp_path, source)
    assert len(documents) == 32 and imported.columns[0].endswith(f"; not read: {name}")
    imported, documents, _ = import_rows(tmp_path / "named", source, columns=Columns({"label": name}))
    assert len(documents) == 8 and imported.counts["used_as_negatives"] == 24
    assert "not read" not in imported.columns[0]


@pytest.mark.parametrize("label", ["1_0", "1,0", "0x1", "one"])
def test_odd_labels_are_no_numbers(tmp_path: Path, label: str) -> None:
    """Python reads "1_0" as ten. If no row is left, the error quotes the first label."""
    rows = [{"query": f"q {n}", "document": f"d {n}", "label": text} for n, text in enumerate(["1", label, "0"])]
    imported, documents, _ = import_rows(tmp_path, write_rows(tmp_path / "rows.jsonl", rows))
    assert (documents, imported.counts["malformed"]) == (["d 0"], 1)
    with pytest.raises(ValueError, match=rf"1 of 1 rows are not pairs; .*{label}"):
        import_rows(tmp_path / "odd", write_rows(tmp_path / "odd.csv", rows[1:2]))


def test_word_labels_need_a_decision(tmp_path: Path) -> None:
    """A column "label" of topics is refused with a hint at --no-labels, which imports every row."""
    source = write_rows(tmp_path / "rows.jsonl", [{**row, "label": "sports"} for row in ROWS])
    with pytest.raises(ValueError, match=r"'sports'.*--no-labels"):
        import_rows(tmp_path, source)
    imported, documents, _ = import_rows(tmp_path, source, columns=Columns(no_labels=True))
    assert (len(documents), imported.labels) == (32, "")
    with pytest.raises(ValueError, match="without labels"):
        Columns({"label": "label"}, no_labels=True)


def test_unsorted_labels_are_explained(tmp_path: Path) -> None:
    """Rows with low labels become negatives only next to their pair. The output names the remedy."""
    rows = [{"query": f"query {n % 200}", "document": f"document {n}", "label": int(n < 200)} for n in range(400)]
    path, low = tmp_path / "x.jsonl", "200 rows whose label is below the threshold"
    text = run_command("data", "import", str(write_rows(path, rows)), "--name", "mine", "--scale", "smoke")
    assert f"{low}, left out. If a file is sorted by query" in text
    rows.sort(key=lambda row: row["query"])
    text = run_command("data", "import", str(write_rows(path, rows)), "--name", "other", "--scale", "smoke")
    assert "sorted by query" not in text and f"{low}: negatives" in text


def test_unlabelled_rows_are_dropped(tmp_path: Path) -> None:
    """In a file with labels, a row without one is no pair. In a file without labels, every row is one."""
    folder = tmp_path / "rows"
    folder.mkdir()
    write_rows(folder / "a.jsonl", [{**ROWS[0], "label": None}, *ROWS[1:8], {"query": "q", "document": "d"}])
    write_rows(folder / "b.jsonl", [{"query": "other", "document": "document"}])
    imported, documents, _ = import_rows(tmp_path, folder)
    assert documents == ["thing number 4", "document"]
    assert imported.counts["unlabelled"] == 2


def test_low_training_grades_are_counted(tmp_path: Path) -> None:
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    write_rows(tmp_path / "beir" / "corpus.jsonl", [{"_id": f"d{n}", "text": f"text {n}"} for n in range(4)])
    write_rows(tmp_path / "beir" / "queries.jsonl", [{"_id": "q", "text": "query"}])
    lines = [f"q\td{n}\t{grade}" for n, grade in enumerate((1, 0, -2, 2))]
    (tmp_path / "beir" / "qrels" / "train.tsv").write_text("\n".join(lines) + "\n")
    imported, documents, _ = import_rows(tmp_path, tmp_path / "beir")
    assert (documents, imported.counts["low_label"]) == (["text 0", "text 3"], 2)


def test_domains_have_one_form(tmp_path: Path) -> None:
    """1, 1.0, "1" and "1.0" are one domain: a missing value turns the integers of a column into floats."""
    folder = tmp_path / "rows"
    folder.mkdir()
    rows = [{"query": f"q {n}", "document": f"d {n}", "domain": n % 4} for n in range(8)]
    write_rows(folder / "a.jsonl", [*rows, {"query": "e", "document": "e", "domain": ""}])
    floats = [{**row, "query": "a", "domain": float(row["domain"]) if n else None} for n, row in enumerate(rows)]
    write_rows(folder / "b.parquet", floats)
    write_rows(folder / "c.csv", [{**row, "query": "b"} for row in floats])
    write_rows(folder / "d.parquet", [{**row, "query": "c", "domain": row["domain"] or math.nan} for row in floats])
    imported = import_corpus(folder, tmp_path / "out", name="mine")
    assert read_pairs(imported.folder / "pairs.arrow").domain_names == ("0", "1", "2", "3", "mine")


def test_one_null_negative_loses_no_row(tmp_path: Path) -> None:
    rows = [{"query": "q", "document": "d", "negatives": ["a", None, "b"]}]
    for ending in (".jsonl", ".parquet"):
        (pair,) = read_foreign_rows(write_rows(tmp_path / f"rows{ending}", rows))
        assert (pair.flaw, [text for text in pair.negatives if text]) == ("", ["a", "b"])
    imported, _, negatives = import_rows(tmp_path, tmp_path / "rows.jsonl")
    assert (negatives, imported.counts["negatives_taken_out"]) == ([["a", "b"]], 1)


@pytest.mark.parametrize(
    ("name", "content", "num_bad"),
    [
        ("a.jsonl", b'{"query": "q", "document": "d"}\n{"query": \n"\xff"\n[1]\n{"query": 1, "document": "d"}\n', 4),
        ("a.csv", b'query,document\nq,d\none\n"a"b,"c"\n\xff,d\n', 3),
        ("a.tsv", b"query\tdocument\nq\td\na\tb\tc\n", 1),
    ],
)
def test_bad_rows_are_skipped_and_counted(tmp_path: Path, name: str, content: bytes, num_bad: int) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"line [235]|4 of 5"):
        import_rows(tmp_path, tmp_path / name)
    imported, documents, _ = import_rows(tmp_path, tmp_path / name, skip_bad=True)
    assert (documents, imported.counts["malformed"], len(imported.malformed)) == (["d"], num_bad, min(3, num_bad))


def test_unknown_scripts_are_refused_or_allowed(tmp_path: Path) -> None:
    """All tokens of Thai texts are unknown. The import is refused, and --allow-unknown permits it."""
    rows = [{"query": "กขคง " * (n % 19 + 1), "document": "จฉชซ " * (n // 19 + 1)} for n in range(300)]
    words = ["data", "import", str(write_rows(tmp_path / "x.jsonl", rows)), "--name", "thai", "--scale", "smoke"]
    with pytest.raises(ValueError, match="--allow-unknown"):
        run_command(*words)
    texts = json.loads(run_command(*words, "--allow-unknown", "--json"))["texts"]
    assert texts["unknown_share"] == 1.0 and texts["num_cut"] > 0


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_words_for_missing_values_stay_texts(tmp_path: Path, ending: str) -> None:
    """Other readers treat "null" or "NA" in a csv as missing. Here they are texts."""
    words = ["null", "NA", "None", "nan", "N/A"]
    source = write_rows(tmp_path / f"rows{ending}", [{"query": f"{word}?", "document": word} for word in words])
    assert [row.document for row in read_foreign_rows(source)] == words
