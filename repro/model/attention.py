"""Measure how the second stage's attention is divided among context slots, soft prompts and the text itself.

1. The second stage reads its texts with the `eager` implementation, for which transformers returns attention weights.
2. For each layer, head and text token, the weights are summed over the three parts of the sequence.
3. The sums are averaged over heads and text tokens. The three shares of a text and layer sum to one.

Shapes: N texts, C contexts, P soft prompts, S tokens, L = C + P + S, K layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor

from repro.model.backbone import Backbone
from repro.model.contextual import ContextualModel
from repro.model.modeling_cde import evaluation_mode
from repro.model.texts import Texts

MAX_ATTENTION_WEIGHTS = 2**25
"""Maximum number of attention weights in memory, 128 MiB."""


def compute_attention_shares(model: ContextualModel, texts: Texts) -> Tensor:
    """Return the attention shares of each text's tokens on contexts, soft prompts and text, (K, N, 3).

    Raises ValueError if no context is set.
    """
    second = model.second_stage_model
    contexts_1CD = model.context_vectors()[None, : model.config.num_context_vectors]
    prompts_PD = second.soft_prompts()
    num_contexts = contexts_1CD.shape[1]
    num_prefix = num_contexts + len(prompts_PD)
    length = num_prefix + texts.ids_NS.shape[1]
    size = max(1, MAX_ATTENTION_WEIGHTS // (model.config.num_layers * model.config.num_heads * length**2))
    parts = []
    assert isinstance(second.backbone, Backbone), "it was built with ours"
    with evaluation_mode(second), record_attention(second.backbone) as recorded:
        for rows_n in torch.arange(texts.num_texts).split(size):
            piece = texts.rows(rows_n)
            second.backbone.read_after(contexts_1CD, prompts_PD, *piece, with_prefix=True)
            parts.append(
                torch.stack(
                    [_compute_layer_shares(w_NHLL, piece, num_contexts, num_prefix) for w_NHLL in recorded.pop()]
                )
            )
    return torch.cat(parts, dim=1)


def _compute_layer_shares(weights_NHLL: Tensor, texts: Texts, num_contexts: int, num_prefix: int) -> Tensor:
    """Return the shares of one layer, (N, 3)."""
    weights_NSL = weights_NHLL.float().mean(1)[:, num_prefix:]
    bounds = (0, num_contexts, num_prefix, weights_NSL.shape[2])
    sums = [weights_NSL[:, :, first:last].sum(2) for first, last in pairwise(bounds)]
    mask_NS1 = texts.mask_NS[:, :, None].float()
    return (torch.stack(sums, dim=2) * mask_NS1).sum(1) / mask_NS1.sum(1)


@contextmanager
def record_attention(backbone: Backbone) -> Iterator[list[tuple[Tensor, ...]]]:
    """Yield a list to which each forward pass appends its attention weights, (N, heads, L, L) per layer.

    Afterwards all settings are restored.
    """
    model = backbone.model
    attentions: list[tuple[Tensor, ...]] = []
    settings = (model.config._attn_implementation, model.config.output_attentions)
    hook = model.register_forward_hook(lambda module, inputs, outputs: attentions.append(outputs.attentions))
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    try:
        yield attentions
    finally:
        hook.remove()
        model.config.output_attentions = settings[1]
        model.set_attn_implementation(settings[0])
