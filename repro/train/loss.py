"""InfoNCE over the documents of a batch, with entries left out of the partition function.

1. Rows are L2-normalised. 2. Scores are dot products divided by the temperature. 3. Entries of the mask leave the sum,
but a query's own document never does. 4. The loss is the mean cross entropy of each query's own document.
Paper: eq. 1 and 4, temperature 0.02. Only queries look for documents, not the other way round.

Shapes: Q queries, M documents (B positives, then the hard negatives of query 1, of query 2, …), D size of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LossParts:
    """The loss (a tensor with graph), and what is worth seeing of it: fractions in 0 … 1, without graph."""

    loss: Tensor
    accuracy: Tensor  # queries whose own document scores above every document that was not masked
    masked_fraction: Tensor  # of the entries that are not a query's own

    def detach(self) -> LossParts:
        """Return the same numbers without graph."""
        return LossParts(self.loss.detach(), self.accuracy, self.masked_fraction)


def info_nce(
    queries_QD: Tensor,
    documents_MD: Tensor,
    *,
    temperature: float = 0.02,
    targets_Q: Tensor | None = None,
    masked_QM: Tensor | None = None,
) -> LossParts:
    """Return the loss of queries against documents, computed in at least float32.

    `targets_Q` says which document is a query's own (default: the one of the same row); `masked_QM` is True where a
    document is no negative for a query. ValueError when the shapes do not fit.
    """
    num_queries, num_documents = len(queries_QD), len(documents_MD)
    if targets_Q is None:
        if num_documents < num_queries:
            raise ValueError(f"{num_queries} queries but {num_documents} documents: each needs one, or give targets_Q")
        targets_Q = torch.arange(num_queries, device=queries_QD.device)
    if masked_QM is not None and masked_QM.shape != (num_queries, num_documents):
        raise ValueError(f"masked_QM has shape {tuple(masked_QM.shape)}, not {(num_queries, num_documents)}")
    wide = torch.promote_types(queries_QD.dtype, torch.float32)
    queries_QD = nn.functional.normalize(queries_QD.to(wide), dim=-1)
    documents_MD = nn.functional.normalize(documents_MD.to(wide), dim=-1)
    scores_QM = queries_QD @ documents_MD.T / temperature
    masked_fraction = scores_QM.new_zeros(())
    if masked_QM is not None:
        masked_QM = masked_QM.scatter(1, targets_Q[:, None], False)
        scores_QM = scores_QM.masked_fill(masked_QM, -torch.inf)
        masked_fraction = masked_QM.sum() / max(1, num_queries * (num_documents - 1))
    loss = nn.functional.cross_entropy(scores_QM, targets_Q)
    accuracy = (scores_QM.detach().argmax(1) == targets_Q).float().mean()
    return LossParts(loss, accuracy, masked_fraction)
