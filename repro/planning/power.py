"""What would decide the undecided claims, as a table: how many seeds, how many hours, which effect is seen now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from repro.claims.judge import Judgement
from repro.claims.needs import MOST_SEEDS
from repro.report.view import View, format_seconds, format_signed

HEADER = (
    "claim",
    "effect",
    "holds if",
    "seeds now",
    "seen at 80 %",
    "seeds needed",
    "more time",
    "what the paper says",
)


def undecided(judged: Iterable[Judgement]) -> list[Judgement]:
    """Return the judgements that more seeds, settings or datasets could decide."""
    return [one for one in judged if one.verdict == "UNDECIDED"]


def needs_as_dict(judged: Judgement) -> dict[str, object]:
    """Return what an undecided claim needs as plain values; seeds are counted in all, seconds of those not there."""
    found = {"claim": judged.claim.id, "effect": judged.effect, "detectable": judged.detectable}
    needs = {"num_seeds": judged.seeds_needed, "num_units": judged.units_needed, "seconds": judged.seconds_needed}
    return {**found, **needs, "note": judged.note}


def power_view(needs: Sequence[Judgement], scale: str) -> View:
    """Return what undecided claims need as a table."""
    rows = []
    for judged in needs:
        unit = judged.unit
        seen = "–" if judged.detectable is None else f"{judged.detectable * unit.factor:.{unit.decimals}f} off"
        text = judged.claim.says + (f" ({judged.note})" if judged.note else "")
        effect = "–" if judged.effect is None else format_signed(judged.effect * unit.factor, unit.decimals)
        bar, now = f"{judged.claim.bar} {unit.name}", str(judged.num_seeds)
        time = format_seconds(judged.seconds_needed or None) or "–"
        rows.append((judged.claim.id, effect, bar, now, seen, _needed(judged), time, text))
    title = f"What would decide the undecided claims at scale {scale}, with a power of 80 %"
    return View(title, HEADER, tuple(rows), align="lrlrrrrl")


def _needed(judged: Judgement) -> str:
    if judged.units_needed is not None:
        return f"{judged.units_needed} points"
    has_seeds = judged.detectable is not None or judged.seeds_needed is not None
    return str(judged.seeds_needed or f"over {MOST_SEEDS}") if has_seeds else "–"
