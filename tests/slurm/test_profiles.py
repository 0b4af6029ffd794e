"""Site facts are data: shipped shapes, a user's own, and a misspelling that says what is valid."""

from pathlib import Path

import pytest

from slurm.profiles import SHIPPED, load_profile, profiles


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


def test_a_users_profile_extends_a_shipped_one(own: Path) -> None:
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
def test_a_mistake_in_a_profile_is_one_clear_error(own: Path, text: str, message: str) -> None:
    own.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_profile("mine")


def test_a_profiles_own_name_is_one_line(own: Path) -> None:
    own.write_text('["a\\nb"]\npartition = "x"')
    with pytest.raises(ValueError, match="contains a line break"):
        load_profile("a\nb")


def test_the_examples_in_the_shipped_file_are_profiles(own: Path) -> None:
    lines = SHIPPED.read_text().partition("# Examples")[2].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("# ["))
    own.write_text("\n".join(line.removeprefix("#").strip() for line in lines[first:]))
    examples = [load_profile(name) for name in ("with-conda", "with-modules", "with-apptainer", "with-enroot")]
    assert all(example.gpus_per_run == 1 and example.python for example in examples)
    assert examples[2].launcher[:2] == ("apptainer", "exec")


def test_an_unknown_profile_lists_the_known_and_where_to_add_one(own: Path) -> None:
    own.write_text("")
    with pytest.raises(
        ValueError, match=r"unknown profile 'big'; choose one of \['cpu-node'.*add one to .*profiles\.toml"
    ):
        load_profile("big")


def test_a_file_named_but_not_there_is_an_error(own: Path) -> None:
    with pytest.raises(ValueError, match="is not a file"):
        load_profile("here")
