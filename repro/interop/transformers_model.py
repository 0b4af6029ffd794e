"""Folders for transformers that version 0.1.0 exported. Importing this module lets `AutoModel` open them.

Today's exports carry their code and need no import. An old folder opens as a model of today's code.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from repro.interop import modeling_cde
from repro.interop.official.folder import FILES, find_folder
from repro.interop.self_contained import load_self_contained_model, write_self_contained
from repro.model.biencoder import Biencoder

HUB_OPTIONS = ("token", "cache_dir", "local_files_only")


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
        model = load_self_contained_model(folder)
        kind = modeling_cde.CdeBiencoder if isinstance(model, Biencoder) else modeling_cde.CdeModel
        with tempfile.TemporaryDirectory() as today:
            write_self_contained(model, Path(today))
            opened: modeling_cde.CdePreTrainedModel = kind.from_pretrained(today, **kwargs)
            # before the folder is removed
            opened.tokenizer = opened.tokenizer
        return opened.eval()


AutoConfig.register(CdeConfig.model_type, CdeConfig, exist_ok=True)
AutoModel.register(CdeConfig, CdeModel, exist_ok=True)
