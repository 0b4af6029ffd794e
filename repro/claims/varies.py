"""Whether the best setting differs by dataset: two datasets, and on each another setting that leads all others.

On a dataset a setting's lead over another is a contrast like any other (`contrasts`), with the error of seeds and
queries; its lead over all is the least certain of these. The claim holds where two datasets have leaders of their own.
If one setting were best everywhere, then of two such leaders one would lead it falsely; there are as many ways to that
as datasets times the settings that are not best, and the p-value is corrected for so many (Bonferroni). That settings
and datasets interact is not enough: a setting can be worse here than there and never be best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations

from repro.claims.contrasts import Contrast, estimate
from repro.claims.estimate import Estimate
from repro.claims.evidence import Evidence, MissingRunsError
from repro.claims.units import by_part
from repro.claims.variance import Pool
from repro.spec import Run, Varies
from repro.spec.term import unit_of


@dataclass(frozen=True)
class Lead:
    """What a setting is ahead of all others by on one dataset: its least certain lead."""

    dataset: str
    setting: float
    over: float
    found: Estimate

    @cached_property
    def p_value(self) -> float:
        """The one-sided p-value of no lead."""
        return self.found.above(0.0)


@dataclass(frozen=True)
class Leads:
    """The two leads that best bear a claim out, the weaker first, and how many ways there are to a false one."""

    weaker: Lead
    stronger: Lead
    num_ways: int

    @property
    def p_value(self) -> float:
        """The p-value of one setting being best on every dataset."""
        return min(1.0, self.num_ways * self.weaker.p_value)

    def level_of_one(self, level: float) -> float:
        """Return the two-sided level at which either lead is seen for the claim to be, at `level`."""
        return min(1.0, 2 * level / self.num_ways)

    @property
    def words(self) -> str:
        """The two leads for a reader."""
        both = sorted((self.weaker, self.stronger), key=lambda lead: lead.dataset)
        return "; ".join(f"on {lead.dataset} {lead.setting:g} against {lead.over:g}" for lead in both)


def leads_of(claim: Varies, evidence: Evidence, pool: Pool) -> Leads:
    """Return the two leads of a claim, on two datasets (or families) by two settings."""
    by_setting: dict[float, list[Run]] = {}
    for system in evidence.systems[claim.over]:
        by_setting.setdefault(getattr(system, claim.axis), []).append(system)
    datasets = list(by_part(evidence.of_system(evidence.systems[claim.over][0]), claim.over.metric, claim.by))
    if len(by_setting) < 2 or len(datasets) < 2:
        raise MissingRunsError(f"{len(by_setting)} values of {claim.axis} on {len(datasets)} datasets; two can differ")
    leads = [lead for name in datasets for lead in _leads_on(name, claim.over.metric, by_setting, evidence, pool)]
    weaker, stronger = min(_by_two(leads), key=lambda pair: (pair[0].p_value, pair[1].p_value))
    return Leads(weaker, stronger, len(datasets) * (len(by_setting) - 1))


def _by_two(leads: Sequence[Lead]) -> list[tuple[Lead, Lead]]:
    """Return the pairs of leads on two datasets by two settings, the weaker first."""
    return [
        (one, other)
        for one, other in permutations(leads, 2)
        if one.dataset != other.dataset and one.setting != other.setting and one.p_value >= other.p_value
    ]


def _leads_on(
    dataset: str, metric: str, by_setting: dict[float, list[Run]], evidence: Evidence, pool: Pool
) -> list[Lead]:
    """Return each setting's least certain lead on one dataset."""
    path = metric.replace("*", dataset)
    cells = {setting: {(run, path): 1 / len(runs) for run in runs} for setting, runs in by_setting.items()}
    over: dict[float, list[Lead]] = {setting: [] for setting in by_setting}
    for one, other in combinations(by_setting, 2):
        taken = {cell: -weight for cell, weight in cells[other].items()}
        found = estimate(Contrast(cells[one] | taken, unit_of(path)), evidence, pool)
        over[one].append(Lead(dataset, one, other, found))
        over[other].append(Lead(dataset, other, one, found.mirrored()))
    return [max(leads, key=lambda lead: lead.p_value) for leads in over.values()]
