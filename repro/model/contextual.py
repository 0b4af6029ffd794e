"""The two-stage model: a text's vector given the vectors of some documents of its corpus.

1. The first stage turns each context document into T vectors; they are shared by all texts of a batch.
2. The second stage reads [contexts | soft prompts | text] with weights of its own.
3. In training each context slot of each text is replaced, with probability p, by one learned null vector. With p = 1
   the model is context-blind: no document ever reaches it, and only the null context can be set.
4. States are averaged over the text's tokens only (less its instruction, where the config names one), then go through
   Linear – ReLU – Linear, plus the average itself if `residual`. With pooling "frequency", an extension of ours, a
   context vector also says which words its document holds, and the average is weighted (`repro.model.frequency`).
Queries and documents share all weights and see the same documents as context. Paper: §4.2, eq. 5 and 6.

Shapes: N texts, S tokens, C context vectors (documents × T), P soft prompts, D hidden size, E = D or D + words.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor, nn

from repro.data.tokens import Tokens
from repro.model.backbone import build_backbone
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from repro.model.encoding import TextEncoder, as_texts, evaluation_mode
from repro.model.frequency import FrequencyWeights, make_no_words, words_held
from repro.model.pooling import mean_pool, without_instruction
from repro.model.texts import Texts, cut_by_length, texts_from
from repro.seeds import generator_for

NULL_STD = 0.01


class SecondStage(nn.Module):
    """M2: a text behind context vectors and soft prompts."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, self.config = config.hidden_size, config
        self.backbone = build_backbone(config, config.num_layers)
        if config.num_soft_prompts:
            self.prompt_projection = nn.Sequential(
                nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width * config.num_soft_prompts)
            )
        self.output_projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        if config.sequence_dropout > 0:
            self.sequence_dropout_null_embedding = nn.Parameter(torch.randn(width) * NULL_STD)
        self.frequency_weights = FrequencyWeights(config.num_contexts) if config.pooling == "frequency" else None

    def forward(self, texts: Texts, contexts_CE: Tensor | None) -> Tensor:
        """Return vectors, (N, D), not normalised; contexts beyond the configured number are cut to the first.

        `contexts_CE` None stands for the null context, of which nothing is dropped.
        """
        may_drop = contexts_CE is not None and self.training and self.config.sequence_dropout > 0
        contexts_CE = self.null_contexts() if contexts_CE is None else contexts_CE[: self.config.num_context_vectors]
        if (kind := next(self.parameters()).dtype) != torch.float32:
            # contexts are kept in float32, a model in half precision multiplies them with its own kind of numbers
            contexts_CE = contexts_CE.to(kind)
        contexts_NCD, words_CV = (
            contexts_CE[None, :, : self.config.hidden_size],
            contexts_CE[:, self.config.hidden_size :],
        )
        if may_drop:
            contexts_NCD = self._drop(contexts_NCD, texts.num_texts)
        of = self.backbone.forward_behind if self.config.prefix_is_pooled else self.backbone.text_behind
        pooled_ND = self._pool(
            of(contexts_NCD, self.soft_prompts(), texts), texts, self._token_weights(texts, words_CV)
        )
        output_ND: Tensor = self.output_projection(pooled_ND)
        return output_ND + pooled_ND if self.config.residual else output_ND

    def null_contexts(self) -> Tensor:
        """Return the null vector in every slot, (C, E); ValueError for a model that never learned one."""
        if self.config.sequence_dropout == 0:
            raise ValueError("this model has no null context: it was built with sequence_dropout=0; set a real context")
        count, null_D = self.config.num_context_vectors, self.sequence_dropout_null_embedding
        nulls_CD = null_D.expand(count, -1)
        if self.frequency_weights is None:
            return nulls_CD
        return torch.cat([nulls_CD, make_no_words(count, self.config.vocab_size, null_D.device)], dim=1)

    def _token_weights(self, texts: Texts, words_CV: Tensor) -> Tensor:
        """Return what each token counts in the mean, (N, S): one, or what its frequency in the context says."""
        return texts.mask_NS if self.frequency_weights is None else self.frequency_weights(texts, words_CV)

    def _pool(self, states_NLD: Tensor, texts: Texts, weights_NS: Tensor) -> Tensor:
        num_prefix = states_NLD.shape[1] - texts.ids_NS.shape[1]
        if self.config.instruction_end is not None:
            weights_NS = weights_NS * without_instruction(texts.ids_NS, texts.mask_NS, self.config.instruction_end)
        if not self.config.prefix_is_pooled:
            return mean_pool(states_NLD[:, num_prefix:], weights_NS)
        return mean_pool(states_NLD, torch.cat([weights_NS.new_ones(texts.num_texts, num_prefix), weights_NS], dim=1))

    def _drop(self, contexts_1CD: Tensor, num_texts: int) -> Tensor:
        shape_NC1 = (num_texts, contexts_1CD.shape[1], 1)
        dropped_NC1 = torch.rand(shape_NC1, device=contexts_1CD.device) < self.config.sequence_dropout
        return torch.where(dropped_NC1, self.sequence_dropout_null_embedding.to(contexts_1CD.dtype), contexts_1CD)

    def soft_prompts(self) -> Tensor:
        """Return the learned vectors between contexts and text, (P, D)."""
        width, weight = self.config.hidden_size, next(self.parameters())
        if not self.config.num_soft_prompts:
            return weight.new_zeros(0, width)
        ones_D = weight.new_ones(width)
        prompts_F: Tensor = self.prompt_projection(ones_D)
        return prompts_F.view(self.config.num_soft_prompts, width)


