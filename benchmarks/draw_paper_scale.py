"""Draw time and peak memory of every stage against the number of pairs, from the records, with the estimates of `plan`.

    python -m benchmarks.draw_paper_scale benchmarks/paper_scale.svg

Dots are rows of `paper_scale.json`: "now", and those of stages with random content. Crosses are the jobs of
`launched.json`: the seconds of all shards of a stage, and the memory of the largest. Lines are estimates of `plan` up
to the paper's 235 million pairs. Clusters have size 4096, or 32 768 at ten million pairs and for launched jobs, because
their time grows with the square of the pairs over the size. Times are processor seconds. For jobs they are wall-clock
seconds on a busy machine.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

from repro.planning.stage_cost import BYTES_A_PAIR, MICROSECONDS_A_PAIR, PEAK_GIB, estimate_stage_costs
from repro.spec import base

HERE = Path(__file__).parent
KINDS = ("corpus", "tokens", "embeddings", "keys", "clusters", "start")
SIZES = (10**6, 10**7, 235_000_000)
Points = dict[str, list[tuple[int, float]]]


def measured() -> tuple[Points, Points]:
    """Return processor seconds and peaks in GiB of each kind of stage by number of pairs, including imports."""
    seconds, peaks = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
    imports: dict[int, float] = {}
    for row in json.loads((HERE / "paper_scale.json").read_text())["rows"]:
        if row["label"] != "before" and row["step"] in KINDS:
            seconds[row["step"]].append((row["num_pairs"], row["cpu_seconds"]))
            peaks[row["step"]].append((row["num_pairs"], row["peak_mebibytes"] / 1024))
        elif row["label"] == "now" and row["step"] == "import":
            imports[row["num_pairs"]] = row["cpu_seconds"]
    seconds["corpus"] = [(size, spent + imports.get(size, 0.0)) for size, spent in seconds["corpus"]]
    return dict(seconds), dict(peaks)


def launched() -> tuple[Points, Points]:
    """Return seconds of the launched jobs (all shards of a stage) and peaks in GiB (of the largest shard), by pairs."""
    seconds, peaks = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
    for result in json.loads((HERE / "launched.json").read_text())["results"]:
        spent, peak = defaultdict[str, float](float), defaultdict[str, float](float)
        for row in result["rows"]:
            kind = {"import": "corpus"}.get(row["item"], row["item"].partition("/")[0])
            kind = kind if "/" in row["item"] or kind == "corpus" else "run"
            spent[kind] += row["seconds"]
            peak[kind] = max(peak[kind], row["peak_mebibytes"] / 1024)
        for kind in spent:
            seconds[kind].append((result["num_pairs"], spent[kind]))
            peaks[kind].append((result["num_pairs"], peak[kind]))
    return dict(seconds), dict(peaks)


def planned() -> tuple[Points, Points]:
    """Return the estimates of `plan` for parts of the paper's corpus, with word vectors. Includes only CPU time."""
    seconds, peaks = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
    for size in SIZES:
        run = base(
            "small", num_pairs=size, surrogate="minilm-words", filter_model=None, sampler="cluster", cluster_size=4096
        )
        for cost in estimate_stage_costs([run]):
            if cost.kind in KINDS and cost.kind != "corpus":  # it is always built in full, whatever a run selects
                peaks[cost.kind].append((size, cost.memory_bytes / 2**30))
                if cost.on == "core":
                    seconds[cost.kind].append((size, 3600 * cost.hours))
        seconds["corpus"].append((size, MICROSECONDS_A_PAIR["corpus"] * size / 1e6))
        peaks["corpus"].append((size, PEAK_GIB["corpus"] + BYTES_A_PAIR["corpus"] * size / 2**30))
    return dict(seconds), dict(peaks)


def main() -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="ends in .svg or .png")
    asked = parser.parse_args()
    plt.rcParams["svg.hashsalt"] = "paper scale"
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), constrained_layout=True)
    kinds = [*KINDS, "run"]
    labels = ("seconds of one core", "peak memory of a process (GiB)")
    for panel, dots, jobs, lines, label in zip(panels, measured(), launched(), planned(), labels, strict=True):
        for number, kind in enumerate(kinds):
            colour, name = f"C{number}", {"run": "training and evaluation"}.get(kind, kind)
            panel.plot(*zip(*dots.get(kind, [(1, float("nan"))]), strict=True), "o", color=colour, label=name)
            panel.plot(*zip(*lines.get(kind, [(1, float("nan"))]), strict=True), "-", color=colour, linewidth=1)
            panel.plot(*zip(*jobs.get(kind, [(1, float("nan"))]), strict=True), "x", color=colour)
        panel.set(xscale="log", yscale="log", xlabel="pairs", ylabel=label, xlim=(6e4, 4e8))
    panels[1].axhline(3, color="grey", linestyle=":", linewidth=1)
    names = panels[1].get_legend_handles_labels()
    title = "o measured, x launched, line: plan"
    figure.legend(*names, fontsize=7, title=title, title_fontsize=7, loc="outside right upper")
    figure.savefig(asked.path, metadata={"Date": None} if asked.path.suffix == ".svg" else None, dpi=110)


if __name__ == "__main__":
    main()
