"""What is printed of all claims fits into a terminal of 80 columns, with every number whole."""

import re
from functools import cache

import pytest

from repro.cli.main import app
from repro.report.artefacts import judgements
from repro.report.formats import render, render_line
from repro.report.names import format_title
from repro.report.tables import format_summary_line, make_claims_view, sort_judgements
from repro.report.view import View
from repro.spec.registry import artefacts, experiments
from repro.statistics.judge import Judgement

NUMBER = re.compile(r"[+-]\d+\.\d+")


@cache
def ledger() -> tuple[Judgement, ...]:
    """Every claim as it stands at desk."""
    return tuple(sort_judgements(one for experiment in experiments() for one in judgements(experiment, "desk")))


@pytest.mark.parametrize("width", [80, 100])
def test_the_ledger_and_what_claims_need_fit_and_no_number_is_broken(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("repro.report.formats.ELSEWHERE", width)
    for view in (make_claims_view(ledger(), width=width),):
        render(view)
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= width
        for row in view.rows:
            (line,) = (line for line in printed.splitlines() if line.split()[:1] == [row[0]])
            assert NUMBER.findall(line) == [number for cell in row[:-1] for number in NUMBER.findall(cell)]
            assert " ".join(row[-1].split()) in " ".join(printed.split())
    render_line(format_summary_line(ledger()))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_the_list_of_artefacts_is_searched_by_line_where_it_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    app(["list"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    for name, (experiment, shown) in artefacts().items():
        assert any(line.startswith(f"{name} ") and format_title(experiment, shown) in line for line in lines), name


def test_the_title_of_a_narrow_table_is_as_wide_as_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    title = "figure12 at scale desk: a sentence that is much longer than the two columns of the table below it"
    render(View(title, ("", "n"), (("a", "1"),)))
    assert capsys.readouterr().out.splitlines()[0] == title
