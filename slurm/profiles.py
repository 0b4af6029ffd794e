"""Profiles: resources per run and queue names of a site, read from profiles.toml and the user's own file."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from repro.planning.pairs import count_pairs
from repro.spec import Run
from repro.spec.identity import run_id
from repro.text import format_suggestion, shorten

SHIPPED_FILE = Path(__file__).with_name("profiles.toml")
QUEUE_KINDS = ("local", "slurm")
"""Where the jobs of a profile run: a local queue or Slurm."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One job shape at one site. Each field is a key of the file. Empty strings and None select the site's default."""

    name: str
    on: str = "slurm"  # local (a queue on this machine) or slurm
    # options for sbatch
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    # Replaces the request for GPUs if a site counts them by type, e.g. "gpu:a100:1". Must name as many GPUs as
    # gpus_per_run, which sets the number of processes. Stages use the same type.
    gres: str = ""
    exclude: str = ""
    wckey: str = ""  # for sites that account by it
    # Start folder of the jobs. Empty: the checkout, whatever folder the launch starts in.
    chdir: str = ""
    # any other sbatch option, by its long name
    sbatch: dict[str, str] = field(default_factory=dict)
    # resources per run (per node if there are several)
    num_nodes: int = 1
    cpus_per_run: int | None = None  # shared as threads by its processes on a node
    gpus_per_run: int = 0
    processes_per_run: int | None = None  # data-parallel processes, by default one per GPU
    memory_gb: float | None = None
    time_minutes: int = 60
    # behaviour of a sweep
    # Parallel runs. Locally by default one per GPU, or one per two cores (one per core below four cores).
    num_at_once: int | None = None
    # Seconds before the time limit at which a checkpoint is written.
    warning_seconds: int = 90
    # Consecutive interruptions without progress before a run counts as failed.
    max_requeues: int = 10
    # environment
    modules: tuple[str, ...] = ()  # for `module load`
    setup: tuple[str, ...] = ()  # shell lines before the run, e.g. to activate a conda environment
    # Words before python, for example of a container: ["apptainer", "exec", "--nv", "cde.sif"].
    launcher: tuple[str, ...] = ()
    srun: tuple[str, ...] = ()  # further srun options, e.g. "--container-image=cde.sqsh"
    python: str = ""  # interpreter of the jobs, by default the launcher's
    scratch: str = ""  # TMPDIR of the jobs, e.g. "/scratch/$USER/$SLURM_JOB_ID"
    # resources of a stage, if they differ from those of a run
    stage_partition: str = ""
    stage_cpus: int | None = None
    stage_gpus: int = 0
    stage_memory_gb: float | None = None
    stage_time_minutes: int | None = None
    # Shards of tokens, embeddings and keys, each a separate job: either their number, or the pairs per shard if the
    # number of pairs is known in advance.
    num_shards: int | None = None
    pairs_per_shard: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for invalid values."""
        for profile_field in fields(self):
            check_lines(getattr(self, profile_field.name), f"profile {shorten(self.name)!r}: {profile_field.name}")
        if self.on not in QUEUE_KINDS:
            raise ValueError(f"profile {self.name}: on={self.on!r}; choose local or slurm")
        for name, value in vars(self).items():
            minimum = MINIMA.get(name, 0)
            maximum = MAXIMA.get(name, DEFAULT_MAXIMUM)
            if isinstance(value, int | float) and not minimum <= value <= maximum:  # also rejects nan
                limits = f"at least {minimum} and at most {maximum}"
                raise ValueError(f"profile {self.name}: {name}={value}; must be {limits}")
        if self.num_nodes > 1 and self.on != "slurm":
            raise ValueError(f"profile {self.name}: num_nodes={self.num_nodes} needs on='slurm'")
        num_gpus = _count_gpus(self.gres)
        if num_gpus is not None and num_gpus != self.gpus_per_run:
            problem = f"gres={self.gres!r} requests {num_gpus} GPUs, and gpus_per_run={self.gpus_per_run}"
            raise ValueError(f"profile {self.name}: {problem}; set gpus_per_run={num_gpus}, or change gres")
        if self.gpus_per_run:
            check_processes_per_gpu(self.name, self.num_processes, self.gpus_per_run)
        if self.num_shards and self.pairs_per_shard:
            options = f"num_shards={self.num_shards} and pairs_per_shard={self.pairs_per_shard}"
            raise ValueError(f"profile {self.name}: {options} both set the number of shards; keep one")
        if self.on == "slurm" and self.warning_seconds >= self.time_minutes * 60:
            warning = f"warning_seconds={self.warning_seconds}"
            raise ValueError(f"profile {self.name}: {warning} leaves nothing of time_minutes={self.time_minutes}")

    @property
    def num_processes(self) -> int:
        """Data-parallel processes of one run per node."""
        return self.processes_per_run or max(1, self.gpus_per_run)


def check_processes_per_gpu(name: str, num_processes: int, num_gpus: int) -> None:
    """Raise ValueError if the processes of a run would share a GPU."""
    if num_processes > num_gpus:
        raise ValueError(
            f"profile {name}: processes_per_run={num_processes} with {num_gpus} GPUs per run; each process needs its own"
        )


def _count_gpus(gres: str) -> int | None:
    """Return the number of GPUs that Slurm's option --gres requests, or None if it names none."""
    requests = [request.split(":") for request in gres.split(",")]
    # "gpu" and "gpu:a100" request one.
    counts = [int(words[-1]) if words[-1].isdecimal() else 1 for words in requests if words[0] == "gpu"]
    return sum(counts) if counts else None


