"""Store a training run: its checkpoint, its sessions and its log.

The checkpoint is one safetensors file with weights and optimiser state. It is replaced atomically and contains no
pickle. Its JSON header holds the run id, the number of steps, the sampler state and the sessions.

The log is a JSON-lines file with one line per step, flushed after each step. The checkpoint holds a SHA-256 of the
lines before it. On resume, later lines are cut. An edited, cut or repeated log raises an error, so it never changes a
reported training loss.

A run may start on one machine, resume on another and be measured by a third process. Sessions describe the machines
that computed the weights. They are stored in the checkpoint and copied into records.

Imports: torch is imported on demand, so that a sweep can read progress without it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from repro.records.provenance import describe_machine, get_code_identity, list_versions
from repro.storage.lease import check_leases
from repro.storage.tensor_files import check_digest
from repro.train.performance import NO_AUTOCAST

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

CHECKPOINT_FILE = "checkpoint.safetensors"
METRICS_FILE = "metrics.jsonl"
REMEDY = "restore it, or remove the folder to train again"
WEIGHT, STATE = "model/", "optimizer/"


@dataclass(frozen=True)
class TrainState:
    """Progress of a training run: steps, seconds over all sessions, and the sampler state."""

    run_id: str
    step: int = 0
    seconds: float = 0.0
    sampler: Sequence[int] = ()
    log_sha256: str = ""  # of the log up to this step
    chunks: str = ""  # chunk sizes in the format of REPRO_CHUNKS
    sittings: Sequence[Mapping[str, Any]] = ()  # one entry per session
    best_step: int = 0  # of the lowest loss on the pairs set apart, 0 if there was none yet
    best_loss: float | None = None
    num_worse: int = 0  # measurements since then
    has_ended: bool = False  # before the last step
    holds_best: bool = False  # the weights are those of `best_step`
    cpu_seconds: float = 0.0  # of this process over all sessions
    # Fields of the run, and the stages of its pairs. Empty in old checkpoints.
    values: Mapping[str, Any] = field(default_factory=dict)
    batch: str = ""  # hash of the pairs of the last step


def write_checkpoint(folder: Path, state: TrainState, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write the checkpoint. If this fails, the previous checkpoint is unchanged."""
    from repro.model.encoding import write_tensors

    tensors: dict[str, Tensor] = {WEIGHT + name: value for name, value in model.state_dict().items()}
    for name, weight in model.named_parameters():
        for key, value in optimizer.state.get(weight, {}).items():
            tensors[f"{STATE}{key}/{name}"] = value
    write_tensors(tensors, folder / CHECKPOINT_FILE, {"state": json.dumps(asdict(state))})


def read_checkpoint(
    folder: Path,
    run_id: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    values: Mapping[str, Any] | None = None,
) -> TrainState | None:
    """Load a checkpoint into model and optimiser and return its state, or None if there is none.

    Raises ValueError if the checkpoint is damaged, belongs to another run, was trained with other `values` of the run's
    fields, or does not fit the model. In this case nothing is modified.
    """
    state, path = read_state(folder), folder / CHECKPOINT_FILE
    if state is None:
        return None
    # Checkpoints of earlier versions have no digest.
    check_digest(path)
    if state.run_id != run_id:
        raise ValueError(f"{path} is a checkpoint of run {state.run_id}, not of {run_id}: give each run its own folder")
    _check_values(state.values, values or {}, path)
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — not a mapping
    _restore(tensors, model, optimizer, path)
    return state


def _check_values(stored: Mapping[str, Any], values: Mapping[str, Any], path: Path) -> None:
    """Raise ValueError if a value differs. The id of a run does not contain the values of its scale."""
    for name in sorted(stored.keys() & values.keys()):
        # JSON stores tuples as lists
        value = json.loads(json.dumps(values[name]))
        if stored[name] != value:
            found = (
                f"{path} was trained with {name}={stored[name]!r}, not {value!r}, since its scale or the code changed"
            )
            raise ValueError(f"{found}: restore it, or remove the folder to train again")


def read_state(folder: Path) -> TrainState | None:
    """Return the state in the checkpoint of a folder, or None if there is none. Raises ValueError if it is damaged."""
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, "np") as file:
            stored = json.loads(file.metadata()["state"])
            # Checkpoints of earlier code have fields that this version does not know.
            return TrainState(**{name: stored[name] for name in TrainState.__dataclass_fields__ if name in stored})
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): remove it to start this run again") from error


