"""Verdicts on all published claims, judged once per process because several files of tests need them."""

from functools import cache

from repro.report.artefacts import judgements
from repro.spec.registry import experiments
from repro.statistics.judge import Judgement


@cache
def judge_published(number: int, scale: str) -> tuple[Judgement, ...]:
    """Judge the claims of an experiment."""
    (experiment,) = (each for each in experiments() if each.number == number)
    return tuple(judgements(experiment, scale))
