"""The coverage page: each table and figure of the three papers, the scales of its replication, and the differences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from repro.report.artefacts import load_records
from repro.report.formats import as_markdown_table
from repro.report.names import format_heading, format_title, list_claims, split_name
from repro.spec import Experiment
from repro.spec.identity import get_setting_id
from repro.spec.registry import experiments, get_declared_notes
from repro.spec.scales import ORDER
from repro.text import ABSENT

PAPER_SCALES = {"small", "large"}
HEADER = ("artefact", "content", "status", "differs from the paper at small and large", "claims")


def make_coverage_table() -> str:
    """Return one row per table and figure of the papers, read from declarations and published records."""
    return as_markdown_table(HEADER, list(iter_rows()))


def iter_rows() -> Iterator[tuple[str, ...]]:
    """Yield the rows: paper artefacts first, in the order of the experiments."""
    for experiment in experiments():
        status = describe_status(experiment)
        for artefact in experiment.artefacts:
            heading = format_heading(artefact.name)
            if not split_name(re.sub(r"^(gte|mrl)_", "", artefact.name))[1]:
                # ours: the papers have no such artefact
                continue
            claims = [claim.id for claim in list_claims(experiment, artefact.name)]
            # deviations are declared for these scales
            deviates = not PAPER_SCALES.isdisjoint(experiment.scales)
            deviations = find_deviations(heading) if deviates else ABSENT
            yield heading, format_title(experiment, artefact), status, deviations, ", ".join(claims) or ABSENT


def describe_status(experiment: Experiment) -> str:
    """Return the scales with published records and their seeds, or that there are none."""
    parts = []
    for scale in ORDER:
        runs = experiment.runs(scale) if scale in experiment.scales else ()
        scale_runs = [run for run in runs if run.scale == scale]
        records = load_records(scale_runs, "published") if scale_runs else []
        if not records:
            continue
        num_settings = len({get_setting_id(run) for run in scale_runs})
        num_seeds = Counter(get_setting_id(record.run) for record in records)
        share = "" if len(num_seeds) == num_settings else f", {len(num_seeds)} of {num_settings} settings"
        seeds = max(num_seeds.values())
        parts.append(f"{scale} (up to {seeds} seed{'s' * (seeds > 1)}{share})")
    return "replicated at " + ", ".join(parts) if parts else "declared, not run"


def find_deviations(heading: str) -> str:
    """Return the declared deviations of an artefact."""
    artefact = re.sub(r" \(.*\)", "", heading)
    deviations = [note.ours for note in get_declared_notes("DEVIATIONS") if artefact in expand_names(note.source)]
    return "; ".join(deviations) or ABSENT


def expand_names(source: str) -> set[str]:
    """Return the artefacts that a note names: "Figures 2 to 4, 9" names figures 2, 3, 4 and 9.

    A companion paper at the beginning holds for the whole note: "GTE §3.4, Table 3" names GTE's table 3.
    """
    paper = source[:4] if source.startswith(("GTE ", "MRL ")) else ""
    names: set[str] = set()
    for kind, numbers in re.findall(r"((?:Table|Figure)s?) ([\d, toand]+)", source):
        kind_of_artefact = paper + kind.rstrip("s")
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers):
            names |= {f"{kind_of_artefact} {number}" for number in range(int(first), int(last or first) + 1)}
    return names
