"""Every artefact runs at smoke through its door; claims have one id each and are judged, not invented."""

import re
import sys
from pathlib import Path

import pytest

from repro.cli import open_door
from repro.identity import run_id
from repro.registry import experiments
from repro.scales import ORDER
from repro.spec import Experiment, Figure
from tests.golden_metrics import assert_golden

CLAIMS = {
    "T1": "abcde",
    "T2": "abcd",
    "T3": "a",
    "T4": "a",
    "T5": "a",
    "T6": "a",
    "T7": "abc",
    "C": "a",
    "F2": "a",
    "F3": "ab",
    "F4": "a",
    "F5": "a",
    "F6": "ab",
    "F7": "a",
    "F8": "a",
    "F9": "ab",
    "F10": "a",
    "F11": "a",
    "F12": "a",
    "F13": "a",
    "F14": "a",
    "F15": "a",
    "F16": "ab",
    "F17": "a",
    "F18": "a",
}
"""What the paper claims, artefact by artefact; figure 1 is a drawing, and claims nothing."""

EXPERIMENTS = [pytest.param(one, id=one.artefacts[0]) for one in experiments()]


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: artefacts share their trainings, as they do for a reader."""
    return tmp_path_factory.mktemp("artefacts")


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_artefact_runs_at_smoke_and_is_shown(
    experiment: Experiment, shared_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPRO_HOME", str(shared_home))
    for number, name in enumerate(experiment.artefacts):
        monkeypatch.setattr(sys, "argv", [f"repro.{name}", "--scale", "smoke"])
        assert open_door(name) == 0, capsys.readouterr().err
        said = capsys.readouterr()
        assert f"{name} at scale smoke" in said.out
        assert number == 0 or "0 to run" in said.out, "artefacts of one experiment share its runs"
        if isinstance(experiment.shows[number], Figure):
            assert re.search(rf"drawn: \S*{name}-smoke", said.err), "a figure is drawn from the records just made"
    wanted = {run_id(run) for run in experiment.runs("smoke") if run.seed in experiment.local_seeds}
    assert wanted <= {path.stem for path in (shared_home / "records").glob("*.json")}
    assert_golden(experiment.artefacts[0], shared_home / "records", wanted)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_is_declared_for_every_scale(experiment: Experiment) -> None:
    for scale in ORDER:
        runs = experiment.runs(scale)
        assert runs and all(run.measure for run in runs)
        for claim in experiment.claims:
            terms = [term for pair in claim.pairs for term in pair] + [term for term, _ in claim.expected]
            terms += [term for term in (claim.over, claim.x, claim.y, claim.minus) if term is not None]
            unmet = [str(term.of) for term in terms if not any(term.of.matches(run) for run in runs)]
            assert scale == "smoke" or not unmet, f"{claim.id} at {scale} speaks of runs that nobody asks for"


def test_every_claim_of_the_paper_is_there_once_and_none_that_it_does_not_make() -> None:
    ids = [claim.id for experiment in experiments() for claim in experiment.claims]
    of_the_paper = [f"{artefact}.{letter}" for artefact, letters in CLAIMS.items() for letter in letters]
    assert sorted(id for id in ids if not id.startswith("own.")) == sorted(of_the_paper)
    assert sorted(id for id in ids if id.startswith("own.")) == ["own.a", "own.b", "own.c"]


def test_identities_of_the_paper_hold() -> None:
    found = {
        claim.id: claim.holds_exactly()
        for experiment in experiments()
        for claim in experiment.claims
        if claim.holds_exactly is not None
    }
    assert {"T2.d", "T5.a", "T6.a"} <= set(found)
    assert [name for name, (holds, _) in found.items() if not holds] == []


def test_the_papers_training_data_is_the_same_where_it_is_declared_twice() -> None:
    from experiments.e11_data import PRETRAINING
    from repro.data.hub import UNSUPERVISED

    assert {name: domain.num_rows for name, domain in UNSUPERVISED.items()} == PRETRAINING
