"""Importing: all formats give the same pairs, malformed rows are named and counted, no import stays half done."""

import hashlib
import io
import json
import os
import pickle
import re
import shlex
import tarfile
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.data import pairs as pairs_module
from repro.data import readers
from repro.data.beir import Retrieval, load_beir, write_beir_folder
from repro.data.columns import Columns
from repro.data.lines import MAX_LINE_BYTES
from repro.data.own import importing
from repro.data.own.importing import Imported, import_corpus, load_import, plan_runs
from repro.data.pairs import Row, read_pairs, write_columns, write_pairs
from repro.data.readers import read_foreign
from repro.data.wording import normalise
from repro.spec import check_fields
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


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_formats_give_same_pairs(tmp_path: Path, ending: str) -> None:
    # A .tsv has no quotes, so its texts have no line breaks.
    end = " " if ending == ".tsv" else "\n"
    rows = [row | {"document": row["document"].replace("\n", end)} for row in ROWS]
    imported = import_file(tmp_path, write_rows(tmp_path / f"pairs{ending}", rows))
    pairs = read_pairs(imported.folder / "pairs.arrow")
    assert (imported.num_read, imported.num_kept, imported.num_domains) == (8, 8, 2)
    assert pairs.texts("query", range(8)) == [row["query"] for row in ROWS]
    assert pairs.texts("document", range(8)) == [row["document"] for row in rows]
    assert [pairs.domain_names[code] for code in pairs.domain_codes] == [row["domain"] for row in ROWS]
    assert load_import(imported.folder) == imported


@pytest.mark.parametrize("content", ['{"name": "mi', "[1]", "{}", '{"unknown": 1}'])
def test_damaged_audit_is_named(tmp_path: Path, content: str) -> None:
    imported = import_file(tmp_path, write_rows(tmp_path / "pairs.jsonl", ROWS))
    (imported.folder / "audit.json").write_text(content)
    with pytest.raises(ValueError, match=r"audit\.json .*the pairs are unchanged.*import again"):
        load_import(imported.folder)
    assert len(read_pairs(imported.folder / "pairs.arrow")) == len(ROWS)


def test_columns_may_be_named(tmp_path: Path) -> None:
    rows = [
        {"anchor": "a b", "pos": ["c d", "e f"], "neg": ["g h"], "prompt": "x"},
        {"anchor": "i", "pos": ["j"], "neg": []},
    ]
    imported = import_file(tmp_path, write_rows(tmp_path / "bge.jsonl", rows))
    pairs = read_pairs(imported.folder / "pairs.arrow")
    assert pairs.texts("document", range(2)) == ["c d", "j"] and pairs.negatives(range(2)) == [["g h"], []]
    source = write_rows(tmp_path / "odd.csv", [{"frage": "a", "antwort": "b", "negative_1": "c", "negative_2": ""}])
    only = list(read_foreign(source, Columns({"query": "frage", "document": "antwort"})))
    assert only[0][:4] == ("a", "b", ("c",), "")


def test_tsv_quotes_are_letters(tmp_path: Path) -> None:
    texts = [('"unclosed', "answer one"), ("what?", 'a "word" in it'), ("next", 'to the last"'), ("last", "answer")]
    lines = ["query\tdocument", *("\t".join(pair) for pair in texts)]
    (tmp_path / "x.tsv").write_text("\n".join(lines) + "\n")
    assert [pair[:2] for pair in read_foreign(tmp_path / "x.tsv")] == texts


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
    assert (imported.num_read, imported.num_kept, imported.counts["malformed"], imported.counts["empty"]) == (
        13,
        8,
        4,
        1,
    )
    assert load_import(imported.folder) == imported
    (warning,) = imported.warnings
    assert re.search(
        r"x\.jsonl, line 3: expected a text or a list of texts, found 3; "
        r"x\.jsonl, line 4: no column for the document: found \['query'\], accepted.*; "
        r"x\.jsonl, line 5: the domain is \['c'\].*; and 1 more$",
        warning,
    ), warning
    assert read_pairs(imported.folder / "pairs.arrow").texts("query", range(8)) == [row["query"] for row in ROWS]


def test_malformed_parquet_rows_are_skipped(tmp_path: Path) -> None:
    rows = [{"query": [row["query"]], "document": row["document"], "domain": None} for row in ROWS]
    malformed = {"query": ["a"], "document": "d", "domain": [b"\0"]}
    imported = import_file(tmp_path, write_rows(tmp_path / "x.parquet", [*rows[:2], malformed, malformed, *rows[2:]]))
    assert (imported.num_read, imported.num_kept, imported.counts["malformed"]) == (10, 8, 2)
    (warning,) = imported.warnings
    assert re.search(r"x\.parquet, row 3: the domain is \[b'.*; x\.parquet, row 4.*[^e]$", warning), warning


