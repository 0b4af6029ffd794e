"""Profiles of sites: shipped ones, a user's own file, its errors, and plans that exceed a profile."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.e01_table1 import EXPERIMENT
from repro.planning.plan import make_plan
from repro.spec import base
from slurm.limits import list_exceeded_limits
from slurm.profiles import SHIPPED_FILE, Profile, count_shards, load_profile, profiles
from tests.commands import run_command


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the user's file of profiles."""
    path = tmp_path / "profiles.toml"
    monkeypatch.setenv("REPRO_PROFILES", str(path))
    return path


def test_every_shipped_profile_is_readable() -> None:
    shipped = {profile.name: profile.num_processes for profile in profiles()}
    assert {"here", "one-gpu", "preemptible", "dev-cluster"} <= shipped.keys()
    assert (shipped["eight-gpus"], shipped["cpu-node"]) == (8, 1)


@pytest.mark.parametrize(
    ("gres", "num_gpus"), [("gpu:a100:8,lustre:1", 8), ("gpu:a100", 1), ("gpu:2", 2), ("shard:4", 1)]
)
def test_gres_agrees_with_processes(gres: str, num_gpus: int) -> None:
    assert Profile(name="p", gres=gres, gpus_per_run=num_gpus).num_processes == num_gpus


def test_own_profile_extends_shipped_one(own: Path) -> None:
    own.write_text('[mine]\nextends = "one-gpu"\npartition = "a100"\nmodules = ["cuda"]\nsbatch = {comment = "x"}\n')
    mine = load_profile("mine")
    assert (mine.partition, mine.modules, mine.sbatch) == ("a100", ("cuda",), {"comment": "x"})
    assert (mine.gpus_per_run, mine.memory_gb) == (1, 64)


MISTAKES = {
    'partitoin = "x"': r"unknown key \['partitoin'\], did you mean 'partition'\? a profile has \['on', ",
    "memory_gib = 12": "did you mean 'memory_gb'",
    "time_minutes = 'long'": "time_minutes='long'; must be",
    "time_minutes = 0": "time_minutes=0; must be at least 1",
    "on = 'cloud'": "choose local or slurm",
    "extends = 'yours'": "extends='yours'; choose another of",
    "extends = 'mine'": "extends='mine'; choose another of",
    "time_minutes = 1\nwarning_seconds = 90": "leaves nothing of",
    'gres = "gpu:a100:4"': "requests 4 GPUs, and gpus_per_run=0; set gpus_per_run=4",
    'gres = "lustre:1,gpu:a100:4"\ngpus_per_run = 1': "requests 4 GPUs",
    'gres = "gpu:a100"\ngpus_per_run = 2': "requests 1 GPUs",
    'gres = "gpu:a100:2,gpu:v100:1"\ngpus_per_run = 2': "requests 3 GPUs",
    "processes_per_run = 8\ngpus_per_run = 4": "processes_per_run=8 with 4 GPUs per run; each process needs its own",
    "num_shards = 2\npairs_per_shard = 5": "num_shards=2 and pairs_per_shard=5",
    "num_shards = 0": "num_shards=0; must be at least 1",
    "num_shards = 1000000": "num_shards=1000000; must be at least 1 and at most 10000",
    "[mine": "is not TOML",
    'modules = ["cuda", 12]': "must be a list of texts",
    'partition = "gpu\\n#SBATCH --qos=high"': "partition.*contains a line break",
    'account = "a\\rb"': "account.*contains a line break",
    'setup = ["module purge\\nrm -rf x"]': "setup.*contains a line break",
    'modules = ["cuda\\n"]': "modules.*contains a line break",
    'launcher = ["apptainer\\u2028"]': "launcher.*contains a line break",
    'sbatch = {comment = "a\\nb"}': "sbatch.*contains a line break",
    'sbatch = {"a\\n#SBATCH --b" = "x"}': "name options of sbatch as in",
    'sbatch = {"mail type" = "x"}': "name options of sbatch as in",
    'sbatch = {comment = ["a"]}': "sbatch.comment=",
    "sbatch = {requeue = false}": "sbatch.requeue=False; must be a str, a number or true",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_profile_mistakes_are_named(own: Path, text: str, message: str) -> None:
    own.write_text(f"[mine]\n{text}\n")
    with pytest.raises(ValueError, match=message):
        load_profile("mine")


def test_profile_name_is_one_line(own: Path) -> None:
    own.write_text('["a\\nb"]\npartition = "x"')
    with pytest.raises(ValueError, match="contains a line break"):
        load_profile("a\nb")


def test_shipped_examples_are_profiles(own: Path) -> None:
    lines = SHIPPED_FILE.read_text().partition("# Examples")[2].splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("# ["))
    own.write_text("\n".join(line.removeprefix("#").strip() for line in lines[first:]))
    examples = [load_profile(name) for name in ("with-conda", "with-modules", "with-apptainer", "with-enroot")]
    assert all(example.gpus_per_run == 1 and example.python for example in examples)
    assert examples[2].launcher[:2] == ("apptainer", "exec")


