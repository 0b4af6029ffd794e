"""Mining: the rows of each kind of source, and the rules that clean them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from repro.data.beir import load_beir, load_suite
from repro.data.mined import desk, mining, sources
from repro.data.mined.mining import ADDED, MINERS, WIDE_FOLDER, read_manifest
from repro.data.mined.splits import ADDED_SOURCES, get_split
from repro.data.mined.wheels import PINS
from repro.data.pairs import Row, read_pairs
from repro.data.wording import keep_words, strip_html


def test_markup_becomes_plain_text() -> None:
    html = "<p>Adds a <code>Tag</code> &amp; more.</p>\n<ul><li>x</li></ul>"
    assert strip_html(html) == "Adds a Tag & more. x"
    assert keep_words("The  NAME, of_a (Straße)!") == "the name of a strasse"
    assert keep_words("Cafe\u0301,  दिन?") == "cafe\u0301 दिन"
    assert len({keep_words(word) for word in ("दिन", "दान", "दन")}) == 3, "vowel marks make different words"


def test_evaluated_packages_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domains = ["numpy"] * 40 + ["networkx"] * 1200 + ["seaborn"] * 7
    rows = []
    for number, domain in enumerate(domains):
        words = f"w{number} v{number} u{number} t{number}"
        texts = (f"What {words} is", f"def f{number}: {words} end")
        rows.append(Row(f"functions/{domain}.{number}", *texts, domain, "functions"))
    monkeypatch.setattr(desk, "mine_functions", lambda: mining.Mined("functions", rows))
    desk.build_functions(tmp_path)
    assert set(read_pairs(tmp_path / "train.arrow").domain_names) == {"numpy"}
    datasets = load_suite(tmp_path / "suites" / "functions").datasets
    whole, sampled = (load_beir(dataset.path) for dataset in datasets)
    assert (len(whole.documents), len(sampled.documents)) == (1200, 1000)
    assert len(whole.queries) == len(sampled.queries) == 1000
    assert {document.split(".")[0] for document in whole.document_ids} == {"functions/networkx"}


def test_cleaning_drops_short_rows_and_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> Iterator[Row]:
        yield Row("a", "first query", "one two three four", "d", "s")
        yield Row("a", "second query", "one two three four", "d", "s")
        yield Row("b", "First QUERY!", "One two three, four.", "d", "s")
        yield Row("c", "First query", "one two three four", "other", "s")
        yield Row("d", "short", "one two three four", "d", "s")
        yield Row("e", "too little", "one two", "d", "s")

    monkeypatch.setitem(mining.MINERS, "fake", rows)
    assert [row.id for row in mining.mine("fake").rows] == ["a", "a#2", "c"]


def test_small_domains_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MIN_ROWS_PER_DOMAIN", 2)
    rows = [Row(str(n), "q", "d", domain, "homes") for n, domain in enumerate(("homes.a", "homes.b", "homes.a"))]
    assert [row.domain for row in sources.merge_small_domains(rows)] == ["homes.a", "homes.others", "homes.a"]


def test_added_sources_are_declared_and_pinned() -> None:
    """Whoever builds `wide` compares the rows of these sources with their manifests."""
    assert tuple(ADDED) == ADDED_SOURCES and not set(ADDED) & set(MINERS)
    for source in ADDED:
        (manifest,) = read_manifest(source, WIDE_FOLDER)
        pin = PINS[manifest["wheel"]]
        assert (manifest["version"], manifest["licence"]) == (pin.version, pin.licence)
        assert get_split(source, f"{source}.others") == "train"
    assert get_split("commands", "commands.netappfiles") == "unused", "modules of this vendor are evaluated"
