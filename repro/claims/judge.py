"""Judges the paper's claims from records: the only comparison with the paper.

A claim is measured as one or more estimates (`contrasts`, `correlation`, `varies`), each a number with its error over
seeds and queries. Its kind says which verdicts there are and with what p-value: HOLDS when every estimate is beyond the
bar, DIFFERS when one is beyond it on the other side, NO EFFECT when all are within ±δ (an equivalence claim HOLDS
then), UNDECIDED when none is clear. The claims of one artefact that an experiment states share an error of 5 % by
Holm's procedure; intervals are at 95 %, corrected by Bonferroni for their number. Those that wait for records count
among them, so that what is said today cannot depend on which records came first. See `repro.claims.levels`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import singledispatch
from typing import Any

from repro.claims.contrasts import contrasts_of, estimate
from repro.claims.correlation import correlate, points_of
from repro.claims.estimate import Estimate
from repro.claims.evidence import Evidence, MissingRunsError, evidence_for
from repro.claims.levels import ALPHA, ENDS_AT_BAR, holm_levels, interval_for, share_of_look
from repro.claims.needs import need_of, need_of_leads, sided, tolerance
from repro.claims.units import AbsentDatasetError
from repro.claims.variance import Pool
from repro.claims.varies import Leads, leads_of
from repro.records.store import Record
from repro.spec import Claim, Correlation, Directed, Equivalence, Identity, Run, Unit, Value, Varies
from repro.spec.scales import scale_named

NO_UNIT = Unit("")
CLEAR_OF_BAR = "clear of its bar, by less than δ"


@dataclass(frozen=True)
class Judgement:
    """What the records say of one claim: effect and interval of its weakest comparison, in the metric's unit."""

    claim: Claim
    verdict: str
    scale: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None  # what the interval leaves out
    unit: Unit = NO_UNIT
    num_seeds: int | None = None
    seeds: tuple[int, ...] = ()  # those that judge
    num_runs: int | None = None
    is_post_hoc: bool = False
    note: str = ""
    seeds_needed: int | None = None  # in all, of one that is UNDECIDED; None: none up to 64
    units_needed: int | None = None  # of a correlation, in each group
    detectable: float | None = None  # the gap to its bar that the present seeds see four times in five
    seconds_needed: float | None = None  # of the seeds that are not there
    estimate: Estimate | None = None  # the weakest comparison
    estimates: tuple[Estimate, ...] = ()  # of every comparison

    def as_dict(self) -> dict[str, Any]:
        """Return the judgement as plain values, its numbers in its unit as the bar is."""
        kept = [one.name for one in fields(self) if one.name not in ("claim", "unit", "estimate", "estimates")]
        numbers = {name: to_unit(getattr(self, name), self.unit) for name in ("effect", "low", "high", "detectable")}
        said = {name: getattr(self.claim, name) for name in ("says", "source", "kind", "bar", "version", "stated")}
        return {
            "claim": self.claim.id,
            **said,
            "unit": self.unit.name,
            **{name: getattr(self, name) for name in kept},
            **numbers,
        }


def to_unit(value: float | None, unit: Unit) -> float | None:
    """Return a number of a judgement as its unit counts; None where there is none."""
    return None if value is None else value * unit.factor


@dataclass(frozen=True)
class Measured:
    """The estimates of a claim, what says of them, and the records behind them."""

    estimates: tuple[Estimate, ...]
    p_values: Mapping[str, float]  # of each verdict, two-sided
    evidence: Evidence
    note: str = ""
    leads: Leads | None = None  # of a claim that something varies

    def verdict(self, level: float) -> str:
        """Return the verdict at a level: NO EFFECT before the others, since a difference below δ is none."""
        for name in ("NO EFFECT", "HOLDS", "DIFFERS"):
            if self.p_values.get(name, 1.0) <= level:
                return name
        return "UNDECIDED"

    def beside(self, verdict: str, level: float) -> Measured:
        """Return it saying so where there is no effect by δ, and yet its interval at this level leaves the bar out."""
        is_clear = any(self.p_values.get(name, 1.0) <= level for name in ("HOLDS", "DIFFERS"))
        return self._noting(CLEAR_OF_BAR) if verdict == "NO EFFECT" and is_clear else self

    def _noting(self, words: str) -> Measured:
        return replace(self, note="; ".join(word for word in (self.note, words) if word))

    @property
    def smallest(self) -> float:
        """The p-value of the verdict that is nearest to be said."""
        return min(self.p_values.values())

    def after_looks(self, claim: Claim) -> Measured:
        """Return it with the p-values that seeds give which had been looked at, or were added after a look."""
        num_looks, share = self.evidence.num_looks, share_of_look(self.evidence.num_looks)
        if self.evidence.is_post_hoc and claim.is_chosen:
            found = dict.fromkeys(self.p_values, 1.0)
            return replace(self, p_values=found, note="chosen on these seeds: it waits for fresh ones")
        found = {name: min(1.0, value / share) for name, value in self.p_values.items()}
        looks = f"look {num_looks}, as seeds were added" if num_looks > 1 else ""
        if self.evidence.is_post_hoc and claim.has_new_delta:
            by_delta = ("NO EFFECT",) if isinstance(claim, Directed) else tuple(found)  # else all verdicts are by δ
            found, looks = found | dict.fromkeys(by_delta, 1.0), "its δ waits for fresh seeds"
        return replace(self, p_values=found)._noting(looks)


