"""The contextual model (CDE): embed a text given documents of its corpus (§4.2, eq. 5 and 6).

1. The first stage maps each context document to T vectors, which all texts of a batch share.
2. The second stage has its own weights and reads [contexts | soft prompts | text].
3. In training, each context slot of each text is replaced by a learned null vector with probability p (sequence
   dropout). With p = 1 the model is context-blind: it never sees a document and supports only the null context.
4. States are averaged over the text's tokens, without its instruction if the config defines one. The head is Linear –
   ReLU – Linear, with a skip connection if `residual` is set.
Queries and documents share all weights and contexts.

The layers are those of the exported code (`repro.model.modeling_cde`). Pooling "frequency" is an extension that is not in
the paper. Context vectors then also encode the words of their document, and tokens are weighted.

Shapes: N texts, S tokens, C context vectors (documents × T), P soft prompts, D hidden size, E = D or D + words.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from repro.data.tokens import Tokens
from repro.model.backbone import Backbone
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from repro.model.encoding import TextEncoder
from repro.model.modeling_cde import FirstStage, SecondStage, as_texts, embed_documents, evaluation_mode, fill_context
from repro.model.texts import Texts, cut_by_length, make_texts


class ContextualModel(TextEncoder):
    """Two-stage model. Call `set_context` with texts of the corpus, then `encode`."""

    architecture = "contextual"
    context_CE: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.first_stage_model = FirstStage(config, config.num_first_stage_layers, backbone=Backbone)
        self.second_stage_model = SecondStage(config, Backbone)
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
        return embed_documents(self.first_stage_model, self.config, *texts).flatten(0, 1)

    def second_stage(self, texts: Texts, contexts_CE: Tensor | None) -> Tensor:
        """Return vectors of texts under a context, (N, D), not normalised. None selects the null context."""
        vectors_ND: Tensor = self.second_stage_model(*texts, contexts_CE)
        return vectors_ND

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
            raise ValueError("this model was trained without documents: use set_context(None), the null context")

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
            per_document = [embed_documents(self.first_stage_model, self.config, *piece) for piece in pieces.pieces]
        return pieces.join(per_document).flatten(0, 1).float()


Model = Biencoder | ContextualModel
"""Either architecture."""
