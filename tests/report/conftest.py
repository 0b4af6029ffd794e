"""Verdicts on all published claims, which several tests print."""

from functools import cache

import pytest

from repro.report import artefacts, claim_text, markdown_pages, sections
from repro.report.artefacts import judgements as judge
from repro.spec.registry import experiments
from repro.statistics.judge import Judgement


@cache
def judge_published(number: int, scale: str) -> tuple[Judgement, ...]:
    (experiment,) = (each for each in experiments() if each.number == number)
    return tuple(judge(experiment, scale))


@pytest.fixture
def judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge the published claims once in all tests of this process."""
    for module in (artefacts, markdown_pages, sections, claim_text):
        monkeypatch.setattr(module, "judgements", lambda each, scale: [*judge_published(each.number, scale)])
