"""Training pairs on disk: what is read is what was written, nothing half-written stays, mistakes are named."""

from collections.abc import Iterator
from pathlib import Path

import datasets
import numpy as np
import pytest

from repro.data.pairs import Row, read_pairs, write_pairs

ROWS = [Row(f"id-{i}", f"query {i}", f"document {i} é", f"domain-{i % 7}", f"source-{i % 2}") for i in range(53)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_pairs(tmp_path / "train.arrow", ROWS, rows_per_batch=10)
    return tmp_path / "train.arrow"


def test_rows_come_back_in_the_order_asked_for_across_record_batches(path: Path) -> None:
    pairs = read_pairs(path)
    indices = np.random.default_rng(0).integers(0, len(ROWS), 200)
    assert len(pairs) == len(ROWS)
    assert pairs.texts("query", indices) == [ROWS[i].query for i in indices]
    assert pairs.texts("document", indices) == [ROWS[i].document for i in indices]
    assert pairs.ids() == [row.id for row in ROWS]
    assert pairs.texts("query", []) == []


def test_codes_name_the_domain_and_source_of_each_row(path: Path) -> None:
    pairs = read_pairs(path)
    assert pairs.domain_codes.dtype == np.int32
    assert [pairs.domain_names[code] for code in pairs.domain_codes] == [row.domain for row in ROWS]
    assert [pairs.source_names[code] for code in pairs.source_codes] == [row.source for row in ROWS]


def test_a_view_of_a_view_shows_the_right_rows(path: Path) -> None:
    view = read_pairs(path).take([40, 3, 17, 25]).take([2, 0])
    assert (len(view), view.ids()) == (2, ["id-17", "id-40"])
    assert view.texts("document", [1]) == [ROWS[40].document]
    assert [view.domain_names[code] for code in view.domain_codes] == [ROWS[17].domain, ROWS[40].domain]


def test_blocks_and_lengths_are_those_of_all_texts(path: Path) -> None:
    view = read_pairs(path).take(np.arange(0, 53, 2))
    wanted = [ROWS[i].document for i in range(0, 53, 2)]
    assert [text for block in view.blocks("document", 10) for text in block] == wanted
    assert view.text_lengths("document").tolist() == [len(text) for text in wanted]


def test_the_datasets_library_opens_the_same_file(path: Path) -> None:
    table = datasets.Dataset.from_file(str(path))
    assert table["document"][:] == [row.document for row in ROWS]


def test_hard_negatives_are_kept_and_their_absence_is_empty(path: Path, tmp_path: Path) -> None:
    assert read_pairs(path).negatives([0, 1]) == [[], []]
    rows = [row._replace(negatives=("n1", f"n-{row.id}")) for row in ROWS]
    write_pairs(tmp_path / "negatives.arrow", rows)
    assert read_pairs(tmp_path / "negatives.arrow").negatives([5, 2]) == [["n1", "n-id-5"], ["n1", "n-id-2"]]


def test_a_write_that_fails_leaves_the_old_file_and_no_part(path: Path) -> None:
    def broken() -> Iterator[Row]:
        yield ROWS[0]
        raise OSError("no space left on device")

    before = path.read_bytes()
    with pytest.raises(OSError, match="no space"):
        write_pairs(path, broken(), rows_per_batch=1)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["train.arrow"]


def test_what_is_half_written_has_the_name_that_prune_knows(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def rows() -> Iterator[Row]:
        yield ROWS[0]
        seen.append([path.name for path in tmp_path.glob(".*.part")])
        yield from ROWS[1:]

    write_pairs(tmp_path / "train.arrow", rows(), rows_per_batch=1)
    [[name]] = seen
    assert name.startswith(".train.arrow.")
    assert [path.name for path in tmp_path.iterdir()] == ["train.arrow"]


def test_mistakes_are_refused_by_name(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no pairs to write"):
        write_pairs(tmp_path / "empty.arrow", [])
    with pytest.raises(ValueError, match="no training pairs at"):
        read_pairs(tmp_path / "absent.arrow")
    (tmp_path / "text.arrow").write_text("not arrow at all")
    with pytest.raises(ValueError, match="is not an Arrow stream of pairs"):
        read_pairs(tmp_path / "text.arrow")
    with pytest.raises(IndexError, match="there are 53"):
        read_pairs(path).texts("query", [53])
