"""Run a backbone without padding: process all tokens as rows of one matrix, and attention by groups of equal length.

1. Texts are sorted by length. Texts of equal length form a group.
2. The word vectors of all texts, each after the prefix if there is one, are concatenated.
3. Norms, projections and feed-forward layers process all rows together.
4. Attention processes one group at a time. A group has no padding, so attention needs no mask.
5. The last layer computes queries only for text tokens, because the states of contexts and soft prompts are not used.
6. The states are scattered back to the positions of their tokens.

BERT and NomicBERT use transformers' own modules and weights. The results equal those of transformers up to rounding.

With AVX-512, linear layers use oneDNN instead of MKL. On processors other than Intel's this is twice as fast, else as
fast. With AVX2, MKL's steps are 1.2 times as fast, because it needs no copies of transposed matrices. Forward and both
products of backward use the same kernel. It supports float32 on a CPU. Everything else (other types, GPUs, autocast, torch
without oneDNN) uses `torch.nn.functional.linear`. The results are equal up to rounding. oneDNN compiles and caches a
kernel for every number of rows, megabytes each. Packed texts have another number at every step, so rows are filled with
zeros to a multiple of `STEP`. Fewer rows than `STEP` are left to torch. Callers with several layers fill once (`fill_rows`),
because each layer would otherwise store its own copy until backward.

Word vectors are looked up once per piece of the texts of a step. By default, autograd either builds a dense gradient of the
whole vocabulary for each piece, or concatenates sparse gradients. Concatenation copies all earlier rows for each piece, so
its cost grows quadratically. On a GPU it also stores every row of every text until the step ends. Here the weight has
one dense gradient from the first piece on, and each piece adds its rows to it.

The gradient is in `weight.grad` after `backward`, as usual. `torch.autograd.grad` reports the weight as unused. Weights
that are not leaves use torch's embedding.

Shapes: N texts, S tokens, P prefix vectors, L = P + S positions, T rows (all tokens, or all with their prefixes), R
rows with zero fill, D hidden size, G texts of a group, H heads, E head size, F feed-forward width, I inputs and O
outputs of a linear layer, V words.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from repro.model.texts import Texts

# torch 2.11 warns about sparse tensors without checks even where they are left out on purpose
warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")

KINDS = ("bert", "nomic")
STEP = 256
"""Rows are filled to a multiple of this number."""


@dataclass(frozen=True)
class Packing:
    """Assignment of rows to texts, sorted by length. `groups` contains (number of texts, tokens per text)."""

    order_N: Tensor
    groups: Sequence[tuple[int, int]]
    token_indices_T: Tensor  # index of each token in a flattened (N, S)
    num_prefix: int
    first_counts: int = 1  # number of equal vectors that the first prefix vector represents

    @classmethod
    def build(cls, texts: Texts, num_prefix: int, first_counts: int = 1) -> Packing:
        """Sort the texts by length. Each text has at least one token."""
        # a stable sort, so that texts of equal length keep their order
        lengths_N, order_N = texts.mask_NS.sum(1).sort(stable=True)
        lengths, counts = torch.unique_consecutive(lengths_N, return_counts=True)
        groups = tuple(zip(counts.tolist(), lengths.tolist(), strict=True))
        positions_S = torch.arange(texts.mask_NS.shape[1], device=order_N.device)
        indices_NS = order_N[:, None] * len(positions_S) + positions_S
        # Texts are right-padded, so this mask selects the real tokens, text by text in the sorted order.
        is_token_NS = positions_S < lengths_N[:, None]
        return cls(order_N, groups, indices_NS[is_token_NS], num_prefix, first_counts)

    def rows(self, *, with_prefix: bool) -> list[int]:
        """Return the number of rows per group, without the prefix or with it (`with_prefix`)."""
        num_prefix = self.num_prefix if with_prefix else 0
        return [count * (num_prefix + length) for count, length in self.groups]

    def prepend_prefix(self, prefix_NPD: Tensor, words_TD: Tensor) -> Tensor:
        """Insert the prefix before each text. `prefix_NPD` is shared (1, P, D) or one per text (N, P, D)."""
        is_shared = len(prefix_NPD) == 1
        prefixes_NPD = prefix_NPD if is_shared else prefix_NPD[self.order_N]
        parts = []
        start = 0
        for (count, length), words in zip(self.groups, words_TD.split(self.rows(with_prefix=False)), strict=True):
            prefix_GPD = prefixes_NPD if is_shared else prefixes_NPD[start : start + count]
            start += count
            group_GLD = torch.cat([prefix_GPD.expand(count, -1, -1), words.unflatten(0, (count, length))], dim=1)
            parts.append(group_GLD.flatten(0, 1))
        return torch.cat(parts)

    def select_text_rows(self, rows_TD: Tensor) -> Tensor:
        """Return the rows of the text tokens, given rows that may include zero fill."""
        parts = []
        for (count, _), part in zip(self.groups, self._split(rows_TD, self.rows(with_prefix=True)), strict=True):
            parts.append(part.unflatten(0, (count, -1))[:, self.num_prefix :].flatten(0, 1))
        return torch.cat(parts)

    def _split(self, rows_RD: Tensor, sizes: list[int]) -> Sequence[Tensor]:
        """Return the rows of each group, without zero fill."""
        return rows_RD[: sum(sizes)].split(sizes)

    def positions(self, positions_L: Tensor) -> Tensor:
        """Return the position of each row, prefixes included, (T,)."""
        return torch.cat([positions_L[: self.num_prefix + length].repeat(count) for count, length in self.groups])

    def attend(
        self, queries_RD: Tensor, keys_RD: Tensor, values_RD: Tensor, num_heads: int, *, only_texts: bool
    ) -> Tensor:
        """Return the attention output of each row within its text, with zero fill.

        With `only_texts`, prefix rows have keys and values but no queries.
        """
        # In the last layer, there are fewer queries than keys: one per text token.
        query_sizes = self.rows(with_prefix=not only_texts)
        key_sizes = self.rows(with_prefix=True)
        group_projections = zip(
            self._split(queries_RD, query_sizes),
            self._split(keys_RD, key_sizes),
            self._split(values_RD, key_sizes),
            strict=True,
        )
        outputs = []
        for (count, length), projections in zip(self.groups, group_projections, strict=True):
            query_GHLE, key_GHLE, value_GHLE = (
                rows.view(count, -1, num_heads, rows.shape[1] // num_heads).transpose(1, 2) for rows in projections
            )
            output_GHLE = nn.functional.scaled_dot_product_attention(
                query_GHLE, key_GHLE, value_GHLE, self._bias(length, query_GHLE)
            )
            outputs.append(output_GHLE.transpose(1, 2).flatten(2).flatten(0, 1))
        # Attention skipped the zero rows at the end. Later layers expect them again.
        if num_missing := len(queries_RD) - sum(query_sizes):
            outputs.append(queries_RD.new_zeros(num_missing, queries_RD.shape[1]))
        return torch.cat(outputs)

    def _bias(self, length: int, query: Tensor) -> Tensor | None:
        """Return the bias of attention scores, (1, 1, 1, L). Adding log n to a key is equivalent to n equal keys."""
        if self.first_counts == 1:
            return None
        bias_L = query.new_zeros(self.num_prefix + length)
        bias_L[0] = math.log(self.first_counts)
        return bias_L[None, None, None]


def can_pack(model: Any, kind: str, texts: Texts) -> bool:
    """Return whether this module can replace the backbone's forward.

    This requires a supported class, no dropout, no empty text and a CPU, where many small kernel calls are cheap.
    """
    config = model.config
    if kind not in KINDS or config._attn_implementation != "sdpa" or config.output_attentions:
        return False
    if config.hidden_dropout_prob or config.attention_probs_dropout_prob:
        return False
    return texts.ids_NS.device.type == "cpu" and bool(texts.mask_NS[:, :1].all())


def compute_packed_states(
    model: Any,
    kind: str,
    texts: Texts,
    positions_L: Tensor,
    prefix_NPD: Tensor | None = None,
    first_counts: int = 1,
) -> Tensor:
    """Return the last layer's states of the text tokens, (N, S, D). Padding is zero.

    Args:
        model: Module of transformers.
        kind: One of `KINDS`.
        texts: Token ids and mask.
        positions_L: Positions of the prefix and the longest text.
        prefix_NPD: Vectors before every text, as the class receives them. One prefix may serve all texts, (1, P, D).
        first_counts: Number of equal vectors that the first prefix vector represents.
    """
    packing = Packing.build(texts, 0 if prefix_NPD is None else prefix_NPD.shape[1], first_counts)
    rows_TD = look_up_words(texts.ids_NS.flatten()[packing.token_indices_T], model.get_input_embeddings().weight)
    if prefix_NPD is not None:
        rows_TD = packing.prepend_prefix(prefix_NPD, rows_TD)
    states_RD, angles_R2E = _embed_tokens(model, kind, rows_TD, packing.positions(positions_L))
    states_RD = _run_layers(model, kind, packing, states_RD, angles_R2E)
    # Back to (N, S): each row goes to the position of its token, and padding stays zero.
    indices_T = packing.token_indices_T
    flat_FD = states_RD.new_zeros(texts.ids_NS.numel(), states_RD.shape[1])
    return flat_FD.index_copy(0, indices_T, states_RD[: len(indices_T)]).unflatten(0, texts.ids_NS.shape)


def _embed_tokens(model: Any, kind: str, rows_TD: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the input of the first layer, and cosines and sines of its positions, (R, 2, E), both with zero fill.

    BERT has no angles.
    """
    # one broadcast row instead of a lookup per token
    types_11 = positions_T.new_zeros(1, 1)
    embedded = model.embeddings(inputs_embeds=rows_TD[None], token_type_ids=types_11, position_ids=positions_T[None])
    states_RD = fill_rows(embedded[0])
    if kind == "bert":
        return states_RD, None
    cos_1TE, sin_1TE = model.rotary_emb(states_RD, positions_T[None])
    return states_RD, _fill_like(torch.stack([cos_1TE[0], sin_1TE[0]], dim=1), states_RD)


