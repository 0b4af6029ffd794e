"""One face for transformers' NomicBERT, BERT and ModernBERT: text alone, or text behind context and prompt vectors.

Behind a prefix, the sequence is [C contexts | P soft prompts | S text tokens], all of it visible to all of it:

1. Text enters as word vectors; the class adds its token type 0 (and BERT's learned position) to all it is given.
2. Prefix vectors enter with what the class will add already subtracted: they carry no token type, contexts no position.
3. NomicBERT: contexts take rotary position 0, which rotates by nothing; the first soft prompt is at C, the first text
   token at C + P. BERT: the same numbers index the learned positions. C is the number of contexts given, never the
   configured one.
4. ModernBERT keeps positions 0 … for everything, contexts included, as the authors' second release did.

Paper: §4.2 and appendix "Removing positionality". Shapes: N texts, S tokens, C contexts, P soft prompts, L = C + P + S,
D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
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
from repro.model.packed import can_pack, packed_states
from repro.model.texts import Texts
from repro.model.word_vectors import word_vectors


class Backbone(nn.Module):
    """A transformer encoder without dropout; `model` is transformers' own module."""

    model: Any  # a PreTrainedModel; its submodules differ by class and are reached by name
    packs: ClassVar[bool] = True  # whether its forward is the one that `repro.model.packed` spells out

    def __init__(self, model: PreTrainedModel, kind: str, *, text_normalised_twice: bool = False) -> None:
        super().__init__()
        self.model = model
        self.kind = kind
        self.text_normalised_twice = text_normalised_twice
        self._compiled: Callable[..., Any] | None = None
        self._keeps_less = False

    def keep_less(self, checkpointed: bool) -> None:
        """Compute the states inside a layer again in backward instead of keeping them, or no longer."""
        of = "activation" if hasattr(self.model, "activation_checkpointing_enable") else "gradient"  # transformers 5.17
        if checkpointed:
            getattr(self.model, f"{of}_checkpointing_enable")({"use_reentrant": False})
        elif self._keeps_less:
            getattr(self.model, f"{of}_checkpointing_disable")()
        self._keeps_less = checkpointed

    def compile_forward(self, backend: str | None) -> None:
        """Put torch.compile, with this backend, between this and the class; None: nothing."""
        # of the method: a compiled module would be a submodule, and its weights would have two names
        self._compiled = None if backend is None else torch.compile(self.model.forward, dynamic=True, backend=backend)

    def embed(self, ids_NS: Tensor) -> Tensor:
        """Return the vectors under which text enters behind a prefix, (N, S, D): the class adds the rest."""
        words_NSD = word_vectors(ids_NS, self.model.get_input_embeddings().weight)
        return self.model.embeddings(inputs_embeds=words_NSD) if self.text_normalised_twice else words_NSD

    def forward(self, texts: Texts) -> Tensor:
        """Return the states of texts alone, (N, S, D), text positions from 0; those of padding mean nothing."""
        self._check_length(texts.ids_NS.shape[1], "a text of so many tokens")
        if self._can_pack(texts):
            return packed_states(self.model, self.kind, texts, torch.arange(texts.ids_NS.shape[1]))
        words_NSD = word_vectors(texts.ids_NS, self.model.get_input_embeddings().weight)
        return self._run(texts.mask_NS, inputs_embeds=words_NSD)

    def text_behind(self, contexts_NCD: Tensor, prompts_PD: Tensor, texts: Texts) -> Tensor:
        """Return the states of the texts' tokens, (N, S, D), behind contexts (N or 1 first) and soft prompts."""
        if not self._can_pack(texts):
            return self.forward_behind(contexts_NCD, prompts_PD, texts)[:, -texts.ids_NS.shape[1] :]
        prefix_NPD = self._prefix(contexts_NCD, prompts_PD, len(contexts_NCD))
        num_prefix, length = prefix_NPD.shape[1], texts.ids_NS.shape[1]
        positions_1L = self._positions(contexts_NCD.shape[1], num_prefix + length, texts.ids_NS.device)
        return packed_states(self.model, self.kind, texts, positions_1L[0], prefix_NPD)

    def forward_behind(self, contexts_NCD: Tensor, prompts_PD: Tensor, texts: Texts) -> Tensor:
        """Return all states, (N, C + P + S, D), behind contexts (N or 1 first) and soft prompts (P may be 0)."""
        num_contexts, num_prefix = contexts_NCD.shape[1], contexts_NCD.shape[1] + prompts_PD.shape[0]
        text_NSD = self.embed(texts.ids_NS)
        positions_1L = self._positions(num_contexts, num_prefix + text_NSD.shape[1], text_NSD.device)
        num_texts = texts.num_texts
        embeds_NLD = torch.cat([self._prefix(contexts_NCD, prompts_PD, num_texts), text_NSD], dim=1)
        mask_NL = torch.cat([texts.mask_NS.new_ones(num_texts, num_prefix), texts.mask_NS], dim=1)
        return self._run(mask_NL, inputs_embeds=embeds_NLD, position_ids=positions_1L)

    def _can_pack(self, texts: Texts) -> bool:
        is_plain = self.packs and not self.text_normalised_twice and self._compiled is None
        keeps_all = not (self.training and self._keeps_less)
        return is_plain and keeps_all and can_pack(self.model, self.kind, texts)

    def _prefix(self, contexts_NCD: Tensor, prompts_PD: Tensor, num_texts: int) -> Tensor:
        """Return contexts and soft prompts as they enter, (`num_texts`, C + P, D): the class adds to all it is given"""
        contexts_NCD = (contexts_NCD - self._added_to_context()).expand(num_texts, -1, -1)
        return torch.cat([contexts_NCD, (prompts_PD - self._added_to_all()).expand(num_texts, -1, -1)], dim=1)

    def _run(self, mask_NL: Tensor, **inputs: Any) -> Tensor:
        if self.kind != "modernbert":  # one row, broadcast: the class would look row 0 up for every token
            inputs["token_type_ids"] = mask_NL.new_zeros(1, 1)
        return (self._compiled or self.model)(attention_mask=mask_NL, **inputs).last_hidden_state

    def _positions(self, num_contexts: int, length: int, device: torch.device) -> Tensor:
        positions_L = torch.arange(length, device=device)
        if self.kind != "modernbert":
            positions_L[:num_contexts] = 0
        self._check_length(length, f"{num_contexts} contexts, soft prompts and text")
        return positions_L[None]

    def _check_length(self, length: int, what: str) -> None:
        limit = self.model.config.max_position_embeddings
        if self.kind == "bert" and length > limit:
            raise ValueError(
                f"{length} positions ({what}) are more than the {limit} that this backbone has learned: use fewer "
                "contexts or shorter texts"
            )

    def _added_to_all(self) -> Tensor:
        if self.kind == "modernbert":
            return self.model.embeddings.tok_embeddings.weight.new_zeros(())
        return self.model.embeddings.token_type_embeddings.weight[0]

    def _added_to_context(self) -> Tensor:
        if self.kind == "bert":
            return self._added_to_all() + self.model.embeddings.position_embeddings.weight[0]
        return self._added_to_all()


def build_backbone(config: ModelConfig, num_layers: int) -> Backbone:
    """Build a backbone of `num_layers` layers with random weights, drawn from torch's global generator."""
    settings = dict(config.backbone_settings)
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
        shared = {"pad_token_id": 0, "cls_token_id": None, "sep_token_id": None, **shared}
        shared = {"bos_token_id": None, "eos_token_id": None, **shared}
        model = ModernBertModel(ModernBertConfig(**shared))
    return Backbone(model, config.backbone, text_normalised_twice=config.text_normalised_twice)
