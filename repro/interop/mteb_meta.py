"""What mteb asks to know about a model, filled in from the model itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mteb.models.model_meta import ModelMeta, ScoringFunction

from repro.interop.official import RELEASES
from repro.interop.opening import open_model
from repro.model.biencoder import Biencoder
from repro.model.contextual import ContextualModel
from repro.model.start import backbones_of

MEBIBYTE = 2**20


def model_meta(
    model: Biencoder | ContextualModel, *, name: str, experiment: Mapping[str, Any], license: str | None = None
) -> ModelMeta:
    """Gives a complete description; the revision is the model's own digest, so that other weights are another model."""
    config = model.config
    count = sum(weight.numel() for weight in model.parameters())
    embeddings = sum(backbone.model.get_input_embeddings().weight.numel() for backbone in backbones_of(model))
    return ModelMeta(
        loader=load_for_mteb,
        loader_kwargs={},
        name=name,
        revision=RELEASES.get(name) or digest(model),
        release_date=None,
        languages=["eng-Latn"],
        n_parameters=count,
        n_embedding_parameters=embeddings,
        memory_usage_mb=round(sum(w.numel() * w.element_size() for w in model.parameters()) / MEBIBYTE, 1),
        max_tokens=config.max_tokens,
        embed_dim=config.hidden_size,
        license=license,
        open_weights=True,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch", "Transformers", "safetensors"],
        reference=None,
        similarity_fn_name=ScoringFunction.COSINE,
        use_instructions=config.prompts != "none",
        training_datasets=None,
        model_type=["dense"],
        modalities=["text"],
        experiment_kwargs=dict(experiment) or None,
    )


def load_for_mteb(model_name: str, revision: str | None = None, device: str | None = None, **options: Any) -> Any:
    """Loads a run's id, a folder or a hub id, ours or the authors', for mteb; `options` are those of `MtebModel`."""
    from repro.interop.mteb_model import MtebModel

    model = open_model(model_name, revision=revision).model
    if not isinstance(model, Biencoder | ContextualModel):
        raise ValueError(f"{model_name} is a model of another library: mteb opens it without our wrapper")
    options.pop("num_contexts", None)  # part of the identity, but the model's own
    if "context" in options:
        options["method"] = options.pop("context")
    name = model_name if model_name in RELEASES else f"cde-repro/{Path(model_name).name}"
    return MtebModel(model.to(device or "cpu"), **({"name": name} | options))


def digest(model: Biencoder | ContextualModel) -> str:
    """Gives twelve hex digits of a model's config and weights."""
    found = hashlib.sha256(json.dumps(asdict(model.config), sort_keys=True).encode())
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().float().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:12]
