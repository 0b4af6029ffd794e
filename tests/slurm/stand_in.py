"""A stand-in for execute() and list_stages(): real records, checkpoints and stages, but training only counts.

Each step takes STAND_IN_STEP_SECONDS. Every action is a line in home/trace. Flags are empty files in the home folder:

- `fast`: steps take no time.
- `mended`: a run of seed 13 succeeds. Without the flag, it fails.
- `break-NAME`, `break-shard-N`: building this stage or shard fails.
- `crash`: a child of the local queue is killed before it begins.
- `hold-N`: shard N waits until the flag is removed.

Tests use the stand-in through the fixture `stand_in`. As a module, it is a child of the local queue with the stand-in.
"""

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from repro.pipeline import stages as pipeline_stages
from repro.records.store import Record, write_record
from repro.spec import Run
from repro.spec.identity import run_id
from repro.stopping import Interrupted, delay_stops, is_asked_to_stop
from repro.storage.paths import get_home, get_local_records, run_folder
from repro.storage.stages import Part, Sharding, Stage
from slurm import job


def set_flag(name: str) -> None:
    """Set a flag of the stand-in."""
    get_home().mkdir(parents=True, exist_ok=True)
    (get_home() / name).touch()


def clear_flag(name: str) -> None:
    """Remove a flag of the stand-in."""
    (get_home() / name).unlink()


def trace(line: str) -> None:
    """Append a line to the trace, in one write."""
    with (get_home() / "trace").open("a") as file:
        file.write(f"{line}\n")


def read_trace() -> list[str]:
    """Return the lines of the trace."""
    path = get_home() / "trace"
    return path.read_text().splitlines() if path.exists() else []


def advance(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state after one more step. Its value depends on all steps before."""
    text = f"{state['value']} {state['step']}"
    return {"step": state["step"] + 1, "value": hashlib.sha256(text.encode()).hexdigest()}


def compute_metric(state: dict[str, Any]) -> int:
    """Return the metric of a state."""
    return int(state["value"][:8], 16)


def compute_undisturbed_metric(run: Run) -> int:
    """Return the metric of a run that is not interrupted."""
    state = {"step": 0, "value": run_id(run)}
    for _ in range(run.num_steps or 0):
        state = advance(state)
    return compute_metric(state)


PROVENANCE = {"machine": {"device": "cpu"}, "training": {}, "evaluation_seconds": 1.0}
"""The least that a record states about its machine, so that the time of other runs can be estimated."""


def execute(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> Record:
    """Count to num_steps, and write a checkpoint if stopped. The metric is right only if every step ran exactly once."""
    for stage in stages_of(run):
        assert stage.is_built, f"{stage.name} should have been built before"
    name, folder = run_id(run), run_folder(run_id(run))
    if run.seed == 13 and not (get_home() / "mended").exists():
        raise ValueError("seed 13 brings bad luck")
    checkpoint = folder / "checkpoint.json"
    state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "value": name}
    trace(f"begin {name} at {state['step']}")
    progress(f"counting from {state['step']}")
    assert run.num_steps is not None
    with delay_stops():
        while state["step"] < run.num_steps:
            if should_stop() or is_asked_to_stop():
                checkpoint.write_text(json.dumps(state))
                trace(f"stop {name} at {state['step']}")
                raise Interrupted(f"stopped before step {state['step']}")
            time.sleep(0 if (get_home() / "fast").exists() else float(os.environ.get("STAND_IN_STEP_SECONDS", "0.01")))
            state = advance(state)
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": state["step"], "pairs_per_second": 100.0}) + "\n")
    progress(f"counted to {state['step']}")
    trace(f"end {name}")
    metrics = {"value": compute_metric(state)}
    return write_record(get_local_records(), run, metrics=metrics, arrays={"x": np.zeros(1)}, provenance=PROVENANCE)


def stages_of(run: Run) -> tuple[Stage, ...]:
    """Return a corpus stage for all runs, and a stage of clusters for those with sampler "cluster"."""

    def make(name: str) -> Callable[[Path], None]:
        def build(folder: Path) -> None:
            trace(f"build {name}")
            if (get_home() / f"break-{name}").exists():
                raise OSError(f"no room for {name}")
            time.sleep(0.1)
            (folder / "content").write_text(name)

        return build

    def build_part(folder: Path, part: Part) -> None:
        trace(f"shard {part.number} of {part.of}")
        if (get_home() / f"break-shard-{part.number}").exists():
            raise OSError(f"no room for shard {part.number}")
        while (get_home() / f"hold-{part.number}").exists():
            time.sleep(0.05)
        (folder / "content").write_text("clusters"[part.span(len("clusters"))])

    def join(folder: Path, parts: Sequence[Path]) -> None:
        trace("join clusters")
        (folder / "content").write_text("".join((part / "content").read_text() for part in parts))

    corpus = Stage("corpus", {"corpus": run.corpus}, make("corpus"))
    sharding = Sharding(build_part, join)
    clusters = Stage("clusters", {"size": run.cluster_size}, make("clusters"), (corpus,), sharding)
    return (corpus, clusters) if run.sampler == "cluster" else (corpus,)


def make_execute_module(function: Callable[..., object]) -> ModuleType:
    """Return a module that replaces `repro.execute`, which would load torch."""
    module = ModuleType("repro.execute")
    module.execute = function  # type: ignore[attr-defined]
    return module


def replace_work() -> None:
    """Execute runs and list stages with the stand-in for the rest of this process."""
    sys.modules["repro.execute"] = make_execute_module(execute)
    pipeline_stages.list_stages = stages_of


if __name__ == "__main__":
    if (get_home() / "crash").exists():
        os.kill(os.getpid(), signal.SIGSEGV)
    replace_work()
    # A test may name a function instead of `execute`.
    if "STAND_IN_EXECUTE" in os.environ:
        module, _, name = os.environ["STAND_IN_EXECUTE"].partition(":")
        sys.modules["repro.execute"] = make_execute_module(getattr(import_module(module), name))
    sys.exit(job.main())
