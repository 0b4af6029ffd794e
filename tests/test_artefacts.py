"""Every artefact runs at smoke as `python -m repro.NAME`. Claims have unique ids and match the papers."""

import re
import sys
from pathlib import Path

import pytest

from repro.cli.main import run_artefact_module
from repro.records.golden import list_golden_runs
from repro.report.figure_data import series_at
from repro.spec import Experiment, Figure, depends_on_seed
from repro.spec.identity import run_id
from repro.spec.registry import experiments
from repro.spec.scales import ORDER
from tests.golden_metrics import assert_golden

CLAIMS = {
    "T1": "abcdeghijklmno", "T2": "abcel", "T3": "ab", "T4": "a", "T7": "adegh", "S4": "abc", "C": "ab",
    "F2": "a", "F3": "abcd", "F4": "a", "F5": "ab", "F6": "ab", "F7": "ab", "F8": "ab", "F9": "abcdefg", "F10": "ab",
    "F11": "ab", "F12": "a", "F13": "ab", "F14": "abc", "F15": "ab", "F16": "abc", "F17": "ab", "F18": "a",
    "G3": "abc", "G4": "cd", "G7": "c", "G8": "cd", "G9": "ab", "G10": "cd", "G11": "a",
    "GF2": "a", "GF3": "abcdef", "GF4": "a",
    "M2": "abcd", "M3": "ab", "M6": "abde", "M7": "abc", "M8": "abcd", "M9": "abc",
}  # fmt: skip
"""The claims of the papers per artefact. S4 is section 4.1. Figure 1 is a drawing and makes no claim. Claims about printed
numbers are in tests/test_printed.py.

G and GF are tables and figures of GTE, M are figures of MRL. Both are companion papers.
"""
# Prefixes of the ids of our own claims.
OWN_PREFIXES = (
    "AB", "CB", "CS", "own", "H", "E", "EL", "W", "WH", "D", "P", "PB", "SS", "FP", "UB", "CC", "GM", "PO", "PA", "SC", "XF",
    "VW", "UN",
)  # fmt: skip

EXPERIMENTS = {experiment.artefact_names[0]: experiment for experiment in experiments()}
# A figure of few runs is not slow. tests/cli/test_artefact_modules.py runs a table.
MARKED = [
    pytest.param(experiment, id=name, marks=() if name == "gte_figure2" else pytest.mark.slow)
    for name, experiment in EXPERIMENTS.items()
]


@pytest.mark.parametrize("experiment", MARKED)
def test_every_artefact_runs_at_smoke(
    experiment: Experiment, shared_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(experiment.artefact_names):
        monkeypatch.setattr(sys, "argv", [f"repro.{name}", "--scale", "smoke"])
        assert run_artefact_module(name) == 0, capsys.readouterr().err
        output = capsys.readouterr()
        assert f"{name} at scale smoke" in output.out
        assert number == 0 or "0 to run" in output.out, "artefacts of one experiment share its runs"
        if isinstance(experiment.artefacts[number], Figure):
            assert re.search(rf"picture: \S*{name}-smoke", output.err), "the figure is drawn from the new records"
    expected = {run_id(run) for run in list_golden_runs(experiment)}
    assert expected <= {path.stem for path in (shared_home / "records").glob("*.json")}
    assert_golden(experiment.artefact_names[0], shared_home / "records", expected)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_experiment_covers_its_scales(experiment: Experiment) -> None:
    """Claims and series have runs. A series that matches no run would be missing from its figure without a message."""
    figures = [artefact for artefact in experiment.artefacts if isinstance(artefact, Figure)]
    for scale in ORDER:
        runs = experiment.runs(scale)
        assert bool(runs) is (scale in experiment.scales) and all(run.measure for run in runs)
        if not runs:
            continue
        drawn = {run.seed for run in runs if depends_on_seed(run)}
        for figure in figures:
            for series in series_at(figure, runs):
                assert any(map(series.runs.matches, runs)), f"{figure.name} at {scale}: {series.label}"
        for claim in experiment.claims:
            is_judged = scale != "smoke" and (not claim.scales or scale in claim.scales)
            unmet = [str(term.runs) for term in claim.terms if not any(map(term.runs.matches, runs))]
            assert not (is_judged and unmet), f"{claim.id} at {scale} needs runs that the experiment does not declare"
            seeds = set(claim.declared_seeds(scale)) if is_judged and claim.terms else set()
            assert not drawn or seeds <= drawn, f"{claim.id} at {scale}: runs have the seeds {sorted(drawn)}"


def test_paper_claims_are_complete() -> None:
    """A paper's claim is listed in CLAIMS. Our own ids start with one of OWN_PREFIXES."""
    ids = [claim.id for experiment in experiments() for claim in experiment.claims]
    assert len(ids) == len(set(ids)), "ids of claims must be unique"
    of_papers = {f"{artefact}.{letter}" for artefact, letters in CLAIMS.items() for letter in letters}
    found = {id for id in ids if id.split(".")[0] not in OWN_PREFIXES}
    assert of_papers == found, f"add to CLAIMS, or begin with one of OWN_PREFIXES: {sorted(of_papers ^ found)}"


def test_restated_claims_are_dated() -> None:
    claims = [claim for experiment in experiments() for claim in experiment.claims]
    assert [claim.id for claim in claims if claim.version > 1 and not claim.stated] == []
