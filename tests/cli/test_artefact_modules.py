"""Artefact modules and commands as a user calls them: output, exit codes and refused input."""

import json
import re
from pathlib import Path

import pytest

from repro.cli.common import EXIT_NOT_RUN
from repro.spec.registry import artefacts
from tests.commands import get_exit_code, run_command, run_module
from tests.golden_metrics import assert_golden

Smoke = tuple[Path, str]
NAME = "gte_table10"  # one run


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    """The home and the output of a first run of the artefact."""
    home = tmp_path_factory.mktemp("smoke")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_HOME", str(home))
        patch.setenv("COLUMNS", "200")
        return home, run_command("run", NAME, "--scale", "smoke")


def test_run_prints_artefact(smoke: Smoke) -> None:
    """The output ends with the table and its claims. The metrics are the golden ones."""
    home, output = smoke
    assert "1 run requested, 0 recorded, 1 to run at scale smoke" in output
    *_, table, claims = re.split(rf"\n(?={NAME})", output.rstrip())
    assert table.startswith(f"{NAME} at scale smoke") and "α = 0.5" in table
    assert claims.startswith(f"{NAME} has 2 claims") and "\n" not in claims
    (path,) = (home / "records").glob("*.json")
    assert_golden(NAME, home / "records", {path.stem})


def test_second_call_trains_nothing(smoke: Smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes no record and prints the same table and claims, as `show` does."""
    home, first = smoke
    monkeypatch.setenv("REPRO_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "200")
    before = {path.name: path.read_bytes() for path in (home / "records").iterdir()}
    status, _, table = run_command("run", NAME, "--scale", "smoke").partition("\n")
    assert "1 recorded, 0 to run" in status
    assert f"{NAME} at scale smoke" in table and first.endswith(table)
    assert run_command("show", NAME, "--scale", "smoke") == table
    assert {path.name: path.read_bytes() for path in (home / "records").iterdir()} == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("run table99", "table99"),
        ("explain-batch table1 --scale dask", "dask"),
        ("show table1 --scale smoke --format pdf", "pdf"),
        ("data show wikipedia", "wikipedia"),
        ("run table1 --scale small", "suite 'beir'"),
        ("run table1 --seed 77", "77"),
    ],
)
def test_bad_input_exits_with_2(words: str, named: str, own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert get_exit_code(*words.split()) == EXIT_NOT_RUN
    error = capsys.readouterr().err
    assert named in error and error.count("\n") == 1
    assert not (own_home / "records").exists()


def test_artefacts_are_modules() -> None:
    assert run_module(f"repro.{NAME}", "--help").returncode == 0
    result = run_module("repro.table99")
    assert result.returncode == EXIT_NOT_RUN and "table99" in result.stderr


def test_list_names_every_artefact() -> None:
    assert {row["artefact"] for row in json.loads(run_command("list", "--json"))} == set(artefacts())
    assert set(artefacts()) <= {line.strip().split(" ")[0] for line in run_command("list").splitlines()}