def _project(
    kind: str,
    model: Any,
    layer: Any,
    queried_RD: Tensor,
    states_RD: Tensor,
    queried_R2E: Tensor | None,
    angles_R2E: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the queries of `queried_RD`, and the keys and values of all rows."""
    if kind == "bert":
        attention = layer.attention.self
        return linear(queried_RD, attention.query), linear(states_RD, attention.key), linear(states_RD, attention.value)
    attention = layer.self_attn
    num_heads = model.config.num_attention_heads
    assert queried_R2E is not None and angles_R2E is not None, "NomicBERT needs rotary angles"
    queries_RD = _rotate(linear(queried_RD, attention.q_proj), queried_R2E, num_heads)
    keys_RD = _rotate(linear(states_RD, attention.k_proj), angles_R2E, num_heads)
    return queries_RD, keys_RD, linear(states_RD, attention.v_proj)


def _run_layers(model: Any, kind: str, packing: Packing, states_RD: Tensor, angles_R2E: Tensor | None) -> Tensor:
    """Run all layers: attention, sum, norm, feed-forward, sum, norm."""
    layers, finish_layer = (model.encoder.layer, _finish_bert) if kind == "bert" else (model.layers, _finish_nomic)
    for index, layer in enumerate(layers):
        # Only text states are pooled, so the last layer needs no queries for the prefix.
        only_texts = index == len(layers) - 1 and packing.num_prefix > 0
        queried_RD, queried_R2E = states_RD, angles_R2E
        if only_texts:
            queried_RD = fill_rows(packing.select_text_rows(states_RD))
            queried_R2E = None if angles_R2E is None else _fill_like(packing.select_text_rows(angles_R2E), queried_RD)
        projections = _project(kind, model, layer, queried_RD, states_RD, queried_R2E, angles_R2E)
        attended_RD = packing.attend(*projections, model.config.num_attention_heads, only_texts=only_texts)
        states_RD = finish_layer(layer, attended_RD, queried_RD)
    return states_RD


def _fill_like(angles_T2E: Tensor, rows_RD: Tensor) -> Tensor:
    """Append zeros to the angles up to the number of rows."""
    return nn.functional.pad(angles_T2E, (0, 0, 0, 0, 0, len(rows_RD) - len(angles_T2E)))


def _finish_bert(layer: Any, attended_RD: Tensor, residual_RD: Tensor) -> Tensor:
    """Run the rest of a BERT layer after attention."""
    output = layer.attention.output
    middle_RD = output.LayerNorm(linear(attended_RD, output.dense) + residual_RD)
    inner_RF = layer.intermediate.intermediate_act_fn(linear(middle_RD, layer.intermediate.dense))
    states_RD: Tensor = layer.output.LayerNorm(linear(inner_RF, layer.output.dense) + middle_RD)
    return states_RD


def _finish_nomic(layer: Any, attended_RD: Tensor, residual_RD: Tensor) -> Tensor:
    """Run the rest of a NomicBERT layer after attention, with its gated feed-forward."""
    middle_RD = layer.post_attention_layernorm(linear(attended_RD, layer.self_attn.o_proj) + residual_RD)
    gate_RF, up_RF = linear(middle_RD, layer.mlp.gate_proj), linear(middle_RD, layer.mlp.up_proj)
    inner_RD = linear(layer.mlp.act_fn(gate_RF) * up_RF, layer.mlp.down_proj)
    states_RD: Tensor = layer.post_mlp_layernorm(inner_RD + middle_RD)
    return states_RD


def _rotate(rows_TD: Tensor, angles_T2E: Tensor, num_heads: int) -> Tensor:
    """Apply rotary embeddings to each head. The angles are cosines, then sines."""
    # Each head rotates the pairs (i, i + E / 2), as transformers does, not neighbouring components.
    rows_THE = rows_TD.unflatten(1, (num_heads, -1))
    first_half, second_half = rows_THE.chunk(2, dim=2)
    swapped_THE = torch.cat([-second_half, first_half], dim=2)
    cos_T1E, sin_T1E = angles_T2E.split(1, dim=1)
    return (rows_THE * cos_T1E + swapped_THE * sin_T1E).flatten(1)


def linear(rows_TI: Tensor, layer: nn.Linear) -> Tensor:
    """Apply `layer` to rows and return (T, O)."""
    weight_OI = layer.weight
    is_cpu = rows_TI.device.type == "cpu"
    is_single = rows_TI.dtype == weight_OI.dtype == torch.float32
    if not (is_cpu and is_single and has_onednn() and len(rows_TI) >= STEP) or torch.is_autocast_enabled("cpu"):
        return layer(rows_TI)
    result_TO: Tensor = _OneDnnLinear.apply(rows_TI, weight_OI, layer.bias)
    return result_TO


@cache
def has_onednn() -> bool:
    """Return whether the processor has AVX-512 and this torch build the kernel, which is private to torch's compiler."""
    has_kernel = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return has_kernel and "AVX512" in torch.backends.cpu.get_cpu_capability()


def _product(rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Return rows times weights plus bias, computed by the kernel."""
    result_TO: Tensor = torch.ops.mkldnn._linear_pointwise(rows_TI, weight_OI, bias_O, "none", [], "")
    return result_TO


def fill_rows(rows_TI: Tensor) -> Tensor:
    """Append zero rows up to a multiple of `STEP`. Fewer rows than `STEP` are returned unchanged."""
    num_missing = -len(rows_TI) % STEP if len(rows_TI) >= STEP else 0
    return nn.functional.pad(rows_TI, (0, 0, 0, num_missing)) if num_missing else rows_TI


class _OneDnnLinear(torch.autograd.Function):
    """Linear layer whose forward and backward use the kernel. It does not support second derivatives."""

    @staticmethod
    def forward(ctx: Any, rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        """Return rows times weights plus bias, (T, O)."""
        filled_RI = fill_rows(rows_TI)
        ctx.save_for_backward(filled_RI, weight_OI)
        return _product(filled_RI, weight_OI, bias_O)[: len(rows_TI)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of rows, weights and bias."""
        filled_RI, weight_OI = ctx.saved_tensors
        needs_rows, needs_weight, needs_bias = ctx.needs_input_grad
        # The gradient of a sum is one number repeated with stride 0, so it must be copied first.
        gradient_TO = gradients[0].contiguous()
        gradient_RO = fill_rows(gradient_TO)
        return (
            _product(gradient_RO, weight_OI.t())[: len(gradient_TO)] if needs_rows else None,
            _product(gradient_RO.t(), filled_RI.t()) if needs_weight else None,
            gradient_TO.sum(0) if needs_bias else None,
        )


def look_up_words(ids: Tensor, weight_VD: Tensor) -> Tensor:
    """Return the word vectors of `ids`, (*ids.shape, D)."""
    if not weight_VD.is_leaf:
        return nn.functional.embedding(ids, weight_VD)
    vectors: Tensor = _Lookup.apply(ids, weight_VD)
    return vectors


class _Lookup(torch.autograd.Function):
    """Embedding whose backward adds to the weight's gradient. It does not support second derivatives."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight_VD: Tensor) -> Tensor:
        """Return the word vectors."""
        ctx.save_for_backward(ids)
        # Store the weight itself, because saved-tensor hooks may return a copy with another gradient.
        ctx.weight_VD = weight_VD
        return nn.functional.embedding(ids, weight_VD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        """Add the gradient of each token to the row of its word."""
        (ids,) = ctx.saved_tensors
        weight_VD = ctx.weight_VD
        if weight_VD.grad is None:
            weight_VD.grad = torch.zeros_like(weight_VD)
        rows = gradients[0].flatten(0, -2).to(weight_VD.dtype)
        # a sparse operand touches only the rows of these words, and repeated words add up
        weight_VD.grad.add_(torch.sparse_coo_tensor(ids.flatten()[None], rows, weight_VD.shape, check_invariants=False))
        return None, None
