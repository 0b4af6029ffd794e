"""Training pairs on disk: read back as written, never half written, errors name the file."""

from collections.abc import Iterator
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest

from repro.data import pairs as pairs_module
from repro.data.pairs import Row, read_pairs, write_pairs

ROWS = [Row(f"id-{i}", f"query {i}", f"document {i} é", f"domain-{i % 7}", f"source-{i % 2}") for i in range(53)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_pairs(tmp_path / "train.arrow", ROWS, rows_per_batch=10)
    return tmp_path / "train.arrow"


def test_rows_come_in_requested_order(path: Path) -> None:
    pairs = read_pairs(path)
    indices = np.random.default_rng(0).integers(0, len(ROWS), 200)
    assert len(pairs) == len(ROWS)
    assert pairs.texts("query", indices) == [ROWS[i].query for i in indices]
    assert pairs.texts("document", indices) == [ROWS[i].document for i in indices]
    assert pairs.ids() == [row.id for row in ROWS]
    assert pairs.texts("query", []) == []
    assert pairs.domain_codes.dtype == np.int32
    assert [pairs.domain_names[code] for code in pairs.domain_codes] == [row.domain for row in ROWS]
    assert [pairs.source_names[code] for code in pairs.source_codes] == [row.source for row in ROWS]
    assert datasets.Dataset.from_file(str(path))["document"][:] == [row.document for row in ROWS]


def test_nested_views_show_right_rows(path: Path) -> None:
    view = read_pairs(path).take([40, 3, 17, 25]).take([2, 0])
    assert (len(view), view.ids()) == (2, ["id-17", "id-40"])
    assert view.texts("document", [1]) == [ROWS[40].document]
    assert [view.domain_names[code] for code in view.domain_codes] == [ROWS[17].domain, ROWS[40].domain]


def test_blocks_match_all_texts(path: Path) -> None:
    view = read_pairs(path).take(np.arange(0, 53, 2))
    expected = [ROWS[i].document for i in range(0, 53, 2)]
    assert [text for block in view.blocks("document", 10) for text in block] == expected


def test_hard_negatives_may_be_absent(path: Path, tmp_path: Path) -> None:
    assert read_pairs(path).negatives([0, 1]) == [[], []]
    rows = [row._replace(negatives=("n1", f"n-{row.id}")) for row in ROWS]
    write_pairs(tmp_path / "negatives.arrow", rows, with_negatives=True)
    assert read_pairs(tmp_path / "negatives.arrow").negatives([5, 2]) == [["n1", "n-id-5"], ["n1", "n-id-2"]]


def test_long_texts_make_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "MAX_BATCH_CHARACTERS", 1000)
    texts = ["é" * size for size in (10, 380, 380, 380, 5000, 10, 20, 10)]
    rows = [Row("i", "q", "d", "a", "s", (text, text)) for text in texts]
    write_pairs(tmp_path / "long.arrow", rows, rows_per_batch=6, with_negatives=True)
    with pa.OSFile(str(tmp_path / "long.arrow")) as file:
        assert [len(batch) for batch in pa.ipc.open_stream(file)] == [2, 1, 1, 1, 3]
    assert read_pairs(tmp_path / "long.arrow").negatives(range(8)) == [[text, text] for text in texts]


def test_failed_write_keeps_old_file(path: Path) -> None:

    def iter_rows() -> Iterator[Row]:
        yield ROWS[0]
        raise OSError("no space left on device")

    before = path.read_bytes()
    with pytest.raises(OSError, match="no space"):
        write_pairs(path, iter_rows(), rows_per_batch=1)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["train.arrow"]
