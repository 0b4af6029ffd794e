"""Prefixes of a model's vectors: which were asked for, and a warning where nobody trained the model for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from repro.evaluate.prefixes import format_view_name, parse_view
from repro.evaluate.suites import Encoder, get_path_name
from repro.interop.opening import Opened
from repro.interop.stock_encoder import StockEncoder
from repro.report.scores import POINTS, list_contexts
from repro.spec import nested_widths
from repro.spec.validation import prefixes_in


def get_width(model: Encoder) -> int:
    """Return the number of dimensions of a model's vectors."""
    if isinstance(model, StockEncoder):
        return int(model.theirs.get_embedding_dimension() or 0)
    config: Any = getattr(model, "config")  # noqa: B009 — ours has one, and no protocol says so
    return int(config.hidden_size)


def asked_widths(text: str | None, model: Encoder) -> tuple[int, ...]:
    """Return the prefixes a reader asks for, "16,32,full", narrower than the whole, which is always there.

    ValueError in one line for a width that the model's vectors do not have.
    """
    whole = get_width(model)
    return tuple(width for width in prefixes_in(text, whole, "--width") if width < whole) if text else ()


def untrained_widths(opened: Opened, widths: Sequence[int]) -> list[int] | None:
    """Return the widths that a model's loss did not name; None where nobody knows what its loss was."""
    if opened.run is None:
        return None
    return [width for width in widths if width not in nested_widths(opened.run)]


def told_of_widths(opened: Opened, widths: Sequence[int]) -> dict[str, Any]:
    """Return what a score keeps of the prefixes that were asked for; nothing where none were."""
    return {"widths": list(widths), "untrained_widths": untrained_widths(opened, widths)} if widths else {}


def warnings(told: Mapping[str, Any], suite: str, metrics: Mapping[str, float]) -> list[str]:
    """Return a line for each prefix that was scored though the model was not trained for it, with what it loses.

    Losses are those under the first context that was scored: the corpus' own, where that was asked for.
    """
    if not told.get("widths"):
        return []
    first = next(kind for _, kind in list_contexts(metrics, suite) if parse_view(kind)[1] is None)
    mean = "mean/ndcg_at_10"
    whole = metrics[f"{get_path_name(suite, first)}/{mean}"]
    loss = {
        width: POINTS * (whole - metrics[f"{get_path_name(suite, format_view_name(first, width))}/{mean}"])
        for width in told["widths"]
        if told["untrained_widths"] is None or width in told["untrained_widths"]
    }
    why = "is not known to be" if told.get("untrained_widths") is None else "was not"
    return [
        f"warning: {told['called']} {why} trained for prefixes of {width} dimensions; they lose {lost:.1f} points here "
        "(nested_sizes trains for them)"
        for width, lost in loss.items()
    ]


def export_warning(opened: Opened, width: int) -> list[str]:
    """Return a line where a model is exported at a width that nobody trained it for; the whole width is no prefix."""
    untrained = untrained_widths(opened, [width])
    if untrained == [] or width == get_width(opened.model):
        return []
    why = "is not known to be" if untrained is None else "was not"
    return [
        f"warning: {opened.called} {why} trained for prefixes of {width} dimensions: expect lower scores; "
        f"`repro evaluate --width {width},full` says how much"
    ]
