"""Stages in shards: the joined files equal those built at once, and damaged or outdated shards are refused."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.batches import surrogate
from repro.pipeline.stages import StageGraph
from repro.spec import Run, base
from repro.storage.shards import (
    Part,
    build_from_shards,
    find_stage,
    list_redundant_shards,
    list_shard_folders,
    list_shards,
    make_shard,
)
from repro.storage.stages import STAGE_FILE, Sharding, Stage
from tests.batches.test_surrogate import Listed
from tests.storage.test_stages import replace_silently

KINDS = ("tokens", "embeddings", "keys")


def build_selection(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> StageGraph:
    """Return the stages of a run in a new home, built up to the selection of pairs."""
    monkeypatch.setenv("REPRO_HOME", str(home))
    graph = StageGraph(run)
    graph.selection.build()
    return graph


def read_contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder except the key file."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != STAGE_FILE)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def make_blocks_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce blocks, windows and spans of texts, so that few texts fill many of them."""
    monkeypatch.setattr(surrogate, "TEXTS_PER_BLOCK", 16)
    monkeypatch.setattr(surrogate, "TEXTS_PER_WINDOW", 48)
    monkeypatch.setattr(surrogate, "TEXTS_PER_SPAN", 40)


@pytest.mark.parametrize("length", [0, 1, 7, 240])
@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("of", [1, 2, 3, 8])
def test_parts_cut_between_blocks(length: int, step: int, of: int) -> None:
    spans = [Part(number, of).span(length, step) for number in range(1, of + 1)]
    assert [position for span in spans for position in range(span.start, span.stop)] == list(range(length))
    assert all(span.start % step == 0 for span in spans if span.start < length)
    sizes = [-(-(span.stop - span.start) // step) for span in spans]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("fields", [{}, {"num_pairs": 2, "batch_size": 2}], ids=["three shards", "two pairs"])
def test_shards_give_the_same_bytes(fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_blocks_small(monkeypatch)
    run, num_shards = base("smoke", filter="surrogate", surrogate="minilm-words", **fields), 3
    whole = build_selection(tmp_path / "whole", run, monkeypatch)
    expected = {kind: read_contents(getattr(whole, kind).build()) for kind in KINDS}
    in_shards = build_selection(tmp_path / "in-shards", run, monkeypatch)
    for kind in KINDS:
        joined = getattr(in_shards, kind)
        assert read_contents(build_from_shards(joined, num_shards)) == expected[kind], kind
        assert not list(list_shard_folders(joined.path)), "joined shards are removed"
        assert list_shards(joined, num_shards)[0].is_built, "shards of a built stage count as built"


def make_stage(text: str = "part") -> tuple[Stage, list[int]]:
    """Return a small stage that depends on another one, and a list that records the parts that are made."""
    built_parts: list[int] = []

    def make(folder: Path, part: Part) -> None:
        built_parts.append(part.number)
        (folder / "some").write_text(f"{text} {part.number}")

    def join(folder: Path, parts: list[Path]) -> None:
        (folder / "all").write_text(", ".join((part / "some").read_text() for part in parts))

    below = Stage("below", {}, lambda folder: (folder / "input").write_text(text))
    stage = Stage("above", {}, lambda folder: make(folder, Part()), (below,), Sharding(make, join))
    return stage, built_parts


def test_join_makes_missing_shards(own_home: Path) -> None:
    stage, built_parts = make_stage()
    shards = list_shards(stage, 3)
    for shard in shards[:2]:
        shard.build()
    assert built_parts == [1, 2]
    assert (build_from_shards(stage, 3) / "all").read_text() == "part 1, part 2, part 3"
    assert built_parts == [1, 2, 3]


def test_shards_of_two_commits_are_not_joined(own_home: Path) -> None:
    stage, _ = make_stage()
    shards = list_shards(stage, 2)
    for shard, commit in zip(shards, ("abc", "def"), strict=True):
        replace(shard, made_with=lambda commit=commit: {"commit": commit}).build()
    with pytest.raises(ValueError, match=r"1-of-2 was built with .*'abc'.*2-of-2 with .*'def'"):
        build_from_shards(stage, 2)
    assert not stage.is_built
    shutil.rmtree(shards[1].path)
    replace(shards[1], made_with=lambda: {"commit": "abc"}).build()
    build_from_shards(stage, 2)
    assert stage.read_build_metadata() == {"made_with": {"commit": "abc"}}


def test_damaged_shard_is_not_joined(own_home: Path) -> None:
    stage, _ = make_stage()
    shard = list_shards(stage, 2)[1]
    file = shard.build() / "some"
    replace_silently(file, b"part 3")
    with pytest.raises(ValueError, match=r"2-of-2/some is not the file that was made"):
        build_from_shards(stage, 2)
    assert not stage.is_built


def test_name_finds_its_shard(own_home: Path) -> None:
    stage, _ = make_stage()
    shard = make_shard(stage, Part(2, 3))
    assert find_stage(shard.title, (stage.needs[0], stage)).path == shard.path
    assert find_stage(stage.title, (stage,)) is stage
    shard.build()
    assert not list(list_redundant_shards())
    stage.build()
    assert list(list_redundant_shards()) == [shard.path]


def test_missing_vector_is_refused(tmp_path: Path) -> None:
    for index, rows in enumerate(([0, 1], [1])):
        (tmp_path / str(index)).mkdir()
        np.save(tmp_path / str(index) / surrogate.ROWS_FILE, np.array(rows))
        np.save(tmp_path / str(index) / surrogate.VECTORS_FILE, np.zeros((len(rows), 4), np.float16))
    with pytest.raises(ValueError, match="no vector of text 2"):
        surrogate.join_embeddings(tmp_path / "all.npy", [tmp_path / "0", tmp_path / "1"])


class BatchDependentEncoder:
    """An encoder whose vectors depend on all texts of a call, as padding causes by rounding."""

    num_dimensions = 2
    depends_on_batch = True
    num_threads = 1
    num_embedded = 0

    def embed(self, texts: list[str], max_tokens: int) -> np.ndarray:
        """Return the number of characters of each text, and that of all texts modulo 997."""
        self.num_embedded += len(texts)
        return np.array([[len(text), sum(map(len, texts)) % 997] for text in texts], np.float32)


@pytest.mark.parametrize("num_parts", [2, 3, 8])
def test_parts_keep_the_blocks(num_parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_blocks_small(monkeypatch)
    rng = np.random.default_rng(0)
    texts = Listed(["x" * length + str(length % 7) for length in rng.integers(1, 60, 333)])
    whole_encoder, part_encoder = BatchDependentEncoder(), BatchDependentEncoder()
    embeddings = surrogate.embed_texts(whole_encoder, texts, tmp_path / "whole.npy", max_tokens=8)
    assert len(np.unique(embeddings[:, 1])) > 10, "there are many blocks"
    parts = [tmp_path / str(number) for number in range(1, num_parts + 1)]
    for number, folder in enumerate(parts, 1):
        folder.mkdir()
        surrogate.embed_part(part_encoder, texts, folder, max_tokens=8, part=Part(number, num_parts))
    surrogate.join_embeddings(tmp_path / "joined.npy", parts)
    assert (tmp_path / "joined.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert part_encoder.num_embedded == whole_encoder.num_embedded
