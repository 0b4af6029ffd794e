"""Explain one claim for `repro why`: the comparisons, their seeds, the reason for the verdict, and the source."""

from __future__ import annotations

import re
from collections.abc import Iterator

from repro.report.artefacts import judgements
from repro.report.tables import format_effect, format_in_unit, format_seeds, list_remarks
from repro.spec import Claim, Correlation, Equivalence, Experiment, Interaction, Order, Run, Term, Trend, Value
from repro.spec.artefact import get_rows
from repro.spec.registry import experiments
from repro.spec.selectors import get_display_unit
from repro.statistics.judge import Comparison, Judgement
from repro.text import CONTEXT_NAMES, count_noun, format_suggestion

VERDICT_MEANINGS = {
    "HOLDS": "every interval lies beyond the threshold, on the claimed side",
    "HOLDS (small)": "every interval lies beyond the threshold on the claimed side, and inside ±δ",
    "DIFFERS": "an interval lies beyond the threshold, on the other side",
    "SMALL": "every interval lies inside ±δ, and not beyond the threshold",
    "OPEN": "an interval includes the threshold, or p is not significant after Holm",
    "tentative": "effect and interval only, no word",
    "descriptive": "effects only, no word",
    "not run": "records are missing",
    "other scale": "this scale cannot judge it",
}
DEFAULT_METRIC = re.compile(r"\{suite\}(\+[\w-]+)?/(mean|\*)/ndcg_at_10")
CONTEXTS = {kind: f"{name} context" for kind, name in CONTEXT_NAMES.items()}

CLAIM_ID = re.compile(r"[A-Za-z]+\d*\.[a-z]\w*")
"""Id of a claim, for example T1.b or own.a. No artefact or run has a name of this form."""


def find_claim(id: str) -> tuple[Experiment, Claim]:
    """Return a claim and its experiment, ignoring case. Raises ValueError with the nearest id if it is unknown."""
    claims = {claim.id.casefold(): (experiment, claim) for experiment in experiments() for claim in experiment.claims}
    if found := claims.get(id.casefold()):
        return found
    hint = format_suggestion(id, [claim.id for _, claim in claims.values()], likeness=0.7)
    raise ValueError(f"unknown claim {id!r}{hint or ';'} `repro check` lists the claims")


def explain_claim(id: str, scale: str) -> list[str]:
    """Return the lines that explain a claim at a scale, from the published records."""
    experiment, claim = find_claim(id)
    judged = next(judgement for judgement in judgements(experiment, scale) if judgement.claim.id == claim.id)
    unit = judged.unit.name or claim.unit.name
    rows = [("our question" if claim.is_ours else "the paper", f"{claim.statement} ({claim.source})")]
    rows.append(("threshold", f"{f'{claim.threshold} {unit}'.rstrip()}: {claim.because}"))
    names = name_comparisons(claim, experiment, scale)
    for name, comparison in zip(names, judged.comparisons, strict=False):
        rows += _explain_comparison(name, comparison, judged)
    if judged.comparisons:
        rows.append(("judged on", _describe_evidence(judged)))
    rows += [("also", remark) for remark in list_remarks(judged)]
    if judged.verdict == "other scale":
        # a claim that declares no scales is judged at each scale that judges anything
        command = f": repro why {claim.id} --scale {claim.scales[0]}" if claim.scales else ""
        rows.append(("judged at", f"{judged.note}{command}"))
    else:
        rows += [("note", note) for note in filter(None, (claim.caveat, judged.note))]
    if judged.yours:
        rows.append(("yours", f"{', '.join(format_in_unit(effect, judged.unit) for effect in judged.yours)} {unit}"))
    return [
        f"{claim.id} at {scale}: {judged.verdict}: {VERDICT_MEANINGS[judged.verdict]}",
        *(f"  {label:<14}{text}" for label, text in rows),
    ]


def _explain_comparison(name: str, comparison: Comparison, judged: Judgement) -> Iterator[tuple[str, str]]:
    unit = judged.unit
    effect = f"{name}: {format_effect(comparison, unit)} {unit.name}".rstrip()
    yield "effect", effect if comparison.low is not None else f"{effect}, without an interval"
    if len(comparison.by_seed) == len(judged.seeds) > 0:
        effects = zip(judged.seeds, comparison.by_seed, strict=True)
        yield "per seed", ", ".join(f"{seed}: {format_in_unit(value, unit)}" for seed, value in effects)


