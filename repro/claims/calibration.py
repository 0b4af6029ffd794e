"""How often the judge is wrong: simulated records whose truth is known, judged by the functions that judge real ones.

A cell is a kind of claim, a truth (no effect, or an effect of one point), seed noise as a multiple of query noise, and
a number of seeds. In each trial of a cell every configuration gets a true mean, a deviation per query that all seeds
share, one per query and seed, and one per seed, whose size differs by configuration; a pool of other configurations
with three seeds each stands for the published records. The claim is then judged alone, at 5 %.

What is counted: false verdicts (HOLDS or DIFFERS where there is no effect, DIFFERS where there is one; for an
equivalence within one point: DIFFERS where there is no effect, either where the effect is the whole point), intervals
that cover the truth, and decided claims (power: HOLDS with an effect; for an equivalence, without).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from repro.claims.judge import judge_all
from repro.claims.variance import Pool
from repro.records.store import Record
from repro.seeds import generator_for
from repro.spec import Claim, Run, base, grid, term

A_POINT = 0.01
QUERY_NOISE = 0.003
"""The deviation of a system's mean that queries leave, half of it (as variance) shared by all seeds."""
NUM_QUERIES = (60, 40, 20)
"""Of three datasets: the share of a query's deviation in a mean is larger where a dataset has few."""
NUM_POOLED, POOLED_SEEDS = 30, 3
TRIALS_A_POOL = 5
SPREAD = 0.3
"""Deviation of the logarithm of a configuration's own seed noise."""
WIDTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
SHAPES: Mapping[str, int] = {"order": 2, "interaction": 4, "trend": 4, "correlation": 8, "equivalence": 2}
"""How many configurations a claim of each kind compares."""
TRUTHS = ("none", "one-point")
NOISES = (0, 1, 5)
SEEDS = (1, 3, 5, 8)
NDCG, HARD = "{suite}/mean/ndcg_at_10", "train/difficulty"


@dataclass(frozen=True)
class Cell:
    """What is simulated: kind of claim, truth, seed noise over query noise, number of seeds."""

    kind: str
    truth: str
    noise: int
    num_seeds: int

    @property
    def path(self) -> str:
        """The beginning of its metrics."""
        return f"calibration/{self.kind}/{self.truth}/{self.noise}/{self.num_seeds}"


@dataclass(frozen=True)
class SimulatedRecord(Record):
    """A record whose scores lie in memory."""

    scores: Any = None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The scores behind the metrics."""
        return {"desk": self.scores}


def cells() -> Iterator[Cell]:
    """Return every cell, in order."""
    for kind in SHAPES:
        for truth in TRUTHS:
            for noise in NOISES:
                yield from (Cell(kind, truth, noise, num_seeds) for num_seeds in SEEDS)


def calibrate(num_trials: int, seed: int) -> dict[str, float]:
    """Return the shares of false verdicts, covering intervals and decided claims of every cell, by path."""
    found: dict[str, float] = {}
    for cell in cells():
        for name, value in simulate(cell, num_trials, seed).items():
            found[f"{cell.path}/{name}"] = value
    return found


def simulate(cell: Cell, num_trials: int, seed: int) -> dict[str, float]:
    """Return the shares of a cell's trials: `false`, `covered` (of the printed intervals), `decided`."""
    rng = generator_for(seed, "calibration", cell.path)
    claim, truth = claim_of(cell.kind), _effect(cell)
    false, covered, decided, pool = [], [], [], Pool()
    for trial in range(num_trials):
        if trial % TRIALS_A_POOL == 0:
            pool = Pool(_pooled(cell, rng))
        runs, records = _trial(cell, rng)
        (judged,) = judge_all([claim], "desk", runs, records, pool=pool)
        false.append(judged.verdict in wrong_verdicts(cell))
        decided.append(judged.verdict == "HOLDS")
        if judged.low is not None and judged.high is not None:
            covered.append(judged.low <= truth <= judged.high)
    return {
        "false": float(np.mean(false)),
        "decided": float(np.mean(decided)),
        **({"covered": float(np.mean(covered))} if covered else {}),
    }


def wrong_verdicts(cell: Cell) -> tuple[str, ...]:
    """Return the verdicts that are false of a cell's truth."""
    if cell.kind == "equivalence":
        return ("DIFFERS",) if cell.truth == "none" else ("HOLDS", "DIFFERS")
    return ("HOLDS", "DIFFERS") if cell.truth == "none" else ("DIFFERS",)


