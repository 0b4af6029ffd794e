"""Shared parts of the benchmarks: options, timing in turns, child processes, model sizes and JSON records.

This module imports nothing large. On Linux the peak memory of a child process starts at that of its parent, so a
benchmark that measures memory must stay small itself. Functions that need `repro` import it when they are called.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repro.data.pairs import Pairs
    from repro.spec import Run

Row = Mapping[str, Any]

MINILM: dict[str, Any] = {
    "start": "minilm",
    "num_contexts": 64,
    "num_soft_prompts": 8,
    "prompts": "task",
    "max_tokens": 64,
}
SIZES = ("smoke", "desk", "minilm")


def make_parser(doc: str | None, *, has_record: bool = True, **integers: int | None) -> argparse.ArgumentParser:
    """Return a parser that shows the module's docstring as its help.

    Args:
        doc: the docstring of the benchmark.
        has_record: add `--write PATH`.
        integers: integer options with their defaults. For example, `num_pairs=1000` adds `--num-pairs`.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in integers.items():
        help_text = None if default is None else f"default: {default}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=help_text)
    if has_record:
        parser.add_argument("--write", type=Path, metavar="PATH", help="JSON record to update with the results")
    return parser


# ---- timing


@dataclass(frozen=True)
class Timings:
    """Seconds per round and the last result of each action."""

    seconds: dict[str, list[float]]
    results: dict[str, Any]

    @property
    def medians(self) -> dict[str, float]:
        """Median seconds of each action."""
        return {name: statistics.median(seconds) for name, seconds in self.seconds.items()}


def time_in_turns(
    actions: Mapping[str, Callable[[], Any]],
    num_rounds: int,
    *,
    num_warmups: int = 0,
    clock: Callable[[], float] = time.process_time,
) -> Timings:
    """Run all actions once per round and measure the seconds of each, by default those of the processor.

    The actions alternate, so that a change in the machine's load affects all of them. Processor time excludes waiting
    for other processes, and work on a GPU. Each action returns its result to the CPU, so a wall clock includes that
    work. Warm-up rounds are not measured.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    results: dict[str, Any] = {}
    for index in range(num_warmups + num_rounds):
        for name, action in actions.items():
            started = clock()
            results[name] = action()
            if index >= num_warmups:
                seconds[name].append(clock() - started)
    return Timings(seconds, results)


@dataclass(frozen=True)
class ProcessCost:
    """What a child process used."""

    exit_code: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int  # largest resident memory, including mapped pages


def measure_process(command: Sequence[str], **options: Any) -> ProcessCost:
    """Run a command to its end and return its time and memory. `options` are those of subprocess.Popen."""
    started = time.monotonic()
    child = subprocess.Popen(command, **options)
    # wait4 returns the usage of this child alone, unlike resource.getrusage(RUSAGE_CHILDREN).
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - started
    return ProcessCost(child.returncode, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


# ---- models


def make_run(size: str, **changes: Any) -> Run:
    """Return a run with the text, batch and model of a size: a scale, or "minilm" for full MiniLM on desk's text."""
    from repro.spec import base

    return base("desk", **MINILM, **changes) if size == "minilm" else base(size, **changes)


def load_pairs(run: Run) -> Pairs:
    """Return the training pairs of a run. Build corpus and selection if they are missing."""
    from repro.pipeline.stages import StageGraph

    graph = StageGraph(run)
    graph.corpus.build(print)
    graph.selection.build(print)
    return graph.selected_pairs()


# ---- records


def describe_machine() -> dict[str, Any]:
    """Return the columns that describe the machine, with its current load."""
    return {
        "processor": platform.processor() or platform.machine(),
        "num_cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
    }


def write_rows(
    path: Path | None, rows: Iterable[Row], keys: Sequence[str], order: Callable[[Row], Any] | None = None
) -> None:
    """Write rows to a JSON record, one per line. Do nothing without a path.

    New rows replace rows with the same values of `keys`. Rows are sorted by `order`, or by the keys as text.
    """

    def get_key(row: Row) -> list[str]:
        return [str(row.get(name)) for name in keys]

    if path is None:
        return
    new_rows = list(rows)
    new_keys = [get_key(row) for row in new_rows]
    old_rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    merged = sorted([*(row for row in old_rows if get_key(row) not in new_keys), *new_rows], key=order or get_key)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in merged)
    path.write_text(f'{{"rows": [\n{lines}\n]}}\n')
