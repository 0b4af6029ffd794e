"""Token states become one vector, or a few, for each text: means over its real tokens only.

A text of n tokens gives T vectors when its tokens are cut into T segments of equal length (±1) and each is averaged.
The cut follows the text's own n, not the padded width of its batch, so a vector never depends on the batch mates; a
segment left empty by a very short text takes the mean of the whole text. Paper: §4.2 (mean pooling), figure 18.

Shapes: N texts, S tokens, D hidden size, T segments.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-6
"""Sum of weights below which a text has none."""


def mean_pool(states_NSD: Tensor, mask_NS: Tensor) -> Tensor:
    """Return the mean over the tokens that the mask keeps or weighs, (N, D); a text without any gives zeros."""
    weights_NS = mask_NS.to(states_NSD.dtype)
    sums_ND = torch.einsum("nsd,ns->nd", states_NSD, weights_NS)
    return sums_ND / weights_NS.sum(1, keepdim=True).clamp(min=LEAST)


def without_instruction(ids_NS: Tensor, mask_NS: Tensor, instruction_end: int) -> Tensor:
    """Return the mask without a text's tokens up to its first `instruction_end` that is not at its start."""
    steps_S = torch.arange(ids_NS.shape[1], device=ids_NS.device)
    is_end_NS = (ids_NS == instruction_end) & mask_NS.bool() & (steps_S > 0)
    return mask_NS * ((is_end_NS.long().cumsum(1) - is_end_NS.long() > 0) | ~is_end_NS.any(1, keepdim=True))


def segment_pool(states_NSD: Tensor, mask_NS: Tensor, num_segments: int) -> Tensor:
    """Return the mean of each of `num_segments` equal parts of a right-padded text, (N, T, D)."""
    if num_segments == 1:
        return mean_pool(states_NSD, mask_NS)[:, None]
    lengths_N = mask_NS.sum(1)
    steps_S = torch.arange(mask_NS.shape[1], device=mask_NS.device)
    segment_NS = steps_S * num_segments // lengths_N.clamp(min=1)[:, None]
    parts_T = torch.arange(num_segments, device=mask_NS.device)
    members_NTS = (segment_NS[:, None, :] == parts_T[None, :, None]) & mask_NS.bool()[:, None, :]
    empty_NT = ~members_NTS.any(2)
    members_NTS = torch.where(empty_NT[:, :, None], mask_NS.bool()[:, None, :], members_NTS)
    weights_NTS = members_NTS.to(states_NSD.dtype)
    weights_NTS = weights_NTS / weights_NTS.sum(2, keepdim=True).clamp(min=1.0)
    return torch.einsum("nts,nsd->ntd", weights_NTS, states_NSD)
