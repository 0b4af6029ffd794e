"""The front page's picture: its numbers are differences of published records at one seed, and the same each time."""

import re
import statistics
from pathlib import Path

import pytest

from experiments.e01_table1 import TABLE
from figures.gains import gains_svg
from repro.cli.renew import front_pictures
from repro.records.store import read_records, write_record
from repro.report.gains import list_gain_rows
from repro.spec import Column, Row, Table, base, grid, pick
from repro.spec.registry import find_experiment
from repro.storage.paths import get_published_records

ROWS = [{"row": "a", "seed": seed, "gain": gain, "paper": 1.5} for seed, gain in enumerate((1.0, 2.0, 4.5))]
ROWS += [{"row": "b", "seed": seed, "gain": gain, "paper": None} for seed, gain in enumerate((-1.0, -1.1, -0.9))]


def words_of(svg: str) -> list[str]:
    """Return the texts of a picture."""
    return re.findall(r">([^<>]+)</text>", svg)


def test_gains_are_paired_by_seed_and_the_papers_are_differences_of_what_it_prints(tmp_path: Path) -> None:
    runs = grid(base("desk"), batch_size=(64, 128, 256), seed=(0, 1, 2))
    for number, run in enumerate(runs[:-1]):
        metrics = {"desk/mean/ndcg_at_10": 0.5 + 0.03 * (number * 7 % 5)}
        write_record(tmp_path, run, metrics=metrics, arrays={}, provenance={})
    records = {record.run: record for record in read_records(tmp_path)}
    column = Column(label="NDCG@10", value="{suite}/mean/ndcg_at_10", factor=100)
    rows = [
        Row(label="extra", of=pick(batch_size=128)),
        Row(label="plain", of=pick(batch_size=64), paper={"NDCG@10": 50.0}),
        Row(label="better", of=pick(batch_size=128), paper={"NDCG@10": 52.5}),
        Row(label="better, null context", of=pick(batch_size=128), context="null"),
        Row(label="not whole", of=pick(batch_size=256)),
    ]
    table = Table(name="t", caption="", columns=(column,), rows=tuple(rows))
    first, found = list_gain_rows(table, "NDCG@10", runs, list(records.values()), (0, 1, 2))

    def score(batch_size: int, seed: int) -> float:
        return 100 * records[base("desk", batch_size=batch_size, seed=seed)].metrics["desk/mean/ndcg_at_10"]

    gains = {seed: score(128, seed) - score(64, seed) for seed in (0, 1, 2)}
    assert first == "plain"
    assert [(row["row"], row["seed"], row["paper"]) for row in found] == [
        *(("extra", seed, None) for seed in gains),
        *(("better", seed, 2.5) for seed in gains),
    ]
    assert [row["gain"] for row in found] == pytest.approx([*gains.values(), *gains.values()])


def test_a_table_without_a_printed_column_is_refused() -> None:
    with pytest.raises(ValueError, match="has no column 'medical' that the paper prints"):
        list_gain_rows(TABLE, "medical", (), (), ())


def test_the_picture_writes_the_mean_gain_of_each_row_and_the_same_text_each_time() -> None:
    svg = gains_svg(ROWS, title="t", x_label="points", theme="dark")
    assert svg == gains_svg(ROWS, title="t", x_label="points", theme="dark")
    assert {"a", "b", "+2.5", "-1.0", "■ here", "◆ paper"} <= set(words_of(svg))
    with pytest.raises(ValueError, match="theme 'sepia' with 6 rows"):
        gains_svg(ROWS, title="t", x_label="points", theme="sepia")


def test_the_committed_pictures_are_those_of_the_published_records() -> None:
    runs = find_experiment("table1").runs("desk")
    records = [record for record in read_records(get_published_records()) if record.run in runs]
    _, rows = list_gain_rows(TABLE, "NDCG@10", runs, records, range(3, 8))
    means = {row["row"]: statistics.fmean(r["gain"] for r in rows if r["row"] == row["row"]) for row in rows}
    pictures = front_pictures()
    assert {path.stem for path in pictures} == {"table1-light", "table1-dark"}
    for path in pictures:
        words = words_of(path.read_text())
        assert set(means) | {f"{gain:+.1f}" for gain in means.values()} <= set(words), f"{path.name} is not current"
