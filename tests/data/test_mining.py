"""Mining: the rows of each kind of source, and the rules that clean them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro.data.beir import load_beir, load_suite
from repro.data.mined import desk, mining
from repro.data.mined.manifests import FUNCTIONS_FOLDER, MANIFEST_FOLDER, WHEELS, read_manifest
from repro.data.mined.sources import apis, docstrings, medical
from repro.data.pairs import Row, read_pairs
from repro.data.wording import keep_words, split_identifier, strip_html

MODULE = '''"""Tools for averages.

They work on lists.
"""

def weighted_mean(values, weights):
    """Compute the *weighted* average of some numbers.

    Weights are scaled with :func:`~tools.scale` first, see ``scale``.

    Examples
    --------
    >>> weighted_mean([1])
    """
    total = sum(weights)

    # scaled
    return sum(v * w for v, w in zip(values, weights)) / total

def mean(values):
    """Compute the average of some numbers."""
    return weighted_mean(values, [1] * len(values))

class HTTPReader:
    """Read. Opens the address and gives its body as text."""

    async def close_all(self):
        """Release every connection that is open."""
        for connection in self.open:
            await connection.close()

    def __repr__(self):
        """A hidden method that nobody asks for by name."""
        name = type(self).__name__
        return name

    def undocumented(self):
        name = type(self).__name__
        return name
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a package with one module and a copy of it among its tests on the path. Importing it raises."""
    folder = tmp_path / "averages"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "means.py").write_text(MODULE)
    (folder / "tests" / "test_means.py").write_text(MODULE)
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
    assert split_identifier(identifier) == words


def test_markup_becomes_plain_text() -> None:
    html = "<p>Adds a <code>Tag</code> &amp; more.</p>\n<ul><li>x</li></ul>"
    assert strip_html(html) == "Adds a Tag & more. x"
    assert keep_words("The  NAME, of_a (Straße)!") == "the name of a strasse"
    assert keep_words("Cafe\u0301,  दिन?") == "cafe\u0301 दिन"
    assert len({keep_words(word) for word in ("दिन", "दान", "दन")}) == 3, "vowel marks make different words"


def test_docstrings_are_read_without_import(package: str) -> None:
    rows = list(docstrings.mine_package(package))
    assert {row.id.removeprefix("packages/averages."): (row.query, row.document) for row in rows} == {
        "means": ("means Tools for averages", "They work on lists."),
        "means.weighted_mean": (
            "Compute the weighted average of some numbers",
            "Weights are scaled with tools.scale first, see scale.",
        ),
        "means.mean": ("means mean", "Compute the average of some numbers."),
        "means.HTTPReader": ("http reader Read", "Opens the address and gives its body as text."),
        "means.HTTPReader.close_all": ("http reader close all", "Release every connection that is open."),
    }
    assert {row.domain for row in rows} == {package}, "small sub-packages share the domain of the package"
    assert package not in sys.modules


def test_docstring_leads_to_its_code(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two functions qualify. `mean` is too short, a class is no function, the others lack a docstring or are hidden."""
    monkeypatch.setattr(docstrings, "PACKAGES", (package,))
    assert [row[:3] for row in docstrings.mine_functions()] == [
        (
            "functions/averages.means.weighted_mean",
            "Compute the weighted average of some numbers",
            "def weighted_mean(values, weights): total = sum(weights) # scaled "
            "return sum(v * w for v, w in zip(values, weights)) / total",
        ),
        (
            "functions/averages.means.HTTPReader.close_all",
            "Release every connection that is open",
            "async def close_all(self): for connection in self.open: await connection.close()",
        ),
    ]


def test_evaluated_packages_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domains = ["numpy"] * 40 + ["networkx"] * 1200 + ["seaborn"] * 7
    rows = []
    for number, domain in enumerate(domains):
        words = f"w{number} v{number} u{number} t{number}"
        texts = (f"What {words} is", f"def f{number}: {words} end")
        rows.append(Row(f"functions/{domain}.{number}", *texts, domain, "functions"))
    monkeypatch.setattr(desk, "mine_functions", lambda: mining.Mined("functions", rows, {}))
    monkeypatch.setattr(desk, "verify_manifests", lambda mined, folder: None)
    desk.build_functions(tmp_path)
    assert set(read_pairs(tmp_path / "train.arrow").domain_names) == {"numpy"}
    datasets = load_suite(tmp_path / "suites" / "functions").datasets
    whole, sampled = (load_beir(dataset.path) for dataset in datasets)
    assert (len(whole.documents), len(sampled.documents)) == (1200, 1000)
    assert len(whole.queries) == len(sampled.queries) == 1000
    assert {document.split(".")[0] for document in whole.document_ids} == {"functions/networkx"}


def test_functions_have_their_own_manifest() -> None:
    """The manifests in the folder above decide the key of `desk`."""
    manifests = read_manifest("functions", FUNCTIONS_FOLDER)
    assert [manifest.wheel for manifest in manifests] == list(WHEELS["functions"]) == list(WHEELS["packages"])
    assert all(manifest.num_rows and manifest.licence for manifest in manifests)
    assert {path.stem for path in MANIFEST_FOLDER.glob("*.json")} == set(mining.MINERS)


def test_stable_api_version_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "discovery_cache" / "documents"
    folder.mkdir(parents=True)
    for version in ("v1", "v2beta1", "v1alpha"):
        text = f'{{"methods": {{"get": {{"description": "Gets it in {version} style."}}}}}}'
        (folder / f"things.{version}.json").write_text(text)
    monkeypatch.setattr(apis, "get_package_folder", lambda name: tmp_path)
    assert [row.document for row in apis.mine_cloud()] == ["Gets it in v1 style."]


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
