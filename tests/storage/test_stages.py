"""Stages: a changed or damaged file is one line of error that names it, and a full disk is noticed before a build."""

import os
import shutil
from pathlib import Path

import pytest

from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.planning.doctor import check_deeply
from repro.spec import base
from repro.spec.identity import run_id
from repro.storage import digests
from repro.storage.paths import get_local_records, run_folder
from repro.storage.stages import STAGE_FILE, Stage
from tests.commands import ignore

RUN = base("smoke", sampler="cluster", cluster_size=8, filter="surrogate", num_hard_negatives=1, num_steps=3)


def make_stage() -> Stage:
    """Return a stage of one small file."""

    def make(folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / "sub" / "a.txt").write_text("one")

    return Stage("thing", {"a": 1}, make)


def test_changed_file_is_named(own_home: Path) -> None:
    stage = make_stage()
    file = stage.build() / "sub" / "a.txt"
    assert stage.build() == stage.path
    for damage in (lambda: file.write_text("two"), file.unlink):
        damage()
        with pytest.raises(ValueError, match=r"a\.txt .*remove the folder"):
            stage.build()
    shutil.rmtree(stage.path)
    assert (stage.build() / "sub" / "a.txt").read_text() == "one"


def replace_silently(path: Path, content: bytes) -> None:
    """Replace the content of a file in place and restore its modification time, as `cp -p` does."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_silent_change_is_found(own_home: Path) -> None:
    """A change of the same size and modification time changes the time of change."""
    stage = make_stage()
    file = stage.build() / "sub" / "a.txt"
    replace_silently(file, b"onf")
    with pytest.raises(ValueError, match=r"a\.txt is not the file"):
        stage.check()
    replace_silently(file, b"one")
    stage.check()


def test_large_files_are_sampled(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new machine reads samples of large files. The deep check reads everything."""
    monkeypatch.setattr(digests, "SAMPLED_BYTES", 1)
    monkeypatch.setattr(digests, "BYTES_PER_SAMPLE", 1)
    content = bytes(range(200))
    stage = Stage("thing", {"a": 2}, lambda folder: (folder / "a.bin").write_bytes(content))
    file = stage.build() / "a.bin"
    # With 64 samples of one byte, byte 3 is read and byte 2 is not.
    replace_silently(file, content[:2] + b"x" + content[3:])
    stage.check()
    with pytest.raises(ValueError, match=r"a\.bin is not the file"):
        stage.check(deep=True)
    for changed in (content[:3] + b"x" + content[4:], content[:-1] + b"x", content + b"x"):
        replace_silently(file, changed)
        with pytest.raises(ValueError, match=r"a\.bin is not the file"):
            stage.check()


def test_deep_check_names_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.planning.doctor.get_published_records", lambda: tmp_path / "published")
    stage = make_stage()
    (stage.build() / "sub" / "a.txt").write_text("two")
    for folder in (get_local_records(), tmp_path / "published"):
        folder.mkdir(parents=True)
        (folder / "0123456789ab.json").write_text("{")
    damaged = [finding.what for finding in check_deeply() if not finding.good]
    names = [f"{folder}/0123456789ab.json" for folder in ("published", "records")]
    stage_file = f"{stage.folder_name}/{STAGE_FILE}"
    assert damaged == ["published records", names[0], "your records", names[1], "stages", stage_file]


def test_keyless_folder_is_refused(own_home: Path) -> None:
    stage = make_stage()
    stage.path.mkdir(parents=True)
    with pytest.raises(ValueError, match="remove the folder"):
        stage.build()


@pytest.mark.parametrize("text", ["", "{", "3", '{"files": 3}', "[" * 99_999])
def test_damaged_key_file_is_named(own_home: Path, text: str) -> None:
    (make_stage().build() / STAGE_FILE).write_text(text)
    with pytest.raises(ValueError, match=r"stage\.json"):
        make_stage().build()


def test_damaged_arrays_are_named(own_home: Path) -> None:
    """A wrong number in any array ends the run with an error before it writes anything."""
    Inputs(RUN).build(ignore)
    for name in ("tokens/*/document/ids.npy", "embeddings/*/query.npy", "clusters/*/assignment_N.npy"):
        path = next((own_home / "stages").glob(name))
        content = path.read_bytes()
        replace_silently(path, content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ValueError, match=path.name):
            execute(RUN, progress=ignore)
        replace_silently(path, content)
    assert not (get_local_records() / f"{run_id(RUN)}.json").exists()
    assert not list(run_folder(run_id(RUN)).glob("checkpoint*"))


def test_hidden_stage_is_not_built_again(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk may show a stage of another machine only after its folder is listed."""
    stage = make_stage()

    def show(path: Path, *, is_leased: bool) -> None:
        path.mkdir(parents=True)
        (path / STAGE_FILE).write_text('{"files": {}}')

    monkeypatch.setattr("repro.storage.stages.remove_dead_parts", show)
    stage.build()
    assert [path.name for path in stage.path.iterdir()] == [STAGE_FILE]
    assert not list(stage.path.parent.glob(".*.part"))


def test_build_removes_killed_attempts(own_home: Path) -> None:
    """A killed build leaves a temporary folder, which the next build of the stage removes."""
    stage = make_stage()
    leftover = stage.path.with_name(f".{stage.path.name}.0123.part")
    leftover.mkdir(parents=True)
    (leftover / "half").write_text("x")
    stage.build()
    assert not leftover.exists()
