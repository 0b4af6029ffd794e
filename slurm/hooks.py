"""Functions that a job calls, stored as names so that they survive pickle and JSON. Tests substitute their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

EXECUTE, STAGES_OF = "repro.execute:execute", "repro.pipeline.stages:list_stages"


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Names of the functions that execute a run and list its stages."""

    execute: str = EXECUTE
    stages_of: str = STAGES_OF


def named(path: str) -> Callable[..., Any]:
    """Return the function with the path "module:name"."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
