"""What is printed of all claims fits into a terminal of 80 columns, with every number whole."""

import re
from functools import cache

import pytest

from repro.claims.judge import Judgement
from repro.cli.main import app
from repro.planning.power import power_view, undecided
from repro.report.artefacts import judgements, published_pool
from repro.report.formats import render, render_line
from repro.report.names import title_of
from repro.report.tables import claims_view, sort_judgements, summary_line
from repro.report.view import View
from repro.spec.registry import artefacts, experiments

NUMBER = re.compile(r"[+-]\d+\.\d+")


@cache
def ledger() -> tuple[Judgement, ...]:
    """Every claim as it stands at desk."""
    if not published_pool("desk").records:
        pytest.skip("no record is committed")
    return tuple(sort_judgements(one for experiment in experiments() for one in judgements(experiment, "desk")))


@pytest.mark.parametrize("width", [80, 100])
def test_the_ledger_and_what_claims_need_fit_and_no_number_is_broken(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("repro.report.formats.ELSEWHERE", width)
    for view in (claims_view(ledger()), power_view(undecided(ledger()), "desk")):
        render(view)
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= width
        for row in view.rows:
            (line,) = (line for line in printed.splitlines() if line.split()[:1] == [row[0]])
            assert NUMBER.findall(line) == [number for cell in row[:-1] for number in NUMBER.findall(cell)]
            assert " ".join(row[-1].split()) in " ".join(printed.split())
    render_line(summary_line(ledger()))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_what_an_undecided_claim_needs_is_the_same_in_the_table_as_in_the_ledger() -> None:
    for judged in undecided(ledger()):
        (row,) = power_view([judged], "desk").rows
        (said,) = claims_view([judged]).rows
        count = row[5].split()[0]
        if count == "queries":
            assert "needs more queries, not seeds" in said[-1]
        elif row[5] == "a second":
            assert "needs a second seed" in said[-1]
        elif count == "over":
            assert "more than 10000 seeds" in said[-1] or "over a thousand" in said[-1]
        elif judged.units_needed is not None:
            assert f"needs {row[5]}" in said[-1]
        else:
            seen = 0 if judged.is_post_hoc else judged.num_seeds or 0
            assert re.search(rf"needs {int(count) - seen} (more|fresh) seed", said[-1])


def test_the_list_of_artefacts_is_searched_by_line_where_it_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    app(["list"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    for name, (experiment, shown) in artefacts().items():
        assert any(line.startswith(f"{name} ") and title_of(experiment, shown) in line for line in lines), name


def test_the_title_of_a_narrow_table_is_as_wide_as_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    title = "figure12 at scale desk: a sentence that is much longer than the two columns of the table below it"
    render(View(title, ("", "n"), (("a", "1"),)))
    assert capsys.readouterr().out.splitlines()[0] == title
