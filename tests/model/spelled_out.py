"""The second stage of one unpadded text with explicit matrices, for NomicBERT and BERT."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import gelu, layer_norm, silu

from repro.model.contextual import ContextualModel


def compute_second_stage(model: ContextualModel, ids: torch.Tensor, contexts: torch.Tensor) -> torch.Tensor:
    """Return the vector of one text. Only weights are read from the model, by name."""
    w = {name.removeprefix("second_stage_model."): value for name, value in model.state_dict().items()}
    settings = model.config
    num_contexts, width = contexts.shape

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    prompts = linear("prompt_projection.2", linear("prompt_projection.0", torch.ones(width)).relu())
    prompts = prompts.view(settings.num_soft_prompts, width)
    base = "backbone.model.embeddings."
    text = w[base + "word_embeddings.weight"][ids] + w[base + "token_type_embeddings.weight"][0]
    length = num_contexts + len(prompts) + len(ids)
    if settings.backbone == "bert":
        positions = w[base + "position_embeddings.weight"][num_contexts:length]
        prompts, text = prompts + positions[: len(prompts)], text + positions[len(prompts) :]
    x = norm(base + "LayerNorm", torch.cat([contexts, prompts, text]))
    for layer in range(settings.num_layers):
        x = LAYERS[settings.backbone](layer, x, num_contexts, settings.num_heads, linear, norm)
    pooled = x[num_contexts + len(prompts) :].mean(0)
    output = linear("output_projection.2", linear("output_projection.0", pooled).relu())
    return output + pooled if settings.residual else output


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Compute softmax attention head by head."""
    size = queries.shape[1] // num_heads
    parts = []
    for head in range(num_heads):
        columns = slice(head * size, (head + 1) * size)
        scores = queries[:, columns] @ keys[:, columns].T / size**0.5
        parts.append(scores.softmax(1) @ values[:, columns])
    return torch.cat(parts, 1)


def rotate(x: torch.Tensor, num_unrotated: int, num_heads: int) -> torch.Tensor:
    """Rotate the pair (i, i + size / 2) of each head at position p by p / 1000^(2i / size), except the first rows."""
    size = x.shape[1] // num_heads
    out = x.clone()
    for position in range(num_unrotated, len(x)):
        for head in range(num_heads):
            for i in range(size // 2):
                a, b = head * size + i, head * size + i + size // 2
                angle = torch.tensor(position / 1000 ** (2 * i / size))
                out[position, a] = x[position, a] * angle.cos() - x[position, b] * angle.sin()
                out[position, b] = x[position, b] * angle.cos() + x[position, a] * angle.sin()
    return out


def apply_nomic_layer(
    layer: int,
    x: torch.Tensor,
    num_contexts: int,
    num_heads: int,
    linear: Callable[[str, torch.Tensor], torch.Tensor],
    norm: Callable[[str, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Apply post-norm attention and a gated feed-forward."""
    prefix = f"backbone.model.layers.{layer}."
    queries = rotate(linear(prefix + "self_attn.q_proj", x), num_contexts, num_heads)
    keys = rotate(linear(prefix + "self_attn.k_proj", x), num_contexts, num_heads)
    attended = attend(queries, keys, linear(prefix + "self_attn.v_proj", x), num_heads)
    x = norm(prefix + "post_attention_layernorm", x + linear(prefix + "self_attn.o_proj", attended))
    inner = silu(linear(prefix + "mlp.gate_proj", x)) * linear(prefix + "mlp.up_proj", x)
    return norm(prefix + "post_mlp_layernorm", x + linear(prefix + "mlp.down_proj", inner))


def apply_bert_layer(
    layer: int,
    x: torch.Tensor,
    num_contexts: int,
    num_heads: int,
    linear: Callable[[str, torch.Tensor], torch.Tensor],
    norm: Callable[[str, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Apply post-norm attention and a feed-forward."""
    prefix = f"backbone.model.encoder.layer.{layer}."
    names = (prefix + f"attention.self.{name}" for name in ("query", "key", "value"))
    attended = attend(*(linear(name, x) for name in names), num_heads)
    x = norm(prefix + "attention.output.LayerNorm", x + linear(prefix + "attention.output.dense", attended))
    inner = gelu(linear(prefix + "intermediate.dense", x))
    return norm(prefix + "output.LayerNorm", x + linear(prefix + "output.dense", inner))


LAYERS = {"nomic": apply_nomic_layer, "bert": apply_bert_layer}
