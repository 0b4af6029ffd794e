"""Build models with random, word-vector or pretrained weights, and load saved models.

Values of `start`:
- "random": the initialisation of transformers.
- "words": random, but word vectors are those of MiniLM. They are projected onto their first `hidden_size` principal
  directions (not centred, signs fixed) and scaled to the spread of a random start.
- "minilm": the first layers of MiniLM in both stages.
- NAME@DIGEST: a local encoder (`repro.spec.start`).
- Anything else: a hub id, in transformers' format, from safetensors only and without remote code.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModel
from transformers.utils import logging as transformers_logging

from repro.data.tokens import get_minilm_folder
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig, load_config
from repro.model.contextual import ContextualModel, Model
from repro.model.encoding import check_fit, get_shapes
from repro.model.modeling_cde import Backbone
from repro.seeds import derive
from repro.spec.start import KINDS, get_encoder_folder
from repro.storage.files import name_in_errors
from repro.storage.paths import check_model_name

HEAD_SHIFT = 3.0
"""Bias before the head's nonlinearity, subtracted after it, in standard deviations of a pooled state. Few states are
below −`HEAD_SHIFT`, so GELU or ReLU passes nearly all of them unchanged.
"""
HEADS = ("random", "identity", "both-identity")
PREFIXES = {"nomic": {r"^bert\.": ""}}
"""Name prefixes in a backbone's files that the class does not have. nomic-bert-2048 was saved with a head."""
COPIED_SETTINGS = (
    *("attention_bias", "hidden_act", "hidden_activation", "initializer_range", "layer_norm_eps", "layer_types"),
    *("local_attention", "max_position_embeddings", "mlp_bias", "norm_bias", "norm_eps", "pad_token_id"),
    *("rope_parameters", "type_vocab_size"),
)
"""Fields of a pretrained configuration that affect its output and have no own field in `ModelConfig`."""