def test_mostly_malformed_file_is_refused(tmp_path: Path) -> None:
    malformed: list[dict[str, Any]] = [{"query": n} for n in range(3)]
    for num_good in (0, 2):
        message = f"x.jsonl: 3 of {3 + num_good} rows are not pairs; the first is line 1: no column for"
        assert_refused(tmp_path, write_rows(tmp_path / "x.jsonl", malformed + ROWS[:num_good]), message)
    assert import_file(tmp_path, write_rows(tmp_path / "x.jsonl", malformed + ROWS[:3])).counts["malformed"] == 3


def test_file_without_pairs_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "ROWS_PER_READ", 4)
    bad: list[dict[str, Any]] = [{"frage": "x"}] * 4
    assert_refused(tmp_path, write_rows(tmp_path / "x.jsonl", bad + ROWS), "x.jsonl: 4 of 4 rows are not pairs")
    assert import_file(tmp_path, write_rows(tmp_path / "y.jsonl", ROWS[:1] + bad + ROWS[1:])).num_kept == 8


def test_named_column_must_exist(tmp_path: Path) -> None:
    named = Columns({"domain": "subject"})
    assert_refused(
        tmp_path,
        write_rows(tmp_path / "x.jsonl", ROWS),
        r"no column for the domain: .*accepted \['subject'\]",
        columns=named,
    )
    rows = [*ROWS[:4], ROWS[4] | {"subject": "art"}, *ROWS[5:]]
    assert import_file(tmp_path, write_rows(tmp_path / "y.jsonl", rows), columns=named).num_domains == 2


@pytest.mark.parametrize(
    ("column", "count"), [("query", "more_queries"), ("document", "more_positives")], ids=["queries", "documents"]
)
def test_further_texts_are_counted(tmp_path: Path, column: str, count: str) -> None:
    """A list of texts gives one pair of its first text that is not empty. All further texts are counted."""
    other = {"query": "document", "document": "query"}[column]
    rows = [{column: ["", "a", "b", "c"], other: "x"}, {column: ["d"], other: "y"}, {column: "e", other: "z"}]
    imported = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows))
    assert (imported.num_kept, imported.counts[count]) == (3, 2)
    assert read_pairs(imported.folder / "pairs.arrow").texts(column, range(3)) == ["a", "d", "e"]


@pytest.mark.parametrize(("query", "document"), [("query", "document"), ("my ask", "text")])
def test_swapped_columns_are_noticed(tmp_path: Path, query: str, document: str) -> None:
    rows = [
        {query: f"a long text of item {n} with many words", document: f"what is {n}", "domain": "x"} for n in (1, 2)
    ]
    named = Columns({"query": query})
    imported = import_file(tmp_path, write_rows(tmp_path / "x.csv", rows), columns=named)
    (warning,) = imported.warnings
    assert warning.startswith("queries have 9 words and documents 3 (medians)")
    assert warning.endswith(f"--query {shlex.quote(document)} --document {shlex.quote(query)}")
    assert load_import(imported.folder) == imported
    swapped = Columns({"query": document, "document": query})
    assert not import_file(tmp_path / "swapped", tmp_path / "x.csv", columns=swapped).warnings


def test_import_reads_beir_like_evaluation(tmp_path: Path) -> None:
    (tmp_path / "b" / "qrels").mkdir(parents=True)
    documents = [{"_id": 7, "title": "a title", "text": None}, {"_id": "8", "title": None, "text": "a text"}]
    write_rows(tmp_path / "b" / "corpus.jsonl", documents)
    write_rows(tmp_path / "b" / "queries.jsonl", [{"_id": 1, "text": "one"}, {"_id": "2", "text": "two"}])
    for split in ("train", "test"):
        (tmp_path / "b" / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n1\t7\t1\n2\t8\t1\n")
    trained = list(read_foreign(tmp_path / "b"))
    exam = load_beir(tmp_path / "b")
    assert [(pair.query, pair.document) for pair in trained] == list(zip(exam.queries, exam.documents, strict=True))
    write_rows(tmp_path / "b" / "corpus.jsonl", [*documents, {"_id": 8, "title": "", "text": "another text"}])
    for read in (load_beir, lambda folder: list(read_foreign(folder))):
        with pytest.raises(ValueError, match=r"corpus\.jsonl, line 3: the id '8' occurs twice"):
            read(tmp_path / "b")


def test_negatives_may_begin_late(tmp_path: Path) -> None:
    rows = [{"query": "a", "document": "b"}, {"query": "c", "document": "d", "negatives": ["e"]}]
    imported = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows))
    assert read_pairs(imported.folder / "pairs.arrow").negatives(range(2)) == [[], ["e"]]


