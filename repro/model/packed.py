"""Texts without padding: what works on a token alone sees the tokens of all texts in one row, attention no padding.

1. Texts are ordered by length; those of one length are a group. 2. The word vectors of each text, behind the prefix if
there is one, are laid end to end. 3. Norms, projections and feed-forward layers work on all these rows at once.
4. Attention works on one group at a time, in which nothing is padding, so it needs no mask. 5. In the last layer only
the tokens of texts ask and are carried on: of contexts and soft prompts nothing more is read. 6. States are put back
where their tokens stood.

BERT and NomicBERT: transformers' own modules and weights, and what their classes give but for rounding.

Shapes: N texts, S tokens, P prefix vectors, L = P + S positions, T rows (all tokens, or all with their prefixes),
D hidden size, G texts of a group, H heads, E size of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from repro.model.linear import linear
from repro.model.texts import Texts
from repro.model.word_vectors import word_vectors

KINDS = ("bert", "nomic")


@dataclass(frozen=True)
class Packing:
    """Which rows are whose: texts in the order of their lengths, `groups` of (number of texts, tokens of each)."""

    order_N: Tensor
    groups: Sequence[tuple[int, int]]
    places_T: Tensor  # where each token stands in a flattened (N, S)
    num_prefix: int

    @classmethod
    def of(cls, texts: Texts, num_prefix: int) -> Packing:
        """Order the texts, each of which has a token at least."""
        lengths_N, order_N = texts.mask_NS.sum(1).sort(stable=True)
        lengths, counts = torch.unique_consecutive(lengths_N, return_counts=True)
        steps_S = torch.arange(texts.mask_NS.shape[1], device=order_N.device)
        places_NS = order_N[:, None] * len(steps_S) + steps_S
        groups = tuple(zip(counts.tolist(), lengths.tolist(), strict=True))
        return cls(order_N, groups, places_NS[steps_S < lengths_N[:, None]], num_prefix)

    def rows(self, *, behind: bool) -> list[int]:
        """Return the rows of each group: of its tokens, or of these behind the prefix."""
        before = self.num_prefix if behind else 0
        return [count * (before + length) for count, length in self.groups]

    def behind(self, prefix_NPD: Tensor, words_TD: Tensor) -> Tensor:
        """Put the prefix before each text; `prefix_NPD` is of all texts (1, P, D) or of each (N, P, D)."""
        parts, first = [], 0
        each_NPD = prefix_NPD if len(prefix_NPD) == 1 else prefix_NPD[self.order_N]
        for (count, length), words in zip(self.groups, words_TD.split(self.rows(behind=False)), strict=True):
            own_GPD = each_NPD[first : first + count] if len(each_NPD) > 1 else each_NPD
            first += count
            both = [own_GPD.expand(count, -1, -1), words.unflatten(0, (count, length))]
            parts.append(torch.cat(both, dim=1).flatten(0, 1))
        return torch.cat(parts)

    def of_texts(self, rows_TD: Tensor) -> Tensor:
        """Return the rows of the texts' own tokens."""
        parts = zip(self.groups, rows_TD.split(self.rows(behind=True)), strict=True)
        return torch.cat([part.unflatten(0, (one[0], -1))[:, self.num_prefix :].flatten(0, 1) for one, part in parts])

    def positions(self, positions_L: Tensor) -> Tensor:
        """Return the position of each row behind the prefix, (T,)."""
        return torch.cat([positions_L[: self.num_prefix + length].repeat(count) for count, length in self.groups])

    def attend(self, queries_TD: Tensor, keys_TD: Tensor, values_TD: Tensor, num_heads: int) -> Tensor:
        """Return what rows see of the rows of their own text; queries may be those of texts only."""
        behind, seen = self.rows(behind=True), []
        asking = behind if len(queries_TD) == len(keys_TD) else self.rows(behind=False)
        split = (queries_TD.split(asking), keys_TD.split(behind), values_TD.split(behind))
        for (count, _), *parts in zip(self.groups, *split, strict=True):
            query, key, value = (part.view(count, -1, num_heads, part.shape[1] // num_heads) for part in parts)
            found_GHLE = nn.functional.scaled_dot_product_attention(
                query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
            )
            seen.append(found_GHLE.transpose(1, 2).flatten(2).flatten(0, 1))
        return torch.cat(seen)


def can_pack(model: Any, kind: str, texts: Texts) -> bool:
    """Return whether a backbone's forward is the one spelled out here, on a device where many small calls are cheap."""
    config = model.config
    is_plain = kind in KINDS and config._attn_implementation == "sdpa" and not config.output_attentions
    dropout = (config.hidden_dropout_prob, config.attention_probs_dropout_prob) if is_plain else ()
    return is_plain and not any(dropout) and texts.ids_NS.device.type == "cpu" and bool(texts.mask_NS[:, :1].all())


def packed_states(model: Any, kind: str, texts: Texts, positions_L: Tensor, prefix_NPD: Tensor | None = None) -> Tensor:
    """Return the states of the texts' tokens in the last layer, (N, S, D), zeros on padding.

    `prefix_NPD` stands before every text, as it enters the class; it may be one for all, (1, P, D).
    """
    packing = Packing.of(texts, 0 if prefix_NPD is None else prefix_NPD.shape[1])
    ids_T = texts.ids_NS.flatten()[packing.places_T]
    rows_TD = word_vectors(ids_T, model.get_input_embeddings().weight)
    if prefix_NPD is not None:
        rows_TD = packing.behind(prefix_NPD, rows_TD)
    positions_1T = packing.positions(positions_L)[None]
    types_11 = ids_T.new_zeros(1, 1)  # one row, broadcast: the class would look row 0 up for every token
    embedded = model.embeddings(inputs_embeds=rows_TD[None], token_type_ids=types_11, position_ids=positions_1T)
    states_TD = (_bert if kind == "bert" else _nomic)(model, packing, embedded[0], positions_1T)
    flat_FD = states_TD.new_zeros(texts.ids_NS.numel(), states_TD.shape[1])
    return flat_FD.index_copy(0, packing.places_T, states_TD).unflatten(0, texts.ids_NS.shape)


def _asking(packing: Packing, rows_TD: Tensor, *, is_last: bool) -> Tensor:
    return packing.of_texts(rows_TD) if is_last and packing.num_prefix else rows_TD


def _bert(model: Any, packing: Packing, states_TD: Tensor, positions_1T: Tensor) -> Tensor:
    """All layers of a BERT: attention, sum, norm, feed-forward, sum, norm."""
    num_heads, layers = model.config.num_attention_heads, model.encoder.layer
    for number, layer in enumerate(layers, 1):
        own, output = layer.attention.self, layer.attention.output
        asking_TD = _asking(packing, states_TD, is_last=number == len(layers))
        keys_TD, values_TD = linear(states_TD, own.key), linear(states_TD, own.value)
        seen_TD = packing.attend(linear(asking_TD, own.query), keys_TD, values_TD, num_heads)
        asking_TD = output.LayerNorm(linear(seen_TD, output.dense) + asking_TD)
        inner_TF = layer.intermediate.intermediate_act_fn(linear(asking_TD, layer.intermediate.dense))
        states_TD = layer.output.LayerNorm(linear(inner_TF, layer.output.dense) + asking_TD)
    return states_TD


def _nomic(model: Any, packing: Packing, states_TD: Tensor, positions_1T: Tensor) -> Tensor:
    """All layers of a NomicBERT: attention over turned queries and keys, sum, norm, gated feed-forward, sum, norm."""
    num_heads, layers = model.config.num_attention_heads, model.layers
    cos_1TE, sin_1TE = model.rotary_emb(states_TD, positions_1T)
    angles_T2E = torch.stack([cos_1TE[0], sin_1TE[0]], dim=1)
    for number, layer in enumerate(layers, 1):
        own, is_last = layer.self_attn, number == len(layers)
        asking_TD = _asking(packing, states_TD, is_last=is_last)
        queries_TD = _turn(linear(asking_TD, own.q_proj), _asking(packing, angles_T2E, is_last=is_last), num_heads)
        keys_TD = _turn(linear(states_TD, own.k_proj), angles_T2E, num_heads)
        values_TD = linear(states_TD, own.v_proj)
        seen_TD = packing.attend(queries_TD, keys_TD, values_TD, num_heads)
        asking_TD = layer.post_attention_layernorm(linear(seen_TD, own.o_proj) + asking_TD)
        gate_TF, up_TF = linear(asking_TD, layer.mlp.gate_proj), linear(asking_TD, layer.mlp.up_proj)
        inner_TD = linear(layer.mlp.act_fn(gate_TF) * up_TF, layer.mlp.down_proj)
        states_TD = layer.post_mlp_layernorm(inner_TD + asking_TD)
    return states_TD


def _turn(rows_TD: Tensor, angles_T2E: Tensor, num_heads: int) -> Tensor:
    """Rotate the two halves of each head by the angles of its position (cosines, then sines)"""
    rows_THE = rows_TD.unflatten(1, (num_heads, -1))
    first, second = rows_THE.chunk(2, dim=2)
    swapped_THE = torch.cat([-second, first], dim=2)
    cos_T1E, sin_T1E = angles_T2E.split(1, dim=1)
    return (rows_THE * cos_T1E + swapped_THE * sin_T1E).flatten(1)
