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


def test_no_claim_id_is_there_twice() -> None:
    ids = [claim.id for experiment in experiments() for claim in experiment.claims]
    assert sorted(ids) == sorted(set(ids))


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
