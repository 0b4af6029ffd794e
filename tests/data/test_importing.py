"""Importing: all formats give the same pairs, malformed rows are named and counted, no import stays half done."""

import hashlib
import io
import json
import re
import tarfile
import unicodedata
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, load_from_disk

from repro.data import pairs as pairs_module
from repro.data import readers
from repro.data.beir import Retrieval, load_beir
from repro.data.columns import Columns
from repro.data.lines import MAX_LINE_BYTES
from repro.data.own import importing
from repro.data.own.importing import Imported, import_corpus, load_import
from repro.data.pairs import Pairs, Row, read_pairs, write_pairs
from repro.data.readers import read_foreign_rows
from repro.data.wording import normalize_loosely
from tests.data.files import write_rows

ROWS = [
    {"query": f"what is thing {n}", "document": f"thing {n} is, of all\nthings, number {n}", "domain": "ab"[n % 2]}
    for n in range(8)
]


def import_file(tmp_path: Path, source: Path, **options: Any) -> Imported:
    """Import a file into the folder `out`."""
    return import_corpus(source, tmp_path / "out", name="mine", **options)


def assert_refused(tmp_path: Path, source: Path, message: str, **options: Any) -> None:
    """Check that an import raises a message of one line and leaves no files."""
    with pytest.raises(ValueError, match=message) as caught:
        import_file(tmp_path, source, **options)
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.name == "out" or path.name.endswith(".part")]


def read_imported(imported: Imported) -> Pairs:
    """Open the pairs of an import."""
    return read_pairs(imported.folder / "pairs.arrow")


def test_lists_in_a_table_are_refused(tmp_path: Path) -> None:
    """pandas writes a list into a csv as one text with brackets. A single such text may be meant."""
    rows: list[dict[str, Any]] = [{"query": f"query {n}", "document": [f"one {n}", "it's two"]} for n in range(3)]
    with pytest.raises(ValueError, match=r"pairs\.csv, line 2: 3 of 3 cells of the document are a list.*\.jsonl"):
        import_file(tmp_path, write_rows(tmp_path / "pairs.csv", rows))
    # rows without negatives do not count
    negatives: list[Any] = [["one", "two"], "", "", ""]
    mined = [{"query": f"q {n}", "document": f"d {n}", "negatives": texts} for n, texts in enumerate(negatives)]
    with pytest.raises(ValueError, match="1 of 1 cells of the negatives are a list"):
        import_file(tmp_path, write_rows(tmp_path / "negatives.csv", mined))
    rows[1:] = [{"query": "[1]", "document": "[sic] a text"}, {"query": "three", "document": "four"}]
    imported = import_file(tmp_path, write_rows(tmp_path / "few.csv", rows))
    assert read_imported(imported).texts("document", [0]) == ["['one 0', \"it's two\"]"]


def test_tsv_with_quoted_cells_is_refused(tmp_path: Path) -> None:
    """The quotes that a csv writer adds would be part of the texts. If one quote is a letter, all are."""
    rows = [{"query": "one", "document": "plain"}, {"query": "two", "document": 'a "quoted" word'}]
    path = write_rows(tmp_path / "pairs.tsv", rows)
    with pytest.raises(ValueError, match=r"pairs\.tsv, line 3: cells are quoted as in a csv.*QUOTE_ALL"):
        import_file(tmp_path, path)
    with path.open("a") as file:
        file.write('three\ta 5" screen\n')
    pairs = read_imported(import_file(tmp_path, path))
    assert pairs.texts("document", range(3))[1:] == ['"a ""quoted"" word"', 'a 5" screen']


@pytest.mark.parametrize("content", ['{"name": "mi', "[1]", '{"unknown": 1}'])
def test_damaged_audit_is_named(tmp_path: Path, content: str) -> None:
    imported = import_file(tmp_path, write_rows(tmp_path / "pairs.jsonl", ROWS))
    (imported.folder / "audit.json").write_text(content)
    with pytest.raises(ValueError, match=r"audit\.json"):
        load_import(imported.folder)


