"""What would decide the undecided claims, as a table: how many seeds, how many hours, which effect is seen now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from repro.claims.judge import Judgement, to_unit
from repro.report.needed import needed_count
from repro.report.view import View, format_seconds, format_signed
from repro.spec.artefact import ABSENT

HEADER = ("claim", "effect", "holds if", "seeds", "visible", "needs", "time", "what is claimed")
EXPLAINED = "visible: the least distance from the bar that these seeds show; needs: seeds in all; time: of those to run"


def undecided(judged: Iterable[Judgement]) -> list[Judgement]:
    """Return the judgements that more seeds, settings or datasets could decide."""
    return [one for one in judged if one.verdict == "UNDECIDED"]


def needs_as_dict(judged: Judgement) -> dict[str, object]:
    """Return what an undecided claim needs as plain values; seeds are counted in all, seconds of those not there."""
    numbers = {name: to_unit(getattr(judged, name), judged.unit) for name in ("effect", "detectable")}
    found = {"claim": judged.claim.id, "bar": judged.claim.bar, "unit": judged.unit.name, **numbers}
    needs = {"num_seeds": judged.seeds_needed, "num_units": judged.units_needed, "seconds": judged.seconds_needed}
    return {**found, **needs, "note": judged.note}


def power_view(needs: Sequence[Judgement], scale: str) -> View:
    """Return what undecided claims need as a table."""
    rows = []
    for judged in needs:
        unit = judged.unit
        seen = ABSENT if judged.detectable is None else f"{judged.detectable * unit.factor:.{unit.decimals}f}"
        text = judged.claim.says + (f" ({judged.note})" if judged.note else "")
        effect = ABSENT if judged.effect is None else format_signed(judged.effect * unit.factor, unit.decimals)
        bar, now = f"{judged.claim.bar} {unit.name}", str(judged.num_seeds)
        time = format_seconds(judged.seconds_needed or None) or ABSENT
        rows.append((judged.claim.id, effect, bar, now, seen, needed_count(judged), time, text))
    title = f"What would decide the undecided claims at scale {scale}, with a power of 80 %; {EXPLAINED}"
    return View(title, HEADER, tuple(rows), align="lrlrrrrl")
