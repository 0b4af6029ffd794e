"""Profiles of sites: shipped ones, a user's own file, its errors, and plans that exceed a profile."""

from pathlib import Path

import pytest

from slurm.profiles import SHIPPED_FILE, load_profile, read_tables


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the user's file of profiles."""
    path = tmp_path / "profiles.toml"
    monkeypatch.setenv("REPRO_PROFILES", str(path))
    return path


def test_every_shipped_profile_is_readable() -> None:
    shipped = {name: load_profile(name).num_processes for name in read_tables()}
    assert {"here", "one-gpu", "preemptible", "dev-cluster"} <= shipped.keys()
    assert (shipped["eight-gpus"], shipped["cpu-node"]) == (8, 1)


def test_own_profile_extends_shipped_one(own: Path) -> None:
    own.write_text(
        '[mine]\nextends = "one-gpu"\nslurm_partition = "a100"\nmem_gb = 32\n[mine.stage]\nmem_gb = 8\n'
        '[mine.kinds.embeddings]\nslurm_partition = "a100"\n'
    )
    mine = load_profile("mine")
    assert (mine.parameters["slurm_partition"], mine.gpus_per_run, mine.parameters["mem_gb"]) == ("a100", 1, 32)
    assert mine.pairs_per_shard == 10_000_000
    assert mine.stage == {"mem_gb": 8, "timeout_min": 2880, "cpus_per_task": 16, "gpus_per_node": 0}
    assert mine.kinds["embeddings"] == {"gpus_per_node": 1, "slurm_partition": "a100"}
    assert mine.kinds["clusters"]["gpus_per_node"] == 1
    own.write_text('[a]\nnum_shards = 4\n[b]\nextends = "a"\npairs_per_shard = 10\n')
    assert (load_profile("b").num_shards, load_profile("b").pairs_per_shard) == (None, 10)
    assert load_profile("eight-gpus").kinds["clusters"]["gpus_per_node"] == 8


MISTAKES = {
    "timeout_min = 0": "timeout_min=0; must be",
    "on = 'cloud'": "choose local or slurm",
    "extends = 'mine'": "extends='mine'; choose another of",
    "tasks_per_node = 8\ngpus_per_node = 4": "tasks_per_node=8 with 4 GPUs per node; each process needs its own",
    "on = 'local'\nnodes = 2": "nodes=2 needs on='slurm'",
    "pairs_per_shard = true": "pairs_per_shard=True; must be",
    "[mine.kinds.clusterz]\nmem_gb = 8": "'clusterz' is no kind of stage",
    "slurm_ntasks_per_node = 8": "slurm_ntasks_per_node: set nodes and tasks_per_node",
    "slurm_setup = 'module load x'": "slurm_setup must be a list",
    "[mine": "twice",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_profile_mistakes_are_named(own: Path, text: str, message: str) -> None:
    own.write_text(f"[mine]\n{text}\n")
    with pytest.raises(ValueError, match=message):
        load_profile("mine")


def test_shipped_examples_are_profiles(own: Path) -> None:
    lines = SHIPPED_FILE.read_text().partition("# Examples")[2].splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("# ["))
    own.write_text("\n".join(line.removeprefix("#").strip() for line in lines[first:]))
    examples = [load_profile(name) for name in ("with-conda", "with-modules", "with-apptainer", "with-enroot")]
    assert all(example.gpus_per_run == 1 and example.python for example in examples)
    assert examples[2].python.startswith("apptainer exec ")
