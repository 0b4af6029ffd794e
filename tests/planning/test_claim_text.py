"""`why ID` agrees with the ledger, names rows, and explains every declared claim."""

import json

import pytest

from repro.cli.main import app
from repro.planning.claim_text import explain_claim, name_comparisons
from repro.report.artefacts import judgements
from repro.report.tables import format_in_unit, format_interval
from repro.spec import Identity, Varies
from repro.spec.registry import experiments, find_experiment


@pytest.mark.parametrize("artefact", ["table1", "figure10", "context_emergence"])
def test_explanation_agrees_with_ledger(artefact: str) -> None:
    """Word, threshold, and effect and interval of every comparison are those of the judgement."""
    for judged in judgements(find_experiment(artefact), "desk"):
        first, *lines = explain_claim(judged.claim.id, "desk")
        assert first.startswith(f"{judged.claim.id} at desk: {judged.verdict}")
        assert any(judged.claim.says in line and judged.claim.source in line for line in lines)
        assert isinstance(judged.claim, Identity) or any(judged.claim.threshold in line for line in lines)
        effects = [line for line in lines if line.startswith("  effect")]
        for line, one in zip(effects, judged.comparisons, strict=True):
            interval = format_interval(one, judged.unit) if one.low is not None else "without an interval"
            assert f": {format_in_unit(one.effect, judged.unit)} {interval} " in line


def test_comparisons_are_named_by_rows() -> None:
    """T1.d compares "both" with each row alone, as the table calls them."""
    (claim,) = (one for one in find_experiment("table1").claims if one.id == "T1.d")
    names = name_comparisons(claim, find_experiment("table1"), "desk")
    assert names == ["both − contextual batches", "both − contextual architecture"]


def test_every_comparison_has_name_of_its_own() -> None:
    for experiment in experiments():
        for claim in experiment.claims:
            names = name_comparisons(claim, experiment, "desk")
            assert isinstance(claim, Identity | Varies) or (names and all(names)), claim.id
            assert len(set(names)) == len(names), claim.id


def test_open_claim_names_seeds_needed() -> None:
    found = {one.claim.id: one for one in judgements(find_experiment("figure14"), "desk")}["F14.a"]
    (line,) = (line for line in explain_claim("F14.a", "desk") if "80 %" in line)
    assert found.word == "OPEN" and str(found.estimate_seeds()) in line


def test_verb_suggests_for_misspelt_claim(capsys: pytest.CaptureFixture[str]) -> None:
    app(["why", "F4.a"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("F4.a at desk: ")
    app(["why", "F4.a", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)[0].startswith("F4.a at desk: ")
    with pytest.raises(ValueError, match=r"unknown claim 'F4.q', did you mean 'F4.a'\?"):
        app(["why", "F4.q"], standalone_mode=False)


def test_check_takes_artefacts(capsys: pytest.CaptureFixture[str]) -> None:
    app(["check", "figure4"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "F4.a" in out and "T1.a" not in out
    with pytest.raises(ValueError, match=r"unknown artefact 'figur4', did you mean 'figure4'\?"):
        app(["check", "figur4"], standalone_mode=False)
    with pytest.raises(ValueError, match="pages have all claims"):
        app(["check", "figure4", "--write"], standalone_mode=False)
