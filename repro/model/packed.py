"""Texts without padding: what works on a token alone sees the tokens of all texts in one row, attention no padding.

1. Texts are ordered by length; those of one length are a group. 2. The word vectors of each text, behind the prefix if
there is one, are laid end to end. 3. Norms, projections and feed-forward layers work on all these rows at once.
4. Attention works on one group at a time, in which nothing is padding, so it needs no mask. 5. In the last layer only
the tokens of texts ask and are carried on: of contexts and soft prompts nothing more is read. 6. States are put back
where their tokens stood.

BERT and NomicBERT: transformers' own modules and weights, and what their classes give but for rounding.

Shapes: N texts, S tokens, P prefix vectors, L = P + S positions, T rows (all tokens, or all with their prefixes), R the
same filled up, D hidden size, G texts of a group, H heads, E size of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from repro.model.linear import fill_rows, linear
from repro.model.texts import Texts
from repro.model.word_vectors import load_word_vectors

KINDS = ("bert", "nomic")


@dataclass(frozen=True)
class Packing:
    """Which rows are whose: texts in the order of their lengths, `groups` of (number of texts, tokens of each)."""

    order_N: Tensor
    groups: Sequence[tuple[int, int]]
    places_T: Tensor  # where each token stands in a flattened (N, S)
    num_prefix: int
    first_counts: int = 1  # as how many equal vectors the first one of the prefix counts

    @classmethod
    def of(cls, texts: Texts, num_prefix: int, first_counts: int = 1) -> Packing:
        """Order the texts, each of which has a token at least."""
        lengths_N, order_N = texts.mask_NS.sum(1).sort(stable=True)
        lengths, counts = torch.unique_consecutive(lengths_N, return_counts=True)
        steps_S = torch.arange(texts.mask_NS.shape[1], device=order_N.device)
        places_NS = order_N[:, None] * len(steps_S) + steps_S
        groups = tuple(zip(counts.tolist(), lengths.tolist(), strict=True))
        return cls(order_N, groups, places_NS[steps_S < lengths_N[:, None]], num_prefix, first_counts)

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
        """Return the rows of the texts' own tokens, of rows that may be filled up."""
        parts = zip(self.groups, self._split(rows_TD, self.rows(behind=True)), strict=True)
        return torch.cat([part.unflatten(0, (one[0], -1))[:, self.num_prefix :].flatten(0, 1) for one, part in parts])

    def _split(self, rows_RD: Tensor, sizes: list[int]) -> Sequence[Tensor]:
        """Return the rows of each group, without those that fill up."""
        return rows_RD[: sum(sizes)].split(sizes)

    def positions(self, positions_L: Tensor) -> Tensor:
        """Return the position of each row behind the prefix, (T,)."""
        return torch.cat([positions_L[: self.num_prefix + length].repeat(count) for count, length in self.groups])

    def attend(
        self, queries_RD: Tensor, keys_RD: Tensor, values_RD: Tensor, num_heads: int, *, only_texts: bool
    ) -> Tensor:
        """Return what rows see of the rows of their own text, filled up; `only_texts`: rows of prefixes do not ask."""
        behind, seen = self.rows(behind=True), []
        asking = self.rows(behind=not only_texts)
        split = (self._split(queries_RD, asking), self._split(keys_RD, behind), self._split(values_RD, behind))
        for (count, length), *parts in zip(self.groups, *split, strict=True):
            query, key, value = (part.view(count, -1, num_heads, part.shape[1] // num_heads) for part in parts)
            found_GHLE = nn.functional.scaled_dot_product_attention(
                query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), self._bias(length, query)
            )
            seen.append(found_GHLE.transpose(1, 2).flatten(2).flatten(0, 1))
        if missing := len(queries_RD) - sum(asking):
            seen.append(queries_RD.new_zeros(missing, queries_RD.shape[1]))
        return torch.cat(seen)

    def _bias(self, length: int, query: Tensor) -> Tensor | None:
        """Return what is added to attention scores, (1, 1, 1, L): n equal keys weigh as one with log n added."""
        if self.first_counts == 1:
            return None
        bias_L = query.new_zeros(self.num_prefix + length)
        bias_L[0] = math.log(self.first_counts)
        return bias_L[None, None, None]


@dataclass
class TextProjections:
    """What the first layer makes of texts alone, which is the same in front of any shared prefix."""

    packing: Packing
    states_RD: Tensor
    projected: tuple[Tensor, Tensor, Tensor]  # queries, keys and values, (R, D) each


def can_pack(model: Any, kind: str, texts: Texts) -> bool:
    """Return whether a backbone's forward is the one spelled out here, on a device where many small calls are cheap."""
    config = model.config
    is_plain = kind in KINDS and config._attn_implementation == "sdpa" and not config.output_attentions
    dropout = (config.hidden_dropout_prob, config.attention_probs_dropout_prob) if is_plain else ()
    return is_plain and not any(dropout) and texts.ids_NS.device.type == "cpu" and bool(texts.mask_NS[:, :1].all())


def packed_states(
    model: Any,
    kind: str,
    texts: Texts,
    positions_L: Tensor,
    prefix_NPD: Tensor | None = None,
    *,
    first_counts: int = 1,
    projections: TextProjections | None = None,
) -> Tensor:
    """Return the states of the texts' tokens in the last layer, (N, S, D), zeros on padding.

    Args:
        model: transformers' module.
        kind: Its name in `KINDS`.
        texts: Token ids and their mask.
        positions_L: The position of each place of the longest text and its prefix.
        prefix_NPD: Vectors before every text, as they enter the class. One prefix may serve all texts, (1, P, D).
        first_counts: As how many equal vectors the first one of the prefix counts.
        projections: `project_texts` of the same texts. Needs one prefix for all texts, and no gradient.
    """
    if projections is not None and prefix_NPD is not None:
        packing = replace(projections.packing, num_prefix=prefix_NPD.shape[1], first_counts=first_counts)
        prefix_PD, angles = _embed(model, kind, prefix_NPD[0], positions_L[: packing.num_prefix])
        first_layer = _layers(model, kind)[0]
        of_prefix = _project(kind, model, first_layer, prefix_PD, prefix_PD, angles, angles)
        text_rows = sum(packing.rows(behind=False))
        pairs = zip((prefix_PD, *of_prefix), (projections.states_RD, *projections.projected), strict=True)
        states_RD, *first = (fill_rows(packing.behind(one[None], rows[:text_rows])) for one, rows in pairs)
        if len(_layers(model, kind)) == 1:
            first[0] = projections.projected[0]  # only tokens of texts ask in the last layer
    else:
        packing = Packing.of(texts, 0 if prefix_NPD is None else prefix_NPD.shape[1], first_counts)
        rows_TD = _words(model, packing, texts)
        if prefix_NPD is not None:
            rows_TD = packing.behind(prefix_NPD, rows_TD)
        states_RD, first = _embed(model, kind, rows_TD, packing.positions(positions_L))[0], []
    angles_R2E = _angles(model, kind, states_RD, packing.positions(positions_L))
    states_RD = _run_layers(model, kind, packing, states_RD, angles_R2E, first)
    flat_FD = states_RD.new_zeros(texts.ids_NS.numel(), states_RD.shape[1])
    return flat_FD.index_copy(0, packing.places_T, states_RD[: len(packing.places_T)]).unflatten(0, texts.ids_NS.shape)


def project_texts(model: Any, kind: str, texts: Texts, positions_S: Tensor) -> TextProjections:
    """Compute what the first layer makes of texts whose tokens have these positions."""
    packing = Packing.of(texts, 0)
    states_RD, angles = _embed(model, kind, _words(model, packing, texts), packing.positions(positions_S))
    projected = _project(kind, model, _layers(model, kind)[0], states_RD, states_RD, angles, angles)
    return TextProjections(packing, states_RD, projected)


def _words(model: Any, packing: Packing, texts: Texts) -> Tensor:
    return load_word_vectors(texts.ids_NS.flatten()[packing.places_T], model.get_input_embeddings().weight)


def _layers(model: Any, kind: str) -> Any:
    return model.encoder.layer if kind == "bert" else model.layers


def _embed(model: Any, kind: str, rows_TD: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return what enters the first layer, filled up, and the angles of its positions."""
    types_11 = positions_T.new_zeros(1, 1)  # one row, broadcast: the class would look row 0 up for every token
    embedded = model.embeddings(inputs_embeds=rows_TD[None], token_type_ids=types_11, position_ids=positions_T[None])
    states_RD = fill_rows(embedded[0])
    return states_RD, _angles(model, kind, states_RD, positions_T)


def _angles(model: Any, kind: str, states_RD: Tensor, positions_T: Tensor) -> Tensor | None:
    """Return cosines and sines of the rotary positions, (R, 2, E), filled up; None for a BERT."""
    if kind == "bert":
        return None
    cos_1TE, sin_1TE = model.rotary_emb(states_RD, positions_T[None])
    angles_T2E = torch.stack([cos_1TE[0], sin_1TE[0]], dim=1)
    return _fill_like(angles_T2E, states_RD)


def _project(
    kind: str,
    model: Any,
    layer: Any,
    asking_RD: Tensor,
    states_RD: Tensor,
    asking_R2E: Tensor | None,
    angles_R2E: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the queries of the rows that ask, and keys and values of all rows."""
    if kind == "bert":
        own = layer.attention.self
        return linear(asking_RD, own.query), linear(states_RD, own.key), linear(states_RD, own.value)
    own, num_heads = layer.self_attn, model.config.num_attention_heads
    assert asking_R2E is not None and angles_R2E is not None, "a NomicBERT turns its queries and keys"
    queries_RD = _turn(linear(asking_RD, own.q_proj), asking_R2E, num_heads)
    return queries_RD, _turn(linear(states_RD, own.k_proj), angles_R2E, num_heads), linear(states_RD, own.v_proj)


def _run_layers(
    model: Any, kind: str, packing: Packing, states_RD: Tensor, angles_R2E: Tensor | None, first: Sequence[Tensor]
) -> Tensor:
    """All layers: attention, sum, norm, feed-forward, sum, norm; `first` are queries, keys and values of the first."""
    num_heads, layers = model.config.num_attention_heads, _layers(model, kind)
    for number, layer in enumerate(layers, 1):
        only_texts = number == len(layers) and packing.num_prefix > 0
        asking_RD, asking_R2E = states_RD, angles_R2E
        if only_texts:
            asking_RD = fill_rows(packing.of_texts(states_RD))
            asking_R2E = None if angles_R2E is None else _fill_like(packing.of_texts(angles_R2E), asking_RD)
        projected = tuple(first) if number == 1 else ()
        queries_RD, keys_RD, values_RD = projected or _project(
            kind, model, layer, asking_RD, states_RD, asking_R2E, angles_R2E
        )
        seen_RD = packing.attend(queries_RD, keys_RD, values_RD, num_heads, only_texts=only_texts)
        states_RD = (_finish_bert if kind == "bert" else _finish_nomic)(layer, seen_RD, asking_RD)
    return states_RD


def _fill_like(angles_T2E: Tensor, rows_RD: Tensor) -> Tensor:
    return nn.functional.pad(angles_T2E, (0, 0, 0, 0, 0, len(rows_RD) - len(angles_T2E)))


def _finish_bert(layer: Any, seen_RD: Tensor, asking_RD: Tensor) -> Tensor:
    output = layer.attention.output
    asking_RD = output.LayerNorm(linear(seen_RD, output.dense) + asking_RD)
    inner_RF = layer.intermediate.intermediate_act_fn(linear(asking_RD, layer.intermediate.dense))
    states_RD: Tensor = layer.output.LayerNorm(linear(inner_RF, layer.output.dense) + asking_RD)
    return states_RD


def _finish_nomic(layer: Any, seen_RD: Tensor, asking_RD: Tensor) -> Tensor:
    asking_RD = layer.post_attention_layernorm(linear(seen_RD, layer.self_attn.o_proj) + asking_RD)
    gate_RF, up_RF = linear(asking_RD, layer.mlp.gate_proj), linear(asking_RD, layer.mlp.up_proj)
    inner_RD = linear(layer.mlp.act_fn(gate_RF) * up_RF, layer.mlp.down_proj)
    states_RD: Tensor = layer.post_mlp_layernorm(inner_RD + asking_RD)
    return states_RD


def _turn(rows_TD: Tensor, angles_T2E: Tensor, num_heads: int) -> Tensor:
    """Rotate the two halves of each head by the angles of its position (cosines, then sines)"""
    rows_THE = rows_TD.unflatten(1, (num_heads, -1))
    first, second = rows_THE.chunk(2, dim=2)
    swapped_THE = torch.cat([-second, first], dim=2)
    cos_T1E, sin_T1E = angles_T2E.split(1, dim=1)
    return (rows_THE * cos_T1E + swapped_THE * sin_T1E).flatten(1)