def claim_of(kind: str) -> Claim:
    """Return the claim of a kind that is judged: an advantage of the second configuration, or a rise over all."""
    said: Any = {"id": f"cal.{kind}", "says": kind, "source": "simulated", "because": "its truth is known"}
    first, second, third, fourth = (term(NDCG, batch_size=width) for width in WIDTHS[:4])
    everything = term(NDCG, architecture="biencoder")
    if kind == "order":
        return Claim.order(**said, pairs=[(second, first)])
    if kind == "equivalence":
        return Claim.equivalence(**said, pairs=[(second, first)], delta=A_POINT)
    if kind == "interaction":
        return Claim.interaction(**said, of=(second, first), above=(fourth, third))
    if kind == "trend":
        return Claim.trend(**said, over=everything, axis="batch_size", sign=1)
    hard = term(HARD, architecture="biencoder")
    return Claim.correlation(**said, x=hard, y=everything, points="runs", sign=1)


def _effect(cell: Cell) -> float:
    """Return the true effect, in the unit of the claim: a trend of four values has its point over three doublings."""
    if cell.truth == "none":
        return 0.0
    if cell.kind == "correlation":
        return A_POINT / float(np.hypot(A_POINT, _scatter(cell)))
    return A_POINT / 3 if cell.kind == "trend" else A_POINT


def _scatter(cell: Cell) -> float:
    """Return the deviation of a configuration's mean over seeds about its truth, in a correlation."""
    seeds = (0.5 + float(cell.noise) ** 2 * np.exp(2 * SPREAD**2)) / cell.num_seeds
    return QUERY_NOISE * float(np.sqrt(0.5 + seeds))


def _trial(cell: Cell, rng: np.random.Generator) -> tuple[Sequence[Run], list[Record]]:
    number = SHAPES[cell.kind]
    hard_C = rng.normal(size=number)
    gains = np.zeros(number)
    if cell.truth == "one-point":
        by_kind = {"trend": np.arange(number) / 3, "correlation": hard_C}
        gains = A_POINT * by_kind.get(cell.kind, np.arange(number) == 1)
    runs = simulated_runs(number, cell.num_seeds)
    scores_CSQ = simulated_scores(gains, cell.num_seeds, cell.noise, rng)
    records = [
        _record(run, scores_CSQ[place // cell.num_seeds, run.seed], hard_C[place // cell.num_seeds])
        for place, run in enumerate(runs)
    ]
    return runs, records


def simulated_scores(gains: np.ndarray, num_seeds: int, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Return scores of configurations, seeds and queries, float64 (C, S, Q)."""
    sizes = np.repeat(NUM_QUERIES, NUM_QUERIES)
    query_Q = QUERY_NOISE * np.sqrt(sizes * len(NUM_QUERIES) / 2)  # each dataset has a third of the variance
    level_Q = rng.uniform(0.3, 0.7, len(sizes))
    shared_CQ = rng.normal(size=(len(gains), len(sizes))) * query_Q
    own_CSQ = rng.normal(size=(len(gains), num_seeds, len(sizes))) * query_Q
    return level_Q + gains[:, None, None] + shared_CQ[:, None] + own_CSQ + _seeds(len(gains), num_seeds, noise, rng)


def _seeds(number: int, num_seeds: int, noise: float, rng: np.random.Generator) -> np.ndarray:
    deviations_C = QUERY_NOISE * noise * np.exp(SPREAD * rng.normal(size=number))
    return (rng.normal(size=(number, num_seeds)) * deviations_C[:, None])[:, :, None]


def _pooled(cell: Cell, rng: np.random.Generator) -> list[Record]:
    """Return the records of other configurations; only their means are read."""
    own = rng.normal(size=(NUM_POOLED, POOLED_SEEDS)) * QUERY_NOISE * np.sqrt(0.5)
    means_CS = own + _seeds(NUM_POOLED, POOLED_SEEDS, cell.noise, rng)[:, :, 0]
    means = means_CS.ravel().tolist()
    return [Record("", run, _metrics(mean), {}, Path()) for run, mean in zip(pooled_runs(), means, strict=True)]


@lru_cache
def pooled_runs() -> tuple[Run, ...]:
    """Return the runs of the configurations that no claim compares."""
    return grid(base("desk"), num_warmup_steps=tuple(range(1, NUM_POOLED + 1)), seed=tuple(range(POOLED_SEEDS)))


@lru_cache
def simulated_runs(number: int, num_seeds: int) -> tuple[Run, ...]:
    """Return the runs of so many configurations that a claim compares."""
    return grid(base("desk"), batch_size=WIDTHS[:number], seed=tuple(range(num_seeds)))


def _metrics(mean: float, hard: float = 0.0) -> dict[str, float]:
    return {"desk/mean/ndcg_at_10": mean, HARD: hard}


def _record(run: Run, scores_Q: np.ndarray, hard: float) -> Record:
    datasets = [{"name": f"set{n}", "family": "simulated", "num_queries": n} for n in NUM_QUERIES]
    parts = np.split(scores_Q, np.cumsum(NUM_QUERIES)[:-1])
    mean = float(np.mean([part.mean() for part in parts]))
    identifier = f"{run.batch_size}-{run.seed}"
    provenance = {"suite": {"datasets": datasets}}
    return SimulatedRecord(identifier, run, _metrics(mean, hard), provenance, Path(), {}, scores_Q)
