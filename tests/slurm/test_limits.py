"""A plan says what a profile does not give; the shipped ones give what Table 1 at the paper's size asks for."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.e01_table1 import EXPERIMENT
from repro.cli.main import app
from repro.planning.plan import Plan, make_plan
from repro.spec import base
from slurm.limits import beyond
from slurm.profiles import Profile, load_profile, profiles
from slurm.sweep import count_shards


def plan_with(profile: Profile, scale: str, folder: Path) -> Plan:
    return make_plan(
        EXPERIMENT.runs(scale),
        [folder],
        num_gpus=profile.gpus_per_run * profile.num_nodes,
        num_shards=lambda run: count_shards(run, profile),
    )


@pytest.mark.parametrize(("name", "scale"), [("one-gpu", "small"), ("eight-gpus", "large"), ("four-nodes", "large")])
def test_the_shipped_profiles_of_gpus_fit_table_1(name: str, scale: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    [line] = beyond(plan_with(profile, scale, tmp_path), profile)
    assert "resume from checkpoints" in line, "no stage is too long or too large, and runs go on as long as they get on"


def test_a_profile_that_is_too_small_is_told_of_by_stage(tmp_path: Path) -> None:
    small = Profile(name="p", gpus_per_run=1, memory_gb=64, time_minutes=720, stage_gpus=1)
    lines = list(beyond(plan_with(small, "small", tmp_path), small))
    [line] = [line for line in lines if "clusters of 512" in line]
    assert line.startswith("too much for profile p: clusters of 512 of nomic-unsupervised, 238,998,494 pairs: ")
    assert line.endswith("and a stage has 12.0 h, 100.2 GiB of memory, and a stage has 64 GiB")
    short = replace(small, time_minutes=60, stage_memory_gb=160)
    told = list(beyond(plan_with(short, "small", tmp_path), short))
    assert sum("embeddings by" in line for line in told) == 2
    cut = replace(short, num_shards=24)
    assert not any("embeddings by" in line for line in beyond(plan_with(cut, "small", tmp_path), cut))
    bare = replace(cut, stage_gpus=0)
    assert sum("estimated for a GPU" in line for line in beyond(plan_with(bare, "small", tmp_path), bare)) == 3
    here = load_profile("here")
    assert not list(beyond(plan_with(here, "small", tmp_path), here))


def test_one_way_to_say_shards_replaces_an_inherited_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "profiles.toml"
    own.write_text('[mine]\nextends = "one-gpu"\nnum_shards = 4\n')
    monkeypatch.setenv("REPRO_PROFILES", str(own))
    found = load_profile("mine")
    assert (found.num_shards, found.pairs_per_shard) == (4, None)
    assert load_profile("one-gpu").pairs_per_shard == 10_000_000 and len(profiles()) > 5


def test_plan_prints_what_is_beyond_the_profile(tmp_path: Path) -> None:
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([vars(base("small"))]))
    words = ["plan", str(runs), "--scale", "small", "--profile", "cpu-node"]
    shown = CliRunner().invoke(app, words).stdout
    assert "too much for profile cpu-node" in shown and "estimated for a GPU, and a stage has none" in shown
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["beyond_profile"]
    assert [line for line in shown.splitlines() if line in told] == told and told
