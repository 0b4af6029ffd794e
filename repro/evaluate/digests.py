"""Digests of models. Models with equal digests produce equal vectors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from repro.data.tokens import load_whole_tokenizer
from repro.model.contextual import Model


def compute_model_digest(model: Model) -> str:
    """Return twelve hex digits of the config, tokenizer and weights. The path of the tokenizer does not matter.

    Weights are read as float32.
    """
    config = asdict(model.config) | {"tokenizer": load_whole_tokenizer(model.config.tokenizer).to_str()}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]
