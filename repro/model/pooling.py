"""Pool token states into one or several vectors per text, over real tokens only (§5, mean pooling; figure 18).

For T vectors, a text of n tokens is divided into T segments of equal length (±1), and each is averaged. The segments
depend on n, not on the padded width, so a vector does not depend on the batch. An empty segment of a very short text
uses the mean of the whole text.

Shapes: N texts, S tokens, D hidden size, T segments.
"""

from __future__ import annotations

import torch
from torch import Tensor

MIN_WEIGHT = 1e-6
"""Lower bound for the sum of weights, which avoids division by zero."""


def mean_pool(states_NSD: Tensor, mask_NS: Tensor) -> Tensor:
    """Return the mean over tokens, weighted by the mask, (N, D). A text without tokens gives zeros."""
    weights_NS = mask_NS.to(states_NSD.dtype)
    sums_ND = torch.einsum("nsd,ns->nd", states_NSD, weights_NS)
    return sums_ND / weights_NS.sum(1, keepdim=True).clamp(min=MIN_WEIGHT)


def mask_instruction(ids_NS: Tensor, mask_NS: Tensor, instruction_end: int) -> Tensor:
    """Return the mask without the instruction: all tokens up to the first `instruction_end` after position 0."""
    positions_S = torch.arange(ids_NS.shape[1], device=ids_NS.device)
    is_end_NS = (ids_NS == instruction_end) & mask_NS.bool() & (positions_S > 0)
    # The cumulative sum counts the ends up to each token. A token's own end is subtracted, because it does not follow
    # the instruction.
    num_ends_before_NS = is_end_NS.long().cumsum(1) - is_end_NS.long()
    has_no_end_N1 = ~is_end_NS.any(1, keepdim=True)
    return mask_NS * ((num_ends_before_NS > 0) | has_no_end_N1)


def segment_pool(states_NSD: Tensor, mask_NS: Tensor, num_segments: int) -> Tensor:
    """Return the means of `num_segments` equal segments of right-padded texts, (N, T, D)."""
    if num_segments == 1:
        return mean_pool(states_NSD, mask_NS)[:, None]
    lengths_N = mask_NS.sum(1)
    positions_S = torch.arange(mask_NS.shape[1], device=mask_NS.device)
    # Token s of a text with n tokens belongs to segment floor(s * T / n).
    segment_NS = positions_S * num_segments // lengths_N.clamp(min=1)[:, None]
    segments_T = torch.arange(num_segments, device=mask_NS.device)
    is_token_N1S = mask_NS.bool()[:, None, :]
    members_NTS = (segment_NS[:, None, :] == segments_T[None, :, None]) & is_token_N1S
    empty_NT = ~members_NTS.any(2)
    # An empty segment uses all tokens of its text.
    members_NTS = torch.where(empty_NT[:, :, None], is_token_N1S, members_NTS)
    weights_NTS = members_NTS.to(states_NSD.dtype)
    weights_NTS = weights_NTS / weights_NTS.sum(2, keepdim=True).clamp(min=1.0)
    return torch.einsum("nts,nsd->ntd", weights_NTS, states_NSD)
