"""Common interface to NomicBERT, BERT and ModernBERT: text alone, or text after context and prompt vectors.

With a prefix, the sequence is [C contexts | P soft prompts | S text tokens], with full attention:
1. Text enters as word vectors. The class adds its token type 0 to every input, and BERT its learned position.
2. The same terms are subtracted from prefix vectors before they enter. Prefix vectors therefore carry no token type,
   and contexts no position.
3. NomicBERT: contexts have rotary position 0, which is the identity. The first soft prompt has position C and the first
   text token C + P. In BERT the same numbers index the learned positions, unless `first_position` is set. C is the
   actual number of contexts, not the configured one.
4. ModernBERT uses positions 0, 1, … for everything, contexts included, as in the authors' second release.
5. `first_position` is the learned position of the first text token in a BERT, with or without a prefix. Soft prompts
   then have position 0. A shift changes nothing between the words of a text in NomicBERT, but a pretrained BERT knows
   its text at the positions 0, 1, … only.

Paper: §4.2 and appendix "Removing positionality". Shapes: N texts, S tokens, C contexts, P soft prompts, L = C + P + S,
D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    NomicBertConfig,
    NomicBertModel,
    PreTrainedModel,
)

from repro.model.config import ModelConfig
from repro.model.packed import TextProjections, can_pack, compute_packed_states, project_texts
from repro.model.texts import Texts
from repro.model.word_vectors import look_up_words


class Backbone(nn.Module):
    """Transformer encoder without dropout. `model` is the module of transformers."""

    model: Any  # a PreTrainedModel, whose submodules differ by class
    packs: ClassVar[bool] = True  # whether `repro.model.packed` may replace its forward

    def __init__(
        self,
        model: PreTrainedModel,
        kind: str,
        *,
        text_normalised_twice: bool = False,
        first_position: int | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.kind = kind
        self.first_position = first_position if kind == "bert" else None
        self.text_normalised_twice = text_normalised_twice
        self._compiled: Callable[..., Any] | None = None
        self._is_checkpointed = False
        self._keeps_projections = False
        self._last: tuple[Tensor, int, TextProjections] | None = None

    def set_checkpointing(self, checkpointed: bool) -> None:
        """Turn activation checkpointing on or off: layers are recomputed in backward to save memory."""
        # transformers 5.17 renamed these methods from "gradient" to "activation".
        kind = "activation" if hasattr(self.model, "activation_checkpointing_enable") else "gradient"
        if checkpointed:
            getattr(self.model, f"{kind}_checkpointing_enable")({"use_reentrant": False})
        elif self._is_checkpointed:
            getattr(self.model, f"{kind}_checkpointing_disable")()
        self._is_checkpointed = checkpointed

    def compile_forward(self, backend: str | None) -> None:
        """Compile the forward pass with this backend of torch.compile. None disables compilation."""
        # Compile the method only, because a compiled module would register the weights under a second name.
        self._compiled = None if backend is None else torch.compile(self.model.forward, dynamic=True, backend=backend)

    def embed(self, ids_NS: Tensor) -> Tensor:
        """Return the vectors with which text enters after a prefix, (N, S, D). The class adds position and token type."""
        words_NSD = look_up_words(ids_NS, self.model.get_input_embeddings().weight)
        return self.model.embeddings(inputs_embeds=words_NSD) if self.text_normalised_twice else words_NSD

    def forward(self, texts: Texts) -> Tensor:
        """Return the states of texts without a prefix, (N, S, D). States of padding are undefined."""
        positions_1S = self._build_positions(0, 0, texts.ids_NS.shape[1], texts.ids_NS.device)
        if self._can_pack(texts):
            return compute_packed_states(self.model, self.kind, texts, positions_1S[0])
        words_NSD = look_up_words(texts.ids_NS, self.model.get_input_embeddings().weight)
        # Without positions, the class counts from 0.
        shifted = {"position_ids": positions_1S} if self.first_position else {}
        return self._run(texts.mask_NS, inputs_embeds=words_NSD, **shifted)

    def encode_after(self, contexts_NCD: Tensor, prompts_PD: Tensor, texts: Texts) -> Tensor:
        """Return the states of the text tokens after contexts (first dimension N or 1) and soft prompts, (N, S, D)."""
        if not self._can_pack(texts):
            return self.forward_after(contexts_NCD, prompts_PD, texts)[:, -texts.ids_NS.shape[1] :]
        num_contexts = contexts_NCD.shape[1]
        first_counts = 1
        positions_L = self._build_positions(num_contexts, len(prompts_PD), texts.ids_NS.shape[1], texts.ids_NS.device)[
            0
        ]
        if not self.training and _are_equal(contexts_NCD):
            # n equal vectors at one position are equivalent to one vector with weight n in the attention. The null
            # context therefore needs one slot only.
            contexts_NCD = contexts_NCD[:, :1]
            first_counts = num_contexts
            positions_L = torch.cat([positions_L[:1], positions_L[num_contexts:]])
        prefix_NPD = self._build_prefix(contexts_NCD, prompts_PD, len(contexts_NCD))
        projections = self._project(texts, positions_L[prefix_NPD.shape[1] :]) if len(contexts_NCD) == 1 else None
        return compute_packed_states(
            self.model,
            self.kind,
            texts,
            positions_L,
            prefix_NPD,
            first_counts=first_counts,
            projections=projections,
        )

    @contextmanager
    def keep_projections(self) -> Iterator[None]:
        """Cache the first layer's projections of the last texts, so that several contexts share them.

        The weights must not change inside the block.
        """
        self._keeps_projections = True
        try:
            yield
        finally:
            self._keeps_projections, self._last = False, None

    def _project(self, texts: Texts, positions_S: Tensor) -> TextProjections | None:
        """Return the first layer's projections of texts that share one prefix. None in training or with gradients."""
        if self.training or torch.is_grad_enabled():
            return None
        start = int(positions_S[0])
        # Identity of the tensor suffices: `keep_projections` requires unchanged weights and texts.
        if self._last is not None and self._last[0] is texts.ids_NS and self._last[1] == start:
            return self._last[2]
        projections = project_texts(self.model, self.kind, texts, positions_S)
        self._last = (texts.ids_NS, start, projections) if self._keeps_projections else None
        return projections

    def forward_after(self, contexts_NCD: Tensor, prompts_PD: Tensor, texts: Texts) -> Tensor:
        """Return all states, (N, C + P + S, D), for contexts (first dimension N or 1), soft prompts (P may be 0) and
        text.
        """
        num_contexts = contexts_NCD.shape[1]
        num_prefix = num_contexts + len(prompts_PD)
        # Not packed: the packed implementation returns no states of the prefix.
        text_NSD = self.embed(texts.ids_NS)
        positions_1L = self._build_positions(num_contexts, len(prompts_PD), text_NSD.shape[1], text_NSD.device)
        num_texts = texts.num_texts
        embeds_NLD = torch.cat([self._build_prefix(contexts_NCD, prompts_PD, num_texts), text_NSD], dim=1)
        mask_NL = torch.cat([texts.mask_NS.new_ones(num_texts, num_prefix), texts.mask_NS], dim=1)
        return self._run(mask_NL, inputs_embeds=embeds_NLD, position_ids=positions_1L)

    def _can_pack(self, texts: Texts) -> bool:
        """Return whether the packed implementation may compute these texts."""
        is_plain = self.packs and not self.text_normalised_twice and self._compiled is None
        keeps_all = not (self.training and self._is_checkpointed)
        return is_plain and keeps_all and can_pack(self.model, self.kind, texts)

    def _build_prefix(self, contexts_NCD: Tensor, prompts_PD: Tensor, num_texts: int) -> Tensor:
        """Return contexts and soft prompts as inputs of the class, (`num_texts`, C + P, D).

        The terms that the class adds to every input are subtracted.
        """
        # Contexts all have position 0, and soft prompts keep their positions (appendix "Removing positionality").
        contexts_NCD = (contexts_NCD - self._get_context_offset()).expand(num_texts, -1, -1)
        return torch.cat([contexts_NCD, (prompts_PD - self._get_token_type_vector()).expand(num_texts, -1, -1)], dim=1)

    def _run(self, mask_NL: Tensor, **inputs: Any) -> Tensor:
        # one broadcast row instead of a lookup per token
        if self.kind != "modernbert":
            inputs["token_type_ids"] = mask_NL.new_zeros(1, 1)
        return (self._compiled or self.model)(attention_mask=mask_NL, **inputs).last_hidden_state

    def _build_positions(self, num_contexts: int, num_prompts: int, num_tokens: int, device: torch.device) -> Tensor:
        """Return the positions of contexts, soft prompts and text, (1, L)."""
        num_prefix = num_contexts + num_prompts
        first_position = num_prefix if self.first_position is None else self.first_position
        self._check_length(first_position + num_tokens, f"{num_prefix} vectors of the prefix, {num_tokens} tokens")
        positions_L = torch.arange(num_prefix + num_tokens, device=device)
        if self.kind != "modernbert":
            positions_L[:num_contexts] = 0
        if self.first_position is not None:
            positions_L[num_contexts:num_prefix] = 0
            positions_L[num_prefix:] += first_position - num_prefix
        return positions_L[None]

    def _check_length(self, length: int, description: str) -> None:
        """Raise ValueError if the last position is beyond BERT's learned positions."""
        limit = self.model.config.max_position_embeddings
        if self.kind == "bert" and length > limit:
            raise ValueError(
                f"{length} positions ({description}) exceed the {limit} learned positions of this backbone: use fewer "
                "contexts or shorter texts"
            )

    def _get_token_type_vector(self) -> Tensor:
        """Return the vector that the class adds to every input: token type 0."""
        if self.kind == "modernbert":
            return self.model.embeddings.tok_embeddings.weight.new_zeros(())
        return self.model.embeddings.token_type_embeddings.weight[0]

    def _get_context_offset(self) -> Tensor:
        """Return the vector that the class adds at position 0: token type 0 and, for BERT, the learned position 0."""
        if self.kind == "bert":
            return self._get_token_type_vector() + self.model.embeddings.position_embeddings.weight[0]
        return self._get_token_type_vector()


