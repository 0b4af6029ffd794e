"""How often a claim errs that is looked at again while it is open: simulated records, judged by the real judge.

An order is judged on some seeds. Where it is UNDECIDED, as many seeds are added and all of them judge it, at the level
of the next look (`repro.claims.levels.share_of_look`), three looks at the most: what is counted is its last verdict.
The noise and the published records are those of `repro.claims.calibration`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from repro.claims.calibration import (
    A_POINT,
    NOISES,
    TRIALS_A_POOL,
    TRUTHS,
    Cell,
    claims_of,
    pooled,
    record_of,
    simulated_runs,
    simulated_scores,
    wrong_verdicts,
)
from repro.claims.judge import Judgement, judge_all
from repro.claims.variance import Pool
from repro.seeds import generator_for

MOST_LOOKS = 3
FIRST_SEEDS = (3, 5)
"""Seeds of the first look, and how many each further one adds."""
KIND = "order"


@dataclass(frozen=True)
class LooksCell:
    """What is simulated: truth, seed noise over query noise, number of seeds of the first look."""

    truth: str
    noise: int
    num_seeds: int

    @property
    def path(self) -> str:
        """The beginning of its metrics."""
        return f"looks/{self.truth}/{self.noise}/{self.num_seeds}"

    @property
    def whole(self) -> Cell:
        """The cell of the calibration that has the seeds of all looks."""
        return Cell(KIND, self.truth, self.noise, MOST_LOOKS * self.num_seeds)


def cells() -> Iterator[LooksCell]:
    """Return every cell, in order."""
    for truth in TRUTHS:
        for noise in NOISES:
            yield from (LooksCell(truth, noise, num_seeds) for num_seeds in FIRST_SEEDS)


def calibrate_looks(num_trials: int, seed: int) -> dict[str, float]:
    """Return, of every cell by path, the shares of trials whose last verdict is false, covers the truth, is HOLDS."""
    found: dict[str, float] = {}
    for cell in cells():
        found |= {f"{cell.path}/{name}": value for name, value in simulate_looks(cell, num_trials, seed).items()}
    return found


def simulate_looks(cell: LooksCell, num_trials: int, seed: int) -> dict[str, float]:
    """Return the shares of a cell's trials: `false`, `covered`, `decided`; and of looks made, their mean: `looks`."""
    rng, effect = generator_for(seed, cell.path), A_POINT if cell.truth == "one-point" else 0.0
    pool, last, looks = Pool(), [], []
    for trial in range(num_trials):
        if trial % TRIALS_A_POOL == 0:
            pool = Pool(pooled(cell.whole, rng))
        judged, number = judged_until_decided(cell, rng, pool)
        last.append(judged)
        looks.append(number)
    wrong = wrong_verdicts(KIND, effect)
    covered = [one.low <= effect <= one.high for one in last if one.low is not None and one.high is not None]
    return {
        "false": float(np.mean([one.verdict in wrong for one in last])),
        "covered": float(np.mean(covered)),
        "decided": float(np.mean([one.verdict == "HOLDS" for one in last])),
        "looks": float(np.mean(looks)),
    }


def judged_until_decided(cell: LooksCell, rng: np.random.Generator, pool: Pool) -> tuple[Judgement, int]:
    """Return the last judgement of a claim, and at which look it was made."""
    whole, runs = cell.whole, simulated_runs(2, cell.whole.num_seeds)
    gains_CD = np.array([[0.0] * 3, [A_POINT if cell.truth == "one-point" else 0.0] * 3])
    scores_CSQ = simulated_scores(gains_CD, whole, rng)
    records = [record_of(run, scores_CSQ[place // whole.num_seeds, run.seed], 0.0) for place, run in enumerate(runs)]
    (claim,) = claims_of(KIND)
    for number in range(1, MOST_LOOKS + 1):
        there = [one for one in records if one.run.seed < number * cell.num_seeds]
        asked, wanted = replace(claim, num_looks=number), [one.run for one in there]
        (judged,) = judge_all([asked], "desk", wanted, there, pool=pool)
        if judged.verdict != "UNDECIDED":
            break
    return judged, number
