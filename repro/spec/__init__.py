"""The vocabulary of experiment files: Run, grid, pick, Claim, Table, Figure, Experiment. All are frozen dataclasses."""

# ruff: noqa: F401 — imported for others

from __future__ import annotations

from repro.spec.artefact import Column, Exhibit, Experiment, Figure, Row, Table
from repro.spec.claim import Claim, Correlation, Directed, Equivalence, Interaction, Order, Trend, Value
from repro.spec.identity import run_id
from repro.spec.measures import MEASURES, TRAINED
from repro.spec.run import (
    CHOICES,
    CONTEXTS,
    FIELDS,
    MTEB_SUITES,
    Run,
    base,
    depends_on_seed,
    draws_within_domains,
    find_implementation,
    get_first_phase,
    get_training_run,
    get_training_values,
    grid,
    is_blind,
    list_phases,
    list_scored_widths,
    needs_surrogate,
    nested_widths,
    run_from_fields,
)
from repro.spec.selectors import ByScale, RunFilter, Term, Unit, by_scale, pick, term
from repro.spec.training_pairs import TRAINING_PAIRS
from repro.spec.validation import format_widths, list_standard_widths
