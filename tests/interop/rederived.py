"""The authors' forward passes for one text without padding, in float64 with explicit matrices.

Weights have the authors' names. Written from the specification (reference document, §0 to §1.9) without any code of
the project.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import erf

HEADS = 2
NUM_PROMPTS = 8


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + erf(x / np.sqrt(2))) / 2


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | float = 0.0, eps: float = 1e-12) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def rotation(size: int, place: int, base: float) -> np.ndarray:
    """Return the matrix that rotates the pair (i, i + size/2) by the angle place / base^(2i / size)."""
    matrix = np.zeros((size, size))
    for i in range(size // 2):
        angle, j = place / base ** (2 * i / size), i + size // 2
        matrix[i, i] = matrix[j, j] = np.cos(angle)
        matrix[i, j], matrix[j, i] = -np.sin(angle), np.sin(angle)
    return matrix


def attention(
    x: np.ndarray, wqkv: np.ndarray, turn: Callable[[int, int], np.ndarray], visible: np.ndarray
) -> np.ndarray:
    """Multi-head attention. `turn(head, place)` rotates queries and keys, `visible[i, j]` allows i to attend to j."""
    width = x.shape[1]
    size = width // HEADS
    queries, keys, values = x @ wqkv[:width].T, x @ wqkv[width : 2 * width].T, x @ wqkv[2 * width :].T
    out = np.zeros_like(x)
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        q = np.stack([turn(head, place) @ row for place, row in enumerate(queries[:, part])])
        k = np.stack([turn(head, place) @ row for place, row in enumerate(keys[:, part])])
        scores = np.where(visible, q @ k.T / np.sqrt(size), -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[:, part] = weights / weights.sum(1, keepdims=True) @ values[:, part]
    return out


def nomic_layers(
    x: np.ndarray, w: dict[str, np.ndarray], at: str, turn: Callable[[int, int], np.ndarray]
) -> np.ndarray:
    """Apply all layers. `x` is the sum of embeddings before normalisation."""
    x = norm(x, w[at + "emb_ln.weight"], w[at + "emb_ln.bias"])
    everything, n = np.ones((len(x), len(x)), bool), 0
    while f"{at}encoder.layers.{n}.attn.Wqkv.weight" in w:
        p = f"{at}encoder.layers.{n}."
        seen = attention(x, w[p + "attn.Wqkv.weight"], turn, everything) @ w[p + "attn.out_proj.weight"].T
        x = norm(x + seen, w[p + "norm1.weight"], w[p + "norm1.bias"])
        inner = silu(x @ w[p + "mlp.fc12.weight"].T) * (x @ w[p + "mlp.fc11.weight"].T)
        x = norm(x + inner @ w[p + "mlp.fc2.weight"].T, w[p + "norm2.weight"], w[p + "norm2.bias"])
        n += 1
    return x


def modernbert_layers(x: np.ndarray, w: dict[str, np.ndarray], at: str, window: int) -> np.ndarray:
    """Apply all layers. `x` is the embeddings before the normalisation of the backbone."""
    size, n = x.shape[1] // HEADS, 0
    x = norm(x, w[at + "embeddings.norm.weight"], eps=1e-5)
    distance = np.abs(np.arange(len(x))[:, None] - np.arange(len(x))[None])
    while f"{at}layers.{n}.attn.Wqkv.weight" in w:
        p, is_global = f"{at}layers.{n}.", n % 3 == 0
        visible = distance <= (len(x) if is_global else window // 2)
        base = 160_000.0 if is_global else 10_000.0
        before = norm(x, w[p + "attn_norm.weight"], eps=1e-5) if n else x
        seen = attention(before, w[p + "attn.Wqkv.weight"], lambda _, place, b=base: rotation(size, place, b), visible)
        x = x + seen @ w[p + "attn.Wo.weight"].T
        value, gate = np.split(norm(x, w[p + "mlp_norm.weight"], eps=1e-5) @ w[p + "mlp.Wi.weight"].T, 2, axis=1)
        x = x + (gelu(value) * gate) @ w[p + "mlp.Wo.weight"].T
        n += 1
    return norm(x, w[at + "final_norm.weight"], eps=1e-5)


def head(
    x: np.ndarray, w: dict[str, np.ndarray], at: str, activation: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    hidden = activation(x @ w[f"{at}.0.weight"].T + w[f"{at}.0.bias"])
    return hidden @ w[f"{at}.2.weight"].T + w[f"{at}.2.bias"]


def first_stage(w: dict[str, np.ndarray], ids: np.ndarray, kind: str, *, window: int = 8) -> np.ndarray:
    """Return the vector of one context document."""
    at = "first_stage_model.embedder."
    if kind == "nomic":
        size = w[at + "emb_ln.weight"].shape[0] // HEADS
        words = w[at + "embeddings.word_embeddings.weight"][ids] + w[at + "embeddings.token_type_embeddings.weight"][0]
        states = nomic_layers(words, w, at, lambda head, place: rotation(size, place, 1000.0))
    else:
        states = modernbert_layers(w[at + "embeddings.tok_embeddings.weight"][ids], w, at, window)
    return head(states.mean(0), w, "first_stage_model.mlp", gelu)


def second_stage(
    w: dict[str, np.ndarray],
    ids: np.ndarray,
    contexts: np.ndarray,
    kind: str,
    *,
    window: int = 8,
    instruction_end: int | None = None,
    pools_prefix: bool = False,
) -> np.ndarray:
    """Return the vector of one text. `contexts` is (C, width)."""
    width, num_contexts = contexts.shape[1], len(contexts)
    prompts = head(np.ones(width), w, "second_stage_model.prompt_projection", relu).reshape(NUM_PROMPTS, width)
    prefix, at = np.concatenate([contexts, prompts]), "second_stage_model.backbone."
    if kind == "modernbert":
        words = w[at + "embeddings.tok_embeddings.weight"][ids]
        # The backbone normalises words a second time, together with the prefix.
        words = norm(words, w[at + "embeddings.norm.weight"], eps=1e-5)
        states = modernbert_layers(np.concatenate([prefix, words]), w, at, window)
    else:
        types = w[at + "embeddings.token_type_embeddings.weight"][0]
        words, size = w[at + "embeddings.word_embeddings.weight"][ids] + types, width // HEADS

        def turn(number: int, place: int) -> np.ndarray:
            if place < num_contexts:
                return np.eye(size)
            return rotation(size, place, 1000.0)

        states = nomic_layers(np.concatenate([prefix, words]), w, at, turn)
    return project(w, states, ids, kind, instruction_end, pools_prefix)


def project(
    w: dict[str, np.ndarray],
    states: np.ndarray,
    ids: np.ndarray,
    kind: str,
    instruction_end: int | None,
    pools_prefix: bool,
) -> np.ndarray:
    """Apply pooling, the output projection and the residual."""
    num_prefix = len(states) - len(ids)
    is_pooled = np.full(len(states), True)
    is_pooled[:num_prefix] = pools_prefix
    ends = [place for place, word in enumerate(ids) if word == instruction_end and place > 0]
    if ends:
        is_pooled[num_prefix : num_prefix + ends[0] + 1] = False
    pooled = states[is_pooled].mean(0) if is_pooled.any() else np.zeros(states.shape[1])
    output = head(pooled, w, "second_stage_model.output_projection", relu)
    return output + pooled if kind == "modernbert" else output