class ContextualModel(TextEncoder):
    """Both stages; give it a corpus with `set_context`, then `encode`."""

    architecture = "contextual"
    context_CE: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.first_stage_model = Biencoder(config, config.num_first_stage_layers)
        self.second_stage_model = SecondStage(config)
        self.register_buffer("context_CE", None, persistent=False)
        if config.is_blind:  # never computed, so never trained
            self.first_stage_model.requires_grad_(False)

    @property
    def num_ahead(self) -> int:
        """Context vectors and soft prompts, which stand before every text."""
        return self.config.num_context_vectors + self.config.num_soft_prompts

    def first_stage(self, texts: Texts) -> Tensor:
        """Return the context vectors of some documents, (documents × T, E)."""
        return self._per_document(texts).flatten(0, 1)

    def second_stage(self, texts: Texts, contexts_CE: Tensor | None) -> Tensor:
        """Return vectors of texts under a context (None: the null context), (N, D), not normalised."""
        return self.second_stage_model(texts, contexts_CE)

    def _per_document(self, texts: Texts) -> Tensor:
        """Return the context vectors of each document, (documents, T, E)."""
        vectors_NTD = self.first_stage_model.segments(texts, self.config.tokens_per_document)
        if self.config.pooling != "frequency":
            return vectors_NTD
        held_NV = words_held(texts, self.config.vocab_size)
        return torch.cat([vectors_NTD, held_NV[:, None].expand(-1, vectors_NTD.shape[1], -1)], dim=2)

    def forward(self, texts: Texts, contexts: Texts) -> Tensor:
        """Both stages in one: (N, D)."""
        return self.second_stage(texts, self.first_stage(contexts))

    def embed_texts(self, texts: Texts, context_CE: Tensor | None = None) -> Tensor:
        """Return vectors under a context, or the one that was set; ValueError when there is none."""
        return self.second_stage(texts, self.given_context() if context_CE is None else context_CE)

    def current_context(self) -> Tensor:
        """Return the context that is set now; ValueError when none is."""
        return self.given_context()

    def embed_under(self, texts: Texts, context: Tensor | None) -> Tensor:
        """Return vectors under a context, (C, E), or None for the one that was set."""
        return self.embed_texts(texts, context)

    def share_texts(self) -> AbstractContextManager[object]:
        """Return a block in which the first layer's projections of a batch serve all contexts."""
        return self.second_stage_model.backbone.keep_projections()

    def encode_under(
        self, tokens: Tokens, contexts: Sequence[Tensor], batch_size: int | None = None
    ) -> list[np.ndarray]:
        """Return `encode_tokens` under each context, (C, E), in less time than one by one."""
        return self._encode_each(tokens, contexts, batch_size)

    def given_context(self) -> Tensor:
        """Return the context that was set, (C, E); ValueError when none was."""
        if self.context_CE is None:
            raise ValueError("no context is set: call set_context(texts), or set_context(None) for the null context")
        return self.context_CE

    def context_vectors(self) -> Tensor:
        """Return the vectors of the context that was set, (C, D), without the words they hold; ValueError likewise."""
        return self.given_context()[:, : self.config.hidden_size]

    @torch.no_grad()
    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Embed `num_contexts` of the texts, with prompt and without gradient, as context; None sets the null context.

        Of more texts so many are drawn with `seed`; exactly so many are taken as they are; fewer are over-sampled with
        `seed`, with a warning. ValueError for an empty list.
        """
        self.context_CE = self.context_from(texts, seed, prompt)

    @torch.no_grad()
    def context_from(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> Tensor:
        """Return the context vectors that `set_context` would set, (C, E), and set nothing."""
        if texts is None:
            return self.second_stage_model.null_contexts().detach().clone()
        if self.config.is_blind:
            raise ValueError(
                "this model was trained without documents (sequence_dropout=1): use set_context(None), the null context"
            )
        given = as_texts(texts)
        chosen = [given[place] for place in fill_context(len(given), self.config.num_contexts, seed)]
        return self._embed_context(self.tokenize(chosen, prompt))

    def set_context_tokens(self, tokens: Tokens) -> None:
        """Embed these documents as context, all of them; they already carry their prompt."""
        self.context_CE = self._embed_context(tokens)

    def _embed_context(self, tokens: Tokens) -> Tensor:
        pieces = cut_by_length(texts_from(*tokens.pad(range(len(tokens)))).to(self.device), 64)
        with evaluation_mode(self), self.precision():
            per_document = [self._per_document(piece) for piece in pieces.pieces]
        return pieces.join(per_document).flatten(0, 1).float()


Model = Biencoder | ContextualModel
"""Either architecture: what is built, trained, saved, evaluated and exported."""


def fill_context(num_texts: int, num_contexts: int, seed: int) -> np.ndarray:
    """Return the places of the texts that serve as context, int64 (num_contexts,).

    Of more texts a seeded draw without repeats, in ascending order; of exactly so many, each; of fewer, all of them in
    order, then seeded repeats. A corpus is often sorted by domain: its first texts would tell of one domain only.
    """
    if num_texts == 0:
        raise ValueError("the context is an empty list of texts: give at least one, or None for the null context")
    if num_texts == num_contexts:
        return np.arange(num_contexts)
    if num_texts > num_contexts:
        drawn = generator_for(seed, "context drawing").choice(num_texts, num_contexts, replace=False)
        return np.sort(drawn)
    warnings.warn(
        f"{num_texts} context documents for a model that takes {num_contexts}: some are repeated (seed {seed})",
        stacklevel=3,
    )
    extra = generator_for(seed, "context filling").choice(num_texts, num_contexts - num_texts, replace=True)
    return np.concatenate([np.arange(num_texts), extra])
