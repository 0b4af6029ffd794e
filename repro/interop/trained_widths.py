"""Prefixes of a model's vectors: parsing of widths, and warnings if the model was not trained for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from repro.evaluate.prefixes import format_view_name, parse_view
from repro.evaluate.suites import Encoder, get_path_name
from repro.interop.opening import Opened
from repro.interop.stock_encoder import StockEncoder
from repro.interop.trained_on import find_training_run
from repro.report.scores import POINTS, list_variants
from repro.spec import Run, nested_widths
from repro.spec.validation import prefixes_in


def get_width(model: Encoder) -> int:
    """Return the number of dimensions of a model's vectors."""
    if isinstance(model, StockEncoder):
        return int(model.theirs.get_embedding_dimension() or 0)
    config: Any = getattr(model, "config")  # noqa: B009 — ours has one, and no protocol says so
    return int(config.hidden_size)


def parse_widths(text: str | None, full_width: int) -> tuple[int, ...]:
    """Parse widths such as "16,32,full". Return those below the full width, which is always scored.

    Raises:
        ValueError: if vectors of the full width do not have a width.
    """
    if not text:
        return ()
    return tuple(width for width in prefixes_in(text, full_width, "--width") if width < full_width)


def find_untrained_widths(run: Run | None, widths: Sequence[int]) -> list[int] | None:
    """Return the widths that the loss of a training run did not include. None if the run is unknown."""
    return None if run is None else [width for width in widths if width not in nested_widths(run)]


def describe_widths(source: str, opened: Opened, widths: Sequence[int]) -> dict[str, Any]:
    """Return the provenance of the scored prefixes, empty if there are none."""
    if not widths:
        return {}
    # an adapted folder names its run, too, but whitening changes the prefixes: it opens as a model of another library
    run = opened.run if opened.config is None else opened.run or find_training_run(source)
    return {"widths": list(widths), "untrained_widths": find_untrained_widths(run, widths)}


def list_width_warnings(metadata: Mapping[str, Any], suite: str, metrics: Mapping[str, float]) -> list[str]:
    """Return a warning with the lost points for each scored prefix that the model was not trained for.

    The loss refers to the first scored context, which is the model's own corpus unless it was excluded.
    """
    if not metadata.get("widths"):
        return []
    first = next(kind for _, kind in list_variants(metrics, suite) if parse_view(kind)[1] is None)
    full_score = metrics[f"{get_path_name(suite, first)}/mean/ndcg_at_10"]
    untrained = metadata["untrained_widths"]
    verb = "is not known to be" if untrained is None else "was not"
    lines = []
    for width in metadata["widths"] if untrained is None else untrained:
        score = metrics[f"{get_path_name(suite, format_view_name(first, width))}/mean/ndcg_at_10"]
        lines.append(
            f"warning: {metadata['called']} {verb} trained for prefixes of {width} dimensions; they lose "
            f"{POINTS * (full_score - score):.1f} points here (nested_sizes trains for them)"
        )
    return lines


def list_export_warnings(opened: Opened, width: int, run: Run | None) -> list[str]:
    """Return a warning if a model is exported at a width below the full one that its run did not train it for."""
    untrained = find_untrained_widths(run, [width])
    if untrained == [] or width == get_width(opened.model):
        return []
    verb = "is not known to be" if untrained is None else "was not"
    return [
        f"warning: {opened.called} {verb} trained for prefixes of {width} dimensions: expect lower scores; "
        f"measure the loss with `repro evaluate --model M --suite S --width {width},full`"
    ]
