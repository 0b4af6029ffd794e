"""Where a measure keeps what it has found so far: a run that is killed while it is measured goes on behind that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from repro.batches.fixed_encoder import get_surrogate
from repro.evaluate.kept import FOLDER, Kept
from repro.evaluate.suites import Encoder
from repro.pipeline.prompting import get_encoder_in_key
from repro.records.provenance import machine
from repro.spec import Run
from repro.spec.identity import run_id

if TYPE_CHECKING:
    from repro.model.contextual import ContextualModel

Values = Mapping[str, np.ndarray]
"""Numbers of queries by name, float32 each."""


def keep_in(folder: Path, run: Run, model: Encoder | None, **decides: Any) -> Kept | None:
    """Return where results of a run's system are kept, which all that decides its vectors tells from any other.

    None for a model that is none of ours, and so has no digest.
    """
    from repro.evaluate.digests import compute_model_digest
    from repro.model.encoding import TextEncoder

    if model is not None and not isinstance(model, TextEncoder):
        return None
    its_digest = None if model is None else compute_model_digest(cast("ContextualModel", model))
    weights = get_encoder_in_key(get_surrogate(run)) if model is None else {"model": its_digest}
    return Kept(
        folder / FOLDER,
        {"run": run_id(run), "machine": machine(narrow=getattr(model, "is_narrow", False)), **weights, **decides},
    )


def load_cached_part(kept: Kept | None, name: str, decides: Mapping[str, Any], find: Callable[[], Values]) -> Values:
    """Return a part of what a measure gives: what was kept under this name and `decides`, or what `find` gives."""
    return find() if kept is None else kept.values(name, decides, find)
