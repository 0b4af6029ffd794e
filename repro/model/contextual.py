"""The contextual model (CDE): embed a text given documents of its corpus (§4.2, eq. 5 and 6).

1. The first stage maps each context document to T vectors, which all texts of a batch share.
2. The second stage has its own weights and reads [contexts | soft prompts | text].
3. In training, each context slot of each text is replaced by a learned null vector with probability p (sequence
   dropout). With p = 1 the model is context-blind: it never sees a document and supports only the null context.
4. States are averaged over the text's tokens, without its instruction if the config defines one. The head is Linear –
   ReLU – Linear, with a skip connection if `residual` is set.
Queries and documents share all weights and contexts.

Pooling "frequency" is an extension that is not in the paper. Context vectors then also encode the words of their
document, and tokens are weighted (`repro.model.frequency`).

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
from repro.model.frequency import FrequencyWeights, make_no_words, mark_words
from repro.model.pooling import mask_instruction, mean_pool
from repro.model.texts import Texts, cut_by_length, make_texts
from repro.seeds import make_rng

NULL_STD = 0.01


class SecondStage(nn.Module):
    """Second stage (M2): a text after context vectors and soft prompts."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        # The modules and the null vector are named and initialised as in the authors' code.
        self.backbone = build_backbone(config, config.num_layers, first_position=config.first_position)
        if config.num_soft_prompts:
            self.prompt_projection = nn.Sequential(
                nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width * config.num_soft_prompts)
            )
        self.output_projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        if config.sequence_dropout > 0:
            self.sequence_dropout_null_embedding = nn.Parameter(torch.randn(width) * NULL_STD)
        self.frequency_weights = FrequencyWeights(config.num_contexts) if config.pooling == "frequency" else None

    def forward(self, texts: Texts, contexts_CE: Tensor | None) -> Tensor:
        """Return vectors, (N, D), not normalised. Only the first `num_context_vectors` contexts are used.

        If `contexts_CE` is None, the null context is used without sequence dropout.
        """
        may_drop = contexts_CE is not None and self.training and self.config.sequence_dropout > 0
        contexts_CE = self.null_contexts() if contexts_CE is None else contexts_CE[: self.config.num_context_vectors]
        # Contexts are stored in float32. A model in half precision needs its own type.
        contexts_CE = contexts_CE.to(next(self.parameters()).dtype)
        contexts_NCD = contexts_CE[None, :, : self.config.hidden_size]
        words_CV = contexts_CE[:, self.config.hidden_size :]
        if may_drop:
            contexts_NCD = self._drop(contexts_NCD, texts.num_texts)
        encode = self.backbone.forward_after if self.config.prefix_is_pooled else self.backbone.encode_after
        states_NLD = encode(contexts_NCD, self.soft_prompts(), texts)
        weights_NS = texts.mask_NS if self.frequency_weights is None else self.frequency_weights(texts, words_CV)
        pooled_ND = self._pool(states_NLD, texts, weights_NS)
        output_ND: Tensor = self.output_projection(pooled_ND)
        # the skip connection of the authors' second release
        return output_ND + pooled_ND if self.config.residual else output_ND

    def null_contexts(self) -> Tensor:
        """Return the null vector in all slots, (C, E). Raises ValueError if the model has no null vector."""
        if self.config.sequence_dropout == 0:
            raise ValueError("this model has no null context: it was built with sequence_dropout=0; set a real context")
        num_contexts = self.config.num_context_vectors
        null_D = self.sequence_dropout_null_embedding
        nulls_CD = null_D.expand(num_contexts, -1)
        if self.frequency_weights is None:
            return nulls_CD
        return torch.cat([nulls_CD, make_no_words(num_contexts, self.config.vocab_size, null_D.device)], dim=1)

    def _pool(self, states_NLD: Tensor, texts: Texts, weights_NS: Tensor) -> Tensor:
        """Return the weighted mean of the states, (N, D)."""
        num_prefix = states_NLD.shape[1] - texts.ids_NS.shape[1]
        if self.config.instruction_end is not None:
            weights_NS = weights_NS * mask_instruction(texts.ids_NS, texts.mask_NS, self.config.instruction_end)
        # The paper averages over the text only.
        if not self.config.prefix_is_pooled:
            return mean_pool(states_NLD[:, num_prefix:], weights_NS)
        return mean_pool(states_NLD, torch.cat([weights_NS.new_ones(texts.num_texts, num_prefix), weights_NS], dim=1))

    def _drop(self, contexts_1CD: Tensor, num_texts: int) -> Tensor:
        """Replace each slot of each text by the null vector with the dropout probability, (N, C, D)."""
        # Each text draws its own slots, so the texts of a batch no longer share all contexts.
        shape_NC1 = (num_texts, contexts_1CD.shape[1], 1)
        dropped_NC1 = torch.rand(shape_NC1, device=contexts_1CD.device) < self.config.sequence_dropout
        return torch.where(dropped_NC1, self.sequence_dropout_null_embedding.to(contexts_1CD.dtype), contexts_1CD)

    def soft_prompts(self) -> Tensor:
        """Return the learned soft prompts, (P, D)."""
        width = self.config.hidden_size
        # any weight, for its type and device
        weight = next(self.parameters())
        if not self.config.num_soft_prompts:
            return weight.new_zeros(0, width)
        # The prompts are a function of a constant input, so they are the same for all texts.
        ones_D = weight.new_ones(width)
        prompts_F: Tensor = self.prompt_projection(ones_D)
        return prompts_F.view(self.config.num_soft_prompts, width)


