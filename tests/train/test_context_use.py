"""The model learns to use its context if only the context separates signal from noise."""

from dataclasses import replace

import pytest

from experiments.ours.e02_context_use import LONGEST, runs
from repro.execute import execute


@pytest.mark.slow
def test_right_context_beats_wrong_and_none() -> None:
    """Slow: trains thousands of steps, minutes on one core."""
    (run,) = (r for r in runs("desk") if (r.architecture, r.num_steps, r.seed) == ("contextual", LONGEST, 0))
    metrics = execute(replace(run, suite="planted-validation"), progress=lambda line: None).metrics
    # Seeds differ by several points. A collapsed first stage gives no difference at all.
    own, wrong, null = (metrics[f"planted-validation{kind}/mean/ndcg_at_10"] for kind in ("", "+wrong", "+null"))
    assert own > wrong + 0.02
    assert own > null + 0.02
