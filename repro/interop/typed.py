"""What was typed of a model, its format and its folder: what is wrong with it is said before torch is loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from repro.spec import CONTEXTS
from repro.storage.json_files import short

FORMATS = ("sentence-transformers", "transformers", "official")
HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
BM25 = "bm25"


def is_hub_id(source: str) -> bool:
    """Return whether a word is taken for the name of a model on the hub: OWNER/NAME, and no folder here."""
    return not Path(source).is_dir() and HUB_ID.fullmatch(source) is not None


def check_model(source: str) -> None:
    """ValueError for a word that is no folder here, no run's id and no hub id."""
    from repro.interop.named_runs import run_named

    if not (Path(source).is_dir() or run_named(source) is not None or is_hub_id(source)):
        raise ValueError(
            f"no model {short(repr(source))}: there is no such folder here, and it is neither a run's id (12 of 0-9 "
            "and a-f, or as many of the first as no other has) nor a hub id (OWNER/NAME): name one of these, or bm25 "
            "to evaluate it"
        )


def check_suite(source: str) -> None:
    """ValueError for a path where no folder is; a suite's name is looked up later."""
    if "/" in source and not Path(source).is_dir():
        raise ValueError(
            f"--suite {short(source)}: there is no such folder; give a BEIR folder, or a suite by its name"
        )


def check_evaluated(suite: str, models: Sequence[str], contexts: Sequence[str]) -> None:
    """ValueError for what no evaluation could be of: a context, a suite, a model."""
    if unknown := sorted(set(contexts) - set(CONTEXTS)):
        raise ValueError(f"unknown context {unknown}; choose one of {list(CONTEXTS)}")
    check_suite(suite)
    for model in models:
        if model != BM25:
            check_model(model)


def check_export(folder: Path, to: str) -> None:
    """ValueError for an unknown format, and for a folder that is not empty, or that is the one the reader is in."""
    if to not in FORMATS:
        raise ValueError(f"unknown format {to!r}; choose one of {list(FORMATS)}")
    if folder.resolve() == Path.cwd():
        raise ValueError(f"{folder} is the folder you are in: name a new one, such as {Path(folder, 'exported')}")
    folder = folder.resolve() if folder.is_symlink() else folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there and not empty: choose a new folder, nothing is overwritten")