def judge_all(
    claims: Sequence[Claim],
    scale: str,
    wanted: Sequence[Run],
    records: Iterable[Record],
    *,
    pool: Pool | None = None,
) -> list[Judgement]:
    """Judge claims at one scale, those of an artefact together.

    `wanted` are the runs that would make the record set complete; `pool` has the published records that say how much
    seeds move a number, without it each claim has only its own seeds.
    """
    by_run = {record.run: record for record in records}
    decided: dict[str, Judgement] = {}
    measured: dict[str, Measured] = {}
    for claim in claims:
        reason = _wrong_scale(claim, scale)
        if reason:
            decided[claim.id] = Judgement(claim, "WRONG SCALE", scale, note=reason)
        elif isinstance(claim, Identity):
            holds, words = claim.holds()
            decided[claim.id] = Judgement(claim, "HOLDS" if holds else "DIFFERS", scale, note=words)
        else:
            try:
                evidence = evidence_for(claim, wanted, by_run)
                measured[claim.id] = measure(claim, evidence, pool or Pool()).after_looks(claim)
            except ValueError as error:
                raise ValueError(f"claim {claim.id}: {error}") from error
            except MissingRunsError as missing:
                decided[claim.id] = Judgement(claim, "NOT RUN", scale, note=str(missing))
            except AbsentDatasetError as absent:
                decided[claim.id] = Judgement(claim, "WRONG SCALE", scale, note=str(absent))
    waiting = [id for id, one in decided.items() if one.verdict == "NOT RUN"]
    for family in {family_of_claims(id) for id in measured}:
        own = {id: one for id, one in measured.items() if family_of_claims(id) == family}
        num_waiting = sum(family_of_claims(id) == family for id in waiting)
        decided |= _judge_together({claim: own[claim.id] for claim in claims if claim.id in own}, scale, num_waiting)
    return [decided[claim.id] for claim in claims]


def _judge_together(family: Mapping[Claim, Measured], scale: str, num_waiting: int) -> dict[str, Judgement]:
    """Return the judgements, by id, of claims that share one error with so many that wait for records."""
    p_values = [one.smallest for one in family.values()] + [1.0] * num_waiting
    decided = {}
    for (claim, found), level in zip(family.items(), holm_levels(p_values), strict=False):
        verdict = found.verdict(level)
        shared = ALPHA / len(p_values)  # p-values have been corrected for looks, intervals are here
        own = Judgement(claim, verdict, scale, level=shared * share_of_look(found.evidence.num_looks))
        told = _told(own, found.beside(verdict, shared))
        decided[claim.id] = _needing(told, found) if verdict == "UNDECIDED" else told
    return decided


def family_of_claims(id: str) -> str:
    """Return the artefact whose claims share one error: F3 of F3.a."""
    return re.sub(r"\.[^.]*$", "", id)


def _wrong_scale(claim: Claim, scale: str) -> str:
    if isinstance(claim, Identity):
        return ""
    if claim.scales and scale not in claim.scales:
        return f"judged at {', '.join(claim.scales)} only"
    if not scale_named(scale).judges_orders:
        return f"{scale} says nothing of the paper"
    if isinstance(claim, Value) and not scale_named(scale).judges_values:
        return "printed values are judged at small and large"
    return ""


@singledispatch
def measure(claim: Claim, evidence: Evidence, pool: Pool) -> Measured:
    """Return the estimates of a claim and the p-value of each verdict it may have."""
    estimates = tuple(estimate(contrast, evidence, pool) for contrast in contrasts_of(claim, evidence))
    return Measured(estimates, p_values(claim, estimates), evidence)


