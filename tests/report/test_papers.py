"""Companion papers have their own counts, ledgers and sections. Also gains by seed and the summary of an own corpus."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from figures.gains import gains_svg
from figures.theme import recolour
from repro.cli.main import app
from repro.cli.regenerate import make_front_pictures
from repro.records.store import Record, read_records, write_record
from repro.report import own_corpus
from repro.report.coverage import iter_rows
from repro.report.gallery import list_gain_rows
from repro.report.markdown_pages import LEDGERS, add_anchors, link_claims
from repro.report.names import find_artefact, format_heading
from repro.report.own_corpus import format_own_corpus_lines
from repro.report.sections import Line, ScaleReport, Section
from repro.report.tables import group_by_paper
from repro.report.view import View
from repro.spec import Column, Experiment, Row, Run, Table, base, grid, pick
from repro.spec.artefact import MAIN, PAPERS
from repro.spec.identity import run_id
from repro.spec.registry import artefacts, experiments, find_paper
from repro.spec.scales import get_scale
from repro.statistics.judge import Judgement
from repro.storage.paths import get_published_records


def make_judgements(*ids: str) -> list[Judgement]:
    claims = {claim.id: claim for experiment in experiments() for claim in experiment.claims}
    return [Judgement(claims[id], "not run", "desk") for id in ids]


def test_claims_count_with_their_paper() -> None:
    groups = group_by_paper(make_judgements("M2.a", "T1.b", "own.a"))
    ids = {paper: [judgement.claim.id for judgement in members] for paper, members in groups.items()}
    assert ids == {"CDE": ["T1.b", "own.a"], "MRL": ["M2.a"]}
    assert find_paper("M2.a") == "MRL" and find_paper("a claim of nobody") == MAIN
    assert set(LEDGERS) == set(PAPERS)


@pytest.mark.usefixtures("judged_once")
def test_check_prints_one_ledger_per_paper(capsys: pytest.CaptureFixture[str]) -> None:
    app(["check", "table3", "mrl_figure2"], standalone_mode=False)
    out = capsys.readouterr().out
    main, companion = out.split("Matryoshka Representation Learning: claims at scale desk")
    assert "T3.a" in main and "6 claims" in main and "M2.a" not in main
    assert "M2.a" in companion and "6 claims" in companion and "T3.a" not in companion
    app(["check", "mrl_figure2", "--json"], standalone_mode=False)
    assert {row["paper"] for row in json.loads(capsys.readouterr().out)} == {"MRL"}


def test_check_shortens_companion_papers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A companion paper is one line of counts, or a ledger if everything is named."""
    monkeypatch.setattr("repro.cli.inspect.judge_claims", lambda what, scale: make_judgements("T1.b", "M2.a", "G8.c"))
    app(["check"], standalone_mode=False)
    short = capsys.readouterr().out
    assert "T1.b" in short and "M2.a" not in short and short.count("1 claim: 1 not run") == 3
    app(["check", "all"], standalone_mode=False)
    full = capsys.readouterr().out
    assert "M2.a" in full and "G8.c" in full


def make_section(name: str, paper: str, *lines: Line) -> Section:
    view = View("", (), ())
    return Section(name, "desk", "", "", lines, view, False, (), "", (), (), 0, paper)


def test_report_has_one_ledger_per_paper() -> None:
    """Claims of companion papers are not counted with the others."""
    judged = make_judgements("T3.a", "M2.a")
    sections = [
        make_section(name, find_paper(judgement.claim.id), Line(judgement, name))
        for name, judgement in zip(("table3", "mrl_figure2"), judged, strict=True)
    ]
    part = ScaleReport(get_scale("desk"), tuple(judged), None, tuple(sections))
    assert part.counts.rows[0][1:] == ("1", "1")
    ids = {title: [line.judged.claim.id for line in lines] for title, lines in part.ledgers.items()}
    assert ids == {PAPERS[MAIN]: ["T3.a"], PAPERS["MRL"]: ["M2.a"]}


def test_anchor_is_at_first_row() -> None:
    """A claim without a row has its anchor in a note. Links do not change ids that are links or files."""
    ledgers = ["| T1.b | HOLDS |\n| T1.c | as T1.d |", "| T1.b | OPEN |\n\n1 claim without records: T1.d, M2.a"]
    first, second = add_anchors(ledgers)
    assert first == '| <a id="T1.b"></a>T1.b | HOLDS |\n| <a id="T1.c"></a>T1.c | as T1.d |'
    note = '1 claim without records: <a id="T1.d"></a>T1.d, <a id="M2.a"></a>M2.a'
    assert second == f"| T1.b | OPEN |\n\n{note}"
    assert link_claims("T1.b, M2.a, e.g. README.md [T1.c](x)") == (
        "[T1.b](CLAIMS.md#T1.b), [M2.a](MRL.md#M2.a), e.g. README.md [T1.c](x)"
    )


