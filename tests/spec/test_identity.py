"""Ids of runs: what keeps a record valid, and which errors name a changed default or field."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from experiments.e01_table1 import runs as table1
from experiments.e05_epochs import runs as epochs
from experiments.e06_hard_negatives import runs as hard_negatives
from experiments.e20_two_phases import runs as two_phases
from repro.spec import FIELDS, base, by_scale, get_batch_key, get_first_phase, grid, identity, pick, scales
from repro.spec.identity import difference, get_training_id, run_from_record, run_id

SIZES = ("pretraining_batch_size", "pretraining_cluster_size")


def move_default(monkeypatch: pytest.MonkeyPatch, scale: str, **values: object) -> None:
    moved = replace(scales.SCALES[scale], fields={**scales.SCALES[scale].fields, **values})
    monkeypatch.setattr(identity, "get_scale", lambda name: {**scales.SCALES, scale: moved}[name])


EVALUATION_ONLY = ("suite", "context_seed", "num_test_contexts", "test_contexts", "measure")
"""Fields that the training run does not depend on, except the protocol and its depth."""


def test_id_hashes_the_difference() -> None:
    run = base("desk", seed=3, sampler="cluster", cluster_size=64)
    assert difference(run) == {"scale": "desk", "seed": 3, "sampler": "cluster", "cluster_size": 64}
    assert len(run_id(run)) == 12 and int(run_id(run), 16) >= 0


def test_every_field_moves_the_id() -> None:
    run = base("desk", sampler="cluster", cluster_size=64)
    other = {
        "scale": "lab", "corpus": "planted", "domain_column": "source" if run.domain_column == "domain" else "domain",
        "sampler": None, "packing": "greedy" if run.packing == "random" else "random", "surrogate": "another",
        "filter_model": "another",
        "filter": "surrogate" if run.filter == "none" else "none", "architecture": "contextual", "backbone": "bert",
        "start": "minilm", "prompts": "task" if run.prompts == "none" else "none", "protocol": None,
        "suite": "planted", "residual": not run.residual, "num_epochs": None,
        "sources": "services", "mined_negatives": "any", "known_positives": "mask",
        "pooling": None, "heads": "random", "loss": "icl", "nested_sizes": "8+16",
        "test_contexts": "own", "measure": "batches", "mixing_alpha": None, "kept_weights": "best",
        "pretraining_corpus": None, "num_pretraining_steps": None, "num_pretraining_epochs": None,
        "pretraining_batch_size": None, "pretraining_cluster_size": None, "rerank_depth": None, "sequence_dropout": 0.5,
    }  # fmt: skip
    for name in FIELDS:
        value = other[name] if name in other else (getattr(run, name) or 0) + 1
        if value is None:
            continue
        moved = replace(run, **{name: value})
        assert run_id(moved) != run_id(run), name
        assert (get_training_id(moved) == get_training_id(run)) == (name in EVALUATION_ONLY), name
    second = replace(run, pretraining_corpus="desk", num_pretraining_steps=9)
    assert len({run_id(one) for one in (run, second, *(replace(second, **{name: 8}) for name in SIZES))}) == 4
    by_domain = replace(run, sampler="domain", cluster_size=None)
    assert len({run_id(replace(by_domain, mixing_alpha=alpha)) for alpha in (None, 0.0, 0.5)}) == 3
    contextual = replace(run, architecture="contextual")
    assert run_id(replace(contextual, pooling="frequency")) != run_id(contextual)
    reranked = [replace(run, protocol=how, rerank_depth=9) for how in ("rerank", "rerank-bm25")]
    assert len({run_id(one) for one in (run, *reranked, replace(reranked[0], rerank_depth=8))}) == 4
    assert {get_training_id(one) for one in reranked} == {run_id(run)}


def test_first_phase_keeps_scale_values() -> None:
    own = {"sources": "services", "num_pairs": 4096, "num_hard_negatives": 3, "learning_rate": 1e-4}
    second = base("desk", **own, num_warmup_steps=0, pretraining_corpus="desk", num_pretraining_steps=50)
    assert get_first_phase(second) == base("desk", num_steps=50)
    by_epochs = replace(second, sampler="domain", num_steps=None, num_epochs=2)
    assert get_first_phase(by_epochs) == base("desk", sampler="domain", num_steps=50)
    assert get_first_phase(base("desk")) is None


def test_second_phases_share_a_first() -> None:
    seconds = [run for run in hard_negatives("small") if run.pretraining_cluster_size]
    assert len({(run.cluster_size, run.batch_size) for run in seconds}) > 9
    firsts = {get_first_phase(run) for run in seconds}
    assert {(run.sampler, run.cluster_size, run.batch_size) for run in firsts if run} == {("cluster", 512, 512)}
    assert len(firsts) == len({run.seed for run in seconds})
    with pytest.raises(ValueError, match="without a pretraining_corpus"):
        base("desk", pretraining_cluster_size=64)


@pytest.mark.parametrize(
    "scale", [scale for scale in scales.ORDER if scale != "mini"]
)  # mini has no runs of two phases
def test_first_phases_are_table_1_trainings(scale: str) -> None:
    # at desk, Table 7 has two seeds that Table 1 lacks
    of_table_7 = [run for run in two_phases(scale) if run.pretraining_corpus is None]
    known = {get_training_id(run) for run in (*table1(scale), *of_table_7)}
    phases = [get_first_phase(run) for runs in (epochs, hard_negatives, two_phases) for run in runs(scale)]
    assert {get_training_id(phase) for phase in phases if phase} <= known
    assert any(phases)


def test_new_field_keeps_old_records() -> None:
    run = base("desk", seed=1)
    old = {name: value for name, value in asdict(run).items() if name != "residual"}
    assert run_from_record(old, run_id(run)) == run


def test_moved_default_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = base("desk")
    values, identifier = asdict(run), run_id(run)
    move_default(monkeypatch, "desk", learning_rate=0.123)
    with pytest.raises(ValueError, match=r"learning_rate was .* is 0\.123 at scale 'desk'"):
        run_from_record(values, identifier)


def test_moved_default_differs_from_given_value(monkeypatch: pytest.MonkeyPatch) -> None:
    run = base("desk", seed=2, batch_size=64, num_steps=300)
    values, identifier = asdict(run), run_id(run)
    move_default(monkeypatch, "desk", temperature=0.5)
    with pytest.raises(ValueError, match=r"has moved: temperature was 0\.02, is 0\.5 at scale 'desk'$"):
        run_from_record(values, identifier)
    move_default(monkeypatch, "desk", num_steps=300)
    with pytest.raises(ValueError, match=r"has moved: num_steps is 300, and was another value at scale 'desk'$"):
        run_from_record(values, identifier)
    move_default(monkeypatch, "desk", temperature=0.5, hidden_size=64)
    with pytest.raises(ValueError, match=r"batch_size was 64, is 128, .*hidden_size was 128, is 64"):
        run_from_record(values, identifier)


def test_new_scale_version_moves_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = base("desk"), base("desk", seed=1, batch_size=64), base("lab")
    before = [run_id(run) for run in runs]
    raised = replace(scales.SCALES["desk"], version=scales.SCALES["desk"].version + 1)
    monkeypatch.setattr(identity, "get_scale", lambda name: {**scales.SCALES, "desk": raised}[name])
    after = [run_id(run) for run in runs]
    assert after[0] != before[0] and after[1] != before[1] and after[2] == before[2]


@pytest.mark.parametrize("name", scales.ORDER)
def test_moved_scale_has_new_version(name: str) -> None:
    scale = scales.SCALES[name]
    stored = json.loads((Path(__file__).parents[1] / "golden" / "scale_values.json").read_text())
    version = f"{name}, version {scale.version}"
    assert version in stored, f"add the values of {version} to tests/golden/scale_values.json"
    known = stored[version].items()
    moved = {field: (value, scale.fields[field]) for field, value in known if scale.fields[field] != value}
    assert not moved, f"raise the version of {name}, or old records would count as made with the new values"


def test_renamed_field_is_named() -> None:
    run = base("desk")
    with pytest.raises(ValueError, match="lerning_rate"):
        run_from_record({**asdict(run), "lerning_rate": 1.0}, run_id(run))


def test_declarations_list_what_is_valid() -> None:
    with pytest.raises(ValueError, match=r"\['batchsize'\] in grid\(\), did you mean 'batch_size'\?"):
        grid(base("desk"), batchsize=(1, 2))
    with pytest.raises(ValueError, match=r"unknown scale 'dask'; choose one of \['smoke', "):
        base("dask")
    with pytest.raises(ValueError, match=r"sampler='clusters' is unknown; choose one of \['random', "):
        base("desk", sampler="clusters")
    with pytest.raises(ValueError, match="give both or neither"):
        base("desk", sampler="cluster")
    with pytest.raises(ValueError, match="unknown axis"):
        pick(seeds=1)


def test_grid_is_every_combination_once() -> None:
    runs = grid(base("desk"), batch_size=(64, 128), seed=(0, 1, 2), start="random")
    assert len(set(runs)) == 6
    assert {run.start for run in runs} == {"random"}


def test_run_has_only_plain_values() -> None:
    assert all(isinstance(value, str | int | float | bool | None) for value in asdict(base("large")).values())
    assert isinstance(scales.SCALES, MappingProxyType)


def test_pick_may_depend_on_scale() -> None:
    largest = pick(batch_size=by_scale({"desk": 512, "small": (2048, 4096)}), sampler="random")
    assert largest.matches(base("desk", batch_size=512)) and not largest.matches(base("desk"))
    assert largest.matches(base("small", batch_size=4096)) and not largest.matches(base("small", batch_size=512))
    assert not largest.matches(base("lab", batch_size=512)), "the pick has no value for lab"
    assert str(largest.at("desk")) == "batch_size=512, sampler=random"
    with pytest.raises(ValueError, match="unknown scale 'dusk'"):
        by_scale({"dusk": 1})


def test_batch_key_ignores_the_rest() -> None:
    run = base("desk", sampler="cluster", cluster_size=64)
    for name, value in {"loss": "icl", "learning_rate": 1.0, "temperature": 0.1, "architecture": "contextual"}.items():
        assert get_batch_key(replace(run, **{name: value})) == get_batch_key(run), name
    moved = {"packing": "greedy", "filter": "surrogate", "num_hard_negatives": 1, "max_tokens": 9, "batches_a_step": 2}
    for name, value in moved.items():
        assert get_batch_key(replace(run, **{name: value})) != get_batch_key(run), name
