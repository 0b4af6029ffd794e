"""Token ids as the models take them, and how a batch is cut into pieces of similar length to compute little padding.

1. Texts are ordered by length (ties by place). 2. The order is cut into pieces of at most `size`. 3. Each piece drops
the columns that are padding for all of it. 4. Whatever is computed per piece is joined back into the first order.

Shapes: N texts, S tokens, D width of what is computed.
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
        """N."""
        return int(self.ids_NS.shape[0])

    def rows(self, index_N: Tensor) -> Texts:
        """Return some texts, without columns that only pad."""
        mask_NS = self.mask_NS[index_N]
        width = max(1, int(mask_NS.sum(1).max())) if len(index_N) else 1
        return Texts(self.ids_NS[index_N, :width], mask_NS[:, :width])

    def to(self, device: torch.device) -> Texts:
        """Return the texts on a device."""
        return Texts(self.ids_NS.to(device), self.mask_NS.to(device))


def right_padded(texts: Texts) -> Texts:
    """Return texts with their padding after them, as positions assume; left padding is moved, nothing else changes."""
    is_in_order_NS = texts.mask_NS[:, :-1] >= texts.mask_NS[:, 1:]
    if bool(is_in_order_NS.all()):
        return texts
    order_NS = torch.argsort(1 - (texts.mask_NS > 0).long(), dim=1, stable=True)
    return Texts(texts.ids_NS.gather(1, order_NS), texts.mask_NS.gather(1, order_NS))


def texts_from(ids_NS: np.ndarray, mask_NS: np.ndarray) -> Texts:
    """Wrap what `Tokens.pad` gives."""
    return Texts(torch.from_numpy(ids_NS), torch.from_numpy(mask_NS))


class Pieces(NamedTuple):
    """A batch in pieces; `back_N` puts the joined results into the first order."""

    pieces: tuple[Texts, ...]
    back_N: Tensor

    def join(self, results: Sequence[Tensor]) -> Tensor:
        """Join one result a piece, (n, …) each, into (N, …)."""
        return torch.cat(list(results))[self.back_N]

    def split(self, whole_ND: Tensor) -> tuple[Tensor, ...]:
        """Cut (N, …) into the parts that belong to the pieces; the inverse of `join`."""
        forth_N = torch.argsort(self.back_N)
        return torch.split(whole_ND[forth_N], [piece.num_texts for piece in self.pieces])


def cut_by_length(texts: Texts, size: int) -> Pieces:
    """Cut a batch into pieces of at most `size` texts of similar length."""
    if size < 1:
        raise ValueError(f"a piece of {size} texts is asked for: it needs at least 1")
    order_N = torch.argsort(texts.mask_NS.sum(1), stable=True)
    pieces = tuple(texts.rows(index) for index in torch.split(order_N, size))
    return Pieces(pieces, torch.argsort(order_N))
