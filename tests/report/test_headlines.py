"""The results in short say what the ledger says, at each scale, and nothing where a scale says nothing."""

import pytest

from experiments.headlines import HEADLINES
from repro.report.markdown_pages import make_headlines_view
from repro.report.tables import make_claims_view
from repro.spec import Claim, Unit
from repro.spec.registry import experiments
from repro.statistics.judge import Comparison, Judgement

CLAIMS: dict[str, Claim] = {claim.id: claim for experiment in experiments() for claim in experiment.claims}
POINTS, NATS = Unit("points", 100.0, 2), Unit("nats", 1.0, 2)


def judged(id: str, verdict: str, effect: float | None = None, unit: Unit = POINTS) -> Judgement:
    """A judgement whose interval is a thousandth to either side."""
    if effect is None:
        return Judgement(CLAIMS[id], verdict, "desk")
    return Judgement(CLAIMS[id], verdict, "desk", (Comparison(effect, effect - 0.001, effect + 0.001),), unit)


EVERY = [judged(claim, "other scale") for one in HEADLINES for claim in one.claims]


def test_each_sentence_has_its_claims_verdict_effect_and_interval_at_each_scale() -> None:
    at_desk = [
        judged("T1.b", "HOLDS", 0.0146),
        judged("T1.e", "DIFFERS", -0.25, NATS),
        *(one for one in EVERY if one.claim.id not in ("T1.b", "T1.e")),
    ]
    view = make_headlines_view({"desk": at_desk, "lab": EVERY})
    rows = {row[1]: row for row in view.rows}
    assert view.header == ("", "claim", "paper", "at `desk`", "at `lab`")
    assert rows["T1.b, P.b"][2:] == ("+1.8", "HOLDS: +1.46 (+1.36 to +1.56)", "–")
    assert [", ".join(one.claims) for one in HEADLINES] == list(rows)
    [ledger] = make_claims_view([judged("T1.b", "HOLDS", 0.0146)]).rows
    assert ledger[2] in rows["T1.b, P.b"][3], "the same number as in the ledger"


def test_another_unit_than_points_is_named_and_a_verdict_without_a_number_stands_alone() -> None:
    others = [one for one in EVERY if one.claim.id not in ("T1.e", "F4.a")]
    view = make_headlines_view({"desk": [*others, judged("T1.e", "HOLDS", 0.34, NATS), judged("F4.a", "not run")]})
    rows = {row[1]: row[3] for row in view.rows}
    assert rows["T1.e"] == "HOLDS: +0.34 (+0.34 to +0.34) nats" and rows["F4.a"] == "–"


def test_a_sentence_of_a_claim_that_nobody_judges_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"headlines.py names T1.b, which is judged at none of \['desk', 'lab'\]"):
        make_headlines_view({"desk": EVERY[1:], "lab": EVERY[1:]})
