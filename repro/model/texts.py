"""Batches of token ids, and their division into pieces of similar length to reduce padding.

1. Texts are sorted by length. Ties keep their order.
2. The sorted texts are cut into pieces of at most `size`.
3. Each piece drops columns that contain only padding.
4. The results of all pieces are joined in the original order.

Shapes: N texts, S tokens, D vector size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Texts(NamedTuple):
    """Right-padded token ids and their mask, both int64 (N, S)."""

    ids_NS: Tensor
    mask_NS: Tensor

    @property
    def num_texts(self) -> int:
        """Number of texts N."""
        return int(self.ids_NS.shape[0])

    def rows(self, index_N: Tensor) -> Texts:
        """Return some of the texts, without columns that contain only padding."""
        mask_NS = self.mask_NS[index_N]
        width = max(1, int(mask_NS.sum(1).max())) if len(index_N) else 1
        return Texts(self.ids_NS[index_N, :width], mask_NS[:, :width])

    def to(self, device: torch.device) -> Texts:
        """Return the texts on a device."""
        return Texts(self.ids_NS.to(device), self.mask_NS.to(device))


def make_texts(ids_NS: np.ndarray, mask_NS: np.ndarray) -> Texts:
    """Wrap the arrays that `Tokens.pad` returns."""
    return Texts(torch.from_numpy(ids_NS), torch.from_numpy(mask_NS))


class Pieces(NamedTuple):
    """Batch in pieces. `back_N` restores the original order."""

    pieces: tuple[Texts, ...]
    back_N: Tensor

    def join(self, results: Sequence[Tensor]) -> Tensor:
        """Join one result per piece, (n, …) each, into (N, …) in the original order."""
        return torch.cat(list(results))[self.back_N]

    def split(self, joined_ND: Tensor) -> tuple[Tensor, ...]:
        """Split (N, …) into the parts of the pieces. This is the inverse of `join`."""
        order_N = torch.argsort(self.back_N)
        return torch.split(joined_ND[order_N], [piece.num_texts for piece in self.pieces])


def cut_by_length(texts: Texts, size: int) -> Pieces:
    """Divide a batch into pieces of at most `size` texts of similar length."""
    order_N = torch.argsort(texts.mask_NS.sum(1), stable=True)
    pieces = tuple(texts.rows(index) for index in torch.split(order_N, size))
    # the inverse permutation
    return Pieces(pieces, torch.argsort(order_N))
