"""Our models as classes of transformers. Importing this module lets `AutoModel.from_pretrained(folder)` open an export.

Shapes: N texts, S tokens, C context documents, T vectors per context document, D hidden size, E width of a context
vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from repro.data.tokens import resolve_tokenizer, write_tokenizer
from repro.interop.official.folder import FILES, find_folder
from repro.interop.safe_weights import read_safetensors
from repro.model.biencoder import Biencoder
from repro.model.config import make_config
from repro.model.contextual import ContextualModel, Model, as_context_rows
from repro.model.encoding import WEIGHTS_FILE, check_fit, get_shapes, write_tensors
from repro.model.texts import Texts, pad_right
from repro.text import shorten

HUB_OPTIONS = ("token", "cache_dir", "local_files_only")
IGNORED_OPTIONS = ("_from_auto", "adapter_kwargs", "trust_remote_code", "use_safetensors", "weights_only")
"""Options that transformers passes by itself, or that have no effect because they always hold here."""


class CdeConfig(PreTrainedConfig):
    """`repro` holds our own configuration. `transductive_corpus_size` is for programs that draw context documents."""

    # transformers prints this type, and nothing else of ours, if the folder is opened without this module
    model_type = "cde_repro (import repro.interop.transformers_model first)"
    transductive_corpus_size: int = 512
    repro: dict[str, Any] | None = None


class CdeModel(PreTrainedModel):
    """A biencoder or a contextual model. `encoder` is our own model, with `set_context` and `encode`."""

    config_class = CdeConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"

    def __init__(self, config: CdeConfig) -> None:
        super().__init__(config)
        if config.repro is None:
            raise ValueError("this config.json has no field `repro`: the folder was not exported for transformers")
        model_config = make_config(config.repro, "config.json")
        is_biencoder = model_config.architecture == Biencoder.architecture
        self.encoder = Biencoder(model_config) if is_biencoder else ContextualModel(model_config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        dataset_input_ids: Tensor | None = None,
        dataset_attention_mask: Tensor | None = None,
        dataset_embeddings: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutputWithPooling | tuple[Tensor]:
        """Return `pooler_output`, (N, D), not normalised. With `return_dict=False`, return it as a tuple.

        Texts may be padded on the left. A contextual model needs its context: token ids of documents, or their vectors
        (C × T, E) from `first_stage`. A biencoder ignores it.

        Raises:
            ValueError: if a contextual model has no context.
        """
        texts = self._make_texts(input_ids, attention_mask)
        if isinstance(self.encoder, Biencoder):
            return _output(self.encoder(texts), return_dict)
        if dataset_embeddings is None:
            if dataset_input_ids is None:
                raise ValueError("a contextual model needs dataset_input_ids or dataset_embeddings: its context")
            dataset_embeddings = self.first_stage(dataset_input_ids, dataset_attention_mask)
        contexts_CE = as_context_rows(dataset_embeddings, self.encoder.config)
        return _output(self.encoder.second_stage(texts, contexts_CE), return_dict)

    def first_stage(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the context vectors of documents, (C × T, E). Raises ValueError for a biencoder."""
        if not isinstance(self.encoder, ContextualModel):
            raise ValueError("a biencoder has no first stage: call the model itself")
        return self.encoder.first_stage(self._make_texts(input_ids, attention_mask))

    def _make_texts(self, input_ids: Tensor, attention_mask: Tensor | None) -> Texts:
        config = self.encoder.config
        if input_ids.numel() and int(input_ids.max()) >= config.vocab_size:
            raise ValueError(
                f"input_ids go up to {int(input_ids.max())}, but the model has {config.vocab_size} word vectors: use "
                "the tokenizer of its folder"
            )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return pad_right(Texts(input_ids, mask))

    @classmethod
    def of(cls, model: Model) -> Self:
        """Wrap one of our models. Both share the weights."""
        num_contexts = model.config.num_contexts if isinstance(model, ContextualModel) else 0
        # built with random weights first, which are then replaced
        wrapper = cls(CdeConfig(transductive_corpus_size=num_contexts, repro=asdict(model.config)))
        wrapper.encoder = model
        return wrapper.eval()

    def save_pretrained(self, save_directory: str | Path, **kwargs: Any) -> None:  # type: ignore[override]
        """Write config.json, model.safetensors, and a tokenizer that was read from a folder. Ignores `kwargs`."""
        self.config.architectures = [type(self).__name__]
        self.config.save_pretrained(save_directory)
        write_tensors(dict(self.state_dict()), Path(save_directory) / WEIGHTS_FILE, {"format": "pt"})
        tokenizer = self.encoder.config.tokenizer
        if Path(tokenizer).is_dir():
            write_tokenizer(tokenizer, Path(save_directory))

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, *args: Any, config: CdeConfig | None = None, **kwargs: Any
    ) -> Self:
        """Load a folder or hub id, safetensors only, in eval mode.

        Args:
            kwargs: `dtype` (default: float32), and revision, subfolder, token, cache_dir and local_files_only of the
                hub.

        Raises:
            ValueError: if weights and configuration do not match, or for any other option, which would have no effect.
        """
        _check_options(kwargs)
        hub_options = {name: kwargs[name] for name in HUB_OPTIONS if kwargs.get(name)}
        subfolder = kwargs.get("subfolder") or ""
        files = [str(Path(subfolder, name)) for name in FILES]
        folder = find_folder(pretrained_model_name_or_path, kwargs.get("revision"), files, **hub_options) / subfolder
        # Not the loader of the base class: it draws missing weights at random and only logs them.
        model = cls(config if isinstance(config, CdeConfig) else CdeConfig.from_pretrained(folder))
        weights = read_safetensors(folder / WEIGHTS_FILE)
        message = f"{folder / WEIGHTS_FILE} does not fit its config"
        check_fit(get_shapes(weights), get_shapes(model.state_dict()), message)
        model.load_state_dict(weights)
        encoder_config = model.encoder.config
        model.encoder.config = replace(encoder_config, tokenizer=resolve_tokenizer(encoder_config.tokenizer, folder))
        dtype = kwargs.get("dtype") or kwargs.get("torch_dtype")
        return model.eval() if dtype is None else model.eval().to(_parse_dtype(dtype, weights))


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError for options of transformers that have no effect here."""
    supported = (*HUB_OPTIONS, "revision", "subfolder", "dtype", "torch_dtype", *IGNORED_OPTIONS)
    unknown = sorted(name for name, value in options.items() if name not in supported and value not in (None, False))
    if unknown or options.get("use_safetensors") is False:
        raise ValueError(
            f"from_pretrained does not support {shorten(unknown or ['use_safetensors=False'])} here: leave them out, and "
            "move or change the returned model"
        )


def _parse_dtype(value: Any, weights: Mapping[str, Tensor]) -> torch.dtype:
    """Resolve a dtype or its name. "auto" is the dtype of the file. Raises ValueError for anything else."""
    if value == "auto":
        return next(iter(weights.values())).dtype
    dtype = getattr(torch, value, None) if isinstance(value, str) else value
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype={shorten(value)} is not a floating-point dtype; choose float32, bfloat16 or float16")
    return dtype


def _output(vectors_ND: Tensor, return_dict: bool | None) -> BaseModelOutputWithPooling | tuple[Tensor]:
    return (vectors_ND,) if return_dict is False else BaseModelOutputWithPooling(pooler_output=vectors_ND)


AutoConfig.register(CdeConfig.model_type, CdeConfig, exist_ok=True)
AutoModel.register(CdeConfig, CdeModel, exist_ok=True)
