"""Open the cache of results of a run, so that an interrupted evaluation resumes after the last collection or task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from repro.batches.fixed_encoder import get_surrogate
from repro.evaluate.result_cache import FOLDER, ResultCache
from repro.evaluate.suites import Encoder
from repro.pipeline.prompting import get_encoder_in_key
from repro.records.provenance import describe_machine, list_versions
from repro.spec import Run
from repro.spec.identity import run_id

if TYPE_CHECKING:
    from repro.model.contextual import ContextualModel


def open_cache(folder: Path, run: Run, model: Encoder | None, **key_parts: Any) -> ResultCache | None:
    """Return the result cache of a run's system. Its key contains everything that decides the vectors.

    Returns None for a model of another library, which has no digest.
    """
    from repro.evaluate.digests import compute_model_digest
    from repro.model.encoding import TextEncoder

    if model is not None and not isinstance(model, TextEncoder):
        return None
    model_digest = None if model is None else compute_model_digest(cast("ContextualModel", model))
    weights = get_encoder_in_key(get_surrogate(run)) if model is None else {"model": model_digest}
    return ResultCache(
        folder / FOLDER,
        {
            "run": run_id(run),
            "machine": describe_machine(narrow=getattr(model, "is_narrow", False)),
            "versions": list_versions(),
            **weights,
            **key_parts,
        },
    )
