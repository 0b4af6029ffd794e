"""Typed words: names ignore case, claims are found by id, impossible words are refused early, bad files are named."""

import sys
from pathlib import Path

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


def test_repeated_experiment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note of the error is the file."""
    files = [Path(f"experiments/{name}.py") for name in ("e15_overview", "e15_zweite")]
    monkeypatch.setattr(registry, "list_experiment_files", lambda: files)
    monkeypatch.setitem(sys.modules, "experiments.e15_zweite", e15_overview)
    with pytest.raises(ValueError, match="is declared more than once") as error:
        registry.experiments.__wrapped__()
    assert error.value.__notes__ == ["experiments/e15_zweite.py"]
