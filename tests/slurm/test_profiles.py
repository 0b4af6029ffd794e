"""Profiles of sites: shipped ones, a user's own file, its errors, and plans that exceed a profile."""

import json
from pathlib import Path

import pytest

from repro.spec import base
from slurm.profiles import SHIPPED_FILE, Profile, load_profile, profiles
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


def test_shard_settings_replace_each_other(own: Path) -> None:
    own.write_text('[mine]\nextends = "one-gpu"\nnum_shards = 4\n')
    profile = load_profile("mine")
    assert (profile.num_shards, profile.pairs_per_shard) == (4, None)
    assert load_profile("one-gpu").pairs_per_shard == 10_000_000 and len(profiles()) > 5


def test_plan_shows_what_exceeds_profile(own: Path, tmp_path: Path) -> None:
    """Time and memory of a run. A longer run is resumed, and needs several jobs."""
    own.write_text('[tight]\nextends = "cpu-node"\ntime_minutes = 2\nmemory_gb = 0.5\n')
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([vars(base("lab", seed=77))]))
    command = ["plan", str(runs), "--scale", "lab", "--profile", "tight"]
    lines = json.loads(run_command(*command, "--json"))["beyond_profile"]
    assert [line for line in run_command(*command).splitlines() if line in lines] == lines
    long, large = lines
    assert "resumed from checkpoints" in long and large.endswith("a run has 0.5 GiB")
