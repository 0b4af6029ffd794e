"""Where a model computes, where its scores go, how its context is drawn: checked before anything is scored."""

from __future__ import annotations

from pathlib import Path

from repro.evaluate.suites import Encoder
from repro.storage.json_files import short

MANY = 10**6


def check_drawing(context_seed: int, num_contexts: int | None) -> None:
    """ValueError for a seed or a number of context documents that cannot be."""
    if not 0 <= context_seed < 2**32:
        raise ValueError(f"--context-seed {context_seed}: must be at least 0 and at most {2**32 - 1}")
    if num_contexts is not None and not 1 <= num_contexts <= MANY:
        raise ValueError(
            f"--num-contexts {num_contexts}: must be at least 1 and at most {MANY}; --context null gives none"
        )


def to_device(model: Encoder, device: str | None) -> None:
    """Put a model on a device, a GPU unless another is named; ValueError names those that are here."""
    import torch

    wanted = device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_device(wanted)
    if hasattr(model, "to"):
        model.to(wanted)


def check_device(device: str | None) -> None:
    """ValueError, with those that are here, for a device that is not on this machine or computes nothing ("meta")."""
    if not device:
        return
    import torch

    here = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    try:
        meant = torch.device(device)
        if meant.type not in ("cpu", "meta"):
            torch.empty(1, device=meant)
        is_here = meant.type != "meta" and (meant.type != "cpu" or not meant.index)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {short(device)!r} is not on this machine; choose one of {here}") from error
    if not is_here:
        raise ValueError(f"device {short(device)!r} is not on this machine; choose one of {here}")


def check_folder(folder: Path | None) -> None:
    """ValueError when a folder could not be made, before minutes of scoring, since something else has its name."""
    for path in () if folder is None else (folder, *folder.parents):
        if path.exists():
            if not path.is_dir():
                raise ValueError(f"{path} is no folder: nothing was scored; choose another with --out")
            return
