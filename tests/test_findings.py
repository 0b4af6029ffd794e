"""Numbers and claims in hand-written results: each number of a finding is in a record that the finding names."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from repro.report.artefacts import make_artefact_views
from repro.report.claim_text import CLAIM_ID, find_claim
from repro.report.gallery import load_findings
from repro.spec import Directed, Equivalence
from repro.spec.registry import experiments, find_experiment
from tests.published import judge_published
from tests.test_printed import OUTCOMES

ROOT = Path(__file__).resolve().parent.parent
FINDINGS = (ROOT / "experiments" / "findings.md").read_text()
SECTIONS = dict(re.findall(r"^## (\d+)\n(.*?)(?=^## |\Z)", FINDINGS, re.MULTILINE | re.DOTALL))
RESULTS = (ROOT / "docs" / "RESULTS.md").read_text().split("<!-- headlines end -->")[1].split("## How a claim")[0]
PAGE_SOURCES = (
    "table1 mini, filter_by_surrogate mini, table1_unfiltered mini, context_designs mini, "
    "context_curve_table mini, P.a mini, P.b mini, P.c mini, P.d mini, P.e mini, P.f mini, CC.a mini, CC.e mini, CC.f mini, "
    "CC.g mini, CC.i mini, CC.j mini, CC.k mini, FP.a mini, FP.b mini, UB.a mini, UB.e mini, "
    "T1.b desk, T1.c desk, table1 desk, table6 desk, F3.b desk, F4.a desk, F12.a desk, E.e desk, E.e lab, "
    "PO.a mini, positions mini, PA.a mini2, PA.b mini2, PA.c mini2, PA.d mini2, SC.a mini2, "
    "positive_control mini, filter_worth mini2, table1 mini2, XF.a mini2, XF.b mini2, XF.c mini2, VW.a mini2, VW.c mini2, "
    "unseen_packages mini2, UN.a mini2, UN.b mini2, UN.c mini2, UN.d mini2"
)
"""Sources of the summary and of the first part of the results page."""
SUMMARY = (ROOT / "experiments" / "summary.md").read_text().replace("95 % intervals", "")
SECTIONS |= {name: f"{text}<!-- {PAGE_SOURCES} -->" for name, text in (("summary", SUMMARY), ("results", RESULTS))}
NUMBER = re.compile(r"(?<![\w.@])\d{1,3}(?:[ ,]\d{3})+(?!\d)|(?<![\w.@])\d+(?:\.\d+)?(?![\w.]*\w)")
IN_WORDS = re.compile(
    r"\b(half|quarters?|tenth|fifth|third|one|two|three|four|five|six|seven)\b[^.,;]{0,12}\bpoints?\b"
)
"""A difference in words, for example "half a point", cannot be compared with a record."""


def read_numbers(text: str) -> Iterator[str]:
    """Yield the numbers of a text without the separators of thousands. Text in backticks has none."""
    for number in NUMBER.findall(re.sub(r"`[^`]*`", "", text)):
        yield re.sub("[ ,]", "", number)


@cache
def list_values(source: str) -> tuple[float, ...]:
    """Return the numbers of a source, for example "T1.b desk": effects and intervals of a claim, or cells of a table."""
    name, scale = source.split()
    if not CLAIM_ID.fullmatch(name):
        view = make_artefact_views(find_experiment(name), scale, with_yours=False)[name]
        text = " | ".join(cell for row in view.rows for cell in row)
        return tuple(float(number) for number in read_numbers(text))
    experiment, claim = find_claim(name)
    (judged,) = (judged for judged in judge_published(experiment.number, scale) if judged.claim is claim)
    limits = (claim.delta, claim.margin) if isinstance(claim, Directed) else ()
    limits = (claim.delta,) if isinstance(claim, Equivalence) else limits
    values = [value for each in judged.comparisons for value in (each.effect, each.low, each.high)]
    return tuple(abs(value) * judged.unit.factor for value in (*values, *limits) if value is not None)


def list_settings(sources: Iterable[str]) -> set[str]:
    """Return all integers in the fields of the runs behind the sources: steps, sizes, dimensions."""
    settings: set[str] = set()
    for source in sources:
        name, scale = source.split()
        experiment = find_claim(name)[0] if CLAIM_ID.fullmatch(name) else find_experiment(name)
        fields = [value for run in experiment.runs(scale) for value in vars(run).values()]
        settings |= {number for value in fields for number in re.findall(r"\d+", str(value))}
    return settings


def is_rounding(number: str, value: float) -> bool:
    """Return whether a number is a value, rounded to as many decimals."""
    decimals = len(number.partition(".")[2])
    return abs(float(number) - value) <= 0.5 * 10**-decimals + 1e-6


@pytest.mark.parametrize("section", SECTIONS)
def test_findings_have_recorded_numbers(section: str) -> None:
    """Every number is a rounded value of a named source. An integer may also be a setting of its runs."""
    text, _, comment = SECTIONS[section].partition("<!--")
    sources = [source.strip() for source in comment.replace("-->", "").split(",") if source.strip()]
    values = [value for source in sources for value in list_values(source)]
    unknown = [number for number in read_numbers(text) if not any(is_rounding(number, value) for value in values)]
    settings = list_settings(sources)
    assert [number for number in unknown if "." in number or number not in settings] == []
    assert IN_WORDS.findall(text) == []


@pytest.mark.parametrize("page", ["experiments/findings.md", "docs/RESULTS.md", "docs/COVERAGE.md", "docs/ERRATA.md"])
def test_pages_name_existing_claims(page: str) -> None:
    """Ids in prose are claims of experiments or of the errata. Files, versions and modules have another form."""
    known = {claim.id for experiment in experiments() for claim in experiment.claims} | OUTCOMES.keys()
    named = set(
        re.findall(
            r"(?<![\w./`-])(?:[A-Z]{1,2}|own)\d*\.[a-z]\b(?![\w.(/])",
            (ROOT / page).read_text(),
        )
    )
    assert named - known == set()


def test_findings_have_no_comments_on_the_page() -> None:
    findings = load_findings()
    assert set(findings) == {int(number) for number in SECTIONS if number.isdigit()}
    assert not any("<!--" in finding for finding in findings.values())
