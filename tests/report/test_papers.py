"""Companion papers stand apart: their claims are counted, judged and shown in blocks of their own."""

import json
from pathlib import Path

import pytest

from repro.cli.main import app
from repro.report.contents import make_artefact_table
from repro.report.coverage import expand_names
from repro.report.html import render_page
from repro.report.markdown_pages import LEDGERS, renewed_pages
from repro.report.names import artefact_of, format_heading
from repro.report.sections import Line, Section
from repro.report.tables import by_paper
from repro.report.view import View
from repro.spec import Experiment
from repro.spec.artefact import MAIN, PAPERS
from repro.spec.registry import experiments, find_paper
from repro.statistics.judge import Judgement

NO_TABLE = View("", (), ())


def judged(*ids: str) -> list[Judgement]:
    claims = {claim.id: claim for experiment in experiments() for claim in experiment.claims}
    return [Judgement(claims[id], "not run", "desk") for id in ids]


def test_a_claim_is_counted_with_its_own_paper() -> None:
    found = by_paper(judged("M2.a", "T1.b", "own.a"))
    assert {paper: [one.claim.id for one in those] for paper, those in found.items()} == {
        "CDE": ["T1.b", "own.a"],
        "MRL": ["M2.a"],
    }
    assert find_paper("M2.a") == "MRL" and find_paper("a claim of nobody") == MAIN
    assert set(LEDGERS) == set(PAPERS), "every paper has a block on the page"


def test_check_prints_a_ledger_and_a_tally_for_each_paper(capsys: pytest.CaptureFixture[str]) -> None:
    app(["check", "table3", "mrl_figure2"], standalone_mode=False)
    out = capsys.readouterr().out
    main, companion = out.split("Matryoshka Representation Learning: claims at scale desk")
    assert "T3.a" in main and "2 claims" in main and "M2.a" not in main
    assert "M2.a" in companion and "6 claims" in companion and "T3.a" not in companion
    app(["check", "mrl_figure2", "--json"], standalone_mode=False)
    assert {row["paper"] for row in json.loads(capsys.readouterr().out)} == {"MRL"}


def test_the_page_has_each_papers_claims_in_its_own_block() -> None:
    pages = renewed_pages(judged("M2.a", "T1.b"), "smoke")
    text = next(text for path, text in pages.items() if path.name == "CLAIMS.md")
    blocks = {
        paper: text.split(f"<!-- {name} -->")[1].split(f"<!-- {name} end -->")[0] for paper, name in LEDGERS.items()
    }
    assert "T1.b" in blocks["CDE"] and "M2.a" not in blocks["CDE"]
    assert "M2.a" in blocks["MRL"] and "T1.b" not in blocks["MRL"]


def test_the_table_of_artefacts_has_companions_under_their_papers_title() -> None:
    lines = make_artefact_table().splitlines()
    place = next(number for number, line in enumerate(lines) if "**Matryoshka Representation Learning**" in line)
    assert "`mrl_figure2`" in lines[place + 1]
    assert not any("mrl_" in line for line in lines[:place])


def test_the_report_has_a_ledger_for_each_paper(tmp_path: Path) -> None:
    def section(name: str, id: str) -> Section:
        line = Line(judged(id)[0], "", "", "", "", "", "what is claimed", name)
        return Section(name, "", "", (line,), NO_TABLE, False, (), (), (), 0, 0, find_paper(id))

    page = render_page("desk", [section("table3", "T3.a"), section("mrl_figure2", "M2.a")], tmp_path)
    assert "Of 1 claims that are measured, 1 lacks records" in page.split('id="ledger"')[0], (
        "the opening sentence is this paper's"
    )
    own, companion = page.split('id="ledger"')[1].split("<h3>Matryoshka Representation Learning</h3>")
    assert "T3.a" in own and "M2.a" not in own and "M2.a" in companion


def test_names_and_claims_of_companions_lead_to_their_artefacts() -> None:
    assert (
        format_heading("gte_table11") == "GTE Table 11"
        and format_heading("mrl_figure8_times") == "MRL Figure 8 (times)"
    )
    assert format_heading("gte_figure3a") == "GTE Figure 3 (a)"
    assert format_heading("figure6_sizes") == "Figure 6 (sizes)"
    assert format_heading("context_by_width_icl") == "Context by width (icl)" and format_heading("recipes") == "Recipes"
    assert artefact_of("M7.c", ("mrl_figure2", "mrl_figure7")) == "mrl_figure7"
    assert artefact_of("GF4.a", ("gte_figure3c", "gte_figure4")) == "gte_figure4"
    assert artefact_of("M3.a", ("mrl_figure2", "mrl_figure7")) == "mrl_figure2"
    assert artefact_of("own.x", ("table1",)) == "table1"


def test_sections_of_companions_come_after_this_papers() -> None:
    names = [
        ("mrl_figure2", "MRL"),
        ("context_use", "CDE"),
        ("gte_table11", "GTE"),
        ("figure3", "CDE"),
        ("table1", "CDE"),
    ]
    ordered = sorted(
        (Section(name, "", "", (), NO_TABLE, False, (), (), (), 0, 0, paper) for name, paper in names),
        key=lambda one: one.order,
    )
    assert [one.name for one in ordered] == ["table1", "figure3", "context_use", "gte_table11", "mrl_figure2"]


def test_an_experiment_of_an_unknown_paper_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"experiment 99: paper='BERT' is unknown; choose one of \['CDE', 'GTE', 'MRL'\]"
    ):
        Experiment(number=99, title="", runs=lambda scale: (), shows=(), paper="BERT")


def test_notes_name_ranges_of_artefacts() -> None:
    """A range of figures in a note covers each of them."""
    assert expand_names("§5, Figures 2 to 4, 9; Table 7") == {"Figure 2", "Figure 3", "Figure 4", "Figure 9", "Table 7"}
    assert expand_names("GTE §3.4, Table 3") == {"Table 3"}
