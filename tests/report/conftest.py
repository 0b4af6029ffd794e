"""Verdicts on all published claims, which several tests print."""

import pytest

from repro.report import artefacts, claim_text, markdown_pages, sections
from tests.published import judge_published


@pytest.fixture
def judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge the published claims once in all tests of this process."""
    for module in (artefacts, markdown_pages, sections, claim_text):
        monkeypatch.setattr(module, "judgements", lambda each, scale: [*judge_published(each.number, scale)])
