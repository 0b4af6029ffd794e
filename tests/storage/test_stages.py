"""Stages: a changed or damaged file is one line of error that names it, and a full disk is noticed before a build."""

import json
import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repro.data.own.imported import import_source
from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.pipeline.stages import StageGraph
from repro.planning.doctor import check_deeply
from repro.spec import base
from repro.spec.identity import run_id
from repro.storage import digests, files
from repro.storage.paths import get_local_records, run_folder
from repro.storage.shards import list_shards
from repro.storage.stages import STAGE_FILE, Stage
from repro.train.trainer import prepare_training
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


def measure_files(folder: Path) -> int:
    """Return the bytes of all files, without the key file and the headers of arrays."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != STAGE_FILE]
    return sum(path.stat().st_size - 128 * (path.suffix == ".npy") for path in files)


def set_free_bytes(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    """Set the free space of every disk."""
    monkeypatch.setattr(files.shutil, "disk_usage", lambda folder: SimpleNamespace(free=num_bytes))


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_full_disk_refuses_the_import(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = pa.table({"query": ["query"] * 2000, "document": ["text " * 9] * 2000})
    source = tmp_path / f"pairs.{ending}"
    if ending == "parquet":
        pq.write_table(pairs, source, use_dictionary=False)
    else:
        source.write_text("".join(json.dumps(pair) + "\n" for pair in pairs.to_pylist()))
    set_free_bytes(monkeypatch, 3000)
    with pytest.raises(ValueError, match=r"the import of .* needs about \d+ KiB in .*/corpora, where 3 KiB are free"):
        import_source(source, name="mine")


def test_full_disk_is_refused_per_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of every stage names the required space and the folder, before the stage or its shard is built."""
    pairs = pa.table(
        {"query": [f"query {n} {n % 7}" for n in range(500)], "document": [f"text {n} " * 9 for n in range(500)]}
    )
    pq.write_table(pairs, tmp_path / "pairs.parquet")
    free = shutil.disk_usage(tmp_path).free
    corpus = import_source(tmp_path / "pairs.parquet", name="mine").corpus
    run = base("smoke", corpus=corpus, suite="mine", sampler="cluster", cluster_size=8, num_hard_negatives=1)
    for stage in StageGraph(run).stages:
        need = stage.num_bytes() if stage.num_bytes else 0
        # The first shard needs the space of all shards and of the joined stage.
        for unit, num_bytes in [(stage, need), *((shard, 2 * need) for shard in list_shards(stage, 2)[:1])]:
            set_free_bytes(monkeypatch, num_bytes - 1)
            lines: list[str] = []
            with pytest.raises(ValueError, match=rf"the stage {stage.name}.* needs about .* in .*/{stage.name}"):
                unit.build(lines.append)
            assert lines == [], "the build has not begun"
        set_free_bytes(monkeypatch, free)
        assert 0.7 * measure_files(stage.build()) <= need, stage.name


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


def test_one_process_reads_per_machine(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for its note and read nothing."""
    stage = make_stage()
    stage.build()
    for note in stage.building_folder.glob("compared.*.json"):
        note.unlink()
    num_reads, read = [], digests.hash_file
    monkeypatch.setattr(digests, "hash_file", lambda path: num_reads.append(path) or time.sleep(0.2) or read(path))
    threads = [threading.Thread(target=stage.check) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(num_reads) == 1


def test_deep_check_names_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.planning.doctor.get_published_records", lambda: tmp_path / "published")
    stage = make_stage()
    (stage.build() / "sub" / "a.txt").write_text("two")
    for folder in (get_local_records(), tmp_path / "published"):
        folder.mkdir(parents=True)
        (folder / "0123456789ab.json").write_text("{")
    damaged = [finding.what for finding in check_deeply() if not finding.good]
    record = "0123456789ab.json"
    assert damaged == ["published records", record, "your records", record, "stages", stage.title]


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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stages of RUN and return their home."""
    home = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_HOME", str(home))
        Inputs(RUN).build(ignore)
    return home


FILES = (
    *("selection/rows.npy", "tokens/document/ids.npy", "tokens/query/offsets.npy", "embeddings/query.npy"),
    *("clusters/assignment_N.npy", "clusters/centroids_KD.npy", "negatives/rows.npy"),
)


@pytest.mark.parametrize("name", FILES)
def test_damaged_arrays_are_named(name: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong number ends the run with an error before it writes anything."""
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "copy"))
    shutil.copytree(built, tmp_path / "copy")
    kind, _, file = name.partition("/")
    path = next((tmp_path / "copy" / "stages" / kind).glob(f"[0-9a-f]*/{file}"))
    content = path.read_bytes()
    replace_silently(path, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=file.replace(".", r"\.")):
        execute(RUN, progress=ignore)
    assert not (get_local_records() / f"{run_id(RUN)}.json").exists()
    assert not list(run_folder(run_id(RUN)).glob("checkpoint*"))


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="needs /proc/self/smaps")
def test_random_reads_skip_readahead(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_HOME", str(built))
    _, data, _, _ = prepare_training(Inputs(RUN), tmp_path, lambda: False, ignore)
    assert data.filter is not None
    data.filter(data.batches.at(0))
    rows = [line.split() for line in Path("/proc/self/smaps").read_text().splitlines()]
    # Each map begins with a line that ends in the file. Lines of `Name: value` follow.
    files = [fields[-1] for fields in rows if not fields[0].endswith(":")]
    flags = [fields[1:] for fields in rows if fields[0] == "VmFlags:"]
    random = {Path(file).name for file, flag in zip(files, flags, strict=True) if str(built) in file and "rr" in flag}
    assert {"ids.npy", "offsets.npy", "query.npy", "document.npy", "keys.npy"} <= random


def test_stage_sizes_are_predicted(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions are exact except for headers. Those of tokens and clusters are approximate."""
    about = {"tokens": (1.0, 2.0), "clusters": (0.7, 1.5)}
    monkeypatch.setenv("REPRO_HOME", str(built))
    for stage in Inputs(RUN).graph.stages:
        if stage.num_bytes is None:
            continue
        size = sum(path.stat().st_size - 128 for path in stage.path.rglob("*.npy"))
        minimum, maximum = about.get(stage.name, (1.0, 1.0))
        assert minimum * size <= stage.num_bytes() <= maximum * size, stage.name


def test_hidden_stage_is_not_built_again(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk may show a stage of another machine only after its folder is listed."""
    stage = make_stage()

    def show(path: Path) -> None:
        path.mkdir(parents=True)
        (path / STAGE_FILE).write_text('{"files": {}}')

    monkeypatch.setattr("repro.storage.stages.remove_leftovers", show)
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