def _are_equal(contexts_NCD: Tensor) -> bool:
    """Return whether all slots of all texts hold one vector and no gradient is needed per slot."""
    is_shared = len(contexts_NCD) == 1 and contexts_NCD.shape[1] > 1 and not torch.is_grad_enabled()
    return is_shared and bool((contexts_NCD == contexts_NCD[:, :1]).all())


def build_backbone(config: ModelConfig, num_layers: int, *, first_position: int | None) -> Backbone:
    """Build a backbone of `num_layers` layers. Weights are drawn from torch's global generator."""
    settings = dict(config.backbone_settings)
    # The list describes the pretrained model, which may have more layers.
    if "layer_types" in settings:
        settings["layer_types"] = settings["layer_types"][:num_layers]
    shared = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "attn_implementation": "sdpa",
        **settings,
    }
    if config.backbone == "nomic":
        model: PreTrainedModel = NomicBertModel(NomicBertConfig(**shared))
    elif config.backbone == "bert":
        shared |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = BertModel(BertConfig(**shared), add_pooling_layer=False)
    else:
        # The defaults of the class are ids of its own vocabulary, which a smaller vocabulary does not have.
        shared = {"pad_token_id": 0, "cls_token_id": None, "sep_token_id": None, **shared}
        shared = {"bos_token_id": None, "eos_token_id": None, **shared}
        model = ModernBertModel(ModernBertConfig(**shared))
    return Backbone(
        model, config.backbone, text_normalised_twice=config.text_normalised_twice, first_position=first_position
    )
