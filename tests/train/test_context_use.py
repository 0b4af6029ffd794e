"""The architecture uses its context where nothing else tells noise from signal; minutes of training on one core."""

from dataclasses import replace

import pytest

from experiments.ours.e02_context_use import LONGEST, runs
from repro.execute import execute


@pytest.mark.slow
def test_right_context_beats_wrong_and_none() -> None:
    """Slow: thousands of steps."""
    (run,) = (r for r in runs("desk") if (r.architecture, r.num_steps, r.seed) == ("contextual", LONGEST, 0))
    metrics = execute(replace(run, suite="planted-validation"), progress=lambda line: None).metrics
    # seeds differ by several points; a collapsed first stage gives no difference at all
    own, wrong, null = (metrics[f"planted-validation{kind}/mean/ndcg_at_10"] for kind in ("", "+wrong", "+null"))
    assert own > wrong + 0.02
    assert own > null + 0.02
