"""Companion papers have their own counts, ledgers and sections."""

from repro.report.markdown_pages import LEDGERS
from repro.report.tables import group_by_paper
from repro.spec.artefact import MAIN, PAPERS
from repro.spec.registry import experiments, find_paper
from repro.statistics.judge import Judgement


def make_judgements(*ids: str) -> list[Judgement]:
    claims = {claim.id: claim for experiment in experiments() for claim in experiment.claims}
    return [Judgement(claims[id], "not run", "desk") for id in ids]


def test_claims_count_with_their_paper() -> None:
    """Claims of companion papers have their own groups in a ledger and in the report."""
    groups = group_by_paper(make_judgements("M2.a", "T1.b", "own.a"))
    ids = {paper: [judgement.claim.id for judgement in members] for paper, members in groups.items()}
    assert ids == {"CDE": ["T1.b", "own.a"], "MRL": ["M2.a"]}
    assert find_paper("M2.a") == "MRL" and find_paper("a claim of nobody") == MAIN
    assert set(LEDGERS) == set(PAPERS)
