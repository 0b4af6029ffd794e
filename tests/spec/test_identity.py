"""Ids of runs: what keeps a record valid, and which errors name a changed default or field."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from experiments.e01_table1 import runs as table1
from experiments.e05_epochs import runs as epochs
from experiments.e06_hard_negatives import runs as hard_negatives
from experiments.e20_two_phases import runs as two_phases
from repro.spec import base, by_scale, get_first_phase, grid, identity, pick, scales
from repro.spec.identity import difference, get_setting_id, get_training_id, run_from_record, run_id


def move_defaults(monkeypatch: pytest.MonkeyPatch, scale: str, **changes: Any) -> None:
    changed = {**scales.SCALES, scale: replace(scales.SCALES[scale], **changes)}
    monkeypatch.setattr(identity, "get_scale", changed.__getitem__)


def test_id_hashes_the_difference() -> None:
    run = base("desk", seed=3, sampler="cluster", cluster_size=64)
    assert difference(run) == {"scale": "desk", "seed": 3, "sampler": "cluster", "cluster_size": 64}
    assert len(run_id(run)) == 12 and int(run_id(run), 16) >= 0
    without_mixing = base("desk", sampler="domain")
    assert difference(replace(without_mixing, mixing_alpha=0.0)) == {**difference(without_mixing), "mixing_alpha": 0.0}


def test_setting_has_id_of_seed_0() -> None:
    for run in (base("smoke", seed=7), base("desk", seed=3, architecture="contextual", learning_rate=0.5)):
        assert get_setting_id(run) == run_id(replace(run, seed=0)) != run_id(run)


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


@pytest.mark.parametrize("scale", sorted({*scales.ORDER} - {"mini", "mini2"}))  # these have no runs of two phases
def test_first_phases_are_table_1_trainings(scale: str) -> None:
    # at desk, Table 7 has two seeds that Table 1 lacks
    single_phases = [run for run in two_phases(scale) if run.pretraining_corpus is None]
    trainings = {get_training_id(run) for run in (*table1(scale), *single_phases)}
    first_phases = [get_first_phase(run) for runs in (epochs, hard_negatives, two_phases) for run in runs(scale)]
    first_trainings = {get_training_id(run) for run in first_phases if run}
    assert first_trainings and first_trainings <= trainings


def test_new_field_keeps_old_records() -> None:
    run = base("desk", seed=1)
    old = {name: value for name, value in asdict(run).items() if name != "residual"}
    assert run_from_record(old, run_id(run)) == run


def test_moved_default_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the recorded and the current value of each field that differs from the scale."""
    run = base("desk", seed=2, batch_size=64)
    values, id = asdict(run), run_id(run)
    move_defaults(monkeypatch, "desk", fields={**scales.SCALES["desk"].fields, "temperature": 0.5})
    with pytest.raises(ValueError, match=r"batch_size was 64, is 128, temperature was 0\.02, is 0\.5$"):
        run_from_record(values, id)


def test_new_scale_version_moves_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = base("desk"), base("desk", seed=1, batch_size=64), base("lab")
    before = [run_id(run) for run in runs]
    move_defaults(monkeypatch, "desk", version=scales.SCALES["desk"].version + 1)
    after = [run_id(run) for run in runs]
    assert after[0] != before[0] and after[1] != before[1] and after[2] == before[2]


@pytest.mark.parametrize("name", scales.ORDER)
def test_moved_scale_has_new_version(name: str) -> None:
    scale = scales.SCALES[name]
    stored = json.loads((Path(__file__).parents[1] / "golden" / "scale_values.json").read_text())
    version = f"{name}, version {scale.version}"
    assert version in stored, f"add the values of {version} to tests/golden/scale_values.json"
    known = stored[version]
    assert set(known) == set(scale.fields), "a new field is stored with the value that older runs had"
    moved = {field: (value, scale.fields[field]) for field, value in known.items() if scale.fields[field] != value}
    assert not moved, f"raise the version of {name}, or old records would count as made with the new values"


def test_renamed_field_is_named() -> None:
    run = base("desk")
    with pytest.raises(ValueError, match="lerning_rate"):
        run_from_record({**asdict(run), "lerning_rate": 1.0}, run_id(run))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: grid(base("desk"), batchsize=(1, 2)), r"'batchsize' in grid\(\), did you mean 'batch_size'\?"),
        (lambda: base("dask"), r"unknown scale 'dask'; choose one of \['smoke', "),
        (lambda: base("desk", sampler="clusters"), r"sampler='clusters' is unknown; choose one of \['random', "),
        (lambda: base("desk", sampler="cluster"), "give both or neither"),
        (lambda: base("desk", pretraining_cluster_size=64), "pretraining_corpus=None"),
        (lambda: pick(seeds=1), "unknown field"),
        (lambda: by_scale({"dusk": 1}), "unknown scale 'dusk'"),
    ],
)
def test_declarations_list_what_is_valid(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declare()


def test_run_has_only_plain_values() -> None:
    assert all(isinstance(value, str | int | float | bool | None) for value in asdict(base("large")).values())
    assert isinstance(scales.SCALES, MappingProxyType)


def test_pick_may_depend_on_scale() -> None:
    largest = pick(batch_size=by_scale({"desk": 512, "small": (2048, 4096)}), sampler="random")
    assert largest.matches(base("desk", batch_size=512)) and not largest.matches(base("desk"))
    assert largest.matches(base("small", batch_size=4096)) and not largest.matches(base("small", batch_size=512))
    assert not largest.matches(base("lab", batch_size=512)), "the pick has no value for lab"
    assert str(largest.at("desk")) == "batch_size=512, sampler=random"