class ContextualModel(TextEncoder):
    """Two-stage model. Call `set_context` with texts of the corpus, then `encode`."""

    architecture = "contextual"
    context_CE: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.first_stage_model = Biencoder(config, config.num_first_stage_layers)
        self.second_stage_model = SecondStage(config)
        # Not persistent: the context belongs to a corpus, so it is not saved with the weights.
        self.register_buffer("context_CE", None, persistent=False)
        # A context-blind model never uses its first stage, so it must not be trained.
        if config.is_blind:
            self.first_stage_model.requires_grad_(False)

    @property
    def num_prefix(self) -> int:
        """Number of context vectors and soft prompts before each text."""
        return self.config.num_context_vectors + self.config.num_soft_prompts

    def first_stage(self, texts: Texts) -> Tensor:
        """Return the context vectors of documents, (documents × T, E)."""
        return self._embed_documents(texts).flatten(0, 1)

    def second_stage(self, texts: Texts, contexts_CE: Tensor | None) -> Tensor:
        """Return vectors of texts under a context, (N, D), not normalised. None selects the null context."""
        return self.second_stage_model(texts, contexts_CE)

    def _embed_documents(self, texts: Texts) -> Tensor:
        """Return the context vectors per document, (documents, T, E)."""
        vectors_NTD = self.first_stage_model.segments(texts, self.config.tokens_per_document)
        if self.config.pooling != "frequency":
            return vectors_NTD
        # All vectors of a document carry the same words.
        words_NV = mark_words(texts, self.config.vocab_size)
        return torch.cat([vectors_NTD, words_NV[:, None].expand(-1, vectors_NTD.shape[1], -1)], dim=2)

    def forward(self, texts: Texts, contexts: Texts) -> Tensor:
        """Run both stages and return vectors, (N, D), not normalised."""
        return self.second_stage(texts, self.first_stage(contexts))

    def embed_texts(self, texts: Texts, context_CE: Tensor | None = None) -> Tensor:
        """Return vectors under `context_CE`, or under the current context. Raises ValueError if there is none."""
        return self.second_stage(texts, self.current_context() if context_CE is None else context_CE)

    def current_context(self) -> Tensor:
        """Return the current context, (C, E). Raises ValueError if none is set."""
        if self.context_CE is None:
            raise ValueError("no context is set: call set_context(texts), or set_context(None) for the null context")
        return self.context_CE

    def share_texts(self) -> AbstractContextManager[object]:
        """Return a block in which all contexts share the first layer's projections of a batch."""
        return self.second_stage_model.backbone.keep_projections()

    def context_vectors(self) -> Tensor:
        """Return the vectors of the current context, (C, D), without word columns. Raises ValueError if none is set."""
        return self.current_context()[:, : self.config.hidden_size]

    @torch.no_grad()
    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Set the context: the embeddings of `num_contexts` texts, with their prompt. None sets the null context.

        Longer lists are sampled with `seed`. Shorter lists are oversampled with `seed`, with a warning. Raises
        ValueError for an empty list.
        """
        self.context_CE = self.context_from(texts, seed, prompt)

    @torch.no_grad()
    def context_from(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> Tensor:
        """Return the context vectors that `set_context` would set, (C, E), without setting them."""
        # A copy, because the null vector is a weight that may be trained further.
        if texts is None:
            return self.second_stage_model.null_contexts().detach().clone()
        self._check_reads_documents()
        documents = as_texts(texts)
        selected = [documents[index] for index in fill_context(len(documents), self.config.num_contexts, seed)]
        return self.embed_context(self.tokenize(selected, prompt))

    def _check_reads_documents(self) -> None:
        if self.config.is_blind:
            raise ValueError(
                "this model was trained without documents (sequence_dropout=1): use set_context(None), the null context"
            )

    def set_context_tokens(self, tokens: Tokens) -> None:
        """Set the context to all of these documents, given as tokens with their prompt."""
        self.context_CE = self.embed_context(tokens)

    def embed_context(self, tokens: Tokens) -> Tensor:
        """Return the context vectors of documents in float32, (documents × T, E).

        Raises ValueError if the model was trained without documents.
        """
        self._check_reads_documents()
        pieces = cut_by_length(make_texts(*tokens.pad(range(len(tokens)))).to(self.device), 64)
        with evaluation_mode(self), self.precision():
            per_document = [self._embed_documents(piece) for piece in pieces.pieces]
        return pieces.join(per_document).flatten(0, 1).float()


Model = Biencoder | ContextualModel
"""Either architecture."""


def fill_context(num_texts: int, num_contexts: int, seed: int) -> np.ndarray:
    """Return the positions of the texts that serve as context, int64 (num_contexts,).

    - More texts: a seeded sample without replacement, in ascending order. Corpora are often sorted by domain, so the
      first texts would cover one domain only.
    - Exactly `num_contexts` texts: all in order.
    - Fewer texts: all in order, then seeded repeats.
    """
    if num_texts == 0:
        raise ValueError("the context is an empty list of texts: give at least one, or None for the null context")
    if num_texts == num_contexts:
        return np.arange(num_contexts)
    if num_texts > num_contexts:
        sample = make_rng(seed, "context drawing").choice(num_texts, num_contexts, replace=False)
        return np.sort(sample)
    warnings.warn(
        f"{num_texts} context documents for a model that takes {num_contexts}: some are repeated (seed {seed})",
        stacklevel=3,
    )
    repeats = make_rng(seed, "context filling").choice(num_texts, num_contexts - num_texts, replace=True)
    return np.concatenate([np.arange(num_texts), repeats])
