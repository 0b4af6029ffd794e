"""Safe loading of weights from untrusted files: safetensors only, never a pickle."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from repro.model.encoding import read_tensors
from repro.storage.files import json_object

PICKLE_ENDINGS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
INDEX_ENDING = ".index.json"
COMPILED_SEGMENT = "_orig_mod."
"""Segment that torch.compile and FSDP add to names."""


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file by name, as float32. `_orig_mod.` segments of names are removed.

    Raises:
        ValueError: if the file is missing, a pickle or damaged, if two names become equal, or if a weight is not
            finite.
    """
    shards = _list_shards(path)
    for shard in shards:
        _check_is_safetensors(shard)
    stored = {name: value for shard in shards for name, value in read_tensors(shard).items()}
    weights = {name.replace(COMPILED_SEGMENT, ""): value.float() for name, value in stored.items()}
    if len(weights) != len(stored):
        duplicates = sorted(
            name for name in stored if COMPILED_SEGMENT in name and name.replace(COMPILED_SEGMENT, "") in stored
        )
        raise ValueError(f"{path} holds weights twice, with and without {COMPILED_SEGMENT!r}: {duplicates[:3]}")
    return weights


def _list_shards(path: Path) -> list[Path]:
    """Return the files of a checkpoint: the file itself, or the shards that its index names."""
    index = path.with_name(path.name + INDEX_ENDING)
    if path.is_file() or not index.is_file():
        return [path]
    weight_map = json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ValueError(f"{index} has no weight_map of names to files: copy or download it again")
    files = sorted(set(weight_map.values()))
    # an index from the internet must not lead to other files of this machine
    outside = [name for name in files if Path(name).name != name]
    if outside:
        raise ValueError(f"{index} names a file outside its folder: {outside[0]!r}")
    return [path.with_name(name) for name in files]


def _check_is_safetensors(path: Path) -> None:
    if path.suffix in PICKLE_ENDINGS:
        raise ValueError(f"{path} is a pickle by its name; only .safetensors files are read, a pickle can run code")
    if not path.is_file():
        pickles = sorted(other.name for other in path.parent.glob("*") if other.suffix in PICKLE_ENDINGS)
        hint = f"; {pickles} would be pickles, which can run code and are never read" if pickles else ""
        raise ValueError(f"{path} is missing{hint}")
    with path.open("rb") as file:
        magic = file.read(4)
    if magic.startswith(PICKLE_STARTS):
        raise ValueError(f"{path} is a pickle under another name; only safetensors are read, a pickle can run code")
