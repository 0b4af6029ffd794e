"""How often the judge is wrong: simulated records whose truth is known, judged by the functions that judge real ones.

A cell is a kind of claim, a truth (no effect, or an effect of one point), seed noise as a multiple of query noise, and
a number of seeds. In each trial of a cell every configuration gets a true mean, a deviation per query that all seeds
share, one per query and seed, and one per seed, whose size differs by configuration; a pool of other configurations
with three seeds each stands for the published records. The claim is then judged alone, at 5 %.

Beside each kind alone: `varies` (does the best setting differ by dataset; `uneven`: its truth without effect is one
setting that is best on every dataset, by a fifth of a point, beside one that is worse on some datasets than on others),
`inside` (an interaction of the mean over datasets with one of them, whose queries both count), `all` (one claim of
three comparisons, which holds where all do; its hardest truth without effect is one that has none beside two that do),
`family` (three claims of one artefact, which share an error) and `unpooled` (seven, and no published records).

What is counted: trials with a false verdict (HOLDS or DIFFERS where there is no effect, DIFFERS where there is one; for
an equivalence within one point: DIFFERS where there is no effect, either where the effect is the whole point; of a
family: any), intervals that cover the truth (of a family: all), and decided claims (power: HOLDS with an effect; for an
equivalence, without; of a family: the claim with the effect). Of `varies` and `uneven` no interval is counted: which
of the leads is printed depends on the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from repro.claims.judge import Judgement, judge_all
from repro.claims.variance import Pool
from repro.records.store import Record
from repro.seeds import generator_for
from repro.spec import Claim, Run, Term, base, grid, term

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
SHAPES: Mapping[str, int] = {
    "order": 2,
    "interaction": 4,
    "trend": 4,
    "correlation": 8,
    "equivalence": 2,
    "varies": 3,
    "uneven": 3,
    "inside": 2,
    "all": 4,
    "family": 4,
    "unpooled": 8,
}
"""How many configurations a claim of each kind compares."""
FAMILIES = ("family", "unpooled")
VARY = ("varies", "uneven")
FAR = 5 * A_POINT
"""An effect that no test misses."""
TRUTHS = ("none", "one-point")
NOISES = (0, 1, 5)
SEEDS = (1, 3, 5, 8)
NDCG, OF_ANY, HARD = "{suite}/mean/ndcg_at_10", "{suite}/*/ndcg_at_10", "train/difficulty"
OF_ONE = OF_ANY.replace("*", f"set{NUM_QUERIES[0]}")
STARTS = np.cumsum((0, *NUM_QUERIES[:-1]))
PROVENANCE = {
    "suite": {"datasets": [{"name": f"set{n}", "family": "simulated", "num_queries": n} for n in NUM_QUERIES]}
}
NOWHERE = Path()


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
    claims, truths = claims_of(cell.kind), effects_of(cell)
    wrong = [wrong_verdicts(cell.kind, truth) for truth in truths]
    false, covered, decided, pool = [], [], [], Pool()
    for trial in range(num_trials):
        if trial % TRIALS_A_POOL == 0:
            pool = Pool() if cell.kind == "unpooled" else Pool(pooled(cell, rng))
        judged = judge_all(claims, "desk", *_trial(cell, rng), pool=pool)
        false.append(any(one.verdict in verdicts for one, verdicts in zip(judged, wrong, strict=True)))
        decided.append(judged[0].verdict == "HOLDS")
        if judged[0].low is not None and cell.kind not in VARY:
            covered.append(all(_covers(one, truth) for one, truth in zip(judged, truths, strict=True)))
    return {
        "false": float(np.mean(false)),
        "decided": float(np.mean(decided)),
        **({"covered": float(np.mean(covered))} if covered else {}),
    }


def _covers(judged: Judgement, effect: float) -> bool:
    return judged.low is not None and judged.high is not None and judged.low <= effect <= judged.high


def wrong_verdicts(kind: str, effect: float) -> tuple[str, ...]:
    """Return the verdicts that are false of a claim whose effect is known."""
    if kind == "equivalence":
        return ("HOLDS", "DIFFERS") if effect else ("DIFFERS",)
    return ("DIFFERS",) if effect else ("HOLDS", "DIFFERS")


def claims_of(kind: str) -> list[Claim]:
    """Return the claims of a kind that are judged together: several for a family, else one."""
    said: Any = {"says": kind, "source": "simulated", "because": "its truth is known"}
    first, *others = (term(NDCG, batch_size=width) for width in WIDTHS[: max(4, SHAPES[kind])])
    pairs = [(other, first) for other in others]
    if kind in FAMILIES:
        return [Claim.order(f"cal.{number}", pairs=[pair], **said) for number, pair in enumerate(pairs)]
    return [_claim(kind, pairs, {"id": f"cal.{kind}", **said})]


def _claim(kind: str, pairs: Sequence[tuple[Term, Term]], said: Any) -> Claim:
    """Return a claim of an advantage over the first configuration, or of a rise over all."""
    everything = term(NDCG, architecture="biencoder")
    if kind == "equivalence":
        return Claim.equivalence(**said, pairs=pairs[:1], delta=A_POINT)
    if kind == "interaction":
        return Claim.interaction(**said, of=pairs[0], above=(pairs[2][0], pairs[1][0]))
    if kind == "trend":
        return Claim.trend(**said, over=everything, axis="batch_size", sign=1)
    if kind == "correlation":
        hard = term(HARD, architecture="biencoder")
        return Claim.correlation(**said, x=hard, y=everything, points="runs", sign=1)
    if kind == "inside":
        second, plain = (term(OF_ONE, batch_size=width) for width in WIDTHS[1::-1])
        return Claim.interaction(**said, of=pairs[0], above=(second, plain))
    if kind in VARY:
        return Claim.varies(**said, over=term(OF_ANY, architecture="biencoder"), axis="batch_size")
    return Claim.order(**said, pairs=pairs if kind == "all" else pairs[:1])


def effects_of(cell: Cell) -> list[float]:
    """Return the true effect of each claim, in its unit: a trend of four has its point over three doublings."""
    number = SHAPES[cell.kind] - 1 if cell.kind in FAMILIES else 1
    if cell.truth == "none":
        return [0.0] * number
    if cell.kind == "correlation":
        return [A_POINT / float(np.hypot(A_POINT, _scatter(cell)))]
    return [A_POINT / 3 if cell.kind == "trend" else A_POINT] + [0.0] * (number - 1)


def _scatter(cell: Cell) -> float:
    """Return the deviation of a configuration's mean over seeds about its truth, in a correlation."""
    seeds = (0.5 + float(cell.noise) ** 2 * np.exp(2 * SPREAD**2)) / cell.num_seeds
    return QUERY_NOISE * float(np.sqrt(0.5 + seeds))


