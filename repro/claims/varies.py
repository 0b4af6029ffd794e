"""Whether the best setting differs by dataset: dataset × setting, tested over seeds.

Each seed gives a table of scores, datasets by settings; taking the means of its rows and columns away leaves what a
setting does on this dataset and not on others. The test is the interaction's F of a repeated-measures analysis of
variance, seeds as subjects (statsmodels' AnovaRM gives the same F), its degrees of freedom lowered by Box's epsilon,
since datasets of few queries vary more than others. Source: Box (1954), Ann. Math. Stat. 25, 484-498.

Shapes: S seeds, D datasets, K settings.
"""

from __future__ import annotations

import math

import numpy as np

from repro.claims.evidence import Evidence, MissingRunsError
from repro.claims.units import by_part
from repro.spec import Varies


def table_of(claim: Varies, evidence: Evidence) -> np.ndarray:
    """Return the scores of each seed, dataset and setting (S, D, K), averaged over what else the term picks."""
    settings = sorted({getattr(system, claim.axis) for system in evidence.systems[claim.over]})
    if len(settings) < 2:
        raise MissingRunsError(f"{len(settings)} values of {claim.axis}; it takes two to differ")
    columns = []
    for setting in settings:
        systems = [one for one in evidence.systems[claim.over] if getattr(one, claim.axis) == setting]
        rows = [
            list(by_part([evidence.records[one][seed] for one in systems], claim.over.metric, claim.by).values())
            for seed in evidence.seeds
        ]
        columns.append(rows)
    return np.moveaxis(np.array(columns), 0, 2)


def interaction_of(scores_SDK: np.ndarray) -> np.ndarray:
    """Return what is left of each seed's table when the means of its rows and columns are taken away (S, D, K)."""
    rows, columns = scores_SDK.mean(axis=2, keepdims=True), scores_SDK.mean(axis=1, keepdims=True)
    return scores_SDK - rows - columns + scores_SDK.mean(axis=(1, 2), keepdims=True)


def interaction_test(scores_SDK: np.ndarray) -> tuple[float, float, str]:
    """Return the size of the interaction (its deviation over the table), the p-value of none, and the test in words."""
    from scipy import special

    left_SDK = interaction_of(scores_SDK)
    num_seeds, num_datasets, num_settings = scores_SDK.shape
    df = (num_datasets - 1) * (num_settings - 1)
    mean_DK = left_SDK.mean(axis=0)
    size = math.sqrt(float((mean_DK**2).mean()))
    noise_SC = (left_SDK - mean_DK).reshape(num_seeds, -1)
    error = (noise_SC**2).sum() / (df * (num_seeds - 1)) if num_seeds > 1 else 0.0
    if not error:
        return size, 1.0, "one seed says nothing of an interaction" if num_seeds < 2 else "seeds do not vary"
    ratio = num_seeds * (mean_DK**2).sum() / df / error
    gram_SS = noise_SC @ noise_SC.T  # has the same non-zero eigenvalues as the covariance of the cells
    epsilon = min(1.0, np.trace(gram_SS) ** 2 / (df * (gram_SS**2).sum()))
    free = (epsilon * df, epsilon * df * (num_seeds - 1))
    return size, float(special.fdtrc(*free, ratio)), f"F({free[0]:.1f}, {free[1]:.1f}) = {ratio:.2f}"


def best_differs(scores_SDK: np.ndarray) -> bool:
    """Return whether two datasets have different best settings, on the mean over seeds."""
    return len(set(scores_SDK.mean(axis=0).argmax(axis=1))) > 1