def test_columns_may_be_named(tmp_path: Path) -> None:
    rows = [{"anchor": "i", "pos": ["j"]}, {"anchor": "a b", "pos": ["c d", "e f"], "neg": ["g h"], "prompt": "x"}]
    pairs = read_imported(import_file(tmp_path, write_rows(tmp_path / "bge.jsonl", rows)))
    assert pairs.texts("document", range(2)) == ["j", "c d"]
    assert pairs.negatives(range(2)) == [[], ["g h"]]
    source = write_rows(tmp_path / "odd.csv", [{"frage": "a", "antwort": "b", "negative_1": "c", "negative_2": ""}])
    (pair,) = read_foreign_rows(source, Columns({"query": "frage", "document": "antwort"}))
    assert pair[:4] == ("a", "b", ("c",), "")
    (pair,) = read_foreign_rows(source, Columns({"query": "frage", "document": "antwort", "negatives": "negative_1"}))
    assert pair.negatives == ("c",), "a named column of negatives is the only one"


def test_column_of_one_part_is_of_no_other(tmp_path: Path) -> None:
    """A column that is named for one part is not the column of another part by its accepted name."""
    source = write_rows(tmp_path / "x.csv", [{"source": f"a {n}", "target": f"b {n}"} for n in range(4)])
    imported = import_file(tmp_path, source, columns=Columns({"query": "source", "document": "target"}))
    assert imported.num_domains == 1
    titled = write_rows(tmp_path / "y.csv", [{"text": "a", "title": "b"}])
    assert_refused(tmp_path / "y", titled, "no column for the document", columns=Columns({"query": "text"}))
    with pytest.raises(ValueError, match="'text' is given for the query and the document"):
        Columns({"query": "text", "document": "text"})


def test_named_columns_must_exist(tmp_path: Path) -> None:
    """A named column is needed in some row of the file. In the other rows it may be absent."""
    named = Columns({"domain": "subject"})
    assert_refused(tmp_path, write_rows(tmp_path / "x.jsonl", ROWS), r"\['subject'\]", columns=named)
    rows = [*ROWS[:4], ROWS[4] | {"subject": "art"}, *ROWS[5:]]
    assert import_file(tmp_path, write_rows(tmp_path / "y.jsonl", rows), columns=named).num_domains == 2


def test_malformed_rows_are_skipped_and_named(tmp_path: Path) -> None:
    """The first three malformed rows are named, all are counted. A null text counts as empty, not as malformed."""
    malformed: list[dict[str, Any]] = [
        {"query": 3, "document": "d"},
        {"query": "no doc"},
        {"query": "a", "document": "b", "domain": ["c"]},
        {"query": None, "document": "d"},
        {"document": "no query"},
    ]
    imported = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", ROWS[:2] + malformed + ROWS[2:]))
    assert (imported.num_read, imported.num_kept) == (13, 8)
    assert (imported.counts["malformed"], imported.counts["empty"]) == (4, 1)
    assert load_import(imported.folder) == imported
    (warning,) = imported.warnings
    assert re.search(
        r"line 3: .* 3; x\.jsonl, line 4: .*'query'.*; x\.jsonl, line 5: .*\['c'\].*; and 1 more$", warning
    )
    assert read_imported(imported).texts("query", range(8)) == [row["query"] for row in ROWS]


def test_malformed_parquet_rows_are_skipped(tmp_path: Path) -> None:
    rows = [{"query": [row["query"]], "document": row["document"], "domain": None} for row in ROWS]
    malformed = {"query": ["a"], "document": "d", "domain": [b"\0"]}
    imported = import_file(tmp_path, write_rows(tmp_path / "x.parquet", [*rows[:2], malformed, malformed, *rows[2:]]))
    assert (imported.num_read, imported.num_kept, imported.counts["malformed"]) == (10, 8, 2)
    (warning,) = imported.warnings
    assert re.search(r"x\.parquet, row 3: the domain is \[b'.*; x\.parquet, row 4.*[^e]$", warning)


