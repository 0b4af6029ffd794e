"""Site facts are data: shipped shapes, a user's own, and a misspelling that says what is valid."""

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
from slurm.profiles import SHIPPED, Profile, load_profile, profiles
from slurm.shards import count_shards


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file."""
    path = tmp_path / "profiles.toml"
    monkeypatch.setenv("REPRO_PROFILES", str(path))
    return path


def test_every_shipped_profile_is_readable() -> None:
    assert {"here", "one-gpu", "eight-gpus", "preemptible", "dev-cluster"} <= {profile.name for profile in profiles()}
    assert load_profile("eight-gpus").num_processes == 8
    assert load_profile("cpu-node").num_processes == 1


def test_own_profile_extends_shipped_one(own: Path) -> None:
    own.write_text('[mine]\nextends = "one-gpu"\npartition = "a100"\nmodules = ["cuda"]\nsbatch = {comment = "x"}\n')
    mine = load_profile("mine")
    assert (mine.partition, mine.modules, mine.sbatch) == ("a100", ("cuda",), {"comment": "x"})
    assert (mine.gpus_per_run, mine.memory_gb) == (1, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[mine]\npartitoin = "x"',
            r"unknown key \['partitoin'\], did you mean 'partition'\? a profile has \['on', .*'partition'",
        ),
        ("[mine]\ntime_minutes = 'long'", "time_minutes='long'; must be"),
        ("[mine]\ntime_minutes = 0", "time_minutes=0; must be at least 1"),
        ("[mine]\non = 'cloud'", "choose local or slurm"),
        ("[mine]\nextends = 'yours'", "extends='yours'; choose another of"),
        ("[mine]\nextends = 'mine'", "extends='mine'; choose another of"),
        ("[mine]\ntime_minutes = 1\nwarning_seconds = 90", "leaves nothing of"),
        ("[mine\n", "is not TOML"),
        ("[mine]\nmemory_gib = 12", "did you mean 'memory_gb'"),
        ('[mine]\nmodules = ["cuda", 12]', "must be a list of texts"),
        (
            '[mine]\npartition = "gpu\\n#SBATCH --qos=high"',
            r"partition='gpu\\n#SBATCH --qos=high' contains a line break",
        ),
        ('[mine]\naccount = "a\\rb"', "contains a line break"),
        ('[mine]\nsetup = ["module purge\\nrm -rf x"]', "contains a line break"),
        ('[mine]\nmodules = ["cuda\\n"]', "contains a line break"),
        ('[mine]\nlauncher = ["apptainer\\u2028"]', "contains a line break"),
        ('[mine]\nsbatch = {comment = "a\\nb"}', "contains a line break"),
        ('[mine]\nsbatch = {"a\\n#SBATCH --b" = "x"}', "name options of sbatch as in"),
        ('[mine]\nsbatch = {"mail type" = "x"}', "name options of sbatch as in"),
        ('[mine]\nsbatch = {comment = ["a"]}', "sbatch.comment="),
        ("[mine]\nsbatch = {requeue = false}", "sbatch.requeue=False; must be a str, a number or true"),
    ],
)
def test_profile_mistakes_are_named(own: Path, text: str, message: str) -> None:
    own.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_profile("mine")


def test_profile_name_is_one_line(own: Path) -> None:
    own.write_text('["a\\nb"]\npartition = "x"')
    with pytest.raises(ValueError, match="contains a line break"):
        load_profile("a\nb")


def test_shipped_examples_are_profiles(own: Path) -> None:
    lines = SHIPPED.read_text().partition("# Examples")[2].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("# ["))
    own.write_text("\n".join(line.removeprefix("#").strip() for line in lines[first:]))
    examples = [load_profile(name) for name in ("with-conda", "with-modules", "with-apptainer", "with-enroot")]
    assert all(example.gpus_per_run == 1 and example.python for example in examples)
    assert examples[2].launcher[:2] == ("apptainer", "exec")


def test_unknown_profile_lists_known_ones(own: Path) -> None:
    own.write_text("")
    with pytest.raises(
        ValueError, match=r"unknown profile 'big'; choose one of \['cpu-node'.*add one to .*profiles\.toml"
    ):
        load_profile("big")


def test_missing_profile_file_is_an_error(own: Path) -> None:
    with pytest.raises(ValueError, match="is not a file"):
        load_profile("here")


def plan_with(profile: Profile, scale: str, folder: Path) -> Plan:
    return make_plan(
        EXPERIMENT.runs(scale),
        [folder],
        num_gpus=profile.gpus_per_run * profile.num_nodes,
        num_shards=lambda run: count_shards(run, profile),
    )


@pytest.mark.parametrize(("name", "scale"), [("one-gpu", "small"), ("eight-gpus", "large"), ("four-nodes", "large")])
def test_shipped_gpu_profiles_fit_table_1(name: str, scale: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    [line] = beyond(plan_with(profile, scale, tmp_path), profile)
    assert "resume from checkpoints" in line, "no stage is too long or too large, and runs go on as long as they get on"


def test_small_profile_is_named_by_stage(tmp_path: Path) -> None:
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


def test_shard_settings_replace_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "profiles.toml"
    own.write_text('[mine]\nextends = "one-gpu"\nnum_shards = 4\n')
    monkeypatch.setenv("REPRO_PROFILES", str(own))
    found = load_profile("mine")
    assert (found.num_shards, found.pairs_per_shard) == (4, None)
    assert load_profile("one-gpu").pairs_per_shard == 10_000_000 and len(profiles()) > 5


def test_plan_shows_what_exceeds_profile(tmp_path: Path) -> None:
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([vars(base("small"))]))
    words = ["plan", str(runs), "--scale", "small", "--profile", "cpu-node"]
    shown = CliRunner().invoke(app, words).stdout
    assert "too much for profile cpu-node" in shown and "estimated for a GPU, and a stage has none" in shown
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["beyond_profile"]
    assert [line for line in shown.splitlines() if line in told] == told and told
