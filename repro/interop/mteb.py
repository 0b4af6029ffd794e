"""Models from anywhere for mteb: a run's id, a folder or a hub id, ours or the authors'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.evaluate.mteb.model import MtebModel
from repro.interop.official.folder import RELEASES
from repro.interop.opening import open_model
from repro.interop.places import to_device
from repro.model.contextual import Model


def load_for_mteb(model_name: str, revision: str | None = None, device: str | None = None, **options: Any) -> MtebModel:
    """Load a run's id, a folder or a hub id, ours or the authors', for mteb; `options` are those of `MtebModel`.

    It computes on a GPU where there is one, unless another `device` is named.
    """
    model = open_model(model_name, revision=revision).model
    if not isinstance(model, Model):
        raise ValueError(f"{model_name} is a model of another library: mteb opens it without our wrapper")
    options.pop("num_contexts", None)  # part of the identity, but the model's own
    name = model_name if model_name in RELEASES else f"cde-repro/{Path(model_name).name}"
    told = {"name": name, "revision": revision or RELEASES.get(model_name), "loader": load_for_mteb}
    to_device(model, device)
    return MtebModel(model, **(told | options))
