"""Contextual folders of sentence-transformers that version 0.1.0 exported: modules.json names `ContextualModule` here.

The module is that of today's exports, read from the old files. It returns vectors of unit length itself, so the stock
`Normalize` that follows it in such a folder finds nothing to do.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from repro.interop import modeling_cde
from repro.interop.self_contained import is_self_contained, write_self_contained
from repro.model.start import load_model

MODULE_FOLDER = "0_ContextualModule"


class ContextualModule(modeling_cde.ContextualModule):
    """Both stages, from a folder of version 0.1.0. Saving it writes the files of today in its place."""

    save_in_root = False

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any
    ) -> modeling_cde.ContextualModule:
        """Read a folder or hub id. `kwargs` are those of today's module."""
        names = ("token", "cache_folder", "revision", "local_files_only")
        options = {name: kwargs.pop(name) for name in names if kwargs.get(name)}
        path = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **options)
        folder = Path(path or model_name_or_path)
        if is_self_contained(folder):
            return super().load(str(folder), **kwargs)
        with tempfile.TemporaryDirectory() as today:
            write_self_contained(load_model(folder), Path(today))
            return super().load(today, **kwargs)
