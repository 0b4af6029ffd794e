"""Typed words: names ignore case, claims are found by id, impossible words are refused early, bad files are named."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from experiments import e15_overview
from repro.spec import registry
from tests.commands import run_command


@pytest.mark.parametrize(
    ("words", "listed", "absent"),
    [(["T1.a"], {"T1.a"}, "T1.b"), (["t1.a", "T1.b"], {"T1.a", "T1.b"}, "T1.c"), (["figure4"], {"F4.a"}, "T1.a")],
)
def test_check_takes_claims_and_artefacts(words: list[str], listed: set[str], absent: str) -> None:
    output = run_command("check", *words, "--scale", "smoke")
    assert all(id in output for id in listed) and absent not in output


def test_corpus_has_counts_and_samples() -> None:
    table = run_command("data", "show", "planted-tiny", "--samples", "1")
    counts = [line.split() for line in table.splitlines() if line.startswith((" planted ", " all "))]
    assert counts == [["planted", "240", "6"], ["all", "240", "6"]]
    assert table.count("  query     ") == table.count("  document  ") == 1


@pytest.mark.parametrize(
    ("name", "module", "message"),
    [
        ("e96_mine", SimpleNamespace(), "has no attribute 'EXPERIMENT'"),
        ("e97_mine", None, "experiments.e97_mine"),
        ("e15_zweite", e15_overview, "is declared more than once"),
    ],
)
def test_faulty_experiment_is_named(name: str, module: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [Path("experiments/e15_overview.py"), Path(f"experiments/{name}.py")]
    monkeypatch.setattr(registry, "list_experiment_files", lambda: files)
    monkeypatch.setitem(sys.modules, f"experiments.{name}", module)
    with pytest.raises((AttributeError, ImportError, ValueError), match=re.escape(message)) as error:
        registry.experiments.__wrapped__()
    assert error.value.__notes__ == [f"experiments/{name}.py"]


def test_faulty_runs_name_their_file(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = replace(e15_overview.EXPERIMENT, runs=Mock(side_effect=KeyError("x")))
    monkeypatch.setattr(e15_overview, "EXPERIMENT", faulty)
    monkeypatch.setattr(registry, "list_experiment_files", lambda: [Path("experiments/e15_overview.py")])
    [experiment] = registry.experiments.__wrapped__()
    with pytest.raises(KeyError) as error:
        experiment.runs("smoke")
    assert error.value.__notes__ == ["experiments/e15_overview.py"]
