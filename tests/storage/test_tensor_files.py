"""Digests of safetensors files, which every reader of weights checks."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from repro.model.encoding import read_tensors, write_tensors
from repro.storage.tensor_files import check_digest

TENSORS = {"b": torch.arange(600.0).view(20, 30), "a": torch.ones(7, dtype=torch.int64)}


def flip_bits(path: Path, num_bits: int = 12, start: int = 0) -> None:
    """Invert one bit each of some bytes from `start` on."""
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for position in rng.choice(np.arange(start, len(content)), num_bits, replace=False):
        content[position] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


def test_written_tensors_are_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    contents = set()
    for _ in range(5):
        write_tensors(TENSORS, path, {"format": "pt", "state": json.dumps({"ü": 'a "quoted" text'})})
        contents.add(path.read_bytes())
    assert len(contents) == 1, "equal weights give equal files"
    assert check_digest(path)
    for name, value in load_file(path).items():
        assert torch.equal(value, TENSORS[name])


@pytest.mark.parametrize("where", ["header", "tensors"])
def test_flipped_bits_are_refused(tmp_path: Path, where: str) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(TENSORS, path, {"state": json.dumps({"step": 123})})
    if where == "header":
        path.write_bytes(path.read_bytes().replace(b'step\\": 123', b'step\\": 133'))
    else:
        flip_bits(path, start=path.read_bytes().index(b"}}") + 100)
    with pytest.raises(ValueError, match="does not match its digest"):
        read_tensors(path)


def test_other_files_need_no_digest(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x.safetensors")
    assert not check_digest(tmp_path / "x.safetensors")
    assert torch.equal(read_tensors(tmp_path / "x.safetensors")["b"], TENSORS["b"])