def test_names_lead_to_artefacts() -> None:
    headings = {
        "gte_table11": "GTE Table 11",
        "mrl_figure8_times": "MRL Figure 8 (times)",
        "gte_figure3a": "GTE Figure 3 (a)",
        "figure6_sizes": "Figure 6 (sizes)",
        "context_by_width_icl": "Context by width (icl)",
        "recipes": "Recipes",
        "figure10": "Figure 10",
        "table3_shares": "Table 3 (shares)",
    }
    assert {name: format_heading(name) for name in headings} == headings
    assert find_artefact("M7.c", ("mrl_figure2", "mrl_figure7")) == "mrl_figure7"
    assert find_artefact("GF4.a", ("gte_figure3c", "gte_figure4")) == "gte_figure4"
    assert find_artefact("M3.a", ("mrl_figure2", "mrl_figure7")) == "mrl_figure2"
    assert find_artefact("own.x", ("table1",)) == "table1"
    for claim, artefact in {"F3.b": "figure3", "T3.a": "table3", "C.a": "figure2"}.items():
        assert find_artefact(claim, ("figure2", "figure3", "table3")) == artefact


def test_coverage_lists_each_claim_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row lists the claims about its artefact, not those of the other artefacts of its experiment."""
    monkeypatch.setattr("repro.report.coverage.describe_status", lambda experiment: "")
    claims = {row[0]: row[-1] for row in iter_rows()}
    assert claims["Figure 4"] == "F4.a" and claims["Figure 2"] == "F2.a" and claims["Figure 13"] == "F13.ab"
    listed = [
        f"{prefix}.{letter}"
        for ids in claims.values()
        for prefix, letters in re.findall(r"(\w+)\.(\w+)", ids)
        for letter in letters
    ]
    assert len(listed) == len(set(listed)) > 100


def test_companion_sections_come_last() -> None:
    """Tables come before figures, in order of their number, then unnumbered artefacts, then companion papers."""
    expected = ["table3_shares", "table3", "figure2", "figure10", "context_use", "gte_table11", "mrl_figure2"]
    sections = [
        make_section(name, {"gte": "GTE", "mrl": "MRL"}.get(name[:3], "CDE")) for name in sorted(expected, reverse=True)
    ]
    assert [section.name for section in sorted(sections, key=lambda section: section.order)] == expected


def test_unknown_paper_is_refused() -> None:
    with pytest.raises(ValueError, match="paper='BERT'"):
        Experiment(number=99, title="", runs=lambda scale: (), artefacts=(), paper="BERT")


ROWS = [{"row": "a", "seed": seed, "gain": gain, "paper": 1.5} for seed, gain in enumerate((1.0, 2.0, 4.5))]
ROWS += [{"row": "b", "seed": seed, "gain": gain, "paper": None} for seed, gain in enumerate((-1.0, -1.1, -0.9))]
ROWS += [{"row": "c", "seed": seed, "gain": -0.01, "paper": None} for seed in range(3)]


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
    svg = gains_svg(ROWS, title="t", x_label="points")
    assert svg == gains_svg(ROWS, title="t", x_label="points")
    texts = {"a", "b", "c", "+2.5", "−1.0", "+0.0", "■ here", "◆ paper"}
    assert texts <= set(list_texts(svg)) and "−0.0" not in list_texts(svg)
    assert set(list_texts(recolour(svg, "dark"))) == set(list_texts(svg))


def test_front_pictures_are_current() -> None:
    experiment, table = artefacts()["table1_unfiltered"]
    assert isinstance(table, Table)
    runs = experiment.runs("mini")
    records = [record for record in read_records(get_published_records()) if record.run in runs]
    _, rows = list_gain_rows(table, "NDCG@10", runs, records, (6, 7, 8))
    means = pd.DataFrame(rows).groupby("row")["gain"].mean()
    assert {"contextual batches", "contextual architecture", "both"} <= set(means.index)
    pictures = make_front_pictures()
    assert {path.stem for path in pictures} == {"table1_unfiltered-light", "table1_unfiltered-dark"}
    for path in pictures:
        expected = {*means.index, *(f"{gain:+.1f}".replace("-", "−") for gain in means)}
        assert expected <= set(list_texts(path.read_text())), f"{path.name} is not current"


SIZES = {"one": {"num_documents": 300, "num_queries": 60}, "two": {"num_documents": 100, "num_queries": 20}}


def make_record(run: Run, level: float, loss: float | None = None, **provenance: Any) -> Record:
    """Return a record whose queries score around a level."""
    rng = np.random.default_rng(1)
    scores = np.clip(level + 0.05 * rng.standard_normal(80), 0, 1).astype(np.float32)
    datasets = [{"name": name, "family": "", "num_queries": size["num_queries"]} for name, size in SIZES.items()]
    record = Record(
        id=run_id(run),
        run=run,
        metrics={} if loss is None else {"train/loss": loss},
        provenance={"suite": {"datasets": datasets}, **provenance},
        path=Path("nowhere.json"),
    )
    vars(record)["arrays"] = {run.suite: scores}  # fills the cached property that reads the arrays
    return record


Summarise = Callable[..., list[str]]


@pytest.fixture
def summarise(monkeypatch: pytest.MonkeyPatch) -> Summarise:
    """Return a function that summarises three systems, which score around these levels."""

    def summarise(
        ours: float, bm25: float, minilm: float, loss: float = 0.5, start: str = "words", **provenance: Any
    ) -> list[str]:
        run = base("smoke", num_steps=12, start=start)
        records = [
            make_record(run, ours, loss, **provenance),
            make_record(replace(run, architecture="bm25"), bm25),
            make_record(replace(run, architecture="surrogate", surrogate="minilm"), minilm),
        ]
        monkeypatch.setattr(own_corpus, "find_records", lambda runs: records)
        return format_own_corpus_lines([run], SIZES)

    return summarise


def test_winner_comes_first(summarise: Summarise) -> None:
    """The best system is named first. If BM25 and untrained MiniLM are both ahead, each has its line."""
    lines = summarise(0.7, 0.5, 0.6)
    assert lines[0].startswith("your biencoder wins over off-the-shelf MiniLM: +10.0 points")
    assert "80 queries searched among 400 documents in 2 collections" in lines[1]
    assert [line[2:23].strip() for line in lines[2:5]] == ["your biencoder", "off-the-shelf MiniLM", "BM25"]
    lines = summarise(0.5, 0.7, 0.6)
    assert lines[0].startswith("BM25 wins over your biencoder: +20.0")
    assert lines[1].startswith("off-the-shelf MiniLM wins over your biencoder: +10.0")


def test_length_of_minilm_is_named(summarise: Summarise) -> None:
    """A run cuts texts for MiniLM as for its models, so that its score is not that of `evaluate --model minilm`."""
    notes = [line for line in summarise(0.7, 0.5, 0.6) if "read the first" in line]
    assert len(notes) == 1
    assert notes[0].startswith("  off-the-shelf MiniLM read the first 16 tokens of each text")
    assert "repro evaluate --model minilm --suite" in notes[0]


def test_parts_count_once_in_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two forums are one dataset in the mean of a record, and so in the summary that names the winner."""
    names = {"news": "", "forum-a": "forum", "forum-b": "forum"}
    datasets = [{"name": name, "family": "", "num_queries": 10, "part_of": part} for name, part in names.items()]
    runs = [base("smoke", num_steps=12), base("smoke", architecture="bm25")]
    records = []
    for run, level in zip(runs, ([0.9, 0.3, 0.3], [0.5, 0.6, 0.6]), strict=True):
        record = replace(make_record(run, 0.5), provenance={"suite": {"datasets": datasets}})
        vars(record)["arrays"] = {run.suite: np.repeat(np.float32(level), 10)}
        records.append(record)
    monkeypatch.setattr(own_corpus, "find_records", lambda runs: records)
    lines = format_own_corpus_lines(runs, SIZES)
    assert lines[0].startswith("your biencoder wins over BM25: +5.0 points.")
    assert [line.split()[-3] for line in lines[2:4]] == ["60.0", "55.0"], "equal scores have no interval"


