"""What was typed of a model, its format and its folder: what is wrong with it is said before torch is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from repro.data.beir import beir_folders
from repro.spec import TRAINED, base
from repro.spec.validation import widths_in
from repro.storage.paths import check_home
from repro.text import short

FORMATS = ("sentence-transformers", "transformers", "official")
HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
BM25 = "bm25"
CONTEXTUAL = "contextual"


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
    """ValueError for a path where no folder is, a folder of no collection, and a suite that nobody knows."""
    folder = Path(source)
    if "/" in source and not folder.is_dir():
        raise ValueError(
            f"--suite {short(source)}: there is no such folder; give a BEIR folder, or a suite by its name"
        )
    if not folder.is_dir():
        from repro.pipeline.corpora import make_searched_stage

        make_searched_stage(base("smoke", suite=source))
    elif not (folder / "suite.json").is_file() and not beir_folders(folder):
        raise ValueError(f"{folder} holds no suite.json, is no BEIR folder (corpus.jsonl), and holds none")


EXPORT_CONTEXTS = ("own", "wrong", "null")
"""Contexts that a model without its training text can be scored under."""


def check_evaluated(suite: str, models: Sequence[str], contexts: Sequence[str]) -> None:
    """ValueError for what no evaluation could be of: a context, a suite, a model."""
    if unknown := sorted(set(contexts) - set(EXPORT_CONTEXTS)):
        raise ValueError(f"unknown context {unknown}; choose one of {list(EXPORT_CONTEXTS)}")
    check_suite(suite)
    for model in models:
        if model != BM25:
            check_model(model)


def check_export(source: str, folder: Path, to: str, width: int | None = None) -> None:
    """ValueError for an unknown format, for a folder that is not empty, or that is the one the reader is in.

    Of a run also for a width or a format that a model as it is declared cannot have.
    """
    if to not in FORMATS:
        raise ValueError(f"unknown format {to!r}; choose one of {list(FORMATS)}")
    if folder.resolve() == Path.cwd():
        raise ValueError(f"{folder} is the folder you are in: name a new one, such as {Path(folder, 'exported')}")
    folder = folder.resolve() if folder.is_symlink() else folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there and not empty: choose a new folder, nothing is overwritten")
    check_writable(folder)
    from repro.interop.named_runs import run_named

    run = run_named(source)
    if run is not None and run.architecture in TRAINED:
        check_home()  # its training lies there, or will
        check_width(run.architecture, run.hidden_size, to, width)
        check_format(run.architecture, to)


def check_upload(push_to: str | None, *, private: bool) -> None:
    """ValueError for a hub id that no repository can have, and for a word on an upload that was not asked for."""
    if push_to is None:
        if private:
            raise ValueError("--private is said of an upload: name its hub id, --push-to OWNER/NAME, or leave it out")
        return
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(push_to)
        is_one = push_to.count("/") == 1
    except HFValidationError:
        is_one = False
    if not is_one:
        raise ValueError(
            f"--push-to {short(push_to)}: no hub id; expected OWNER/NAME, of letters, digits, '-', '_' and '.', at "
            "most 96 of them, without '--' and '..'"
        )


def check_writable(folder: Path) -> None:
    """ValueError, before a model is opened or trained, where a folder cannot be made: what it would lie in is read-only

    A folder that is there is replaced as a whole, so that it is the folder around it that has to be written to.
    """
    around = next(path for path in folder.resolve().parents if path.exists())
    if not os.access(around, os.W_OK | os.X_OK):
        raise ValueError(f"{folder} cannot be made: {around} cannot be written to; name a folder elsewhere")


def check_format(architecture: str, to: str) -> None:
    """ValueError for a format that does not hold models of an architecture."""
    if to == "official" and architecture != CONTEXTUAL:
        raise ValueError(
            f"the authors' format holds contextual models only; this is a {architecture}: --to transformers or --to "
            "sentence-transformers takes it"
        )


def check_width(architecture: str, hidden_size: int, to: str, width: int | None) -> None:
    """ValueError for a width that the vectors do not have, or that a format or a contextual model cannot be cut to."""
    if width is None:
        return
    widths_in(str(width), hidden_size, "--width")
    if to != "sentence-transformers" or architecture == CONTEXTUAL:
        raise ValueError(
            f"--width={width} with --to {to} and a {architecture} model: only a biencoder's folder for "
            f"sentence-transformers can be cut; of other vectors take the first {width} dimensions and normalise them"
        )
