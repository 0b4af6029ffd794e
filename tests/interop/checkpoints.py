"""Checkpoints in the authors' format with random weights. Names and shapes are copied from their specification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

# The vocabulary includes MiniLM's ":", which has the id 1024.
WORDS = 1100
TINY = {"width": 16, "inner": 24, "words": WORDS, "layers": 2, "first_layers": 2}
V1 = {"width": 768, "inner": 3072, "words": 30528, "layers": 12, "first_layers": 12}
V2 = {"width": 768, "inner": 1152, "words": 50368, "layers": 22, "first_layers": 22}
NULL = "second_stage_model.sequence_dropout_null_embedding"


def nomic_shapes(at: str, width: int, inner: int, words: int, layers: int) -> dict[str, tuple[int, ...]]:
    shapes = {
        "embeddings.word_embeddings.weight": (words, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "emb_ln.weight": (width,),
        "emb_ln.bias": (width,),
    }
    for n in range(layers):
        layer = f"encoder.layers.{n}."
        shapes[layer + "attn.Wqkv.weight"] = (3 * width, width)
        shapes[layer + "attn.out_proj.weight"] = (width, width)
        shapes[layer + "mlp.fc11.weight"] = shapes[layer + "mlp.fc12.weight"] = (inner, width)
        shapes[layer + "mlp.fc2.weight"] = (width, inner)
        for norm in ("norm1", "norm2"):
            shapes[layer + norm + ".weight"] = shapes[layer + norm + ".bias"] = (width,)
    return {at + name: shape for name, shape in shapes.items()}


def modernbert_shapes(at: str, width: int, inner: int, words: int, layers: int) -> dict[str, tuple[int, ...]]:
    shapes = {
        "embeddings.tok_embeddings.weight": (words, width),
        "embeddings.norm.weight": (width,),
        "final_norm.weight": (width,),
    }
    for n in range(layers):
        layer = f"layers.{n}."
        if n:
            shapes[layer + "attn_norm.weight"] = (width,)
        shapes[layer + "attn.Wqkv.weight"] = (3 * width, width)
        shapes[layer + "attn.Wo.weight"] = (width, width)
        shapes[layer + "mlp_norm.weight"] = (width,)
        shapes[layer + "mlp.Wi.weight"] = (2 * inner, width)
        shapes[layer + "mlp.Wo.weight"] = (width, inner)
    return {at + name: shape for name, shape in shapes.items()}


def checkpoint_shapes(
    kind: str, *, width: int, inner: int, words: int, layers: int, first_layers: int, null: bool = True
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a checkpoint."""
    of = {"nomic": nomic_shapes, "modernbert": modernbert_shapes}[kind]
    shapes = of("first_stage_model.embedder.", width, inner, words, first_layers)
    shapes |= of("second_stage_model.backbone.", width, inner, words, layers)
    for head, sizes in (
        ("first_stage_model.mlp", (width, width)),
        ("second_stage_model.prompt_projection", (width, 8 * width)),
        ("second_stage_model.output_projection", (width, width)),
    ):
        for place, size in zip((0, 2), sizes, strict=True):
            shapes[f"{head}.{place}.weight"], shapes[f"{head}.{place}.bias"] = (size, width), (size,)
    return shapes | ({NULL: (width,)} if null else {})


def random_weights(kind: str, seed: int = 0, **changes: int | bool) -> dict[str, torch.Tensor]:
    """Draw weights in which every mistake shows: no bias is zero, and no token type is tiny."""
    generator = torch.Generator().manual_seed(seed)
    shapes = checkpoint_shapes(kind, **(TINY | changes))
    weights = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}
    return {name: value + 1 if "norm" in name and "weight" in name else value for name, value in weights.items()}


SIZES = {"hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "vocab_size": WORDS}
ROTATION = {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}
BASES = {
    "nomic": SIZES | {"backbone": "nomic", "num_layers": 2, "settings": ROTATION},
    "modernbert": SIZES | {"backbone": "modernbert", "num_layers": 4, "settings": {"local_attention": 8}},
}
EMBEDDERS = {"nomic": "nomic-ai/nomic-bert-2048", "modernbert": "answerdotai/ModernBERT-base"}


def write_checkpoint(
    folder: Path,
    kind: str = "nomic",
    weights: dict[str, torch.Tensor] | None = None,
    base: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, np.ndarray]:
    """Write a tiny checkpoint and return its weights as float64 arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    base = BASES[kind] | (base or {})
    layers = base["num_layers"]
    weights = weights or random_weights(kind, layers=layers, first_layers=layers)
    config = {"embedder": EMBEDDERS[kind], "base_model": base, "transductive_corpus_size": 5}
    (folder / "config.json").write_text(json.dumps(config | fields))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return {name: value.numpy().astype(np.float64) for name, value in weights.items()}


def write_usable_checkpoint(folder: Path) -> None:
    """Write a tiny NomicBERT checkpoint with as many words as the tokenizer has, so that it encodes any text."""
    write_checkpoint(folder, weights=random_weights("nomic", words=30528), base={"vocab_size": 30528})