def is_finished(state: TrainState, num_steps: int) -> bool:
    """Return whether a training run needs no further step."""
    return state.has_ended or state.step >= num_steps


def has_final_weights(state: TrainState | None, num_steps: int) -> bool:
    """Return whether a checkpoint holds the weights of a finished training run: the last ones, or the best ones."""
    return state is not None and is_finished(state, num_steps) and (state.holds_best or not state.best_step)


def _restore(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Copy the tensors into model and optimiser after checking names and shapes."""
    from repro.model.encoding import check_fit, get_shapes

    weights = {name.removeprefix(WEIGHT): value for name, value in tensors.items() if name.startswith(WEIGHT)}
    # All checks come before the first copy, so that a wrong checkpoint changes nothing.
    message = f"{path} does not fit this model (remove it to start this run again)"
    check_fit(get_shapes(weights), get_shapes(model.state_dict()), message)
    by_name = dict(model.named_parameters())
    states = {label: label.removeprefix(STATE).split("/", 1) for label in tensors if label.startswith(STATE)}
    if unknown := sorted({name for _, name in states.values()} - by_name.keys()):
        raise ValueError(f"{message}: state of the optimiser for {unknown[0]}")
    model.load_state_dict(weights)
    for label, value in tensors.items():
        if label in states:
            key, name = states[label]
            optimizer.state[by_name[name]][key] = value.to(by_name[name].device)


def read_checkpoint_step(folder: Path) -> int:
    """Return the number of steps in the checkpoint of a folder, or 0 if it is missing or damaged."""
    # the training run itself reports the damage
    with suppress(ValueError, OSError):
        state = read_state(folder)
        return state.step if state else 0
    return 0


def describe_session(from_step: int, *, autocast: bool, num_processes: int) -> dict[str, Any]:
    """Describe the current session: first step, code, package versions, switches, machine and number of processes."""
    return {
        "from_step": from_step,
        **get_code_identity(),
        "versions": list_versions(),
        "switches": [] if autocast else [NO_AUTOCAST],
        "machine": describe_machine(narrow=autocast),
        "num_processes": num_processes,
    }


class MetricsLog:
    """Open log that continues after `step`. Later lines and an incomplete last line are removed first.

    Raises ValueError if there are fewer lines, or if they do not match `digest` ("" if it is unknown).
    """

    def __init__(self, folder: Path, step: int, digest: str = "") -> None:
        path = folder / METRICS_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._hash = hashlib.sha256()
        self._file = path.open("r+b")
        num_lines = 0
        # In binary and line by line: a log of 10^6 steps opens in less than a second.
        for line in islice(self._file, step):
            self._hash.update(line)
            num_lines += line.endswith(b"\n")
        if num_lines < step:
            raise ValueError(f"{path} has {num_lines} lines, the training took {step} steps: {REMEDY}")
        if digest not in ("", self.digest):
            raise ValueError(f"{path} was changed: it is not the log this checkpoint was written after; {REMEDY}")
        # A crash leaves lines after the last checkpoint, of which the last may be incomplete.
        self._file.truncate(self._file.tell())

    @property
    def digest(self) -> str:
        """SHA-256 of all lines so far."""
        return self._hash.hexdigest()

    def append(self, line: Mapping[str, Any]) -> None:
        """Append one line and flush it."""
        # Sorted keys, so that the digest depends on the values only.
        text = json.dumps(line, sort_keys=True).encode() + b"\n"
        check_leases()
        self._file.write(text)
        self._file.flush()
        self._hash.update(text)

    def sync(self) -> None:
        """Wait until all lines are on disk. Call it before the checkpoint that refers to them."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(folder: Path, num_steps: int | None = None) -> list[dict[str, Any]]:
    """Return the lines of a log in order of step: the first `num_steps`, or all. An incomplete last line is ignored.

    If there is no log and `num_steps` is None or 0, the list is empty. Raises ValueError if the log is shorter than
    `num_steps`, or if a line is no JSON or belongs to another step. `MetricsLog` checks the values by their digest.
    """
    path = folder / METRICS_FILE
    # the part after the last line end is incomplete
    texts = path.read_bytes().split(b"\n")[:-1][:num_steps] if path.is_file() else []
    try:
        lines = [json.loads(text) for text in texts]
        steps = [line["step"] for line in lines]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} has a damaged line ({error}): {REMEDY}") from error
    if steps != list(range(1, 1 + (len(steps) if num_steps is None else num_steps))):
        raise ValueError(f"{path} does not have one line for each of {num_steps or len(steps)} steps: {REMEDY}")
    return lines
