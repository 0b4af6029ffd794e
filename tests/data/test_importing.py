"""Import of pairs: what is dropped and counted, what stays, and the texts that count as one."""

import hashlib
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.data.beir import Retrieval, write_beir_folder
from repro.data.columns import Columns
from repro.data.own import importing
from repro.data.own.importing import Audit, import_pairs, load_audit, write_documents
from repro.data.own.languages import detect_language
from repro.data.pairs import Row, read_pairs, write_pairs
from repro.data.wording import identify_text
from tests.data.files import make_judged, write_rows


def import_file(tmp_path: Path, source: Path, columns: Columns | None = None, **options: Any) -> Audit:
    """Import a file into the folder `out`, and check that every row is counted."""
    audit = import_pairs(source, tmp_path / "out", name="mine", columns=columns or Columns(), **options)
    assert audit.num_read == audit.num_kept + sum(audit.dropped.values())
    assert load_audit(tmp_path / "out") == audit
    return audit


def get_identity(text: str) -> str:
    """Return the text without case and without full stops at the ends of words, the only punctuation here."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(word.rstrip(".") or word for word in text.split())


def import_row_by_row(rows: list[dict[str, Any]], name: str, evaluated: set[str]) -> tuple[list[Row], Counter[str]]:
    """Import one pair at a time with plain sets: the reference for the import in blocks."""
    kept: list[Row] = []
    pairs: set[tuple[str, ...]] = set()
    counts: Counter[str] = Counter()
    for number, row in enumerate(rows):
        query, document = row["query"], row["document"]
        pair = (get_identity(query), get_identity(document))
        if not all(pair):
            counts["with an empty text"] += 1
        elif pair[0] == pair[1]:
            counts["with a query equal to its document"] += 1
        elif evaluated & {*pair}:
            counts["evaluated"] += 1
        elif pair in pairs:
            counts["repeated"] += 1
        else:
            pairs.add(pair)
            refused = {"", pair[1]} | evaluated
            negatives = tuple(text for text in row.get("negatives", []) if get_identity(text) not in refused)
            digest = hashlib.sha256(f"{row['domain']}\0{query}\0{document}".encode()).hexdigest()[:16]
            kept.append(Row(f"{name}:{number}:{digest}", query, document, row["domain"] or name, name, negatives))
    return kept, counts


WORDS = (
    *("Straße", "STRASSE", "a_b", "A b", "é", "e\u0301", "It's", "x\ty", "", "Ⅷ ½", "café-2", "no", "İ"),
    *("日本 語", "b ", "n."),
)


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_blocks_match_single_pairs(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated and evaluated pairs are dropped, also in different blocks. The files have the same bytes."""
    monkeypatch.setattr(importing, "PAIRS_PER_BLOCK", 7)
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = [
        {"query": WORDS[q], "document": f"{WORDS[d]} {WORDS[e]}", "domain": ["a", "", "b"][q % 3]}
        for q, d, e in rng.integers(0, len(WORDS), (1000, 3))
    ]
    rows[9] |= {"query": "no", "document": "long " * 300}
    if ending != ".csv":
        for row in rows:
            row["negatives"] = [WORDS[n] for n in rng.integers(0, len(WORDS), rng.integers(0, 4))]
    exam = Retrieval("t", ("d",), ("(A_b no)!",), ("q",), ("query: strasse?",), {"q": {"d": 1}})
    expected, counts = import_row_by_row(rows, "mine", {"a_b no", "strasse"})
    audit = import_file(tmp_path, write_rows(tmp_path / f"x{ending}", rows), evaluated=[exam])
    assert 300 < audit.num_kept == len(expected) < 1000
    assert audit.dropped == counts and min(counts.values()) > 0
    assert audit.num_with_negatives == sum(bool(row.negatives) for row in expected)
    write_pairs(tmp_path / "expected.arrow", expected, with_negatives=True)
    assert (tmp_path / "out" / "pairs.arrow").read_bytes() == (tmp_path / "expected.arrow").read_bytes()


