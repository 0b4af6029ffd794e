"""Mapping between weight names of the authors' checkpoints and ours: one row per tensor of theirs.

Their NomicBERT has one matrix for queries, keys and values, and ours has three. Nothing else is reshaped. The names come
from the classes in `cde/model.py` of the reference implementation (`jxmorris12/cde`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.encoding import check_fit, get_shapes

NULL_VECTOR = "second_stage_model.sequence_dropout_null_embedding"
HEADS = (
    *(f"first_stage_model.mlp.{layer}" for layer in (0, 2)),
    *(f"second_stage_model.{head}.{layer}" for head in ("prompt_projection", "output_projection") for layer in (0, 2)),
)
# fc12 is the gate of the gated linear unit, fc11 is its other factor
NOMIC_LAYER = {
    "attn.Wqkv.weight": ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
    "attn.out_proj.weight": ("self_attn.o_proj.weight",),
    "mlp.fc11.weight": ("mlp.up_proj.weight",),
    "mlp.fc12.weight": ("mlp.gate_proj.weight",),
    "mlp.fc2.weight": ("mlp.down_proj.weight",),
    "norm1.weight": ("post_attention_layernorm.weight",),
    "norm1.bias": ("post_attention_layernorm.bias",),
    "norm2.weight": ("post_mlp_layernorm.weight",),
    "norm2.bias": ("post_mlp_layernorm.bias",),
}
MODERNBERT_LAYER = (
    *("attn_norm.weight", "attn.Wqkv.weight", "attn.Wo.weight"),
    *("mlp_norm.weight", "mlp.Wi.weight", "mlp.Wo.weight"),
)


class Row(NamedTuple):
    """One of their tensors, and the names of ours that are stacked along its first axis."""

    theirs: str
    ours: tuple[str, ...]


def make_key_table(config: ModelConfig) -> tuple[Row, ...]:
    """Return the rows of a contextual model over NomicBERT or ModernBERT."""
    rows: list[Row] = []
    stages = (
        ("first_stage_model.embedder.", config.num_first_stage_layers),
        ("second_stage_model.backbone.", config.num_layers),
    )
    list_rows = _list_nomic_rows if config.backbone == "nomic" else _list_modernbert_rows
    for prefix, num_layers in stages:
        for row in list_rows(num_layers):
            rows.append(Row(prefix + row.theirs, tuple(prefix + name for name in row.ours)))
    names = [f"{head}.{part}" for head in HEADS for part in ("weight", "bias")]
    if config.sequence_dropout > 0:
        names.append(NULL_VECTOR)
    return tuple(rows + [Row(name, (name,)) for name in names])


def to_ours(weights: Mapping[str, Tensor], config: ModelConfig, source: object) -> dict[str, Tensor]:
    """Convert weights to our names. ValueError lists missing, unknown and wrongly shaped tensors of `source`."""
    table = make_key_table(config)
    # on the device "meta", which allocates nothing
    with torch.device("meta"):
        our_shapes = get_shapes(ContextualModel(config).state_dict())
    shapes = {row.theirs: _stack_shape(our_shapes, row) for row in table}
    check_fit(get_shapes(weights), shapes, f"{source} does not fit its config")
    ours = {}
    for row in table:
        for name, part in zip(row.ours, weights[row.theirs].chunk(len(row.ours)), strict=True):
            ours[name] = part.clone()
    return ours


def _stack_shape(shapes: Mapping[str, tuple[int, ...]], row: Row) -> tuple[int, ...]:
    first, *rest = shapes[row.ours[0]]
    return (first * len(row.ours), *rest)


def _list_nomic_rows(num_layers: int) -> Iterator[Row]:
    for kind in ("word", "token_type"):
        name = f"embeddings.{kind}_embeddings.weight"
        yield Row(name, (f"model.{name}",))
    for part in ("weight", "bias"):
        yield Row(f"emb_ln.{part}", (f"model.embeddings.LayerNorm.{part}",))
    for layer in range(num_layers):
        for theirs, ours in NOMIC_LAYER.items():
            yield Row(f"encoder.layers.{layer}.{theirs}", tuple(f"model.layers.{layer}.{name}" for name in ours))


def _list_modernbert_rows(num_layers: int) -> Iterator[Row]:
    names = ["embeddings.tok_embeddings.weight", "embeddings.norm.weight", "final_norm.weight"]
    for layer in range(num_layers):
        # ModernBERT has no attention norm in its first layer
        names += [f"layers.{layer}.{name}" for name in MODERNBERT_LAYER if layer or name != "attn_norm.weight"]
    return (Row(name, (f"model.{name}",)) for name in names)
