"""The text of `why` and the refusals of `check`: they agree with the ledger, and comparisons have clear names."""

import pytest

from repro.report.artefacts import judgements
from repro.report.claim_text import explain_claim, name_comparisons
from repro.report.tables import format_in_unit, format_interval
from repro.spec.registry import experiments, find_experiment
from tests.commands import run_command


@pytest.mark.usefixtures("judged_once")
@pytest.mark.parametrize("artefact", ["table1", "context_emergence"])
def test_explanation_agrees_with_ledger(artefact: str) -> None:
    """Verdict, threshold, effects and intervals are those of the judgement."""
    for judgement in judgements(find_experiment(artefact), "desk"):
        claim = judgement.claim
        first, *lines = explain_claim(claim.id, "desk")
        assert first.startswith(f"{claim.id} at desk: {judgement.verdict}")
        assert any(claim.statement in line and claim.source in line for line in lines)
        assert any(claim.threshold in line for line in lines)
        effects = [line for line in lines if line.startswith("  effect")]
        for line, comparison in zip(effects, judgement.comparisons, strict=True):
            interval = "without an interval"
            if comparison.low is not None:
                interval = format_interval(comparison, judgement.unit)
            assert f": {format_in_unit(comparison.effect, judgement.unit)} {interval}" in line


def test_comparisons_have_distinct_names() -> None:
    for experiment in experiments():
        for claim in experiment.claims:
            names = name_comparisons(claim, experiment, "desk")
            assert names and all(names), claim.id
            assert len(set(names)) == len(names), claim.id


def test_why_explains_a_claim() -> None:
    """It names the scale that can judge a claim."""
    text = run_command("why", "P.b")
    assert text.startswith("P.b at desk: other scale") and "repro why P.b --scale mini" in text
