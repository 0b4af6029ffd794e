"""Digests inside safetensors files: numbers that are computed from damaged weights look like any others.

The digest covers the header without the digest itself, and all bytes of the tensors. This module does not import torch.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

DIGEST = "sha256"
METADATA = "__metadata__"


def add_digest(path: Path) -> None:
    """Store the digest of a safetensors file in its header, which must have a placeholder of the same length."""
    with path.open("r+b") as file:
        header, size = _read_header(file)
        # The library writes the metadata in random order. Sorted, equal weights give equal files.
        header[METADATA] = dict(sorted((header[METADATA] | {DIGEST: _compute_digest(file, header)}).items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
        assert len(text) == size, "the placeholder has the length of the digest"
        file.seek(8)
        file.write(text)


def check_digest(path: Path) -> bool:
    """Raise ValueError if a file does not match its digest. Return whether it has one."""
    with path.open("rb") as file:
        try:
            header, _ = _read_header(file)
            expected = header.get(METADATA, {}).get(DIGEST)
        except (ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is damaged ({error}): restore or remove it") from error
        if expected is not None and expected != _compute_digest(file, header):
            raise ValueError(f"{path} is damaged: its content does not match its digest; restore or remove it")
    return expected is not None


def _read_header(file: io.BufferedReader | io.BufferedRandom) -> tuple[dict[str, Any], int]:
    """Return the header and its length, and leave the file at the first tensor."""
    size = int.from_bytes(file.read(8), "little")
    header: dict[str, Any] = json.loads(file.read(min(size, 2**27)))
    return header, size


def _compute_digest(file: io.BufferedReader | io.BufferedRandom, header: dict[str, Any]) -> str:
    """Return the digest of a header and of the rest of the file."""
    metadata = {name: value for name, value in header[METADATA].items() if name != DIGEST}
    digest = hashlib.sha256(json.dumps(header | {METADATA: metadata}, sort_keys=True).encode())
    return hashlib.file_digest(file, lambda: digest).hexdigest()
