"""A claim told in a paragraph says what the ledger says, and what was compared."""

import json

import pytest

from repro.cli.main import app
from repro.planning.claim_text import comparisons_of, explain_claim
from repro.report.artefacts import judgements
from repro.spec import Claim, term
from repro.spec.registry import experiment_of

SAID = {"source": "here", "because": "a test"}
NDCG = "{suite}/mean/ndcg_at_10"


def test_every_claim_of_an_artefact_is_told_with_its_verdict_bar_and_comparisons() -> None:
    for judged in judgements(experiment_of("figure3"), "desk"):
        first, *lines = explain_claim(judged.claim.id, "desk")
        assert first.startswith(f"{judged.claim.id} at desk: {judged.verdict}")
        assert any(judged.claim.says in line and judged.claim.source in line for line in lines)
        assert any(judged.claim.bar in line for line in lines)
        assert sum(line.startswith("  compared") for line in lines) == len(judged.estimates)


def test_a_comparison_is_named_by_what_its_sides_differ_in() -> None:
    same = {"architecture": "biencoder"}
    claim = Claim.order("X.a", "…", pairs=[(term(NDCG, **same, batch_size=64), term(NDCG, **same, seed=1))], **SAID)
    assert comparisons_of(claim) == ["NDCG@10 of batch_size=64 less seed=1"]
    wrong = Claim.order("X.b", "…", pairs=[(term(NDCG, **same), term("{suite}+wrong/mean/x", **same))], **SAID)
    assert comparisons_of(wrong) == ["NDCG@10 of the same runs, less suite+wrong/mean/x"]


def test_the_verb_tells_a_claim_and_suggests_for_a_slip(capsys: pytest.CaptureFixture[str]) -> None:
    app(["why", "F4.a"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("F4.a at desk: ")
    app(["why", "F4.a", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)[0].startswith("F4.a at desk: ")
    with pytest.raises(ValueError, match=r"unknown claim 'F4.q', did you mean 'F4.a'\?"):
        app(["why", "F4.q"], standalone_mode=False)


def test_check_takes_artefacts_and_suggests_for_a_slip(capsys: pytest.CaptureFixture[str]) -> None:
    app(["check", "figure4"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "F4.a" in out and "T1.a" not in out
    with pytest.raises(ValueError, match=r"unknown artefact 'figur4', did you mean 'figure4'\?"):
        app(["check", "figur4"], standalone_mode=False)
    with pytest.raises(ValueError, match="pages have all claims"):
        app(["check", "figure4", "--write"], standalone_mode=False)