def test_context_blind_models_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is scored under the null context only is compared, and its context is named."""
    blind = {"architecture": "contextual", "sequence_dropout": 1.0, "test_contexts": "null"}
    runs = [base("smoke", num_steps=12, **blind), base("smoke", num_steps=12), base("smoke", architecture="bm25")]
    records = [make_record(run, level) for run, level in zip(runs, (0.7, 0.6, 0.5), strict=True)]
    arrays = vars(records[0])["arrays"]
    arrays[f"{runs[0].suite}+null"] = arrays.pop(runs[0].suite)
    monkeypatch.setattr(own_corpus, "find_records", lambda runs: records)
    lines = format_own_corpus_lines(runs, SIZES)
    assert lines[0].startswith("your contextual, null context wins over BM25: +20.0 points")
    assert [line[2:32].strip() for line in lines[2:5]] == ["your contextual, null context", "your biencoder", "BM25"]


def test_single_queries_decide_no_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two collections of one query each have no interval, and the difference is not clear."""
    datasets = [{"name": name, "family": "", "num_queries": 1} for name in ("news", "forum")]
    runs = [base("smoke", num_steps=12), base("smoke", architecture="bm25")]
    records = []
    for run, level in zip(runs, (0.9, 0.5), strict=True):
        record = replace(make_record(run, 0.5), provenance={"suite": {"datasets": datasets}})
        vars(record)["arrays"] = {run.suite: np.full(2, level, np.float32)}
        records.append(record)
    monkeypatch.setattr(own_corpus, "find_records", lambda runs: records)
    lines = format_own_corpus_lines(runs, SIZES)
    assert lines[0].startswith("your biencoder wins over BM25: +40.0 points. The difference is not clear")
    assert lines[2].split()[2:4] == ["90.0", "–"]


