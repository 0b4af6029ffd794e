"""Profiles: resources per run and queue names of a site, read from profiles.toml and the user's own file."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from repro.pipeline.needs import STAGE_KINDS
from repro.planning.pairs import count_pairs
from repro.spec import Run
from repro.storage.files import name_in_errors
from repro.text import format_suggestion, shorten

SHIPPED_FILE = Path(__file__).with_name("profiles.toml")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One job shape at one site: some settings of our own, and parameters that submitit passes to sbatch."""

    name: str
    on: str = "slurm"  # local (a queue on this machine) or slurm
    # Parallel runs. Locally by default one per GPU, or one per two cores (one per core below four cores).
    num_at_once: int | None = None
    # Consecutive interruptions without progress before a run counts as failed.
    max_requeues: int = 10
    # Shell words that start python in a job, by default the launcher's interpreter. $VARIABLES are expanded.
    python: str = ""
    # Shards of a stage, each a separate job: their number, or the pairs per shard if the number of pairs is known.
    num_shards: int | None = None
    pairs_per_shard: int | None = None
    # Parameters of `submitit.AutoExecutor.update_parameters`, for example timeout_min, mem_gb or slurm_partition. A
    # local queue reads cpus_per_task, gpus_per_node and tasks_per_node.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # Parameters of a stage that differ from those of a run, and by kind of stage those that differ from other stages.
    stage: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError for values that would silently start other jobs than requested."""
        if self.on not in ("local", "slurm"):
            raise ValueError(f"profile {self.name}: on={self.on!r}; choose local or slurm")
        counts = {name: getattr(self, name) for name in ("num_at_once", "num_shards", "pairs_per_shard")}
        counts |= {
            name: self.parameters.get(name) for name in ("timeout_min", "nodes", "tasks_per_node", "cpus_per_task")
        }
        for name, value in counts.items():
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"profile {self.name}: {name}={value!r}; must be a whole number of at least 1")
        if unknown := sorted(set(self.kinds) - set(STAGE_KINDS)):
            raise ValueError(f"profile {self.name}: {unknown[0]!r} is no kind of stage: {list(STAGE_KINDS)}")
        # Their numbers would not reach the ranks, and a text would be one line per letter.
        if given := self.parameters.keys() & {"slurm_nodes", "slurm_ntasks_per_node"}:
            raise ValueError(f"profile {self.name}: {min(given)}: set nodes and tasks_per_node")
        for name in ("slurm_setup", "slurm_srun_args"):
            if not isinstance(self.parameters.get(name, []), list):
                raise ValueError(f"profile {self.name}: {name} must be a list of texts")
        if self.num_nodes > 1 and self.on != "slurm":
            raise ValueError(f"profile {self.name}: nodes={self.num_nodes} needs on='slurm'")
        if 0 < self.gpus_per_run < self.num_processes:
            problem = f"tasks_per_node={self.num_processes} with {self.gpus_per_run} GPUs per node"
            raise ValueError(f"profile {self.name}: {problem}; each process needs its own")

    @property
    def num_nodes(self) -> int:
        """Nodes of one run."""
        return int(self.parameters.get("nodes", 1))

    @property
    def gpus_per_run(self) -> int:
        """GPUs of one run per node."""
        return int(self.parameters.get("gpus_per_node", 0))

    @property
    def num_processes(self) -> int:
        """Data-parallel processes of one run per node: one per GPU, unless tasks_per_node sets another number."""
        return int(self.parameters.get("tasks_per_node", max(1, self.gpus_per_run)))

    @property
    def cpus_per_process(self) -> int | None:
        """Cores of each process, or None for the default of the site or the machine."""
        return self.parameters.get("cpus_per_task")


OWN_KEYS = tuple(key.name for key in fields(Profile) if key.name not in ("name", "parameters"))


def get_user_file() -> Path:
    """Return the path of the user's own profiles, whether or not it exists."""
    configured = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(os.environ.get("REPRO_PROFILES") or Path(configured) / "cde-repro" / "profiles.toml").expanduser()


def load_profile(name: str) -> Profile:
    """Return a profile. Raises ValueError with the list of profiles, or with the error in the file."""
    tables = read_tables()
    if name not in tables:
        hint = format_suggestion(name, tables, likeness=0.6) or ";"
        raise ValueError(f"unknown profile {name!r}{hint} choose one of {sorted(tables)}, or add to {get_user_file()}")
    values = _resolve_values(name, tables, ())
    own = {key: values.pop(key) for key in OWN_KEYS if key in values}
    return Profile(name=name, **own, parameters=values)


def read_tables() -> dict[str, dict[str, Any]]:
    """Return the tables of all profiles by name: those that are shipped, and the user's own."""
    user_file = get_user_file()
    tables: dict[str, dict[str, Any]] = {}
    for path in (SHIPPED_FILE, user_file):
        if path.is_file() or os.environ.get("REPRO_PROFILES"):
            with name_in_errors(path):
                tables |= tomllib.loads(path.read_text(encoding="utf-8"))
    if malformed := [name for name, table in tables.items() if not isinstance(table, dict)]:
        raise ValueError(f"{user_file}: {shorten(repr(malformed[0]))} is not a table; a profile is [NAME] and its keys")
    return tables


def _resolve_values(name: str, tables: Mapping[str, dict[str, Any]], chain: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of a profile with those that it inherits. Tables inside a profile are merged."""
    values = dict(tables[name])
    parent = values.pop("extends", None)
    if parent is None:
        return values
    # `chain` holds the profiles so far, which stops a cycle of `extends`.
    if not isinstance(parent, str) or parent not in tables or parent in (*chain, name):
        raise ValueError(f"profile {name}: extends={parent!r}; choose another of {sorted(tables)}")
    inherited = _resolve_values(parent, tables, (*chain, name))
    # Either way of setting the shards replaces the other.
    shard_keys = {"num_shards", "pairs_per_shard"}
    if values.keys() & shard_keys:
        inherited = {key: value for key, value in inherited.items() if key not in shard_keys}
    return _merge(inherited, values)


def _merge(inherited: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Merge two tables, and the tables in them."""
    tables = [key for key, value in values.items() if isinstance(value, dict) and isinstance(inherited.get(key), dict)]
    return inherited | values | {key: _merge(inherited[key], values[key]) for key in tables}


def count_shards(run: Run, profile: Profile) -> int:
    """Return the number of shards of each stage of a run that can be built in shards. 1 means no sharding.

    If the number of pairs is unknown before the corpus is built, this is 1 unless the profile sets the number.
    """
    if profile.num_shards or profile.pairs_per_shard is None:
        return profile.num_shards or 1
    return max(1, math.ceil((count_pairs(run) or 0) / profile.pairs_per_shard))