def _describe_evidence(judged: Judgement) -> str:
    claim = judged.claim
    runs = count_noun(judged.num_runs, "run")
    stated = f", stated on {claim.stated}" if claim.stated else ""
    if isinstance(claim, Correlation):
        values = (
            f"means over seeds {format_seeds(judged)}, {runs}" if judged.seeds else f"{runs} that depend on no seed"
        )
        has_interval = any(comparison.low is not None for comparison in judged.comparisons)
        interval = "; the interval is Pearson's" if has_interval else ""
        return f"{values}{interval}{stated}"
    if not judged.seeds:
        return f"{runs}; nothing depends on a seed, so the interval is a paired bootstrap over queries{stated}"
    interval = "the interval is a paired t interval" if len(judged.seeds) > 1 else "one seed has no interval"
    return f"seeds {format_seeds(judged)}, {runs}; {interval} at 95 %{stated}"


def name_comparisons(claim: Claim, experiment: Experiment, scale: str) -> list[str]:
    """Return a name per comparison of a claim, from the row labels of the experiment's tables and figures."""
    namer = RowNamer(claim, experiment, scale)
    if isinstance(claim, Order | Equivalence):
        return [namer.subtract(*pair) for pair in claim.pairs]
    if isinstance(claim, Interaction):
        return [f"({namer.subtract(*claim.of)}) − ({namer.subtract(*claim.above)})"]
    if isinstance(claim, Trend):
        within = f", at each {claim.within}" if claim.within else ""
        return [f"slope per doubling of {claim.axis}{within}: {namer.name(claim.over)}"]
    if isinstance(claim, Correlation):
        subtrahend = "" if claim.minus is None else f" − {namer.name(claim.minus)}"
        within = f", at each {claim.within}" if claim.within else ""
        points = "datasets" if claim.points == "datasets" else "settings"
        x = describe_metric(claim.x) + ("" if claim.x_minus is None else f" − {describe_metric(claim.x_minus)}")
        return [f"{x} with {namer.name(claim.y)}{subtrahend}, over {points}{within}"]
    assert isinstance(claim, Value), f"claim {claim.id} is of another kind: {claim.kind}"
    units = {term: get_display_unit(term.metric) for term in claim.expected}
    printed = {term: f"{value * units[term].factor:g} {units[term].name}" for term, value in claim.expected.items()}
    return [f"{namer.name(term)} − {value} as printed" for term, value in printed.items()]


def describe_metric(term: Term) -> str:
    """Return the path of a metric, or "NDCG@10" if it is the usual one."""
    return re.sub(r"\{suite\}[/+]", "", DEFAULT_METRIC.sub("NDCG@10", term.metric))


class RowNamer:
    """Names the runs of a claim's terms by the label of the row that shows the same runs, or else by their fields."""

    def __init__(self, claim: Claim, experiment: Experiment, scale: str) -> None:
        self.scale = scale
        self.runs = experiment.runs(scale)
        self.shared = set.intersection(*(set(list_conditions(term, scale)) for term in claim.terms))
        # Rows of other experiments may select runs of this one by fields that have another meaning here.
        self.rows: dict[tuple[frozenset[Run], str], str] = {}
        for exhibit in experiment.artefacts:
            for row in get_rows(exhibit):
                # Rows with a part share their runs, and some are labelled as a difference.
                if row.part or (row.minus is not None and row.minus.label in row.label):
                    continue
                # A label that begins with a dot continues the row above.
                if not row.label.startswith("·") and (selected := frozenset(filter(row.runs.matches, self.runs))):
                    self.rows.setdefault((selected, row.context), row.label)

    def name(self, term: Term) -> str:
        """Return the name of a term. Omit the metric if it is the mean NDCG@10, and conditions that all terms share."""
        selected = frozenset(filter(term.runs.matches, self.runs))
        conditions = list_conditions(term, self.scale)
        distinct = [condition for condition in conditions if condition not in self.shared] or conditions
        runs = self.rows.get((selected, "own")) or ", ".join(distinct) or "all runs"
        match = DEFAULT_METRIC.fullmatch(term.metric)
        if match is None:
            return f"{describe_metric(term)} of {runs}"
        context = (match[1] or "+own")[1:]
        return self.rows.get((selected, context)) or f"{runs} ({CONTEXTS.get(context, context)})"

    def subtract(self, first: Term, second: Term) -> str:
        """Return the name of a difference."""
        return f"{self.name(first)} − {self.name(second)}"


def list_conditions(term: Term, scale: str) -> list[str]:
    """Return the field values that select the runs of a term."""
    conditions = []
    for name, value in dict(term.runs.at(scale).wanted).items():
        options = value if isinstance(value, tuple) else (value,)
        conditions.append(f"{name}={' or '.join(map(str, options))}")
    return conditions