def _trial(cell: Cell, rng: np.random.Generator) -> tuple[Sequence[Run], list[Record]]:
    number = SHAPES[cell.kind]
    hard_C = rng.normal(size=number)
    runs = simulated_runs(number, cell.num_seeds)
    scores_CSQ = simulated_scores(_gains(cell, hard_C), cell, rng)
    records = [
        record_of(run, scores_CSQ[place // cell.num_seeds, run.seed], hard_C[place // cell.num_seeds])
        for place, run in enumerate(runs)
    ]
    return runs, records


def _gains(cell: Cell, hard_C: np.ndarray) -> np.ndarray:
    """Return what each configuration gains on each dataset (C, D)."""
    number, one_each = SHAPES[cell.kind], np.ones(len(NUM_QUERIES))
    if cell.kind == "all":
        far = np.array([0, FAR, FAR, 0]) if cell.truth == "none" else np.array([0, *[A_POINT] * 3])
        return np.outer(far, one_each)
    if cell.truth == "none":
        uneven = np.array([[0.2, 0.2, 0.2], [0, 0, 0], [0, -1, -2]])
        return A_POINT * uneven if cell.kind == "uneven" else np.zeros((number, len(one_each)))
    second = np.arange(number) == 1
    if cell.kind in VARY:  # the second is best on the first dataset, the third on the last
        return A_POINT * np.array([[0, 0, 0], [1, 0, -1], [-1, 0, 1]])
    if cell.kind == "inside":  # nothing on the first dataset, half as much again on the others
        return A_POINT * np.outer(second, [0, 1.5, 1.5])
    by_kind = {"trend": np.arange(number) / 3, "correlation": hard_C}
    return A_POINT * np.outer(by_kind.get(cell.kind, second), one_each)


def simulated_scores(gains_CD: np.ndarray, cell: Cell, rng: np.random.Generator) -> np.ndarray:
    """Return scores of configurations, seeds and queries, float64 (C, S, Q)."""
    sizes, number = np.repeat(NUM_QUERIES, NUM_QUERIES), len(gains_CD)
    query_Q = QUERY_NOISE * np.sqrt(sizes * len(NUM_QUERIES) / 2)  # each dataset has a third of the variance
    level_Q = rng.uniform(0.3, 0.7, len(sizes))
    shared_CQ = rng.normal(size=(number, len(sizes))) * query_Q
    own_CSQ = rng.normal(size=(number, cell.num_seeds, len(sizes))) * query_Q
    gains_CQ = np.repeat(gains_CD, NUM_QUERIES, axis=1)
    return level_Q + (gains_CQ + shared_CQ)[:, None] + own_CSQ + _seeds_of(cell, number, rng)


def _seeds_of(cell: Cell, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return what seeds add (C, S, 1), or (C, S, Q) where a seed moves each dataset for itself."""
    if cell.kind not in (*VARY, "inside"):
        return _seeds(number, cell.num_seeds, cell.noise, rng)
    each = [_seeds(number, cell.num_seeds, cell.noise * len(NUM_QUERIES) ** 0.5, rng) for _ in NUM_QUERIES]
    return np.repeat(np.concatenate(each, axis=2), NUM_QUERIES, axis=2)


def _seeds(number: int, num_seeds: int, noise: float, rng: np.random.Generator) -> np.ndarray:
    deviations_C = QUERY_NOISE * noise * np.exp(SPREAD * rng.normal(size=number))
    return (rng.normal(size=(number, num_seeds)) * deviations_C[:, None])[:, :, None]


def pooled(cell: Cell, rng: np.random.Generator) -> list[Record]:
    """Return the records of other configurations; only their means are read."""
    own = rng.normal(size=(NUM_POOLED, POOLED_SEEDS)) * QUERY_NOISE * np.sqrt(0.5)
    means_CS = own + _seeds(NUM_POOLED, POOLED_SEEDS, cell.noise, rng)[:, :, 0]
    means = means_CS.ravel().tolist()
    return [Record("", run, _metrics(mean), {}, NOWHERE) for run, mean in zip(pooled_runs(), means, strict=True)]


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


def record_of(run: Run, scores_Q: np.ndarray, hard: float) -> Record:
    """Return the record of a run whose queries have these scores (Q,), with a measure of its batches."""
    means_D = np.add.reduceat(scores_Q, STARTS) / NUM_QUERIES
    metrics = _metrics(float(means_D.mean()), hard)
    metrics |= {f"desk/set{n}/ndcg_at_10": float(mean) for n, mean in zip(NUM_QUERIES, means_D, strict=True)}
    return SimulatedRecord(f"{run.batch_size}-{run.seed}", run, metrics, PROVENANCE, NOWHERE, {}, scores_Q)