def build_model(config: ModelConfig, *, start: str = "random", seed: int = 0, heads: str = "random") -> Model:
    """Build a model. The same arguments give the same weights.

    `heads` is "random" as in the official code, "identity" for an output head that passes pooled states through, or
    "both-identity" for such heads in both stages. Raises ValueError if the start weights do not match.
    """
    if heads not in HEADS:
        raise ValueError(f"heads={heads!r} is unknown; choose one of {[*HEADS]}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "weights"))
        # All weights are drawn first, also those that are replaced below. Heads therefore do not depend on `start`.
        model = Biencoder(config) if config.architecture == "biencoder" else ContextualModel(config)
    if start == "words":
        vectors_VD = load_word_vectors(config.hidden_size)
        for backbone in get_backbones(model):
            place_word_vectors(backbone, vectors_VD)
    elif start != "random":
        for backbone in get_backbones(model):
            load_pretrained_weights(backbone, get_pretrained_folder(start))
    if heads != "random":
        set_identity_heads(model, start, both_stages=heads == "both-identity")
    return model


@torch.no_grad()
def set_identity_heads(model: Model, start: str, *, both_stages: bool) -> None:
    """Initialise heads as identity, so that training starts from a bag of word vectors.

    This applies to the output head or to both heads. A bias of `HEAD_SHIFT` between the two layers lets states pass the
    nonlinearity. Randomly drawn token-type rows become zero, because a common vector in every token makes all texts
    similar.
    """
    for first, _, second in get_heads(model) if both_stages else get_heads(model)[-1:]:
        for layer, shift in ((first, HEAD_SHIFT), (second, -HEAD_SHIFT)):
            assert isinstance(layer, torch.nn.Linear), "heads are Linear, nonlinearity, Linear"
            torch.nn.init.eye_(layer.weight)
            torch.nn.init.constant_(layer.bias, shift)
    for backbone in get_backbones(model):
        if start in ("random", "words") and backbone.kind != "modernbert":
            torch.nn.init.zeros_(backbone.model.embeddings.token_type_embeddings.weight)


def load_model(folder: str | Path) -> Model:
    """Load a folder that `save_pretrained` wrote. Raises ValueError if a file is missing or does not match."""
    architecture = load_config(Path(folder)).architecture
    return (Biencoder if architecture == Biencoder.architecture else ContextualModel).from_pretrained(folder)


def fit_to_start(config: ModelConfig, start: str) -> ModelConfig:
    """Return the config with the sizes of the pretrained weights. Raises ValueError if another field contradicts them."""
    if start in ("random", "words"):
        return config
    pretrained = AutoConfig.from_pretrained(get_pretrained_folder(start))
    kind = KINDS.get(pretrained.model_type)
    if kind != config.backbone:
        raise ValueError(f"start={start!r} is a {pretrained.model_type} model: set backbone={kind!r}")
    is_contextual = config.architecture == "contextual"
    for name in ("num_layers", "num_first_stage_layers") if is_contextual else ("num_layers",):
        if getattr(config, name) > pretrained.num_hidden_layers:
            raise ValueError(f"{name}={getattr(config, name)}: {start!r} has {pretrained.num_hidden_layers} layers")
    if config.hidden_size != pretrained.hidden_size:
        raise ValueError(f"hidden_size={config.hidden_size}: start={start!r} has {pretrained.hidden_size}")
    settings = {name: getattr(pretrained, name, None) for name in COPIED_SETTINGS}
    return replace(
        config,
        num_heads=pretrained.num_attention_heads,
        intermediate_size=pretrained.intermediate_size,
        vocab_size=pretrained.vocab_size,
        backbone_settings={name: value for name, value in settings.items() if value is not None},
    )


def get_heads(model: Model) -> tuple[torch.nn.Sequential, ...]:
    """Return the head of a biencoder, or the heads of both stages."""
    if isinstance(model, Biencoder):
        return (model.mlp,)
    return model.first_stage_model.mlp, model.second_stage_model.output_projection


def get_backbones(model: Model) -> tuple[Backbone, ...]:
    """Return the backbone of a biencoder, or the backbones of both stages."""
    if isinstance(model, Biencoder):
        return (model.embedder,)
    return model.first_stage_model.embedder, model.second_stage_model.backbone


def get_pretrained_folder(start: str) -> str:
    """Return the path or id that transformers loads: a wheel's folder for "minilm", a local encoder's folder, or a hub
    id.
    """
    if start == "minilm":
        return str(get_minilm_folder())
    folder = get_encoder_folder(start)
    if folder is not None:
        return str(folder)
    check_model_name(start)
    return start


@torch.no_grad()
def load_pretrained_weights(backbone: Backbone, source: str) -> None:
    """Copy the pretrained weights of as many layers as the backbone has.

    Raises ValueError if a weight is missing or has another shape. transformers only warns and draws missing weights at
    random.
    """
    expected = backbone.model.state_dict()
    options: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "dtype": torch.float32}
    transformers_logging.disable_progress_bar()
    renaming = {"key_mapping": PREFIXES[backbone.kind]} if backbone.kind in PREFIXES else {}
    with name_in_errors(source):
        model, info = AutoModel.from_pretrained(source, output_loading_info=True, **options, **renaming)
    pretrained = {name: tensor for name, tensor in model.state_dict().items() if name not in info["missing_keys"]}
    # the pretrained model may have more layers
    weights = {name: tensor for name, tensor in pretrained.items() if name in expected}
    check_fit(get_shapes(weights), get_shapes(expected), f"{source} does not fit this {backbone.kind} backbone")
    backbone.model.load_state_dict(weights)


def load_word_vectors(width: int) -> Tensor:
    """Return MiniLM's word vectors in their first `width` principal directions, (V, width).

    Raises ValueError if `width` exceeds 384.
    """
    weights = load_file(get_minilm_folder() / "model.safetensors")
    # float64, because the Gram matrix squares the ratio of the largest to the smallest singular value.
    words_VE = weights["embeddings.word_embeddings.weight"].double()
    if width > words_VE.shape[1]:
        raise ValueError(f"hidden_size={width}: start='words' has vectors of {words_VE.shape[1]} at most")
    # `eigh` returns rising eigenvalues, so the principal directions are the last ones.
    directions_EE = torch.linalg.eigh(words_VE.T @ words_VE).eigenvectors.flip(1)[:, :width]
    # Eigenvectors have an arbitrary sign. Make the largest component positive.
    signs_E = torch.sign(directions_EE.gather(0, directions_EE.abs().argmax(0, keepdim=True)))
    return (words_VE @ (directions_EE * signs_E)).float()


@torch.no_grad()
def place_word_vectors(backbone: Backbone, vectors_VD: Tensor) -> None:
    """Copy word vectors into a backbone, scaled to the standard deviation of its random start."""
    weight_VD = backbone.model.get_input_embeddings().weight
    if weight_VD.shape[0] < vectors_VD.shape[0]:
        raise ValueError(f"vocab_size={weight_VD.shape[0]}: start='words' has {vectors_VD.shape[0]} words")
    # Rows beyond MiniLM's vocabulary keep their random values.
    scale = backbone.model.config.initializer_range / vectors_VD.std()
    weight_VD[: vectors_VD.shape[0]] = vectors_VD * scale
