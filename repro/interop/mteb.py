"""Loader of our models for mteb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.evaluate.mteb.model import MtebModel
from repro.interop.arguments import to_device
from repro.interop.official.folder import RELEASES
from repro.interop.opening import open_model
from repro.model.contextual import Model


def load_for_mteb(model_name: str, revision: str | None = None, device: str | None = None, **options: Any) -> MtebModel:
    """Load a model for mteb.

    Args:
        model_name: A run's id, a folder or a hub id, in our format or the authors'.
        revision: A revision of a hub id. Results are stored under its commit.
        device: Device of torch. Default: a GPU if there is one.
        options: Options of `MtebModel`.
    """
    opened = open_model(model_name, revision=revision)
    model = opened.model
    if not isinstance(model, Model):
        raise ValueError(f"{model_name} is a model of another library: mteb opens it without our wrapper")
    # mteb passes this part of a model's identity back, but the model itself decides it
    options.pop("num_contexts", None)
    name = model_name if model_name in RELEASES else f"cde-repro/{Path(model_name).name}"
    metadata = {"name": name, "revision": opened.revision, "loader": load_for_mteb}
    to_device(model, device)
    return MtebModel(model, **(metadata | options))