@measure.register
def _(claim: Correlation, evidence: Evidence, pool: Pool) -> Measured:
    found = (correlate(points_of(claim, evidence), len(evidence.seeds)),)
    return Measured(found, p_values(claim, found), evidence)


@measure.register
def _(claim: Varies, evidence: Evidence, pool: Pool) -> Measured:
    leads = leads_of(claim, evidence, pool)
    return Measured((leads.weaker.found,), {"HOLDS": leads.p_value}, evidence, leads.words, leads)


@singledispatch
def p_values(claim: Claim, estimates: Sequence[Estimate]) -> dict[str, float]:
    """Return the two-sided p-value of each verdict that a claim may have; all its estimates must be as it says."""
    raise TypeError(f"claim {claim.id} is judged by no estimate: {claim.kind}")


@p_values.register
def _(claim: Directed, estimates: Sequence[Estimate]) -> dict[str, float]:
    turned = [sided(claim, one) for one in estimates]
    found = {
        "HOLDS": min(1.0, 2 * max(one.above(claim.margin) for one in turned)),
        "DIFFERS": min(1.0, 2 * len(turned) * min(one.below(claim.margin) for one in turned)),
    }
    if claim.delta is not None:
        found["NO EFFECT"] = max(one.inside(claim.delta) for one in turned)
    return found


@p_values.register(Equivalence)
@p_values.register(Value)
def _within(claim: Equivalence | Value, estimates: Sequence[Estimate]) -> dict[str, float]:
    delta = tolerance(claim)
    return {
        "HOLDS": max(one.inside(delta) for one in estimates),
        "DIFFERS": min(1.0, len(estimates) * min(one.outside(delta) for one in estimates)),
    }


def _p_of_holding(claim: Claim, one: Estimate) -> float:
    """Return how badly one of several comparisons bears a claim out: a one-sided p, so that no two tie at 1."""
    if isinstance(claim, Equivalence | Value):
        return max(one.above(-tolerance(claim)), one.below(tolerance(claim)))
    if isinstance(claim, Directed):
        return sided(claim, one).above(claim.margin)
    return p_values(claim, [one])["HOLDS"]


def _told(judged: Judgement, found: Measured) -> Judgement:
    """Return a judgement with the numbers of the comparison that decides it."""
    claim = judged.claim
    weakest = found.estimates[0]
    if len(found.estimates) > 1:
        weakest = max(found.estimates, key=lambda one: _p_of_holding(claim, one))
    assert judged.level is not None
    level = judged.level if found.leads is None else found.leads.level_of_one(judged.level)
    low, high, is_cut = interval_for(claim, judged.verdict, weakest, level, len(found.estimates))
    few = [f"weakest of {len(found.estimates)} comparisons"] if len(found.estimates) > 1 else []
    said = ["post hoc"] * found.evidence.is_post_hoc + few + [found.note, weakest.note, ENDS_AT_BAR * is_cut]
    return replace(
        judged,
        effect=weakest.effect,
        low=low,
        high=high,
        unit=weakest.unit,
        num_seeds=weakest.num_seeds,
        seeds=found.evidence.seeds,
        num_runs=len(found.evidence.all_records()),
        is_post_hoc=found.evidence.is_post_hoc,
        note="; ".join(word for word in said if word),
        estimate=weakest,
        estimates=found.estimates,
    )


def _needing(judged: Judgement, found: Measured) -> Judgement:
    """Return an undecided judgement with what would decide it; seeds that were looked at do not count.

    Seeds that are added to those judged today make another look, at whose level they are planned; fresh ones do not.
    """
    assert judged.estimate is not None and judged.level is not None, "only a measured claim is undecided"
    leads, looks = found.leads, found.evidence.num_looks
    then = judged.level if judged.is_post_hoc else judged.level * share_of_look(looks + 1) / share_of_look(looks)
    if leads is None:
        need = need_of(judged.claim, found.estimates, judged.estimate, judged.level, then)
    else:
        both = leads.weaker.found, leads.stronger.found
        need = need_of_leads(both, leads.level_of_one(judged.level), leads.level_of_one(then))
    seconds = None
    if need.num_seeds is not None:
        more = need.num_seeds - (0 if judged.is_post_hoc else judged.estimate.num_seeds)
        seconds = max(0, more) * found.evidence.seconds_a_seed()
    return replace(
        judged,
        seeds_needed=need.num_seeds,
        units_needed=need.num_units,
        detectable=need.detectable,
        seconds_needed=seconds,
    )
