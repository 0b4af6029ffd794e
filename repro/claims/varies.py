"""Whether the best setting differs by dataset: dataset × setting, tested over seeds and queries.

Each seed gives a table of scores, datasets by settings; taking the means of its rows and columns away leaves what a
setting does on this dataset and not on others. The test is the interaction's F of a repeated-measures analysis of
variance, seeds as subjects (statsmodels' AnovaRM gives the same F), its degrees of freedom lowered by Box's epsilon,
since datasets of few queries vary more than others. Source: Box (1954), Ann. Math. Stat. 25, 484-498.

Seeds share their queries: what a setting does on these queries of a dataset and not on others comes back with every
seed, and would pass for the dataset's. Its variance, from the queries' own scores, is added to the error; degrees of
freedom add up by Satterthwaite (1946). That the best settings differ is read off the means, after the test.

Shapes: S seeds, D datasets, K settings, Q queries of one dataset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repro.claims.evidence import Evidence, MissingRunsError
from repro.claims.units import by_part, units
from repro.spec import Run, Varies


@dataclass(frozen=True)
class QueryNoise:
    """What queries leave in one dataset's row of settings: covariance (K, K), rows and columns of sum 0, and its df."""

    covariance_KK: np.ndarray
    df: float

    @property
    def size(self) -> float:
        """The variance of all settings together."""
        return float(np.trace(self.covariance_KK))


@dataclass(frozen=True)
class Interaction:
    """What is known of an interaction: its deviation over the table, the p-value of none, and the test in words."""

    size: float
    p_value: float
    words: str
    beyond: float = 0.0  # its sum of squares beyond what noise puts there
    of_seeds: float = 0.0  # the noise of one seed in that sum, which more seeds lower
    of_queries: float = 0.0  # and that of queries, which they do not
    df: float = 1.0

    def is_seen_with(self, num_seeds: int, level: float, power: float) -> bool:
        """Return whether so many seeds would see an interaction of this size, by the noncentral F."""
        from scipy import special

        noise = self.of_seeds / num_seeds + self.of_queries
        if not noise or not self.beyond:
            return False
        free = (self.df, self.df * (num_seeds - 1))
        missed = special.ncfdtr(*free, self.df * self.beyond / noise, special.fdtri(*free, 1 - level))
        return bool(missed <= 1 - power)


def table_of(claim: Varies, evidence: Evidence) -> np.ndarray:
    """Return the scores of each seed, dataset and setting (S, D, K), averaged over what else the term picks."""
    columns = []
    for systems in _systems_by_setting(claim, evidence):
        rows = [
            list(by_part([evidence.records[one][seed] for one in systems], claim.over.metric, claim.by).values())
            for seed in evidence.seeds
        ]
        columns.append(rows)
    return np.moveaxis(np.array(columns), 0, 2)


def query_noise_of(claim: Varies, evidence: Evidence) -> list[QueryNoise]:
    """Return what queries leave in the row of each dataset (or family), in the order of the table's rows."""
    by_setting = _systems_by_setting(claim, evidence)
    first = evidence.of_system(by_setting[0][0])
    found = []
    for name in by_part(first, claim.over.metric, claim.by):
        metric = claim.over.metric.replace("*", name)
        columns = [
            np.mean([[units(record, metric)[0] for record in evidence.of_system(one)] for one in systems], axis=0)
            for systems in by_setting
        ]
        found.append(query_noise(np.stack(columns, axis=2), units(first[0], metric)[1]))
    return found


def _systems_by_setting(claim: Varies, evidence: Evidence) -> list[list[Run]]:
    by_setting: dict[float, list[Run]] = {}
    for system in evidence.systems[claim.over]:
        by_setting.setdefault(getattr(system, claim.axis), []).append(system)
    if len(by_setting) < 2:
        raise MissingRunsError(f"{len(by_setting)} values of {claim.axis}; it takes two to differ")
    return [by_setting[setting] for setting in sorted(by_setting)]


