"""Run a grid on the queue of this machine, and print its table.

python examples/grid.py [AXIS ...]     In a terminal: repro launch runs.json learning_rate=1e-3,5e-3 batch_size=8,16

Axes are typed as on the command line: values joined by commas, or a range such as seed=1..3. The runs are tiny models
on a synthetic corpus. The queue starts several at once. A second call of `main` with the same folder finds all of them
recorded.
"""

import os
import sys
import tempfile
from pathlib import Path

from repro.report.formats import render
from repro.report.scores import make_scores_view
from repro.report.view import View
from repro.spec import base
from repro.spec.axes import describe_grid, expand, parse_axes
from slurm.profiles import load_profile
from slurm.start import start

AXES = ("learning_rate=1e-3,5e-3", "batch_size=8,16")


def main(folder: Path, words: tuple[str, ...] = AXES) -> View:
    """Run every combination of the axes that has no record yet, and return the table of scores."""
    os.environ["REPRO_HOME"] = str(folder / "out")
    axes, rows = parse_axes(words), [base("smoke")]
    runs = expand(rows, axes)
    print(describe_grid(axes, rows, runs), flush=True)
    ended = start(runs, load_profile("here"), sweep="example", progress=print)
    print(f"outcomes: {sorted(ended.values())}", flush=True)
    table = make_scores_view(runs)
    render(table)
    return table


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()), tuple(sys.argv[1:]) or AXES)
