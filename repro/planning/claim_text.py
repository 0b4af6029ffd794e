"""One claim told in a paragraph: what it says, what was compared, on which seeds, and what would decide it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from repro.claims.estimate import Estimate
from repro.claims.evidence import seen_at
from repro.claims.judge import Judgement
from repro.claims.levels import interval_for
from repro.report.artefacts import judgements
from repro.report.needed import needed_words
from repro.report.tables import INTERVAL_WORDS
from repro.report.view import format_signed
from repro.spec import (
    Claim,
    Correlation,
    Equivalence,
    Experiment,
    Identity,
    Interaction,
    Order,
    Term,
    Trend,
    Value,
    Varies,
)
from repro.spec.registry import experiments
from repro.spec.term import unit_of
from repro.spec.values import counted, suggestion

WORDS = {
    "HOLDS": "what is claimed holds here",
    "DIFFERS": "here it is the other way round",
    "NO EFFECT": "here there is no effect worth the name",
    "UNDECIDED": "the records do not decide it",
    "NOT RUN": "records that it needs are not there",
    "WRONG SCALE": "this scale cannot say",
}
OF_ARITHMETIC = {"HOLDS": "the printed numbers agree", "DIFFERS": "the printed numbers do not agree"}
FEWEST_IN_A_SPAN = 3

CLAIM_ID = re.compile(r"[A-Za-z]+\d*\.[a-z]\w*")
"""The id of a claim: T1.b, own.a; no artefact and no run is called so."""


def claim_named(id: str) -> tuple[Experiment, Claim]:
    """Return a claim, in capitals or not, and its experiment; ValueError names those that are spelt alike."""
    found = {claim.id.casefold(): (experiment, claim) for experiment in experiments() for claim in experiment.claims}
    if id.casefold() not in found:
        near = suggestion(id.casefold(), found, likeness=0.7)
        near = next((f", did you mean {claim.id!r}?" for key, (_, claim) in found.items() if repr(key) in near), "")
        raise ValueError(f"unknown claim {id!r}{near}; `repro check` lists them all")
    return found[id.casefold()]


def explain_claim(id: str, scale: str) -> list[str]:
    """Return the lines that tell a claim at a scale, from the published records."""
    experiment, claim = claim_named(id)
    judged = next(one for one in judgements(experiment, scale) if one.claim.id == claim.id)
    lines = [
        f"{claim.id} at {scale}: {judged.verdict}: {_verdict_words(judged)}",
        f"  {'we ask' if claim.is_ours else 'the paper':<11} {claim.says} ({claim.source})",
        f"  the bar     holds if {_bar(judged)}: {claim.because}",
        *_compared(judged),
        *_seeds(judged),
        *([f"  note        {judged.note}"] if judged.note else []),
        *_deciding(judged),
        f"  look at it  python -m repro show {' '.join(experiment.artefacts)} --scale {scale}",
    ]
    return [line for line in lines if line]


def _verdict_words(judged: Judgement) -> str:
    own = OF_ARITHMETIC if isinstance(judged.claim, Identity) else {}
    return {**WORDS, **own}[judged.verdict]


def _bar(judged: Judgement) -> str:
    """Return the bar with its unit, which the claim knows where nothing is measured yet."""
    if isinstance(judged.claim, Identity):
        return "the numbers agree"
    return f"{judged.claim.bar} {judged.unit.name or judged.claim.unit.name}".rstrip()


def _compared(judged: Judgement) -> list[str]:
    if not judged.estimates or judged.level is None:
        return []
    names, lines = comparisons_of(judged.claim, judged.scale), [f"  {INTERVAL_WORDS}"]
    for number, (name, one) in enumerate(zip(names, judged.estimates, strict=True), 1):
        # Where the claim differs, that is said of one comparison: the others' intervals go where they go.
        is_said = judged.verdict != "DIFFERS" or one.effect == judged.effect
        verdict = judged.verdict if is_said else "UNDECIDED"
        low, high, _ = interval_for(judged.claim, verdict, one, judged.level, len(judged.estimates))
        if isinstance(judged.claim, Varies):
            low, high = judged.low, judged.high  # of one lead of many: wider than an interval of the level alone
        interval = None if low is None or high is None else (low, high)
        lines.append(f"  compared {number}  {name}: {_estimate_words(one, interval)}")
    return lines


def _estimate_words(one: Estimate, interval: tuple[float, float] | None) -> str:
    factor, decimals = one.unit.factor, one.unit.decimals
    effect = format_signed(one.effect * factor, decimals)
    if interval is None:
        return f"{effect} {one.unit.name}, no interval"
    low, high = (format_signed(end * factor, decimals) for end in interval)
    return f"{effect} {one.unit.name} [{low}, {high}]"


def comparisons_of(claim: Claim, scale: str) -> list[str]:
    """Return in words what each comparison of a claim is of at a scale; nothing for arithmetic."""
    if isinstance(claim, Order | Equivalence):
        where = _shared_apart(claim.pairs, scale)
        return [f"{_metric(pair[0])} of {_less(pair, scale)}{at}" for pair, at in zip(claim.pairs, where, strict=True)]
    if isinstance(claim, Interaction):
        return [_above(claim, scale)]
    if isinstance(claim, Trend):
        within = f", at each {claim.within}" if claim.within else ""
        return [f"{_metric(claim.over)} with each doubling of {claim.axis}{within}"]
    if isinstance(claim, Varies):
        return [f"{_metric(claim.over)}: the less certain of two leads, over all other values of {claim.axis}"]
    if isinstance(claim, Correlation):
        return [_correlated(claim, scale)]
    if isinstance(claim, Value):
        units = ((one, value, unit_of(one.metric)) for one, value in claim.expected.items())
        printed = ((one, f"{value * unit.factor:g} {unit.name}") for one, value, unit in units)
        return [f"{_metric(one)} of {_runs(one, scale)}, less {words} as printed" for one, words in printed]
    return []


def _above(claim: Interaction, scale: str) -> str:
    """Say which difference is above which: each with its metric where these are two, and with what only it has."""
    pairs = (claim.of, claim.above)
    metrics = [_metric(pair[0]) for pair in pairs]
    where = _shared_apart(pairs, scale)
    first, second = (f"{_less(pair, scale)}{at}" for pair, at in zip(pairs, where, strict=True))
    if metrics[0] == metrics[1]:
        return f"{metrics[0]}: ({first}) above ({second})"
    return f"({metrics[0]} of {first}) above ({metrics[1]} of {second})"


def _correlated(claim: Correlation, scale: str) -> str:
    """Say what goes with what, and over which points."""
    less = "" if claim.minus is None else f" of {_less((claim.y, claim.minus), scale)}"
    points = "datasets" if claim.points == "datasets" else "settings"
    within = f", at each {claim.within}" if claim.within else ""
    return f"{_metric(claim.x)} with {_metric(claim.y)}{less}, over {points}{within}"


def _metric(term: Term) -> str:
    """Say a metric path in words where it is the usual one, also dataset by dataset."""
    return re.sub(r"\{suite\}/(mean|\*)/ndcg_at_10", "NDCG@10", term.metric).replace("{suite}", "suite")


def _runs(term: Term, scale: str) -> str:
    return _fields(dict(term.of.at(scale).wanted)) or "all runs"


def _less(pair: Sequence[Term], scale: str) -> str:
    """Say two sides by what they differ in: their runs, or else their metrics."""
    first, second = (dict(term.of.at(scale).wanted) for term in pair)
    apart = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    if not apart:
        return f"the same runs, less {_metric(pair[1])}"
    sides = (_fields({name: side[name] for name in apart if name in side}) for side in (first, second))
    return " less ".join(side or "the others" for side in sides)


def _shared_apart(pairs: Sequence[Sequence[Term]], scale: str) -> list[str]:
    """Say of each pair which values its two sides share and other pairs have not; nothing where there are none."""
    sides = [[dict(term.of.at(scale).wanted) for term in pair] for pair in pairs]
    shared = [{name: value for name, value in one.items() if other.get(name) == value} for one, other in sides]
    common = [name for name in shared[0] if all(name in one for one in shared)]
    told = [name for name in common if any(one[name] != shared[0][name] for one in shared)]
    return [", at " + _fields({name: one[name] for name in told}) if told else "" for one in shared]


def _fields(values: Mapping[str, Any]) -> str:
    """Return values as a line for a reader; of a field that may have several, all of them."""
    each = {name: value if isinstance(value, tuple) else (value,) for name, value in values.items()}
    return ", ".join(f"{name}={' or '.join(map(str, several))}" for name, several in each.items())


def _seeds(judged: Judgement) -> list[str]:
    if judged.num_seeds is None or judged.num_runs is None:
        return []
    claim = judged.claim
    looked_at = [seed for seed in seen_at(claim, judged.scale) if judged.is_post_hoc or seed not in judged.seeds]
    kept = "here judged post hoc" if judged.is_post_hoc else "left out"
    seen = f"; seeds {_spans(looked_at)} had been looked at: {kept}" if looked_at else ""
    when = f", wording {claim.version} of {claim.stated}" if claim.stated else ""
    seeds = f"{counted(judged.num_seeds, 'seed')} ({_spans(judged.seeds)})"
    judged_on = f"judged on {seeds}, {counted(judged.num_runs, 'run')}"
    return [f"  seeds       {judged_on}{when}{seen}"]


def _spans(seeds: Sequence[int]) -> str:
    """Return seeds in words: those that follow each other as "3 to 7"."""
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and seed == spans[-1][-1] + 1:
            spans[-1].append(seed)
        else:
            spans.append([seed])
    told = [[f"{one[0]} to {one[-1]}"] if len(one) >= FEWEST_IN_A_SPAN else map(str, one) for one in spans]
    return ", ".join(word for words in told for word in words)


def _deciding(judged: Judgement) -> list[str]:
    words = needed_words(judged)
    return [f"  to decide   {words}, at today's effect, to be seen four times in five"] if words else []