def query_noise(values_SQK: np.ndarray, strata_Q: np.ndarray) -> QueryNoise:
    """Return the covariance of settings that queries leave in a mean over strata, whatever the seeds.

    As `shared_variance`: between queries of their mean over seeds, less what seeds leave in it.
    """
    left_SQK = values_SQK - values_SQK.mean(axis=2, keepdims=True)
    num_seeds, _, num_settings = left_SQK.shape
    covariance, df = np.zeros((num_settings, num_settings)), 0
    strata = np.unique(strata_Q)
    for stratum in strata:
        inside_SQK = left_SQK[:, strata_Q == stratum]
        count = inside_SQK.shape[1]
        if count < 2:
            continue
        of_queries = np.cov(inside_SQK.mean(axis=0), rowvar=False)
        size = float(np.trace(of_queries))
        if size and num_seeds > 1:
            rest = inside_SQK - inside_SQK.mean(axis=0) - inside_SQK.mean(axis=1, keepdims=True)
            rest = rest + inside_SQK.mean(axis=(0, 1))
            of_seeds = float((rest**2).sum()) / ((num_seeds - 1) * (count - 1) * num_seeds)
            of_queries = of_queries * max(0.0, 1 - of_seeds / size)
        covariance += of_queries / count / len(strata) ** 2
        df += count - 1
    return QueryNoise(covariance, df)


def interaction_of(scores_SDK: np.ndarray) -> np.ndarray:
    """Return what is left of each seed's table when the means of its rows and columns are taken away (S, D, K)."""
    rows, columns = scores_SDK.mean(axis=2, keepdims=True), scores_SDK.mean(axis=1, keepdims=True)
    return scores_SDK - rows - columns + scores_SDK.mean(axis=(1, 2), keepdims=True)


def interaction_test(scores_SDK: np.ndarray, queries_D: Sequence[QueryNoise] = ()) -> Interaction:
    """Test whether settings do on a dataset what they do not on others, beyond the noise of seeds and queries."""
    from scipy import special

    left_SDK = interaction_of(scores_SDK)
    num_seeds = len(scores_SDK)
    mean_DK = left_SDK.mean(axis=0)
    size = math.sqrt(float((mean_DK**2).mean()))
    noise_SC = (left_SDK - mean_DK).reshape(num_seeds, -1)
    if num_seeds < 2:
        return Interaction(size, 1.0, "one seed says nothing of an interaction")
    if not noise_SC.any():
        return Interaction(size, 1.0, "seeds do not vary")
    of_seeds = noise_SC.T @ noise_SC / ((num_seeds - 1) * num_seeds)
    parts = [(float(np.trace(of_seeds)), free_of(of_seeds) * (num_seeds - 1))]
    parts += [((1 - 1 / len(mean_DK)) * one.size, free_of(one.covariance_KK) * one.df) for one in queries_D if one.size]
    total = of_seeds + _of_queries(queries_D, noise_SC.shape[1])
    variance = float(np.trace(total))
    free = (free_of(total), variance**2 / sum(part**2 / df for part, df in parts))
    squares = float((mean_DK**2).sum())
    words = f"F({free[0]:.1f}, {free[1]:.1f}) = {squares / variance:.2f}"
    p_value, beyond = float(special.fdtrc(*free, squares / variance)), max(0.0, squares - variance)
    return Interaction(size, p_value, words, beyond, parts[0][0] * num_seeds, variance - parts[0][0], free[0])


def free_of(covariance: np.ndarray) -> float:
    """Return Box's degrees of freedom of a sum of squares with this covariance: all of them where it is even."""
    return float(np.trace(covariance) ** 2 / (covariance**2).sum())


def _of_queries(queries_D: Sequence[QueryNoise], num_cells: int) -> np.ndarray:
    """Return the covariance of the whole interaction table (C, C) that queries leave: datasets have their own."""
    number = len(queries_D)
    total = np.zeros((num_cells, num_cells))
    if not number:
        return total
    settings = num_cells // number
    for place, one in enumerate(queries_D):
        cells = slice(place * settings, (place + 1) * settings)
        total[cells, cells] = one.covariance_KK
    centred = np.kron(np.eye(number) - 1 / number, np.eye(settings))
    return np.asarray(centred @ total @ centred)


def best_differs(scores_SDK: np.ndarray) -> bool:
    """Return whether two datasets have different best settings, on the mean over seeds."""
    return len(set(scores_SDK.mean(axis=0).argmax(axis=1))) > 1
