"""Artefacts of an experiment as data: tables, figures and exhibits. Experiment files import them from `repro.spec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from repro.spec.claim import Claim
from repro.spec.run import Run, depends_on_seed
from repro.spec.scales import get_scale
from repro.spec.selectors import RunFilter

PAPERS: Mapping[str, str] = MappingProxyType(
    {
        "CDE": "Contextual Document Embeddings",
        "GTE": "Towards General Text Embeddings with Multi-stage Contrastive Learning",
        "MRL": "Matryoshka Representation Learning",
    }
)
"""Papers whose claims are judged: the paper of this suite and its companions, whose claims are counted separately."""
MAIN = "CDE"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table: a metric path or a field of the run, times a factor, with a number of decimals.

    In a metric path, `{suite}` is the evaluation suite of the run under the context of the row. Paths joined by " & "
    give their mean.
    """

    label: str
    value: str
    decimals: int = 1
    factor: float = 1.0
    scales: tuple[str, ...] = ()  # only at these scales, or at all if empty


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table or one series of a figure: the runs, their context, and the numbers printed in the paper."""

    label: str
    runs: RunFilter
    paper: Mapping[str, float] = field(default_factory=dict)
    context: str = "own"  # context of the scores: own, wrong, null
    scales: tuple[str, ...] = ()  # only at these scales, or at all if empty
    part: str = ""  # replaces `{part}` in the paths of columns: a dataset, a source or a model
    # in a figure: the series that is subtracted, at the same seed, x and point
    minus: Row | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the paper: columns, rows and caption."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""  # if empty, the caption begins with the title


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the paper: the kind of plot, its axes (a field of the run and a metric), and its series."""

    name: str
    caption: str  # complete on its own: explains dots, bands and n
    kind: str
    x: str
    y: str
    x_label: str
    y_label: str
    series: tuple[Row, ...]
    title: str = ""  # printed above the plot
    factor: float = 1.0  # multiplies y
    x_is_log: bool = False
    y_is_log: bool = False
    hue: str = ""  # a field of the run that splits each series further
    hue_label: str = ""  # default: the name of the field
    cell: str = ""  # heatmap: the metric of the cells, while x and y are fields of the run
    # a metric path with `*`: one row per matching metric of a record, with the text of each `*` in part1, part2, …
    points: str = ""
    parts: tuple[str, ...] = ()  # with points: the nouns for each `*`, by default a dataset
    # with points: the record that x is read from, instead of the series' own
    x_of: RunFilter | None = None
    is_panelled: bool = False  # scatter: one panel per series
    is_paired: bool = False  # lines: the difference from the first x of the same line and seed
    # custom plot of (DataFrame, Axes) that returns a note
    draw: Callable[[Any, Any], str | None] | None = None


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """Rows of text that are stored in a record: examples for reading, such as the neighbours of a document."""

    name: str
    caption: str
    columns: tuple[str, ...]
    runs: RunFilter
    rows: str = ""  # name of the rows in the record, by default the name of the exhibit


def get_rows(artefact: Table | Figure | Exhibit) -> tuple[Row, ...]:
    """Return the rows of a table or the series of a figure. An exhibit has none."""
    if isinstance(artefact, Table):
        return artefact.rows
    return artefact.series if isinstance(artefact, Figure) else ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: its runs at each scale, its artefacts, and the claims that it judges."""

    title: str
    runs: Callable[[str], tuple[Run, ...]]
    artefacts: tuple[Table | Figure | Exhibit, ...]
    claims: tuple[Claim, ...] = ()
    local_seeds: tuple[int, ...] = (0,)  # run on a local machine, while published records have more
    paper: str = MAIN  # one of PAPERS
    scales: tuple[str, ...] = ("smoke", "desk", "lab", "small", "large")  # no runs at any other scale
    from_records: tuple[RunFilter, ...] = ()  # runs shown from published records and never run locally
    number: int = 0  # set by the registry to the number in the name of the file

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown paper or scale."""
        for scale in self.scales:
            get_scale(scale)
        if self.paper not in PAPERS:
            raise ValueError(
                f"experiment {self.title!r}: paper={self.paper!r} is unknown; choose one of {list(PAPERS)}"
            )

    @property
    def artefact_names(self) -> tuple[str, ...]:
        """The names of the artefacts, for example ("table1",)."""
        return tuple(artefact.name for artefact in self.artefacts)

    def local_runs(self, scale: str) -> tuple[Run, ...]:
        """Return the runs for a local machine: those of the local seeds, or of as many others if a scale has none.

        Runs that do not depend on a seed are always included. Runs in `from_records` and settings that exist only for
        other seeds are excluded.
        """
        runs = [run for run in self.runs(scale) if not any(pick.matches(run) for pick in self.from_records)]
        seeds = {run.seed for run in runs if depends_on_seed(run)}
        # some scales have none of the local seeds: then take as many of their own
        selected = seeds.intersection(self.local_seeds) or set(sorted(seeds)[: len(self.local_seeds)])
        return tuple(run for run in runs if run.seed in selected or not depends_on_seed(run))
