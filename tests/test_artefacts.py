"""Every artefact runs at smoke as `python -m repro.NAME`, and its series and claims have runs."""

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


def test_restated_claims_are_dated() -> None:
    claims = [claim for experiment in experiments() for claim in experiment.claims]
    assert [claim.id for claim in claims if claim.version > 1 and not claim.stated] == []
