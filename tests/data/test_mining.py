"""Mining: the rows of each kind of source, and the rules that clean them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro.data.mined import mining
from repro.data.mined.sources import cloud, docstrings, medical
from repro.data.pairs import Row
from repro.data.wording import normalise, phrase, strip_html
from tests.data.conftest import write_package

MODULE = '''"""Tools for averages.

They work on lists.
"""

def weighted_mean(values):
    """Compute the weighted average of some numbers.

    Weights are scaled with :func:`~tools.scale` first, see ``scale``.

    Examples
    --------
    >>> weighted_mean([1])
    """

class HTTPReader:
    """Read. Opens the address and gives its body as text."""

    def close_all(self):
        """Release every connection that is open."""

    def __repr__(self):
        """A hidden method that nobody asks for by name."""
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a package of one module on the path. Importing it raises."""
    write_package(tmp_path / "averages", MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "averages"


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("CreateDBInstance", "create db instance"),
        ("create_db_instance", "create db instance"),
        ("S3DeltaSource", "s3 delta source"),
        ("listV2Rules", "list v2 rules"),
        ("HTTPServer", "http server"),
        ("x", "x"),
    ],
)
def test_identifiers_become_words(identifier: str, words: str) -> None:
    assert phrase(identifier) == words


def test_markup_becomes_plain_text() -> None:
    html = "<p>Adds a <code>Tag</code> &amp; more.</p>\n<ul><li>x</li></ul>"
    assert strip_html(html) == "Adds a Tag & more. x"
    assert normalise("The  NAME, of_a (Straße)!") == "the name of a strasse"


def test_docstrings_are_read_without_import(package: str) -> None:
    rows = {row.id: row for row in docstrings.mine_package(package)}
    assert {key: (row.query, row.document) for key, row in rows.items()} == {
        "packages/averages.means": ("means Tools for averages", "They work on lists."),
        "packages/averages.means.weighted_mean": (
            "Compute the weighted average of some numbers",
            "Weights are scaled with tools.scale first, see scale.",
        ),
        "packages/averages.means.HTTPReader": ("http reader Read", "Opens the address and gives its body as text."),
        "packages/averages.means.HTTPReader.close_all": (
            "http reader close all",
            "Release every connection that is open.",
        ),
    }
    assert {row.domain for row in rows.values()} == {package}, "small sub-packages share the domain of the package"
    assert package not in sys.modules


def test_stable_api_version_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "discovery_cache" / "documents"
    folder.mkdir(parents=True)
    for version in ("v1", "v2beta1", "v1alpha"):
        text = f'{{"methods": {{"get": {{"description": "Gets it in {version} style."}}}}}}'
        (folder / f"things.{version}.json").write_text(text)
    monkeypatch.setattr(cloud, "get_package_folder", lambda name: tmp_path)
    assert [row.document for row in cloud.mine_cloud()] == ["Gets it in v1 style."]


def test_phenotypes_are_asked_by_synonym(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "hp.obo").write_text(
        "ontology: hp\n\n[Term]\nid: HP:0000118\nname: Phenotypic abnormality\n\n"
        "[Term]\nid: HP:1\nname: Abnormality of the ear\nis_a: HP:0000118 ! Phenotypic abnormality\n\n"
        '[Term]\nid: HP:2\nname: Hearing loss\ndef: "A \\"reduced\\" ability to hear." [x]\n'
        'synonym: "Being deaf" EXACT []\nis_a: HP:1 ! Abnormality of the ear\n\n[Typedef]\nid: has_part\n'
    )
    monkeypatch.setattr(medical, "get_package_folder", lambda name: tmp_path)
    rows = [row for row in medical.mine_phenotypes() if row.document]
    assert rows == [
        Row("phenotypes/HP:2", "Being deaf", 'A "reduced" ability to hear.', "abnormality of the ear", "phenotypes")
    ]


def test_cleaning_counts_what_it_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> Iterator[Row]:
        yield Row("a", "first query", "one two three four", "d", "s")
        yield Row("a", "second query", "one two three four", "d", "s")
        yield Row("b", "First QUERY!", "One two three, four.", "d", "s")
        yield Row("c", "First query", "one two three four", "other", "s")
        yield Row("d", "short", "one two three four", "d", "s")
        yield Row("e", "too little", "one two", "d", "s")

    monkeypatch.setitem(mining.MINERS, "fake", rows)
    mined = mining.mine("fake")
    assert [row.id for row in mined.rows] == ["a", "a#2", "c"]
    assert mined.removed == {"too_short_or_long": 2, "repeated_pair": 1}


def test_unknown_source_lists_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown source 'news'; there are \['cloud', 'diagnoses'"):
        mining.mine("news")
