"""What an experiment shows: tables, figures and exhibits, as data; an experiment file takes these from `repro.spec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from repro.spec.claim import Claim
from repro.spec.run import Run, is_random
from repro.spec.scales import get_scale
from repro.spec.term import Pick

PAPERS: Mapping[str, str] = MappingProxyType(
    {
        "CDE": "Contextual Document Embeddings",
        "GTE": "Towards General Text Embeddings with Multi-stage Contrastive Learning",
        "MRL": "Matryoshka Representation Learning",
    }
)
"""Whose claims an experiment judges: the paper of this suite, and its companions, whose claims are counted apart."""
MAIN = "CDE"
ABSENT = "–"
"""What stands in a cell for a number that is not there."""


MINUTES = "training minutes"
"""The value of a column that shows how long a training run took."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table: a metric path or a field of the run, times a factor, with a number of decimals.

    In a metric path `{suite}` stands for the run's own evaluation suite, seen through the row's context. Paths joined
    by " & " give their mean. `MINUTES` is not a path: it is read from the record's provenance.
    """

    label: str
    value: str
    decimals: int = 1
    factor: float = 1.0
    scales: tuple[str, ...] = ()  # only at these scales; empty: at all


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table or series of a figure: which runs, through which context, and what the paper prints."""

    label: str
    of: Pick
    paper: Mapping[str, float] = field(default_factory=dict)
    context: str = "own"  # which context documents the scores were made with: own, wrong, null
    scales: tuple[str, ...] = ()  # only at these scales; empty: at all
    part: str = ""  # what `{part}` in a column's path is in this row: one dataset, one source, one model


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the paper: rows, columns and what a reader must know."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""  # what is seen; empty: the caption begins with it


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the paper: the kind of picture, a field of the run against a metric, and which series are drawn."""

    name: str
    caption: str  # stands alone: what a dot, a bar, a band and n are
    kind: str
    x: str
    y: str
    x_label: str
    y_label: str
    series: tuple[Row, ...]
    title: str = ""  # what is seen, over the picture
    factor: float = 1.0  # of y
    x_is_log: bool = False
    y_is_log: bool = False
    hue: str = ""  # a field of the run that splits each series further
    hue_label: str = ""  # its words; empty: its own name
    cell: str = ""  # heatmap: the metric in the cells; x and y are then fields of the run
    points: str = ""  # metrics with `*` in the path: a row for each that a record has, `*` in columns part1, part2, …
    parts: tuple[str, ...] = ()  # with points: words for what each `*` stands for; empty: a dataset
    x_of: Pick | None = None  # with points: x is of the record that this picks, not of the series' own
    minus: Pick | None = None  # with points: y less the same metric of the record that this picks
    mark: str = ""  # dots: a field of the run that gives them their shape
    is_panelled: bool = False  # scatter: a panel a series
    is_diagram: bool = False  # draws the model, not results: no seeds, no records
    named_by: str = ""  # with points: rows of text of the record, part1 and its words, that come in a column "name"
    draw: Callable[[Any, Any], str | None] | None = None  # of (DataFrame, Axes), when no kind can draw it; gives a note


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """Rows of text that a record carries: examples to be read, such as the neighbours of a document."""

    name: str
    caption: str
    columns: tuple[str, ...]
    of: Pick
    rows: str = ""  # which rows of the record; empty: those of the exhibit's own name


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: which runs it needs at a scale, what it shows and which claims it judges."""

    number: int
    title: str
    runs: Callable[[str], tuple[Run, ...]]
    shows: tuple[Table | Figure | Exhibit, ...]
    claims: tuple[Claim, ...] = ()
    local_seeds: tuple[int, ...] = (0,)  # what a reader's own machine runs; published records have more
    paper: str = MAIN  # one of PAPERS
    scales: tuple[str, ...] = ("smoke", "desk", "lab", "small", "large")  # at any other it has no runs
    from_records: tuple[Pick, ...] = ()  # runs that a reader's machine shows from published records, and never runs

    def __post_init__(self) -> None:
        """ValueError for a paper that is none of PAPERS, or an unknown scale."""
        for scale in self.scales:
            get_scale(scale)
        if self.paper not in PAPERS:
            raise ValueError(f"experiment {self.number}: paper={self.paper!r} is unknown; choose one of {list(PAPERS)}")

    @property
    def artefacts(self) -> tuple[str, ...]:
        """The names of what it shows, e.g. ("table1",)."""
        return tuple(shown.name for shown in self.shows)

    def local_runs(self, scale: str) -> tuple[Run, ...]:
        """Return what a reader's own machine runs: the local seeds, or as many others where a scale has none of them.

        Runs that no seed changes are always among them; a setting that has only other seeds never is, nor is one of
        `from_records`.
        """
        runs = [run for run in self.runs(scale) if not any(pick.matches(run) for pick in self.from_records)]
        seeds = {run.seed for run in runs if is_random(run)}
        wanted = seeds.intersection(self.local_seeds) or set(sorted(seeds)[: len(self.local_seeds)])
        return tuple(run for run in runs if run.seed in wanted or not is_random(run))