def test_interval_is_that_of_queries(summarise: Summarise) -> None:
    """The interval of a system is about two standard errors wide on either side of its mean."""
    cells = summarise(0.5, 0.3, 0.2)[2].split()
    mean, low, high = (float(cells[place]) for place in (2, 3, 5))
    assert low < mean < high
    standard_error = 100 * 0.05 * np.sqrt(1 / 60 + 1 / 20) / 2
    assert high - low == pytest.approx(2 * 1.96 * standard_error, rel=0.35)


def test_commands_follow_the_winner(summarise: Summarise) -> None:
    """A trained model is exported. If BM25 or MiniLM wins, no trained model is recommended."""
    *_, advice, _, deploy = summarise(0.7, 0.5, 0.6)
    assert advice.startswith("Deploy your biencoder") and "clearly above all others" in advice and "export" in deploy
    for bm25, minilm, model in ((0.7, 0.6, "bm25"), (0.6, 0.7, "minilm")):
        lines = summarise(0.5, bm25, minilm)
        assert "repro export" not in "".join(lines) and f"--model {model}" in lines[-2]
    assert "not clearly above off-the-shelf MiniLM" in summarise(0.6, 0.5, 0.6)[-3]


def test_chart_has_a_common_axis(summarise: Summarise) -> None:
    """Marks and ends are at the means and bounds of the intervals: 40 columns from the lowest end to the highest one."""
    rows = [line for line in summarise(0.7, 0.5, 0.6) if "●" in line]
    numbers = np.array([[float(cell) for cell in (row.split()[-5], row.split()[-4], row.split()[-2])] for row in rows])
    start, end = numbers[:, 1].min(), numbers[:, 2].max()
    origin = min(row.index("├") for row in rows)
    for row, values in zip(rows, numbers, strict=True):
        columns = [row.index(mark) - origin for mark in "●├┤"]
        np.testing.assert_allclose(columns, 39 * (values - start) / (end - start), atol=1)


def test_whitened_vectors_are_a_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of MiniLM also has the scores of its whitened vectors. If they win, `adapt` makes the model."""
    runs = [base("smoke", num_steps=12), base("smoke", architecture="surrogate", surrogate="minilm")]
    records = [make_record(run, level) for run, level in zip(runs, (0.5, 0.4), strict=True)]
    vars(records[1])["arrays"][f"{runs[1].suite}+whitened"] = vars(records[0])["arrays"][runs[0].suite] + 0.2
    monkeypatch.setattr(own_corpus, "find_records", lambda runs: records)
    lines = format_own_corpus_lines(runs, SIZES)
    assert lines[0].startswith("off-the-shelf MiniLM, whitened wins over your biencoder: +20.0")
    assert sum("off-the-shelf MiniLM" in line and "●" in line for line in lines) == 2 and "repro adapt" in lines[-1]


def test_language_of_bm25_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to its score, with the number of queries without a hit."""
    runs = [base("smoke", num_steps=12), base("smoke", architecture="bm25")]
    records = [make_record(run, 0.5) for run in runs]
    records[1].provenance["suite"]["bm25"] = {
        "stemmer": "german (Snowball)",
        "note": "BM25 finds no document for 3 queries",
    }
    monkeypatch.setattr(own_corpus, "find_records", lambda runs: records)
    lines = format_own_corpus_lines(runs, SIZES)
    assert any(line.startswith("  BM25 (german)") for line in lines) and any("3 queries" in line for line in lines)


def test_hints_follow_loss(summarise: Summarise) -> None:
    """More steps are suggested only while the loss can still fall. There is no hint if the model wins."""
    assert "num_steps" in "".join(summarise(0.5, 0.7, 0.6, loss=1.2))
    learned = "".join(summarise(0.5, 0.7, 0.6, loss=0.0))
    assert "num_steps" not in learned and "more pairs" in learned
    training = {"kept_weights": {"step": 6}, "num_steps": 10}
    overfitted = "".join(summarise(0.5, 0.7, 0.6, loss=1.2, training=training))
    assert "num_steps" not in overfitted and "step 6" in overfitted
    assert "hint" not in "".join(summarise(0.7, 0.5, 0.6, loss=1.2))
    assert "--scale mini" in learned, "a pretrained start needs another learning rate too"
    pretrained = "".join(summarise(0.5, 0.6, 0.7, start="minilm"))
    assert "search with off-the-shelf MiniLM until" in pretrained, "the best reference is recommended"