DEFAULT_MAXIMUM = 10**6
"""Upper limit of any amount. No site has more of anything, and no job may run for years."""
# each shard is a job with a folder and a state
MAXIMA = {"pairs_per_shard": 10**12, "num_shards": 10_000}
MINIMA = {
    **dict.fromkeys(("time_minutes", "num_at_once", "processes_per_run", "cpus_per_run"), 1),
    **dict.fromkeys(("stage_cpus", "stage_time_minutes"), 1),
    **dict.fromkeys(("num_nodes", "num_shards", "pairs_per_shard"), 1),
    **dict.fromkeys(("memory_gb", "stage_memory_gb"), 0.001),
}
"""Lower limits of amounts. The default is 0."""
FORBIDDEN_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""A line break or any other control character except a tab."""
OPTION = re.compile(r"[a-z][a-z0-9-]*")


def check_lines(value: Any, label: str) -> None:
    """Raise ValueError if a value, or a nested one, has a line break, which would add a line to a job's script."""
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            check_lines(item, label)
    elif isinstance(value, str) and FORBIDDEN_CHARACTER.search(value):
        raise ValueError(f"{label}={shorten(repr(value))} contains a line break or a control character; write one line")


# By the name in the annotation of a field: the types that TOML gives, and the form in the message. The order matters,
# because the annotation of a tuple or a dict also names the type of its items.
TOML_FORMS: dict[str, tuple[tuple[type, ...], str]] = {
    "tuple": ((list,), 'a list of texts, for example ["cuda/12.4"]'),
    "dict": ((dict,), 'a table, for example { mail-type = "FAIL" }'),
    "float": ((int, float), "a number, for example 1.5"),
    "int": ((int,), "a whole number, for example 8"),
    "str": ((str,), 'a text in quotes, for example "gpu"'),
}
SHARDING_KEYS = ("num_shards", "pairs_per_shard")
KEYS = (*(key.name for key in fields(Profile) if key.name != "name"), "extends")


def get_user_file() -> Path:
    """Return the path of the user's own profiles, whether or not it exists."""
    configured = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(os.environ.get("REPRO_PROFILES") or Path(configured) / "cde-repro" / "profiles.toml").expanduser()


def load_profile(name: str) -> Profile:
    """Return a profile. Raises ValueError with the list of profiles, or with the error in the file."""
    tables = _tables(get_user_file())
    if name not in tables:
        hint = format_suggestion(name, tables, likeness=0.6) or ";"
        raise ValueError(f"unknown profile {name!r}{hint} choose one of {sorted(tables)}, or add to {get_user_file()}")
    return Profile(name=name, **_resolve_values(name, tables, ()))


def choose(name: str | None, on: str | None) -> Profile:
    """Return the profile selected on the command line. Raises ValueError if the options contradict each other."""
    if on not in (None, *QUEUE_KINDS):
        raise ValueError(f"--on {on}: choose one of {list(QUEUE_KINDS)}")
    if name is None and on == "slurm":
        names = [profile.name for profile in profiles() if profile.on == "slurm"]
        raise ValueError(f"--on slurm needs --profile, one of {names}, or your own in {get_user_file()}")
    profile = load_profile(name or "here")
    if on not in (None, profile.on):
        raise ValueError(f"--on {on} does not go with profile {profile.name}, which is for {profile.on}")
    return profile