def test_mostly_malformed_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the rows may be malformed. A file is refused early if none of its first rows is a pair."""
    malformed: list[dict[str, Any]] = [{"query": n} for n in range(4)]
    for num_good in (0, 3):
        source = write_rows(tmp_path / "x.jsonl", malformed + ROWS[:num_good])
        assert_refused(tmp_path, source, f"4 of {4 + num_good} rows are not pairs; the first is line 1")
    source = write_rows(tmp_path / "x.jsonl", malformed + ROWS[:4])
    assert import_file(tmp_path, source).counts["malformed"] == 4
    monkeypatch.setattr(readers, "ROWS_PER_READ", 4)
    source = write_rows(tmp_path / "x.jsonl", ROWS[:1] + malformed + ROWS[1:])
    assert import_file(tmp_path / "again", source).num_kept == 8
    assert_refused(tmp_path / "early", write_rows(source, malformed + ROWS), "4 of 4 rows are not pairs")
    labelled = [{**row, "label": label} for row, label in zip(ROWS, "1?????01", strict=True)]
    source = write_rows(tmp_path / "x.csv", labelled)
    assert_refused(tmp_path / "table", source, "5 of 8 rows are not pairs; the first is line 5: the label is '\\?'")


@pytest.mark.parametrize("column", ["query", "document"])
def test_each_text_of_a_list_gives_a_pair(tmp_path: Path, column: str) -> None:
    """A list of documents or of queries gives one pair for each text that is not empty, with the same negatives."""
    other = {"query": "document", "document": "query"}[column]
    rows = [{column: ["", "a", "b", "c"], other: "x", "negatives": ["n"]}, {column: ["d"], other: "y"}]
    rows += [{column: "e", other: "z"}]
    imported = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows))
    assert (imported.num_read, imported.num_kept, imported.counts["further_pairs"]) == (5, 5, 2)
    pairs = read_imported(imported)
    assert pairs.texts(column, range(5)) == ["a", "b", "c", "d", "e"]
    assert pairs.texts(other, range(5)) == ["x", "x", "x", "y", "z"]
    assert [list(texts) for texts in pairs.negatives(range(5))] == [["n"], ["n"], ["n"], [], []]


def test_lists_on_both_sides_are_malformed(tmp_path: Path) -> None:
    rows = [*ROWS, {"query": ["a", "b"], "document": ["c", "d"]}]
    imported = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows))
    assert (imported.num_kept, imported.counts["malformed"]) == (len(ROWS), 1)
    assert "2 queries and 2 documents" in imported.malformed[0]


def test_classes_are_no_grades(tmp_path: Path) -> None:
    """In NLI, 0 is entailment and 2 is contradiction. Two classes are grades, unless the second is the negation."""
    nli, qnli = ["entailment", "neutral", "contradiction"], ["entailment", "not_entailment"]
    for name, classes in (("3", nli), ("negated", qnli), ("2", ["different", "same"])):
        rows = [row | {"label": n % len(classes)} for n, row in enumerate(ROWS)]
        folder = tmp_path / name
        Dataset.from_list(rows).cast_column("label", ClassLabel(names=classes)).save_to_disk(folder)
    assert_refused(tmp_path / "x", tmp_path / "3", r"'label' are those of the classes \['entailment', .*--no-labels")
    assert_refused(tmp_path / "x", tmp_path / "negated", "not_entailment")
    assert import_file(tmp_path / "y", tmp_path / "3", columns=Columns(threshold=2)).num_kept
    assert import_file(tmp_path / "z", tmp_path / "2").num_kept


def test_saved_dataset_is_read(tmp_path: Path) -> None:
    """A folder of `datasets.save_to_disk` is read in order. Of several splits, only "train" is read."""
    dataset = Dataset.from_list(ROWS)
    dataset.save_to_disk(tmp_path / "one", num_shards=2)
    DatasetDict({"train": dataset, "test": dataset.select([0])}).save_to_disk(tmp_path / "splits")
    for name in ("one", "splits"):
        imported = import_file(tmp_path / f"from-{name}", tmp_path / name)
        assert read_imported(imported).texts("query", range(len(ROWS))) == [row["query"] for row in ROWS]
        assert imported.passed_over == (() if name == "one" else ("test",))
    DatasetDict({"dev": dataset}).save_to_disk(tmp_path / "untrained")
    assert_refused(tmp_path / "from-untrained", tmp_path / "untrained", r"has the splits \['dev'\], and only `train`")
    opened = load_from_disk(tmp_path / "one")
    opened.map(lambda row: row | {"query": "mapped"})
    assert list((tmp_path / "one").glob("cache-*.arrow")), "the library leaves its cache there"
    imported = import_file(tmp_path / "with-cache", tmp_path / "one")
    assert (imported.num_read, imported.num_passed_over) == (len(ROWS), 1)
    damaged = tmp_path / "one" / "data-00000-of-00002.arrow"
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert_refused(tmp_path / "damaged", tmp_path / "one", "damaged or no arrow file")


def test_file_format_of_arrow_is_read(tmp_path: Path) -> None:
    """Feather files and those of other libraries have it, `datasets` writes streams."""
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    pairs = read_imported(import_file(tmp_path, tmp_path / "x.arrow"))
    assert pairs.texts("query", range(len(ROWS))) == [row["query"] for row in ROWS]


@pytest.mark.parametrize(
    ("texts", "medians"),
    [(("a long text of item {} with many words", "what is {}"), (9, 3)), (("中文" * 20 + "{}", "中文{}"), (40, 2))],
    ids=["plain", "chinese"],
)
def test_swapped_columns_are_noticed(tmp_path: Path, texts: tuple[str, str], medians: tuple[int, int]) -> None:
    """Texts without spaces are measured in characters."""
    rows = [{"query": texts[0].format(n), "document": texts[1].format(n), "domain": "x"} for n in (1, 2)]
    source = write_rows(tmp_path / "x.csv", rows)
    imported = import_file(tmp_path, source)
    (warning,) = imported.warnings
    assert (imported.query_words, imported.document_words) == medians
    assert "--query and --document" in warning
    swapped = Columns({"query": "document", "document": "query"})
    assert not import_file(tmp_path / "swapped", source, columns=swapped).warnings


def test_import_reads_beir_like_evaluation(tmp_path: Path) -> None:
    folder = tmp_path / "b"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": 7, "title": "a title", "text": None}, {"_id": "8", "title": None, "text": "a text"}]
    write_rows(folder / "corpus.jsonl", documents)
    write_rows(folder / "queries.jsonl", [{"_id": 1, "text": "one"}, {"_id": "2", "text": "two"}])
    for split in ("train", "test"):
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n1\t7\t1\n2\t8\t1\n")
    pairs = list(read_foreign_rows(folder))
    collection = load_beir(folder)
    expected = list(zip(collection.queries, collection.documents, strict=True))
    assert [(pair.query, pair.document) for pair in pairs] == expected
    write_rows(folder / "corpus.jsonl", [*documents, {"_id": 8, "title": "", "text": "another text"}])
    for read in (load_beir, lambda folder: list(read_foreign_rows(folder))):
        with pytest.raises(ValueError, match=r"corpus\.jsonl, line 3: the id '8' occurs twice"):
            read(folder)
    (folder / "qrels" / "train.tsv").unlink()
    assert_refused(tmp_path, folder, "no train")


GOOD = b'{"query": "a", "document": "b"}\n'
UTF16 = "not UTF-8.*it is UTF-16: iconv -f UTF-16 -t UTF-8 "
MALFORMED = [
    ("x.jsonl", GOOD + b'{"query": \n', "line 2: no JSON"),
    ("x.jsonl", b"[" * 100_000, "line 1: no JSON"),
    ("x.jsonl", GOOD + b'{"query": "\xff", "document": "b"}', "line 2: not UTF-8 at byte 11"),
    ("x.jsonl", b'{"query": "\\udc00b", "document": "b"}\n', "line 1"),  # half of a surrogate pair
    ("x.jsonl", b'{"query": "a", "document": ' + b"9" * 5000 + b"}\n", "line 1"),
    ("x.jsonl", b'{"query": "' + b"a" * MAX_LINE_BYTES + b'", "document": "b"}\n', "line 1: longer than"),
    ("x.jsonl", GOOD[:-2] + b', "domain": true}\n', "line 1: the domain"),
    ("x.jsonl", GOOD[:-2] + b', "domain": Infinity}\n', "line 1: the domain"),
    ("x.jsonl", b'{"query": "", "document": "a"}\n', r"read 1, empty: 1$"),
    ("x.jsonl", b'{"query": 5, "document": "a"}\n', r"found 5$"),
    ("x.tsv", b'query\tdocument\na\t"two\nlines"\n', r"line 3: 1 cell, the header has 2"),
    ("x.csv", b"", "the file is empty"),
    ("x.csv", b"query,document\na,b,c\n", "line 2: 3 cells"),
    ("x.csv", b'query,document\na,"b\n', "malformed"),
    ("x.csv", b'query,document\n"say \\"hi\\" to","the, answer"\n', "not escaped by a backslash"),
    ("x.csv", b"query,document,query\na,b,c\n", "line 1: .*twice"),
    ("x.pkl", b"\x80\x04.", "ends in '.pkl'"),
    ("x.zip", b"nothing", "neither a zip nor a tar"),
    # Errors with a remedy: options, the folder, or a conversion.
    ("a.csv", b"q,positive_ctx\nx,y\n", r"found \['positive_ctx', 'q'\], .* --query COLUMN --document COLUMN"),
    ("a.jsonl", b'{"_id": "1", "text": "a", "metadata": {}}\n', "for the query: .* give the folder$"),
    ("a.tsv", b"query;document\nx;y\n", r"found \['query;document'\], .* tabs in a \.tsv"),
    ("a.csv", "query,document\nx,y\nx,caf\xe9\n".encode("latin-1"), "line 3: not UTF-8 .*iconv -f CP1252 -t UTF-8"),
    # beyond the first block that Python decodes
    ("b.csv", b"query,document\n" + b"x,y\n" * 9_999 + b"x,caf\xe9\n", "line 10001: not UTF-8 .*iconv -f CP1252"),
    ("a b.jsonl", GOOD.decode().encode("utf-16"), f"line 1: {UTF16}'a b.jsonl' > 'utf8-a b.jsonl'$"),
    ("a.csv", "\ufeffquery,document\n".encode("utf-16-be"), f"line 1: {UTF16}"),
]
"""Malformed files, and the place or remedy in the error."""


@pytest.mark.parametrize(("name", "content", "message"), MALFORMED)
def test_malformed_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert_refused(tmp_path, tmp_path / name, message)


def test_archives_cannot_escape(tmp_path: Path) -> None:
    content = write_rows(tmp_path / "pairs.jsonl", ROWS).read_bytes()

    def write_zip(name: str) -> Path:
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            archive.writestr(name, content)
        return tmp_path / "x.zip"

    for name in ("../evil.jsonl", "/evil.jsonl", "a/../../evil.jsonl", "..\\evil.jsonl"):
        assert_refused(tmp_path, write_zip(name), "lies outside")
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    outside = tarfile.TarInfo("../evil.jsonl")
    outside.size = len(content)
    for member in (link, outside):
        with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive:
            archive.addfile(member, io.BytesIO(content))
        assert_refused(tmp_path, tmp_path / "bad.tar.gz", "is a link or lies outside")
    assert not list(tmp_path.parent.glob("evil*"))
    assert import_file(tmp_path, write_zip("mine/pairs.jsonl")).num_kept == 8


def normalise_spaces(text: str) -> str:
    """Return the text in NFC with single spaces. Pairs that are equal in this form are repeated."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def import_row_by_row(rows: list[dict[str, Any]], name: str, evaluated: set[str]) -> tuple[list[Row], Counter[str]]:
    """Import one pair at a time with plain sets: the reference for the import in blocks."""
    kept: list[Row] = []
    pairs: set[tuple[str, ...]] = set()
    near_forms: set[tuple[str, ...]] = set()
    counts: Counter[str] = Counter(empty=0, evaluated=0, repeated_pair=0)
    for number, row in enumerate(rows):
        query, document = row["query"], row["document"]
        pair = (normalise_spaces(query), normalise_spaces(document))
        if not all(pair):
            counts["empty"] += 1
            continue
        others = [text for text in row.get("negatives", []) if normalise_spaces(text) not in ("", pair[1])]
        counts["negatives_taken_out"] += len(row.get("negatives", [])) - len(others)
        # Of the words here, only "." has punctuation, so it is enough to ignore case.
        if evaluated & {text.casefold() for text in pair}:
            counts["evaluated"] += 1
            continue
        if pair in pairs:
            counts["repeated_pair"] += 1
            continue
        negatives = [text for text in others if normalise_spaces(text).casefold() not in evaluated]
        digest = hashlib.sha256(f"{row['domain']}\0{query}\0{document}".encode()).hexdigest()[:16]
        domain = row["domain"] or name
        kept.append(Row(f"{name}:{number}:{digest}", query, document, domain, name, tuple(negatives)))
        near_form = tuple(get_near_form(text) for text in pair)
        counts["with_negatives"] += bool(negatives)
        counts["evaluated_negatives"] += len(others) - len(negatives)
        counts["query_is_document"] += pair[0] == pair[1]
        counts["near_copies"] += near_form in near_forms
        pairs.add(pair)
        near_forms.add(near_form)
    return kept, counts


