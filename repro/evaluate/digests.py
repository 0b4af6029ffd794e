"""Digests of models. Models with equal digests produce equal vectors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from repro.data.tokens import load_whole_tokenizer
from repro.model.contextual import Model


def compute_model_digest(model: Model) -> str:
    """Return twelve hex digits of the config, tokenizer and weights. The path of the tokenizer does not matter."""
    config = asdict(model.config) | {"tokenizer": load_whole_tokenizer(model.config.tokenizer).to_str()}
    return compute_weights_digest(config, model.state_dict())


def compute_weights_digest(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> str:
    """Return twelve hex digits of plain values and of tensors, which are read as float32."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, value in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(value.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]
