"""What would decide an undecided claim, in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repro.claims.needs import MOST_SEEDS
from repro.report.view import format_seconds
from repro.spec import Correlation
from repro.spec.values import counted

if TYPE_CHECKING:  # judging loads scipy; what only prints should not wait for it
    from repro.claims.judge import Judgement


def needed_words(judged: Judgement) -> str:
    """Return what an undecided claim needs, e.g. "needs 13 more seeds, 88 min"; "" for any other."""
    if judged.verdict != "UNDECIDED":
        return ""
    if isinstance(judged.claim, Correlation):
        return _of_units(judged, judged.claim)
    if _has_no_spread(judged):
        return "needs a second seed, to know how much seeds differ"
    if _has_only_queries(judged):
        return f"needs more queries, not seeds{_seen(judged)}"
    if judged.seeds_needed is None:
        return f"needs more than {MOST_SEEDS} seeds{_seen(judged)}"
    more = max(1, judged.seeds_needed - (0 if judged.is_post_hoc else judged.num_seeds or 0))
    kind = "fresh" if judged.is_post_hoc else "more"
    time = format_seconds(judged.seconds_needed or None)
    return f"needs {counted(more, f'{kind} seed')}" + (f", {time}" if time else "")


def _seen(judged: Judgement) -> str:
    """Say which distance from the bar the present seeds would show four times in five."""
    if judged.detectable is None:
        return ""
    unit, seeds = judged.unit, judged.num_seeds
    gap = f"{judged.detectable * unit.factor:.{unit.decimals}f} {unit.name}"
    return f"; {seeds} would show {gap} beyond the bar"


def _of_units(judged: Judgement, claim: Correlation) -> str:
    if judged.units_needed is None:
        return f"needs over a thousand {_unit_words(claim)}, not seeds"
    return f"needs {judged.units_needed} {_unit_words(claim)}, not seeds"


def _unit_words(claim: Correlation) -> str:
    if claim.points == "runs":
        return "settings a group" if claim.within else "settings"
    return "families" if claim.blocks else "datasets"


def needed_count(judged: Judgement) -> str:
    """Return what an undecided claim needs in all, for a table: "18", "over 10000", "99 families", "queries"."""
    if isinstance(judged.claim, Correlation):
        return f"{judged.units_needed or 'over 1000'} {_unit_words(judged.claim).removesuffix(' a group')}"
    if _has_no_spread(judged):
        return "a second"
    if _has_only_queries(judged):
        return "queries"
    return str(judged.seeds_needed or f"over {MOST_SEEDS}")


def _has_no_spread(judged: Judgement) -> bool:
    """Return whether one seed is all that is known: nothing says how many would do."""
    return judged.num_seeds == 1 and judged.estimate is not None and not judged.estimate.is_known


def _has_only_queries(judged: Judgement) -> bool:
    """Return whether nothing of a claim depends on a seed: queries alone are random."""
    return judged.estimate is not None and bool(judged.estimate.shared) and not judged.estimate.deviation