@pytest.mark.parametrize("ends", [("Pump.", "pump."), ("pump", "pump.")])
def test_near_copies_show_their_difference(tmp_path: Path, ends: tuple[str, str]) -> None:
    """Long documents are cut around the first difference."""
    rows = [{"query": "q", "document": f"{'word ' * 100}{end}"} for end in ends]
    shown = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows)).near_copy
    assert all(f"word {end}'" in text and text.startswith("'q' – '…") for text, end in zip(shown, ends, strict=True))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("x؟", "x"),
        ("x।", "x"),
        ("¿x?", "x"),
        ("„x“ y", '"x" y'),
        ("「x」", "x"),
        ("x\u00a0?", "x?"),
        ("１２３", "123"),
        ("what’s – this", "what's - this"),
        ("\ufeffa so\u00adft \u200bx", "a soft x"),
    ],
)
def test_spellings_of_a_text_are_one(text: str, other: str) -> None:
    assert normalize_loosely(text) == normalize_loosely(other)


@pytest.mark.parametrize(
    ("text", "other"), [("−7", "7"), ("-7", "7"), ("x + y", "x - y"), ("!x", "x"), ("نی\u200cم", "نیم")]
)
def test_signs_and_joiners_are_kept(text: str, other: str) -> None:
    assert normalize_loosely(text) != normalize_loosely(other)