def profiles() -> tuple[Profile, ...]:
    """Return all profiles, both shipped and the user's own."""
    return tuple(load_profile(name) for name in _tables(get_user_file()))


@cache
def _tables(user_file: Path) -> dict[str, dict[str, Any]]:
    tables = _read(SHIPPED_FILE)
    if user_file.is_file():
        tables |= _read(user_file)
    elif os.environ.get("REPRO_PROFILES"):
        raise ValueError(f"REPRO_PROFILES={user_file} is not a file; unset it or write the file")
    return tables


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    if malformed := [name for name, table in tables.items() if not isinstance(table, dict)]:
        raise ValueError(f"{path}: {shorten(repr(malformed[0]))} is not a table; a profile is [NAME] and its keys")
    return tables


def _resolve_values(name: str, tables: dict[str, dict[str, Any]], chain: tuple[str, ...]) -> dict[str, Any]:
    values = dict(tables[name])
    unknown = sorted(set(values) - set(KEYS))
    if unknown:
        hint = format_suggestion(unknown[0], KEYS, likeness=0.6)
        raise ValueError(f"profile {name}: unknown key {unknown}{hint or ';'} a profile has {list(KEYS)}")
    parent = values.pop("extends", None)
    if parent is not None and (parent not in tables or parent in (*chain, name)):
        raise ValueError(f"profile {name}: extends={parent!r}; choose another of {sorted(tables)}")
    # `chain` holds the profiles so far, which stops a cycle of `extends`.
    inherited = _resolve_values(parent, tables, (*chain, name)) if parent else {}
    # Either way of setting the shards replaces the other.
    if values.keys() & set(SHARDING_KEYS):
        inherited = {key: value for key, value in inherited.items() if key not in SHARDING_KEYS}
    return inherited | {key: _validate_value(name, key, value) for key, value in values.items()}


def _validate_value(name: str, key: str, value: Any) -> Any:
    annotation = str(get_type_hints(Profile)[key])
    types, form = next(expected for kind, expected in TOML_FORMS.items() if kind in annotation)
    is_valid = isinstance(value, types) and not isinstance(value, bool)
    if isinstance(value, list):
        is_valid = is_valid and all(isinstance(item, str) for item in value)
    if not is_valid:
        raise ValueError(f"profile {name}: {key}={shorten(repr(value))}; must be {form}")
    if isinstance(value, dict):
        _check_options(name, key, value)
    return tuple(value) if isinstance(value, list) else value


def _check_options(name: str, key: str, options: Mapping[str, Any]) -> None:
    for option, value in options.items():
        if not OPTION.fullmatch(option):
            raise ValueError(f"profile {name}: {key} has {option!r}; name options of sbatch as in --mail-type")
        # True stands for an option without a value.
        if value is False or not isinstance(value, str | int | float):
            raise ValueError(f"profile {name}: {key}.{option}={value!r}; must be a str, a number or true")


def count_shards(run: Run, profile: Profile) -> int:
    """Return the number of shards of tokens, embeddings and keys of a run. 1 means no sharding.

    If the number of pairs is unknown before the corpus is built, this is 1 unless the profile sets the number. Raises
    ValueError if there are more shards than pairs or than can be managed.
    """
    num_pairs = count_pairs(run)
    if profile.num_shards:
        if num_pairs is not None and profile.num_shards > num_pairs:
            setting = f"profile {profile.name}: num_shards={profile.num_shards}"
            raise ValueError(f"{setting} is more than the {num_pairs} pairs of run {run_id(run)}; choose fewer")
        return profile.num_shards
    if profile.pairs_per_shard is None:
        return 1
    num_shards = max(1, math.ceil((num_pairs or 0) / profile.pairs_per_shard))
    maximum = MAXIMA["num_shards"]
    if num_shards > maximum:
        setting = f"profile {profile.name}: pairs_per_shard={profile.pairs_per_shard}"
        raise ValueError(f"{setting} splits run {run_id(run)} into {num_shards} shards; the maximum is {maximum}")
    return num_shards
