"""Which functions a job calls, by name, so that they survive a pickle and a JSON file; tests put others in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

EXECUTE, STAGES_OF = "repro.execute:execute", "repro.pipeline.stages:list_stages"


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The functions that carry out a run and list its stages, by name."""

    execute: str = EXECUTE
    stages_of: str = STAGES_OF


def named(path: str) -> Callable[..., Any]:
    """Return the function that "module:name" means."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