def test_audit_counts_what_was_skipped(tmp_path: Path) -> None:
    rows = [
        *ROWS,
        ROWS[0] | {"query": " what is  thing 0"},
        {"query": "", "document": "x"},
        {"query": "x", "document": None},
        {"query": "good", "document": "the answer", "negatives": ["the  answer", "another"]},
        {"query": "the question of the test", "document": "y"},
        {"query": "same words", "document": "same words"},
    ]
    evaluated = Retrieval("t", ("d",), ("z",), ("q",), ("The question of the test?",), {"q": {"d": 1}})
    imported = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows), evaluated=[evaluated])
    dropped = {"empty": 2, "repeated_pair": 1, "evaluated": 1}
    kept = {"negatives_taken_out": 1, "query_is_document": 1, "with_negatives": 1}
    assert (imported.num_read, imported.num_kept, dict(imported.counts)) == (14, 10, dropped | kept)


def test_beir_folder_gives_training_pairs(tmp_path: Path) -> None:
    data = Retrieval("b", ("d1", "d2"), ("one", "two"), ("q1", "q2"), ("a", "b"), {"q1": {"d1": 1}, "q2": {"d2": 0}})
    write_beir_folder(tmp_path / "b", data, "train")
    imported = import_file(tmp_path, tmp_path / "b")
    assert read_pairs(imported.folder / "pairs.arrow").texts("document", range(imported.num_kept)) == ["one"]
    (tmp_path / "b" / "qrels" / "train.tsv").rename(tmp_path / "b" / "qrels" / "test.tsv")
    with pytest.raises(ValueError, match="no train"):
        import_file(tmp_path / "other", tmp_path / "b")


GOOD = b'{"query": "a", "document": "b"}\n'
UTF16 = "not UTF-8.*it is UTF-16: iconv -f UTF-16 -t UTF-8 "
MALFORMED = [
    ("x.jsonl", GOOD + b'{"query": \n', "line 2: no JSON"),
    ("x.jsonl", GOOD + b"\n[1]\n", "line 3: a list"),
    ("x.jsonl", b"[" * 100_000, "line 1: no JSON"),
    ("x.jsonl", GOOD + b'{"query": "\xff", "document": "b"}', "line 2: not UTF-8 at byte 11"),
    ("x.jsonl", b'{"query": "\\udc00b", "document": "b"}\n', "line 1"),  # half of a surrogate pair
    ("x.jsonl", b'{"query": "a", "document": ' + b"9" * 5000 + b"}\n", "line 1"),
    ("x.jsonl", b'{"query": {"a": 1}, "document": "b"}\n', "line 1: expected a text"),
    ("x.jsonl", b'{"query": "' + b"a" * MAX_LINE_BYTES + b'", "document": "b"}\n', "line 1: longer than"),
    *(
        ("x.jsonl", GOOD[:-2] + b', "domain": ' + value + b"}\n", "line 1: the domain")
        for value in (b'["c"]', b"true", b"Infinity")
    ),
    ("x.jsonl", b'{"text": "a", "title": "b"}\n', "line 1: no column for the query"),
    ("x.jsonl", b'{"query": "", "document": "a"}\n', r"has no pair to train on: read 1, empty: 1$"),
    ("x.jsonl", b'{"query": 5, "document": "a"}\n', r"expected a text or a list of texts, found 5$"),
    (
        "x.tsv",
        b'query\tdocument\na\t"two\nlines"\n',
        r"line 3: 1 cell, the header has 2 \(in a \.tsv whose header is not",
    ),
    ("x.jsonl", b"", "the file is empty"),
    ("x.csv", b"", "the file is empty"),
    ("x.csv", b"query,document\na,b,c\n", "line 2: 3 cells"),
    ("x.csv", b'query,document\na,"b\n', "malformed"),
    ("x.csv", b"query,document\na,\xff\n", "not UTF-8"),
    ("x.csv", b"query,document,query\na,b,c\n", "line 1: .*twice"),
    ("x.csv", b"query,document,negative_1,negative_1\na,b,c,d\n", "line 1: .*twice"),
    ("x.parquet", b"PAR1 nothing", "no parquet file"),
    ("x.pkl", b"\x80\x04.", "ends in '.pkl'"),
    ("x.zip", b"nothing", "neither a zip nor a tar"),
    # Errors with a remedy: options, another separator, the folder, or a conversion.
    ("a.csv", b"q,positive_ctx\nx,y\n", "--query q --document positive_ctx$"),
    ("a.csv", b"query,positive_ctx\nx,y\n", "--document positive_ctx$"),
    ("a.csv", b"it's asked,document\nx,y\n", "--query 'it'\"'\"'s asked'$"),
    ("a.csv", b"one\nx\n", "--query COLUMN --document COLUMN$"),
    ("a.csv", b"how does a verdict come about?,by a jury\nx,y\n", "header row"),
    ("a.jsonl", b'{"_id": "1", "text": "a", "metadata": {}}\n', "give the folder$"),
    ("a.tsv", b"query;document\nx;y\n", "separator looks like ';'"),
    ("a.csv", b"query\tdocument\nx\ty\n", "separator looks like a tab"),
    ("a.csv", "query,document\nx,y\nx,caf\xe9\n".encode("latin-1"), "line 3: not UTF-8; .*iconv -f LATIN1 -t UTF-8"),
    # beyond the first block that Python decodes
    ("b.csv", b"query,document\n" + b"x,y\n" * 9_999 + b"x,caf\xe9\n", "line 10001: not UTF-8; .*iconv -f LATIN1"),
    ("a b.jsonl", GOOD.decode().encode("utf-16"), f"line 1: {UTF16}'a b.jsonl' > 'utf8-a b.jsonl'$"),
    ("a.csv", "\ufeffquery,document\n".encode("utf-16-be"), f"line 1: {UTF16}"),
    ("a.tsv", "\ufeffquery\tdocument\n".encode("utf-16-le"), f"line 1: {UTF16}"),
]
"""Malformed files, and the place or remedy in the error."""


