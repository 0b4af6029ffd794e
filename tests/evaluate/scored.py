"""Score an encoder on a suite by exact search, with the settings that most tests use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repro.data.beir import Suite
from repro.evaluate.suites import Encoder, Evaluation, EvaluationOutputs, Setting, evaluate_setting


def evaluate_suite(
    encoder: Encoder,
    suite: Suite,
    *,
    contexts: Sequence[str] = ("own",),
    num_contexts: int = 0,
    seed: int = 0,
    folder: Path | None = None,
) -> Evaluation:
    """Score an encoder by exact search under each context. Write TREC run files to `folder`."""
    setting = Setting(contexts=contexts, num_contexts=num_contexts, seed=seed)
    return evaluate_setting(encoder, suite, setting, EvaluationOutputs(runs=folder))
