"""Checks of `repro doctor`: this machine, the requirements of each scale, and the integrity of records and stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.planning.requirements import list_missing_requirements
from repro.records.lookup import resolve_runs
from repro.records.provenance import describe_machine, get_code_identity, list_versions
from repro.records.store import read_record
from repro.spec.scales import ORDER
from repro.storage.digests import check_digests
from repro.storage.files import read_json
from repro.storage.paths import (
    get_building_folder,
    get_local_records,
    get_published_records,
    get_stage_folder,
    run_folder,
)
from repro.storage.stages import STAGE_FILE
from repro.storage.tensor_files import check_digest
from repro.text import count_noun
from repro.train.performance import uses_autocast


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    what: str
    good: bool
    message: str


def run_checks() -> Iterator[Finding]:
    """Check this machine, and yield each finding as soon as it is available. The order is fixed."""
    yield Finding("versions", True, ", ".join(f"{name} {number}" for name, number in list_versions().items()))
    device = describe_machine(narrow=uses_autocast())
    threads = count_noun(device["num_threads"], "thread")
    yield Finding("device", True, f"{device['device']}, {device['dtype']}, {threads}")
    code = get_code_identity()
    is_clean = code["commit"] is not None and code["uncommitted_sha256"] is None
    changes = code.get("git") or code["uncommitted_sha256"] or "none"
    yield Finding("code", is_clean, f"commit {code['commit']}, uncommitted changes: {changes}")
    yield from map(_check_scale, ORDER)


def _check_scale(name: str) -> Finding:
    """Return the missing requirements of all artefacts of a scale, one per line."""
    missing = list_missing_requirements(resolve_runs(None, name, all_seeds=True))
    if not missing:
        return Finding(f"data for {name}", True, "made here")
    hint = f"missing, downloaded by `repro fetch all --scale {name} --all-seeds`:"
    return Finding(f"data for {name}", False, "\n       ".join([hint, *missing]))


def check_deeply() -> Iterator[Finding]:
    """Verify all records, stages and weights of training runs against their digests.

    Yields one finding per set of records, one for the stages, one for the weights, and one per failure.
    """
    for label, folder in (("published records", get_published_records()), ("your records", get_local_records())):
        # The arrays are read and compared only when they are asked for.
        yield from _verify(label, sorted(folder.glob("*.json")), lambda path: read_record(path).arrays)
    yield from _verify("stages", sorted(get_stage_folder().glob(f"*/[0-9a-f]*/{STAGE_FILE}")), _check_stage)
    yield from _verify("weights", sorted(run_folder("id").parent.glob("*/*.safetensors")), check_digest)


def _verify(label: str, paths: Sequence[Path], check: Callable[[Path], object]) -> Iterator[Finding]:
    damaged: dict[Path, str] = {}
    for path in paths:
        try:
            check(path)
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            damaged[path] = str(error)
    yield Finding(label, not damaged, f"{len(paths) - len(damaged)} of {len(paths)} hold")
    yield from (Finding(f"{path.parent.name}/{path.name}", False, error) for path, error in damaged.items())


def _check_stage(path: Path) -> None:
    check_digests(path.parent, read_json(path)["files"], get_building_folder(path.parent), deep=True)
