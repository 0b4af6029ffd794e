"""Verb that lists the fields of a run, which a grid can vary."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Annotated, Any

import typer

from repro.spec import FIELDS, Run
from repro.spec.axes import describe_type
from repro.spec.scales import ORDER, SCALES
from repro.text import ABSENT, format_suggestion, shorten


def fields(
    word: Annotated[str | None, typer.Argument(help="list only fields with this word")] = None,
) -> None:
    """List the fields of a run: type, range, default per scale and meaning. `launch table1 FIELD=A,B` varies a field."""
    from repro.report.formats import render
    from repro.report.view import View

    pattern = (word or "").casefold()
    rows = [describe_field(name) for name in FIELDS if name != "scale"]
    rows = [row for row in rows if pattern in row["name"] or pattern in row["meaning"].casefold()]
    if not rows:
        hint = format_suggestion(pattern, FIELDS, likeness=0.6)
        raise ValueError(
            f"no field has {shorten(repr(word))} in its name or meaning{hint or ';'} `repro fields` lists all"
        )
    lines = [(row["name"], row["takes"], _format_defaults(row["defaults"]), row["meaning"]) for row in rows]
    header = ("field", "takes", "default per scale", "meaning")
    render(View("Fields of a run", header, tuple(lines), align="llll"))


def describe_field(name: str) -> dict[str, Any]:
    """Return a field's name, type and range, default at each scale, and meaning."""
    defaults = {scale: SCALES[scale].fields.get(name, 0 if name == "seed" else None) for scale in ORDER}
    return {"name": name, "takes": describe_type(name), "defaults": defaults, "meaning": _meanings().get(name, "")}


def _format_defaults(defaults: dict[str, Any]) -> str:
    """Return the defaults grouped by value, for example "1 (smoke), 4 (desk, small)", or one value if all agree."""
    scales_by_value: dict[str, list[str]] = {}
    for scale, value in defaults.items():
        scales_by_value.setdefault(ABSENT if value is None else str(value), []).append(scale)
    if len(scales_by_value) == 1:
        return next(iter(scales_by_value))
    return ", ".join(f"{value} ({', '.join(scales)})" for value, scales in scales_by_value.items())


@cache
def _meanings() -> dict[str, str]:
    """Return the meaning of each field: its comment in the source of `Run`."""
    return dict(re.findall(r"^    (\w+): [^#\n]*  # (.+)$", inspect.getsource(Run), re.MULTILINE))


VERBS = (fields,)
