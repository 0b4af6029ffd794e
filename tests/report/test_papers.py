"""Companion papers have their own counts, ledgers and sections. Links to claims, and the picture of gains."""

import re
from pathlib import Path

import pytest

from figures.gains import gains_svg
from repro.records.store import read_records, write_record
from repro.report.gallery import list_gain_rows
from repro.report.markdown_pages import LEDGERS
from repro.report.sections import Line, ScaleReport, Section
from repro.report.tables import group_by_paper
from repro.report.view import View
from repro.spec import Column, Row, Table, base, grid, pick
from repro.spec.artefact import MAIN, PAPERS
from repro.spec.registry import experiments, find_paper
from repro.spec.scales import get_scale
from repro.statistics.judge import Judgement


def make_judgements(*ids: str) -> list[Judgement]:
    claims = {claim.id: claim for experiment in experiments() for claim in experiment.claims}
    return [Judgement(claims[id], "not run", "desk") for id in ids]


def make_section(name: str, *lines: Line) -> Section:
    paper = {"gte": "GTE", "mrl": "MRL"}.get(name[:3], MAIN)
    return Section(name, "desk", "", "", lines, View("", (), ()), False, {}, (), 0, paper)


def test_claims_count_with_their_paper() -> None:
    """Claims of companion papers have their own groups in a ledger and in the report."""
    groups = group_by_paper(make_judgements("M2.a", "T1.b", "own.a"))
    ids = {paper: [judgement.claim.id for judgement in members] for paper, members in groups.items()}
    assert ids == {"CDE": ["T1.b", "own.a"], "MRL": ["M2.a"]}
    assert find_paper("M2.a") == "MRL" and find_paper("a claim of nobody") == MAIN
    assert set(LEDGERS) == set(PAPERS)
    sections = [
        make_section(name, Line(judged, name))
        for name, judged in zip(("table3", "mrl_figure2"), make_judgements("T3.a", "M2.a"), strict=True)
    ]
    ledgers = ScaleReport(get_scale("desk"), tuple(sections)).ledgers
    ids = {title: [line.judged.claim.id for line in lines] for title, lines in ledgers.items()}
    assert ids == {PAPERS[MAIN]: ["T3.a"], PAPERS["MRL"]: ["M2.a"]}


def list_texts(svg: str) -> list[str]:
    """Return the texts of an SVG."""
    return re.findall(r">([^<>]+)</text>", svg)


def test_gains_are_paired_by_seed(tmp_path: Path) -> None:
    """Gains are over the first row that the paper prints. Rows of another context or without all seeds are skipped."""
    runs = grid(base("desk"), batch_size=(64, 128, 256), seed=(0, 1, 2))
    scores = [50, 71, 57, 78, 64, 50, 71, 57]
    for run, score in zip(runs, scores, strict=False):
        write_record(tmp_path, run, metrics={"desk/mean/ndcg_at_10": score / 100}, arrays={}, provenance={})
    column = Column(label="NDCG@10", value="{suite}/mean/ndcg_at_10", factor=100)
    rows = (
        Row(label="extra", runs=pick(batch_size=128)),
        Row(label="plain", runs=pick(batch_size=64), paper={"NDCG@10": 50.0}),
        Row(label="better", runs=pick(batch_size=128), paper={"NDCG@10": 52.5}),
        Row(label="better, null context", runs=pick(batch_size=128), context="null"),
        Row(label="not whole", runs=pick(batch_size=256)),
    )
    table = Table(name="t", caption="", columns=(column,), rows=rows)
    first, gains = list_gain_rows(table, "NDCG@10", runs, list(read_records(tmp_path)), (0, 1, 2))
    assert first == "plain"
    assert [tuple(row[name] for name in ("row", "seed", "gain", "paper")) for row in gains] == [
        *(("extra", seed, pytest.approx(scores[3 + seed] - scores[seed]), None) for seed in range(3)),
        *(("better", seed, pytest.approx(scores[3 + seed] - scores[seed]), 2.5) for seed in range(3)),
    ]
    with pytest.raises(ValueError, match="no column 'medical'"):
        list_gain_rows(table, "medical", (), (), ())


def test_picture_shows_mean_gains() -> None:
    gains = {"a": (1.0, 2.0, 4.5), "b": (-1.0, -1.1, -0.9), "c": (-0.01,) * 3}
    printed = {"a": 1.5}
    rows = [
        {"row": name, "seed": seed, "gain": gain, "paper": printed.get(name)}
        for name, values in gains.items()
        for seed, gain in enumerate(values)
    ]
    svg = gains_svg(rows, title="t", x_label="points")
    assert svg == gains_svg(rows, title="t", x_label="points")
    assert {"a: +2.5 (paper +1.5)", "b: −1.0", "c: +0.0"} <= set(list_texts(svg))
