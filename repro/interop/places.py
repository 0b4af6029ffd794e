"""Where a model computes, where its scores go, how its context is drawn: checked before anything is scored."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.evaluate.suites import Encoder
from repro.interop.named_runs import run_named
from repro.interop.typed import is_hub_id
from repro.storage.json_files import short
from repro.storage.paths import home

MANY = 10**6


def check_drawing(context_seed: int, num_contexts: int | None) -> None:
    """ValueError for a seed or a number of context documents that cannot be."""
    if not 0 <= context_seed < 2**32:
        raise ValueError(f"--context-seed {context_seed}: must be at least 0 and at most {2**32 - 1}")
    if num_contexts is not None and not 1 <= num_contexts <= MANY:
        raise ValueError(
            f"--num-contexts {num_contexts}: must be at least 1 and at most {MANY}; --context null gives none"
        )


def check_num_contexts(num_contexts: int | None, called: str, most: int) -> None:
    """ValueError for more context documents than a model takes; None stands for its own number."""
    if num_contexts is not None and not 1 <= num_contexts <= most:
        raise ValueError(f"--num-contexts {num_contexts}: {called} takes 1 to {most}")


def check_without_context(
    called: str, contexts: Sequence[str], num_contexts: int | None, beside: str | None = None
) -> None:
    """ValueError where a context is asked for of what has none, or of two of which neither has one."""
    if tuple(contexts) != ("own",) or num_contexts:
        one, two = f"{called} has no context: evaluate it", f"{called} and {beside} have no context: compare them"
        raise ValueError(f"{one if beside is None else two} without --context and --num-contexts")


def check_contexts_of_run(source: str, contexts: Sequence[str], num_contexts: int | None) -> None:
    """ValueError for contexts that the model of a run cannot have, before it is trained; other models pass."""
    run = run_named(source)
    if run is not None and run.architecture == "contextual":
        check_num_contexts(num_contexts, source, run.num_contexts)
    elif run is not None:
        check_without_context(source, contexts, num_contexts)


def check_revision(revision: str | None, *models: str | None) -> None:
    """ValueError for a revision where no model is one of a hub."""
    if revision is not None and not any(is_hub_id(model) for model in models if model is not None):
        named = " and ".join(model for model in models if model is not None)
        raise ValueError(f"--revision {short(revision)}: {named} is no hub id, which alone has revisions; leave it out")


def get_default_folder(asked: Mapping[str, Any], suite: str) -> Path:
    """Return where scores go that nobody named a folder for: model, suite, and a digest of all that was asked for.

    The same command finds what it kept; another model of that name, another context or seed has a folder of its own.
    """
    decides = {name: _whole(value) for name, value in asked.items() if name != "device"}
    for name in ("wrong_from", "leave_out_seen"):  # without these options the folder is that of earlier versions
        if not decides.get(name):
            decides.pop(name, None)
    if not decides.get("whiten"):
        decides = {name: value for name, value in decides.items() if name not in ("whiten", "shrinkage")}
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:8]
    return home() / "evaluations" / f"{get_folder_name(asked['model'], suite)}-{digest}"


def get_folder_name(source: str, *words: str) -> str:
    """Return a folder's name for what a reader called a model; of a folder only its own name."""
    called = Path(source).resolve().name if Path(source).is_dir() else source
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join([called, *words]))


def _whole(value: Any) -> Any:
    """Return a folder's name by its whole path, anything else as it is."""
    return str(Path(value).resolve()) if isinstance(value, str) and value and Path(value).is_dir() else value


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
