"""What a user types, as subprocesses: doors, verbs, exit codes, and that bad input ends in one clear line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from repro.cli.common import EXIT_NOT_RUN
from repro.cli.main import app, list_artefacts
from repro.spec.registry import artefacts, find_experiment
from tests.golden_metrics import assert_golden

ROOT = Path(__file__).resolve().parents[2]


def repro(*words: str, home: Path, module: str = "repro") -> subprocess.CompletedProcess[str]:
    """Run a command as a user would, on one thread, with everything it makes under `home`."""
    environment = {**os.environ, "REPRO_HOME": str(home), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Table 1 at smoke, run once through its door."""
    home = tmp_path_factory.mktemp("smoke")
    return home, repro("--scale", "smoke", home=home, module="repro.table1")


def test_module_runs_and_prints_artefact(smoke: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    home, done = smoke
    assert done.returncode == 0, done.stderr
    assert "9 runs asked for, 0 recorded, 9 to run at scale smoke" in done.stdout
    *_, table, claims = re.split(r"\n(?=table1|Claims of)", done.stdout.rstrip())
    assert table.startswith("table1 at scale smoke") and "contextual architecture" in table, "it ends with its table"
    assert claims.startswith("Claims of table1") and "\n" not in claims
    assert len(list((home / "records").glob("*.json"))) == 9


def test_a_second_call_trains_nothing(smoke: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    home, first = smoke
    before = {path.name: path.read_bytes() for path in (home / "records").iterdir()}
    done = repro("--scale", "smoke", home=home, module="repro.table1")
    assert done.returncode == 0
    said, _, shown = done.stdout.partition("\n")
    assert "9 recorded, 0 to run" in said
    assert "table1 at scale smoke" in shown and first.stdout.endswith(shown), "it prints what the first call ended with"
    assert {path.name: path.read_bytes() for path in (home / "records").iterdir()} == before


def test_smoke_metrics_are_the_golden_ones(smoke: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    home, _ = smoke
    assert_golden("table1", home / "records", {path.stem for path in (home / "records").glob("*.json")})


def test_show_gives_every_format(smoke: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    home, _ = smoke
    assert "| contextual batches | paper |" in repro("show", "--scale", "smoke", "--format", "md", home=home).stdout
    assert r"\begin{tabular}" in repro("show", "--scale", "smoke", "--format", "latex", home=home).stdout
    one_table = repro("show", "table1", "--scale", "smoke", "--format", "csv", home=home).stdout
    assert "contextual batches,paper,,512" in one_table
    assert json.loads(repro("show", "table1", "--scale", "smoke", "--json", home=home).stdout)["claims"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "table99"], "unknown artefact 'table99'; `repro list` shows the artefacts"),
        (["explain-batch", "table1", "--scale", "dask"], "unknown scale 'dask'; choose one of ['smoke', 'desk'"),
        (
            ["show", "table1", "--scale", "smoke", "--format", "pdf"],
            "unknown format 'pdf'; choose one of ['text', 'md'",
        ),
        (["data", "wikipedia"], "unknown corpus 'wikipedia'; choose one of ["),
        (["run", "table1", "--scale", "small"], "truncated BEIR"),
        (["run", "table1", "--seed", "77"], "with seed [77]"),
    ],
)
def test_bad_input_exits_with_2(words: list[str], says: str, tmp_path: Path) -> None:
    done = repro(*words, home=tmp_path)
    assert done.returncode == EXIT_NOT_RUN
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "records").exists()


def test_unknown_artefact_module_is_refused(tmp_path: Path) -> None:
    done = repro(home=tmp_path, module="repro.table99")
    assert done.returncode == EXIT_NOT_RUN and "`repro list` shows the artefacts" in done.stderr


def test_misspelt_module_is_not_found(tmp_path: Path) -> None:
    assert "No module named repro.tabel1" in repro(home=tmp_path, module="repro.tabel1").stderr


def test_every_artefact_plans_at_its_scales(tmp_path: Path) -> None:
    for name in artefacts():
        for scale in ("smoke", "desk", "lab", "small", "large"):
            experiment = find_experiment(name)
            assert bool(experiment.runs(scale)) == (scale in experiment.scales)
    listed = json.loads(repro("list", "--json", home=tmp_path).stdout)
    assert {row["artefact"] for row in listed} == set(artefacts())


def test_list_fits_eighty_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, without escape codes
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    list_artefacts()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert set(artefacts()) <= {line.split(" ")[0] for line in lines}


def test_help_describes_every_argument(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    app(["run", "--help"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "artefacts (table1, figure3, …), all, run ids" in out, "the help of arguments is lost: see click's version"
    assert "--dry-run" in out and "--no-" not in out


LOOK = "import os, sys; from repro.cli.main import prepare_process; prepare_process()"
SAYS = "print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules, 'faiss' in sys.modules)"


@pytest.mark.parametrize(
    ("given", "found"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")]
)
def test_waiting_threads_sleep_soon(given: dict[str, str], found: str) -> None:
    told = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in told} | given
    words = [sys.executable, "-c", f"{LOOK}; {SAYS}"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [found, "False", "False"]