@pytest.mark.parametrize(("name", "content", "message"), MALFORMED)
def test_malformed_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert_refused(tmp_path, tmp_path / name, message)


def test_archives_cannot_escape(tmp_path: Path) -> None:
    inner = write_rows(tmp_path / "pairs.jsonl", ROWS).read_bytes()
    with zipfile.ZipFile(tmp_path / "good.zip", "w") as archive:
        archive.writestr("mine/pairs.jsonl", inner)
    assert import_file(tmp_path, tmp_path / "good.zip").num_kept == 8
    (tmp_path / "out").rename(tmp_path / "first")
    for name in ("../evil.jsonl", "/evil.jsonl", "a/../../evil.jsonl", "..\\evil.jsonl"):
        with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
            archive.writestr(name, inner)
        assert_refused(tmp_path, tmp_path / "bad.zip", "lies outside")
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    up = tarfile.TarInfo("../evil.jsonl")
    up.size = len(inner)
    for member, body in ((link, None), (up, inner)):
        with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive:
            archive.addfile(member, io.BytesIO(body) if body else None)
        assert_refused(tmp_path, tmp_path / "bad.tar.gz", "is a link or lies outside")
    assert not list(tmp_path.parent.glob("evil*"))


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
            return (os.mkdir, (str(tmp_path / "exploded"),))

    for name in ("x.jsonl", "x.parquet", "x.csv"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
        assert_refused(tmp_path, tmp_path / name, "x")
    assert not (tmp_path / "exploded").exists()


def normalise_spaces(text: str) -> str:
    """Return the text in NFC with single spaces. Pairs that are equal in this form are repeated."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def import_row_by_row(rows: list[dict[str, Any]], name: str, evaluated: set[str]) -> tuple[list[Row], Counter[str]]:
    """Import one pair at a time with plain sets: the reference for the import in blocks."""
    kept, seen, forms, counts = [], set[str](), set[tuple[str, ...]](), Counter[str]()
    for number, row in enumerate(rows):
        query, document, domain = row["query"] or "", row["document"] or "", row["domain"] or ""
        both = [normalise_spaces(query), normalise_spaces(document)]
        judged = evaluated & {text.casefold() for text in both}  # of the words here, only "." has punctuation
        counts["empty"] += not all(both)
        counts["evaluated"] += all(both) and bool(judged)
        counts["repeated_pair"] += all(both) and not judged and "\n".join(both) in seen
        own = [text for text in row.get("negatives", []) if normalise_spaces(text) not in ("", both[1])]
        counts["negatives_taken_out"] += all(both) and len(row.get("negatives", [])) - len(own)
        negatives = [text for text in own if normalise_spaces(text).casefold() not in evaluated]
        if all(both) and not judged and "\n".join(both) not in seen:
            seen.add("\n".join(both))
            digest = hashlib.sha256(f"{domain}\0{query}\0{document}".encode()).hexdigest()[:16]
            kept.append(Row(f"{name}:{number}:{digest}", query, document, domain or name, name, tuple(negatives)))
            counts["with_negatives"] += bool(negatives)
            if len(own) > len(negatives):
                counts["evaluated_negatives"] += len(own) - len(negatives)
            counts["query_is_document"] += both[0] == both[1]
            form = tuple(get_near_form(text) for text in both)
            counts["near_copies"] += form in forms
            forms.add(form)
    return kept, counts


def get_near_form(text: str) -> str:
    """Return the text without case and without full stops at the ends of words, the only punctuation here."""
    return " ".join(word.rstrip(".") or word for word in text.casefold().split())


WORDS = ["Straße", "STRASSE", "a_b", "A b", "é", "It's", "x\ty", "", "Ⅷ ½", "café-2", "no", "İ", "日本 語", "b ", " ."]


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_blocks_match_single_pairs(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "PAIRS_PER_BLOCK", 7)
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = [
        {"query": WORDS[q], "document": f"{WORDS[d]} {WORDS[e]}", "domain": ["a", "", "b"][q % 3]}
        for q, d, e in rng.integers(0, len(WORDS), (400, 3))
    ]
    rows[9] |= {"query": "no", "document": "long " * 300}
    if ending != ".csv":
        for row in rows:
            row["negatives"] = [WORDS[n] for n in rng.integers(0, len(WORDS), rng.integers(0, 4))]
    judged = Retrieval("t", ("d",), ("(A_b no)!",), ("q",), ("strasse?",), {"q": {"d": 1}})
    expected, counts = import_row_by_row(rows, "mine", {"a_b no", "strasse"})
    imported = import_file(tmp_path, write_rows(tmp_path / f"x{ending}", rows), evaluated=[judged])
    assert 100 < imported.num_kept == len(expected) < 400
    assert imported.counts == counts and min(counts.values()) >= (0 if ending == ".csv" else 1)
    write_pairs(tmp_path / "expected.arrow", expected, with_negatives=True)
    assert (imported.folder / "pairs.arrow").read_bytes() == (tmp_path / "expected.arrow").read_bytes()


def test_normalise_keeps_vowel_marks() -> None:
    assert len({normalise(word) for word in ("दिन", "दान", "दन")}) == 3, "vowel marks make different words"
    assert normalise("Cafe\u0301,  दिन?") == "cafe\u0301 दिन"


@pytest.mark.parametrize("sizes", [[3, 0, 4], [20], [5, 5, 1], [1] * 12])
def test_columns_and_rows_write_alike(tmp_path: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "ROWS_PER_BATCH", 5)
    rows = [Row(f"i{n}", f"q{n}", f"d{n}", "ab"[n % 2], "s", ("x",) * (n % 3)) for n in range(sum(sizes))]
    write_pairs(tmp_path / "rows.arrow", rows, rows_per_batch=5, with_negatives=True)
    bounds = np.cumsum([0, *sizes])
    blocks = [rows[first:last] for first, last in pairwise(bounds.tolist())]
    columns = [{name: [getattr(row, name) for row in block] for name in Row._fields} for block in blocks]
    assert write_columns(tmp_path / "columns.arrow", columns) == len(rows)
    assert (tmp_path / "columns.arrow").read_bytes() == (tmp_path / "rows.arrow").read_bytes()


def test_existing_import_is_not_overwritten(tmp_path: Path) -> None:
    import_file(tmp_path, write_rows(tmp_path / "x.jsonl", ROWS))
    with pytest.raises(ValueError, match="exists already"):
        import_file(tmp_path, tmp_path / "x.jsonl")


def test_plan_fits_the_corpus(tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "document": f"d {n}"} for n in range(300)]
    imported = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows))
    plan = plan_runs(imported)
    assert [run["architecture"] for run in plan] == ["biencoder", "contextual"]
    assert plan[0]["batch_size"] == 16
    check_fields(plan[0], "plan")
    small = import_file(tmp_path / "small", write_rows(tmp_path / "y.jsonl", rows[:9]))
    with pytest.raises(ValueError, match="9 pairs"):
        plan_runs(small)


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="colour"):
        Columns({"colour": "x"})


def test_columns_read_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"question": "a", "text": "t", "passage": "p", "answer": "b", "source": "s", "title": "none of ours"}]
    write_rows(tmp_path / "in" / "1.jsonl", [*rows, {"query": "c", "document": "d"}, *rows, {"title": "no pair"}])
    write_rows(tmp_path / "in" / "2.csv", rows)
    write_rows(tmp_path / "in" / "3.parquet", [{"anchor": "e", "pos": "f", "negative_1": "g", "negative_2": "h"}])
    imported = import_file(tmp_path, tmp_path / "in")
    assert imported.columns == (
        "1.jsonl, line 1: query <- question, document <- answer (also there: passage, text), domain <- source"
        "; not read: title",
        "1.jsonl, line 2: query <- query, document <- document",
        "3.parquet: query <- anchor, document <- pos, negatives <- negative_1, negative_2",
    )
    assert load_import(imported.folder) == imported
    write_rows(tmp_path / "in" / "4.csv", [{"query": "i", "text": "j"}])
    more = import_file(tmp_path / "more", tmp_path / "in")
    assert more.columns == (*imported.columns, "… and 1 more")
    named = import_file(tmp_path / "named", tmp_path / "in" / "2.csv", columns=Columns({"query": "text"}))
    assert named.columns == (
        "2.csv, line 1: query <- text, document <- answer (also there: passage), domain <- source; not read: question, title",
    )


@pytest.mark.parametrize("header", ["Query, Document ", " query ,DOCUMENT", "ANCHOR,Positive"])
def test_column_names_ignore_case(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\nwhy,because\n")
    (found,) = read_foreign(tmp_path / "a.csv")
    assert found[:2] == ("why", "because")
    (tmp_path / "b.jsonl").write_text(json.dumps(dict(zip(header.split(","), ("why", "because"), strict=True))))
    (found,) = read_foreign(tmp_path / "b.jsonl", Columns({"query": header.split(",")[0].strip().lower()}))
    assert found[:2] == ("why", "because")


def test_exact_column_names_win(tmp_path: Path) -> None:
    rows = [{"Query": "no", "query": "why", "Text": "because", "text ": "no"}]
    imported = import_file(tmp_path, write_rows(tmp_path / "a.jsonl", rows))
    assert imported.columns == (
        "a.jsonl, line 1: query <- query (also there: Query), document <- Text (also there: text )",
    )


@pytest.mark.parametrize("header", ["query;document", '"query, asked";"document"'])
def test_csv_may_have_semicolons(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(f'{header}\n"why; how";because, they say\n')
    columns = Columns({"query": "query, asked"}) if "asked" in header else None
    (found,) = read_foreign(tmp_path / "a.csv", columns)
    assert found[:2] == ("why; how", "because, they say")


def test_near_copies_are_kept_and_counted(tmp_path: Path) -> None:
    """Symbols distinguish texts. Case and punctuation do not: such near copies are kept and counted."""
    texts = ["x + y", "x - y", "temperature \u2212757", "temperature 757", "\U0001f600", "\U0001f601", "c++", "c"]
    rows = [{"query": f"what is {text}", "document": f"about {text}"} for text in texts]
    imported = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows))
    assert (imported.num_kept, imported.counts.get("near_copies", 0), imported.near_copy) == (8, 0, ())
    rows += [
        {"query": "What is X + Y?", "document": "About x + y."},
        {"query": "what is (x + y)", "document": "about x + y!"},
        {"query": "what is x + y", "document": "about  x + y"},
    ]
    imported = import_file(tmp_path / "more", write_rows(tmp_path / "y.jsonl", rows))
    assert (imported.num_kept, imported.counts["near_copies"], imported.counts["repeated_pair"]) == (10, 2, 1)
    assert imported.near_copy == ("'what is x + y' – 'about x + y'", "'What is X + Y?' – 'About x + y.'")
    assert load_import(imported.folder) == imported


def test_chinese_lengths_count_characters(tmp_path: Path) -> None:
    """Texts without spaces are measured in characters, so swapped columns are noticed."""
    rows = [{"query": "\u4e2d\u6587" * 20 + str(n), "document": f"\u4e2d\u6587{n}"} for n in range(4)]
    imported = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows))
    assert (imported.query_words, imported.document_words) == (40, 2) and len(imported.warnings) == 1
