"""A training put on disk and taken up again: one safetensors file, weights and optimiser together, written by rename.

Its header carries, as JSON, whose run it is, how many steps are done and where the sampler stands. No pickle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from repro.model.encoding import check_fit, get_shapes, write_tensors
from repro.train.steps_done import CHECKPOINT_FILE

WEIGHT, STATE = "model/", "optimizer/"


@dataclass(frozen=True)
class TrainState:
    """How far a training is: steps done, seconds spent on them over all sittings, the sampler's state after them."""

    run_id: str
    step: int = 0
    seconds: float = 0.0
    sampler: Sequence[int] = ()
    num_processes: int = 1
    log_sha256: str = ""  # of the lines of the log up to this step; "": not known
    chunks: str = ""  # sizes of the chunks, as REPRO_CHUNKS takes them; "": a checkpoint from before they were stored
    sittings: Sequence[Mapping[str, Any]] = ()  # who did the steps; of trainings made before this was kept: not known


def write_checkpoint(folder: Path, state: TrainState, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write the checkpoint; OSError in one line when it cannot be written, and the one before stays."""
    tensors: dict[str, Tensor] = {WEIGHT + name: value for name, value in model.state_dict().items()}
    for name, weight in model.named_parameters():
        for key, value in optimizer.state.get(weight, {}).items():
            tensors[f"{STATE}{key}/{name}"] = value
    write_tensors(tensors, folder / CHECKPOINT_FILE, {"state": json.dumps(asdict(state))})


def read_checkpoint(folder: Path, run_id: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> TrainState | None:
    """Put a checkpoint into model and optimiser and return its state; None when there is none.

    ValueError when it is another run's, or damaged, or does not fit the model; then nothing was put anywhere.
    """
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        return None
    with _open_checkpoint(path) as file:
        state = _state(file.metadata() or {})
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — not a mapping
    if state.run_id != run_id:
        raise ValueError(f"{path} is a checkpoint of run {state.run_id}, not of {run_id}: give each run its own folder")
    _restore(tensors, model, optimizer, path)
    return state


def sittings_in(folder: Path) -> list[Mapping[str, Any]]:
    """Return who trained the checkpoint in a folder; nothing where there is none, or where it does not tell.

    ValueError when it is damaged.
    """
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        return []
    with _open_checkpoint(path) as file:
        return list(_state(file.metadata() or {}).sittings)


def chunks_in(folder: Path) -> str:
    """Return the chunk sizes of the checkpoint in a folder, "" if there are none; ValueError if it is damaged."""
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        return ""
    with _open_checkpoint(path) as file:
        return _state(file.metadata() or {}).chunks


@contextmanager
def _open_checkpoint(path: Path) -> Iterator[Any]:
    """Yield a checkpoint's file; ValueError for whatever is wrong with it as it is read."""
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): remove it to start this run again") from error


def _state(header: Mapping[str, str]) -> TrainState:
    """Return the state a header tells; ValueError when it tells none."""
    told = json.loads(header["state"])
    told.pop("shares_batches", None)  # of earlier checkpoints, where it always was true
    found = TrainState(**told)
    wanted: dict[str, type | tuple[type, ...]] = {"run_id": str, "step": int, "seconds": (int, float)}
    wanted |= {"sampler": list, "num_processes": int, "sittings": (list, tuple), "chunks": str}
    wrong = [name for name, kind in wanted.items() if not isinstance(getattr(found, name), kind)]
    if not wrong and not all(isinstance(sitting, dict) for sitting in found.sittings):
        wrong.append("sittings")
    if found.chunks and not re.fullmatch(r"[1-9]\d{0,8},[1-9]\d{0,8}", found.chunks):
        wrong.append("chunks")
    if wrong or found.step < 0 or not found.seconds >= 0 or not isinstance(found.log_sha256, str):
        raise ValueError(f"its state is not one: {str(header['state'])[:80]}")
    return found


def _restore(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    weights = {name.removeprefix(WEIGHT): value for name, value in tensors.items() if name.startswith(WEIGHT)}
    says = f"{path} does not fit this model (remove it to start this run again)"
    check_fit(get_shapes(weights), get_shapes(model.state_dict()), says)
    by_name = dict(model.named_parameters())
    labels = [label.removeprefix(STATE).partition("/")[2] for label in tensors if label.startswith(STATE)]
    if strangers := sorted(set(labels) - set(by_name)):
        raise ValueError(f"{path} holds an optimiser of other weights, first {strangers[0]!r}: remove it to start anew")
    model.load_state_dict(weights)
    for label, value in tensors.items():
        if label.startswith(STATE):
            key, name = label.removeprefix(STATE).split("/", 1)
            stays = key == "step" and not optimizer.defaults.get("fused")  # else AdamW waits for each on a GPU
            optimizer.state[by_name[name]][key] = value if stays else value.to(by_name[name].device)
