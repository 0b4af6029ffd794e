"""The second stage of one unpadded text with explicit matrices, for BERT. tests/interop/rederived.py has NomicBERT."""

from __future__ import annotations

import torch
from torch.nn.functional import gelu, layer_norm

from repro.model.contextual import ContextualModel


class Weights:
    """Weights of the second stage by name."""

    def __init__(self, model: ContextualModel) -> None:
        self.num_heads = model.config.num_heads
        self.values = {name.removeprefix("second_stage_model."): value for name, value in model.state_dict().items()}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.values[name]

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ self[f"{name}.weight"].T + self.values.get(f"{name}.bias", 0)

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, x.shape[1:], self[f"{name}.weight"], self[f"{name}.bias"], 1e-12)


def compute_second_stage(model: ContextualModel, ids: torch.Tensor, contexts: torch.Tensor) -> torch.Tensor:
    """Return the vector of one text. Only weights are read from the model, by name."""
    weights, config = Weights(model), model.config
    num_contexts, width = contexts.shape
    prompts = weights.linear("prompt_projection.2", weights.linear("prompt_projection.0", torch.ones(width)).relu())
    prompts = prompts.view(config.num_soft_prompts, width)
    base = "backbone.model.embeddings."
    text = weights[base + "word_embeddings.weight"][ids] + weights[base + "token_type_embeddings.weight"][0]
    positions = weights[base + "position_embeddings.weight"][num_contexts:]
    prompts = prompts + positions[: len(prompts)]
    text = text + positions[len(prompts) : len(prompts) + len(ids)]
    x = weights.norm(base + "LayerNorm", torch.cat([contexts, prompts, text]))
    for layer in range(config.num_layers):
        x = apply_bert_layer(weights, layer, x)
    pooled = x[num_contexts + len(prompts) :].mean(0)
    output = weights.linear("output_projection.2", weights.linear("output_projection.0", pooled).relu())
    return output + pooled if config.residual else output


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Compute softmax attention head by head."""
    size = queries.shape[1] // num_heads
    parts = []
    for head in range(num_heads):
        columns = slice(head * size, (head + 1) * size)
        scores = queries[:, columns] @ keys[:, columns].T / size**0.5
        parts.append(scores.softmax(1) @ values[:, columns])
    return torch.cat(parts, 1)


def apply_bert_layer(weights: Weights, layer: int, x: torch.Tensor) -> torch.Tensor:
    """Apply post-norm attention and a feed-forward."""
    prefix = f"backbone.model.encoder.layer.{layer}."
    projected = [weights.linear(f"{prefix}attention.self.{name}", x) for name in ("query", "key", "value")]
    attended = weights.linear(prefix + "attention.output.dense", attend(*projected, weights.num_heads))
    x = weights.norm(prefix + "attention.output.LayerNorm", x + attended)
    inner = gelu(weights.linear(prefix + "intermediate.dense", x))
    return weights.norm(prefix + "output.LayerNorm", x + weights.linear(prefix + "output.dense", inner))