@pytest.mark.parametrize(
    ("text", "other"),
    [
        *(("x؟", "x"), ("x।", "x"), ("¿x?", "x"), ("„x“ y", '"x" y'), ("「x」", "x"), ("x\u00a0?", "x?"), ("X?", "x")),
        *(("１２３", "123"), ("what’s – this", "what's - this"), ("\ufeffa so\u00adft \u200bx", "a soft x")),
        *(("où", "ou\u0300"), ("query: où?", "Où"), ("Query:  a", "a"), ("?", " ?"), ("Straße", "STRASSE")),
    ],
)
def test_spellings_of_a_text_are_one(text: str, other: str) -> None:
    assert identify_text(text) == identify_text(other) != ""


@pytest.mark.parametrize(
    ("text", "other"),
    [("−7", "7"), ("-7", "7"), ("x + y", "x - y"), ("!x", "x"), ("نی\u200cم", "نیم"), ("?", "!"), ("my query: a", "a")],
)
def test_signs_and_joiners_are_kept(text: str, other: str) -> None:
    assert identify_text(text) != identify_text(other)


def test_documents_of_a_row_are_no_negatives(tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "pos": [f"a {n}", f"b {n}"], "neg": [f"B {n}!", None, f"c {n}"]} for n in range(3)]
    audit = import_file(tmp_path, write_rows(tmp_path / "x.jsonl", rows))
    pairs = read_pairs(tmp_path / "out" / "pairs.arrow")
    assert pairs.negatives(range(6)) == [[f"c {n // 2}"] for n in range(6)]
    assert audit.num_with_negatives == 6 and audit.trains_on_negatives


def test_documents_without_a_pair_are_stored(tmp_path: Path) -> None:
    """Documents below the threshold and those of repeated or empty rows are stored once, for the search."""
    rows = [{"query": f"q {n}", "document": f"d {n % 9}", "label": int(n < 3)} for n in range(20)]
    rows += [{"query": "", "document": "alone", "label": 1}, {"query": "q 0", "document": "D 0.", "label": 1}]
    source = write_rows(tmp_path / "x.jsonl", rows)
    import_file(tmp_path, source)
    write_documents(source, tmp_path / "out", name="mine", columns=Columns())
    documents = read_pairs(tmp_path / "out" / "documents.arrow")
    assert documents.texts("document", range(len(documents))) == [*(f"d {n}" for n in range(3, 9)), "alone"]


def test_swapped_columns_are_noticed(tmp_path: Path) -> None:
    rows = [{"query": f"a long text of item {n} with many words", "document": f"what is {n}"} for n in (1, 2)]
    source = write_rows(tmp_path / "x.csv", rows)
    assert any("--query and --document" in note for note in import_file(tmp_path / "a", source).notes)
    swapped = Columns({"query": "document", "document": "query"})
    assert not any("--query" in note for note in import_file(tmp_path / "b", source, swapped).notes)


def test_source_without_pairs_is_refused(tmp_path: Path) -> None:
    """Also a BEIR folder whose columns or labels are named, since it has none."""
    with pytest.raises(ValueError, match="no pair to train on: 1 pairs read, 0 kept"):
        import_file(tmp_path / "a", write_rows(tmp_path / "x.jsonl", [{"query": "", "document": "b"}]))
    write_beir_folder(tmp_path / "beir", make_judged(4), "train")
    for columns in (Columns({"query": "text"}), Columns(threshold="yes"), Columns(threshold="1", lower_is_better=True)):
        with pytest.raises(ValueError, match="BEIR folder"):
            import_file(tmp_path / columns.options[0], tmp_path / "beir", columns)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wie kann ich das Passwort für mein Konto ändern, wenn ich die alte Adresse nicht mehr habe?", "german"),
        ("Comment puis-je changer le mot de passe de mon compte si je n'ai plus la même adresse ?", "french"),
        ("Как изменить пароль, если я не помню, на какой адрес он был отправлен?", "russian"),
        ("How can I change the password of my account?", "english"),
        ("def read(path): return path.read_text()", "english"),
        ("如何更改密码", "english"),
        ("", "english"),
    ],
)
def test_language_follows_stop_words(text: str, language: str) -> None:
    assert detect_language([text] * 3) == language
