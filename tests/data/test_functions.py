"""Functions as text: which ones become pairs of docstring and code, and which packages are evaluated."""

from pathlib import Path

import pytest

from repro.data.mined import functions as corpus
from repro.data.mined.sources import functions
from repro.data.pairs import Row
from tests.data.conftest import write_package

MODULE = '''"""Tools for averages."""

def weighted_mean(values, weights):
    """Compute the *weighted* average of some numbers.

    Weights are scaled first.
    """
    total = sum(weights)

    # scaled
    return sum(v * w for v, w in zip(values, weights)) / total


def mean(values):
    """Compute the average of some numbers."""
    return weighted_mean(values, [1] * len(values))


class Reader:
    """A class is no function at all."""

    async def close_all(self):
        """Release whole connection that is open."""
        for one in self.open:
            await one.close()

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
    write_package(tmp_path / "averages", MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(functions, "PACKAGES", ("averages",))
    return "averages"


def test_docstring_leads_to_its_code(package: str) -> None:
    """Two of six qualify. `mean` is too short, a class is no function, the others lack a docstring or are hidden."""
    assert list(functions.mine_functions()) == [
        Row(
            "functions/averages.means.weighted_mean",
            "Compute the weighted average of some numbers",
            "def weighted_mean(values, weights): total = sum(weights) # scaled "
            "return sum(v * w for v, w in zip(values, weights)) / total",
            package,
            "functions",
        ),
        Row(
            "functions/averages.means.Reader.close_all",
            "Release whole connection that is open",
            "async def close_all(self): for one in self.open: await one.close()",
            package,
            "functions",
        ),
    ]


def test_evaluated_packages_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from repro.data.beir import load_beir, load_suite
    from repro.data.mined.mining import Mined
    from repro.data.pairs import read_pairs

    def make_row(number: int, domain: str) -> Row:
        words = f"w{number} v{number} u{number} t{number}"
        texts = f"What {words} is", f"def f{number}: {words} end"
        return Row(f"functions/{domain}.{number}", *texts, domain, "functions")

    domains = ["numpy"] * 40 + ["networkx"] * 1200 + ["seaborn"] * 7
    rows = [make_row(number, domain) for number, domain in enumerate(domains)]
    monkeypatch.setattr(corpus, "mine_functions", lambda: Mined("functions", rows, {}))
    monkeypatch.setattr(corpus, "verify", lambda mined, folder: None)
    corpus.build_functions(tmp_path)
    assert set(read_pairs(tmp_path / "train.arrow").domain_names) == {"numpy"}
    whole, sampled = (load_beir(one.path) for one in load_suite(tmp_path / "suites" / "functions").datasets)
    assert (len(whole.documents), len(sampled.documents)) == (1200, 1000)
    assert len(whole.queries) == len(sampled.queries) == 1000
    assert {one.split(".")[0] for one in whole.document_ids} == {"functions/networkx"}


def test_manifest_has_own_folder() -> None:
    from repro.data.mined.manifests import FUNCTIONS_FOLDER, MANIFEST_FOLDER, WHEELS, read_manifest
    from repro.data.mined.mining import MINERS

    found = read_manifest("functions", FUNCTIONS_FOLDER)
    assert [manifest.wheel for manifest in found] == list(WHEELS["functions"]) == list(WHEELS["packages"])
    assert all(manifest.num_rows and manifest.licence for manifest in found)
    assert {path.stem for path in MANIFEST_FOLDER.glob("*.json")} == set(MINERS), (
        "the folder of manifests decides the key of desk"
    )
