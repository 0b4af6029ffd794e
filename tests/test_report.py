"""Numbers are formatted in one place, and what is absent is a dash in every format."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from repro.report import (
    BLOCK_END,
    BLOCK_START,
    View,
    as_csv,
    as_latex,
    as_markdown,
    cell,
    format_mean,
    format_number,
    table_view,
    write_claims_block,
)
from repro.spec import Column, Row, Run, Table, base, grid, pick
from repro.store import Record, write_record

NDCG = Column(label="NDCG@10", value="{suite}/mean/ndcg_at_10", factor=100)
TABLE = Table(
    name="tableX",
    caption="a caption",
    columns=(Column(label="batch", value="batch_size", decimals=0), NDCG),
    rows=(
        Row(label="random", of=pick(sampler="random"), paper={"NDCG@10": 59.9}),
        Row(label="domain", of=pick(sampler="domain")),
        Row(label="· wrong", of=pick(sampler="domain"), context="wrong"),
    ),
)
RUNS = grid(base("desk"), sampler=("random", "domain"), seed=(0, 1, 2))


def record(folder: Path, run: Run, score: float) -> Record:
    metrics = {"desk/mean/ndcg_at_10": score, "desk+wrong/mean/ndcg_at_10": score / 2}
    return write_record(folder, run, metrics=metrics, arrays={"desk": np.zeros(1)}, provenance={})


def test_numbers_have_their_decimals_and_absence_is_a_dash() -> None:
    assert (format_number(1.25, 1), format_number(None)) == ("1.2", "–")
    assert (format_mean([], 1), format_mean([0.5], 1), format_mean([1.0, 3.0], 1)) == ("–", "0.5", "2.0 ± 1.4")


def test_a_table_shows_paper_published_and_yours_with_their_seeds(tmp_path: Path) -> None:
    published = [record(tmp_path, run, 0.5 + run.seed / 100) for run in RUNS]
    yours = [record(tmp_path / "mine", RUNS[0], 0.25)]
    view = table_view(TABLE, RUNS, published, yours)
    assert view.rows == (
        ("random", "paper", "", "–", "59.9"),
        ("", "published", "3/3", "128", "51.0 ± 1.0"),
        ("", "yours", "1/3", "128", "25.0"),
        ("domain", "published", "3/3", "128", "51.0 ± 1.0"),
        ("", "yours", "0/3", "–", "–"),
        ("· wrong", "published", "3/3", "", "25.5 ± 0.5"),
        ("", "yours", "0/3", "", "–"),
    )


def test_a_metric_that_one_record_lacks_leaves_the_average_absent(tmp_path: Path) -> None:
    whole = record(tmp_path, RUNS[0], 0.5)
    lacking = write_record(tmp_path, RUNS[1], metrics={"other": 1.0}, arrays={}, provenance={})
    assert cell(NDCG, TABLE.rows[0], [whole]) == "50.0"
    assert cell(NDCG, TABLE.rows[0], [whole, lacking]) == "–"


def test_special_characters_survive_every_format() -> None:
    view = View("title", ("a|b", "c&d"), (("x|y", "50 % _ ± –"),), ("a note",))
    assert "| x\\|y | 50 % _ ± – |" in as_markdown(view) and as_markdown(view).endswith("a note\n")
    assert r"50 \% \_ $\pm$ --" in as_latex(view)
    assert list(csv.reader(io.StringIO(as_csv(view)))) == [["a|b", "c&d"], ["x|y", "50 % _ ± –"]]


def test_the_claims_block_is_renewed_between_its_markers(tmp_path: Path) -> None:
    path = tmp_path / "R.md"
    path.write_text(f"before\n{BLOCK_START}\nold\n{BLOCK_END}\nafter\n")
    write_claims_block([], "desk", path)
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text and "| claim |" in text
    path.write_text("no markers")
    with pytest.raises(ValueError, match="once each"):
        write_claims_block([], "desk", path)
