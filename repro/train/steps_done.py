"""How far a training is, read off its checkpoint's header: no weight is read, and nothing here needs torch."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

CHECKPOINT_FILE = "checkpoint.safetensors"


def steps_done(folder: Path) -> int:
    """Return the steps that the checkpoint in a run's folder has behind it; 0 for none, or one that is damaged."""
    try:
        with safe_open(folder / CHECKPOINT_FILE, "np") as file:
            return int(json.loads((file.metadata() or {})["state"])["step"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return 0  # the training says what is wrong with it
