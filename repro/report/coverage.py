"""The coverage page: each table and figure of the three papers, the scales of its replication, and its claims."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from repro.records.store import has_record
from repro.report.artefacts import RECORDS
from repro.report.formats import as_markdown_table
from repro.report.names import format_heading, format_title, list_claims, split_name
from repro.spec import Experiment
from repro.spec.identity import get_setting_id
from repro.spec.registry import experiments
from repro.spec.scales import ORDER
from repro.text import ABSENT, count_noun

HEADER = ("artefact", "content", "replicated at", "claims")


def make_coverage_table() -> str:
    """Return one row per table and figure of the papers, read from declarations and published records."""
    return as_markdown_table(HEADER, list(iter_rows()))


def iter_rows() -> Iterator[tuple[str, ...]]:
    """Yield the rows: paper artefacts first, in the order of the experiments.

    Artefacts that the papers do not have are left out: names without a number, and parts without a claim.
    """
    for experiment in experiments():
        status = describe_status(experiment)
        for artefact in experiment.artefacts:
            claims = [claim.id for claim in list_claims(experiment, artefact.name)]
            _, number, part = split_name(re.sub(r"^(gte|mrl)_", "", artefact.name))
            if number and (claims or not part):
                yield (
                    format_heading(artefact.name),
                    format_title(experiment, artefact),
                    status,
                    group_ids(claims) or ABSENT,
                )


def group_ids(ids: Sequence[str]) -> str:
    """Return ids of claims with their letters joined, for example "T1.ab, C.a" for T1.a, C.a and T1.b."""
    letters: dict[str, str] = {}
    for prefix, letter in (id.split(".") for id in ids):
        letters[prefix] = letters.get(prefix, "") + letter
    return ", ".join(f"{prefix}.{''.join(sorted(joined))}" for prefix, joined in letters.items())


def describe_status(experiment: Experiment) -> str:
    """Return the scales with published records and the largest number of seeds, or that there are none."""
    parts = []
    for scale in ORDER:
        runs = experiment.runs(scale) if scale in experiment.scales else ()
        scale_runs = [run for run in runs if run.scale == scale]
        recorded = [run for run in dict.fromkeys(scale_runs) if has_record(RECORDS["published"](), run)]
        if not recorded:
            continue
        num_settings = len({get_setting_id(run) for run in scale_runs})
        num_seeds = Counter(map(get_setting_id, recorded))
        share = "" if len(num_seeds) == num_settings else f", {len(num_seeds)} of {num_settings} settings"
        seeds = max(num_seeds.values())
        parts.append(f"{scale} ({count_noun(seeds, 'seed')}{share})")
    return ", ".join(parts) or "declared, not run"
