"""Folders for transformers that version 0.1.0 exported. Importing this module lets `AutoModel` open them.

Today's exports carry their code and need no import. An old folder opens as a model of today's code.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from repro.data.tokens import resolve_tokenizer
from repro.interop import modeling_cde
from repro.interop.official.folder import FILES, find_folder
from repro.interop.safe_weights import read_safetensors
from repro.interop.self_contained import write_self_contained
from repro.model.biencoder import Biencoder
from repro.model.config import CONFIG_FILE, make_config
from repro.model.contextual import ContextualModel, Model
from repro.model.encoding import WEIGHTS_FILE, check_fit, get_shapes
from repro.storage.files import json_object

HUB_OPTIONS = ("token", "cache_dir", "local_files_only")
PREFIX = "encoder."
"""Names of weights in an old folder begin so."""


class CdeConfig(PreTrainedConfig):
    """`repro` holds our own configuration."""

    # transformers prints this type, and nothing else of ours, if the folder is opened without this module
    model_type = "cde_repro (import repro.interop.transformers_model first)"
    repro: dict[str, Any] | None = None


class CdeModel(PreTrainedModel):
    """Opens an old folder. It has no instances: `from_pretrained` returns a model of `modeling_cde`."""

    config_class = CdeConfig

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, *args: Any, config: CdeConfig | None = None, **kwargs: Any
    ) -> modeling_cde.CdePreTrainedModel:
        """Read a folder or hub id in eval mode. Other options are those of transformers.

        Raises:
            ValueError: if weights and configuration do not match.
        """
        hub_options = {name: kwargs.pop(name, None) for name in HUB_OPTIONS}
        revision, subfolder = kwargs.pop("revision", None), kwargs.pop("subfolder", None) or ""
        files = [str(Path(subfolder, name)) for name in FILES]
        folder = find_folder(pretrained_model_name_or_path, revision, files, **hub_options) / subfolder
        model = load_old_model(folder)
        kind = modeling_cde.CdeBiencoder if isinstance(model, Biencoder) else modeling_cde.CdeModel
        with tempfile.TemporaryDirectory() as today:
            write_self_contained(model, Path(today))
            opened: modeling_cde.CdePreTrainedModel = kind.from_pretrained(today, **kwargs)
            # before the folder is removed
            opened.tokenizer = opened.tokenizer
        return opened.eval()


def load_old_model(folder: Path) -> Model:
    """Read an old folder as one of our models, in eval mode. ValueError if weights and configuration do not match."""
    path = folder / CONFIG_FILE
    values = json_object(path).get("repro")
    if not isinstance(values, dict):
        raise ValueError(f"{path} has no field `repro`: the folder was not exported for transformers")
    config = make_config(values, str(path))
    config = replace(config, tokenizer=resolve_tokenizer(config.tokenizer, folder))
    model: Model = Biencoder(config) if config.architecture == Biencoder.architecture else ContextualModel(config)
    stored = read_safetensors(folder / WEIGHTS_FILE)
    weights = {name.removeprefix(PREFIX): weight for name, weight in stored.items()}
    check_fit(get_shapes(weights), get_shapes(model.state_dict()), f"{folder / WEIGHTS_FILE} does not fit its config")
    model.load_state_dict(weights)
    return model.eval()


AutoConfig.register(CdeConfig.model_type, CdeConfig, exist_ok=True)
AutoModel.register(CdeConfig, CdeModel, exist_ok=True)