def get_near_form(text: str) -> str:
    """Return the text without case and without full stops at the ends of words, the only punctuation here."""
    return " ".join(word.rstrip(".") or word for word in text.casefold().split())


WORDS = ["Straße", "STRASSE", "a_b", "A b", "é", "It's", "x\ty", "", "Ⅷ ½", "café-2", "no", "İ", "日本 語", "b ", " ."]


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_blocks_match_single_pairs(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal pairs are dropped and near copies are counted, also in different blocks. The files have the same bytes."""
    monkeypatch.setattr(importing, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(pairs_module, "ROWS_PER_BATCH", 5)
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = [
        {"query": WORDS[q], "document": f"{WORDS[d]} {WORDS[e]}", "domain": ["a", "", "b"][q % 3]}
        for q, d, e in rng.integers(0, len(WORDS), (1000, 3))
    ]
    rows[9] |= {"query": "no", "document": "long " * 300}
    if ending != ".csv":
        for row in rows:
            row["negatives"] = [WORDS[n] for n in rng.integers(0, len(WORDS), rng.integers(0, 4))]
    exam = Retrieval("t", ("d",), ("(A_b no)!",), ("q",), ("strasse?",), {"q": {"d": 1}})
    expected, counts = import_row_by_row(rows, "mine", {"a_b no", "strasse"})
    imported = import_file(tmp_path, write_rows(tmp_path / f"x{ending}", rows), evaluated=[exam])
    assert 500 < imported.num_kept == len(expected) < 1000
    assert Counter(imported.counts) == counts
    assert min(counts.values()) >= (0 if ending == ".csv" else 1)
    assert len(imported.near_copy) == 2 and imported.near_copy[0].casefold() == imported.near_copy[1].casefold()
    write_pairs(tmp_path / "expected.arrow", expected, rows_per_batch=5, with_negatives=True)
    assert (imported.folder / "pairs.arrow").read_bytes() == (tmp_path / "expected.arrow").read_bytes()


def test_columns_read_are_recorded(tmp_path: Path) -> None:
    """Each set of columns is recorded once, with its first place. Exact names are preferred to other spellings."""
    (tmp_path / "in").mkdir()
    rows = [{"question": "a", "text": "t", "passage": "p", "answer": "b", "source": "s", "title": "none of ours"}]
    write_rows(tmp_path / "in" / "1.jsonl", [*rows, {"query": "c", "document": "d"}, *rows, {"title": "no pair"}])
    write_rows(tmp_path / "in" / "2.csv", rows)
    write_rows(tmp_path / "in" / "3.jsonl", [{"Query": "no", "query": "why", "Text": "because", "text ": "no"}])
    imported = import_file(tmp_path, tmp_path / "in")
    assert imported.columns == (
        "1.jsonl, line 1: query <- question, document <- answer (also there: passage, text), domain <- source"
        "; not read: title",
        "1.jsonl, line 2: query <- query, document <- document",
        "3.jsonl, line 1: query <- query (also there: Query), document <- Text (also there: text )",
    )
    assert load_import(imported.folder) == imported
    write_rows(tmp_path / "in" / "4.parquet", [{"anchor": "e", "pos": "f", "negative_1": "g", "negative_2": "h"}])
    assert import_file(tmp_path / "more", tmp_path / "in").columns == (*imported.columns, "… and 1 more")
    assert import_file(tmp_path / "parquet", tmp_path / "in" / "4.parquet").columns == (
        "4.parquet: query <- anchor, document <- pos, negatives <- negative_1, negative_2",
    )


@pytest.mark.parametrize("header", ["Query, Document ", " query ,DOCUMENT", "ANCHOR,Positive"])
def test_column_names_ignore_case(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\nwhy,because\n")
    row = dict(zip(header.split(","), ("why", "because"), strict=True))
    (tmp_path / "b.jsonl").write_text(json.dumps(row))
    named = Columns({"query": header.split(",")[0].strip().lower()})
    pairs = [*read_foreign_rows(tmp_path / "a.csv"), *read_foreign_rows(tmp_path / "b.jsonl", named)]
    assert [pair[:2] for pair in pairs] == [("why", "because")] * 2


@pytest.mark.parametrize("header", ["query;document", '"query, asked";"document"'])
def test_csv_may_have_semicolons(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(f'{header}\n"why; how";because, they say\n')
    columns = Columns({"query": "query, asked"}) if "asked" in header else None
    (pair,) = read_foreign_rows(tmp_path / "a.csv", columns)
    assert pair[:2] == ("why; how", "because, they say")