def test_unknown_profile_lists_known_ones(own: Path) -> None:
    with pytest.raises(ValueError, match="is not a file"):
        load_profile("here")
    own.touch()
    with pytest.raises(ValueError, match=r"unknown profile 'big'; choose one of \['cpu-node'.*profiles\.toml"):
        load_profile("big")


def list_excess(profile: Profile, scale: str, folder: Path) -> list[str]:
    """Return the lines about what exceeds the profile in a plan of Table 1."""
    num_gpus = profile.gpus_per_run * profile.num_nodes
    runs = EXPERIMENT.runs(scale)
    plan = make_plan(runs, [folder], num_gpus=num_gpus, num_shards=lambda run: count_shards(run, profile))
    return list(list_exceeded_limits(plan, profile))


@pytest.mark.parametrize(("name", "scale"), [("one-gpu", "small"), ("eight-gpus", "large"), ("four-nodes", "large")])
def test_shipped_gpu_profiles_fit_table_1(name: str, scale: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    [line] = list_excess(profile, scale, tmp_path)
    assert "resumed from checkpoints" in line, "all stages fit, and runs that exceed the time limit resume"


def test_small_profile_is_named_by_stage(tmp_path: Path) -> None:
    small = Profile(name="p", gpus_per_run=1, memory_gb=64, time_minutes=720, stage_gpus=1)
    [line] = [line for line in list_excess(small, "small", tmp_path) if "clusters of 512" in line]
    assert line.startswith("too much for profile p: clusters of 512 of nomic-unsupervised, 238,998,494 pairs: ")
    assert line.endswith("and a stage has 12.0 h, 100.2 GiB of memory, and a stage has 64 GiB")
    short = replace(small, time_minutes=60, stage_memory_gb=160)
    sharded = replace(short, num_shards=24)
    without_gpu = replace(sharded, stage_gpus=0)
    for profile, text, count in (
        (short, "embeddings by", 2),
        (sharded, "embeddings by", 0),
        (without_gpu, "estimated for a GPU", 3),
    ):
        assert sum(text in line for line in list_excess(profile, "small", tmp_path)) == count
    assert not list_excess(load_profile("here"), "small", tmp_path)


def test_shard_settings_replace_each_other(own: Path) -> None:
    own.write_text('[mine]\nextends = "one-gpu"\nnum_shards = 4\n')
    profile = load_profile("mine")
    assert (profile.num_shards, profile.pairs_per_shard) == (4, None)
    assert load_profile("one-gpu").pairs_per_shard == 10_000_000 and len(profiles()) > 5


def test_plan_shows_what_exceeds_profile(tmp_path: Path) -> None:
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([vars(base("small"))]))
    command = ["plan", str(runs), "--scale", "small", "--profile", "cpu-node"]
    output = run_command(*command)
    assert "too much for profile cpu-node" in output and "estimated for a GPU, and a stage has none" in output
    lines = json.loads(run_command(*command, "--json"))["beyond_profile"]
    assert lines and [line for line in output.splitlines() if line in lines] == lines
