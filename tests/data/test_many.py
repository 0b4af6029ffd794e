"""The corpus `packages-many`: splits by project, two kinds of queries, and no text shared by two splits."""

import hashlib
import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from repro.data.beir import load_suite
from repro.data.mined import many
from repro.data.mined.many import Package, build_many, mine_wheel, read_packages
from repro.data.mined.mining import MANY_FOLDER, hash_rows
from repro.data.mined.splits import Split
from repro.data.pairs import read_pairs
from repro.data.wording import keep_words
from repro.storage.digests import hash_file
from repro.storage.paths import get_home

WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll", "ledge")


def write_wheel(name: str, num_functions: int, *, shift: int = 0) -> Path:
    """Write a wheel whose functions have a summary line and a rest."""
    folder = get_home() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    lines = []
    for number in range(shift, shift + num_functions):
        a, b, c = (WORDS[(number // divisor) % len(WORDS)] for divisor in (1, 12, 144))
        lines.append(f"def make_{a}_{b}_{c}{number}():\n")
        rest = f"It reads {c} {a} {number} as {number}a {number}b {number}c {number}d."
        lines.append(f'    """Return the {a} of the {b} {number}.\n\n    {rest}\n    """\n\n')
    with ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/core.py", "".join(lines))
        archive.writestr(f"{name}/template.py", '"""A template {{ name"""\ndef {{ name }}(): pass\n')
    return path


def test_two_kinds_of_queries() -> None:
    path = write_wheel("plain", 80)
    summary, names = mine_wheel(path, "plain")[3], mine_wheel(path, "plain", "name")[3]
    assert (summary.query, summary.document) == (
        "Return the delta of the amber 3",
        "It reads amber delta 3 as 3a 3b 3c 3d.",
    )
    assert names.query == "core make delta amber amber3" and names.document == f"{summary.query}. {summary.document}"
    assert {row.domain for row in mine_wheel(path, "plain")} == {"plain:plain.core"}


def describe_package(path: Path, name: str, split: Split) -> Package:
    """Return the entry of a wheel in the list of packages."""
    rows = mine_wheel(path, name)
    return Package(name, "web", split, "1.0", path.name, hash_file(path), "MIT", 1, len(rows), 1, hash_rows(rows))


def test_committed_packages_follow_rules() -> None:
    """They are in the order of the candidates. A hash of the name decides the split, until it is full."""
    packages, candidates = read_packages(), [*json.loads((MANY_FOLDER / "candidates.json").read_text())]
    assert Counter(package.split for package in packages) == {"train": 120, "validation": 15, "test": 45}
    assert [package.name for package in packages] == [
        name for name in candidates if name in {package.name for package in packages}
    ]
    for package in packages:
        share = int.from_bytes(hashlib.sha256(package.name.encode()).digest()[:8], "big") / 2**64
        assert package.split == ("train" if share < 0.65 else "validation" if share < 0.75 else "test")
        assert package.num_bytes <= 12 * 2**20 and "GPL" not in package.licence


def test_splits_share_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The training package repeats 200 functions of the test package, and the validation package 100.
    sizes: dict[Split, tuple[int, int]] = {"train": (500, 200), "validation": (500, 1000), "test": (400, 0)}
    packages = [
        describe_package(write_wheel(f"p{split}", size, shift=shift), f"p{split}", split)
        for split, (size, shift) in sizes.items()
    ]
    monkeypatch.setattr(many, "PACKAGES_FILE", tmp_path / "packages.json")
    (tmp_path / "packages.json").write_text(json.dumps([asdict(package) for package in packages]))
    build_many(tmp_path / "corpus")
    suite = load_suite(tmp_path / "corpus" / "suites" / "packages-many")
    assert [dataset.name for dataset in suite.datasets] == [f"ptest-{kind}" for kind in ("summary", "name")]
    pairs = read_pairs(tmp_path / "corpus" / "train.arrow")
    assert len(pairs) == 500 - 200
    numbers = {int(keep_words(text).split()[-1]) for text in pairs.texts("query", range(len(pairs)))}  # type: ignore[arg-type]
    assert numbers == set(range(400, 700))
    build_many(tmp_path / "tenth", step=10)
    assert len(read_pairs(tmp_path / "tenth" / "train.arrow")) == len(pairs), "the first of every ten packages"
    changed = [
        replace(package, rows_sha256="0" * 64 if package.split == "test" else package.rows_sha256)
        for package in packages
    ]
    (tmp_path / "packages.json").write_text(json.dumps([asdict(package) for package in changed]))
    with pytest.raises(ValueError, match="not the 400"):
        build_many(tmp_path / "other-rows")
    # a wheel that changed is refused
    write_wheel("ptrain", 499, shift=200)
    with pytest.raises(ValueError, match="sha256"):
        build_many(tmp_path / "again")
