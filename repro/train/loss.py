"""Contrastive losses: InfoNCE, GTE's improved contrastive loss, and Matryoshka sums over prefixes of the vectors.

InfoNCE (CDE eq. 1 and 4):
1. L2-normalise the vectors.
2. Compute scores as dot products divided by the temperature.
3. Remove masked entries from the sum. A query's own document is never removed.
4. Return the mean cross entropy of each query's own document. Only queries are contrasted with documents, not documents
   with queries.

Improved contrastive loss (GTE eq. 5 and 6): the same with a larger denominator. For a query and its document, it
contains the scores of the query with all documents and with other queries. It also contains those of the document with
all queries and with other documents. As printed in the paper, the own pair occurs twice. A document's own hard
negatives are not among its other documents.

Nested loss (Matryoshka Representation Learning, c_m = 1): the sum of a loss over prefixes, each normalised separately.

Shapes: Q queries, M documents (B positives, then the hard negatives of query 1, of query 2, …), D vector size, K = 2 (Q
+ M) columns of the four directions: query to documents, query to queries, document to queries, document to documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from repro.batches.mask import compute_masked_fraction
from repro.spec import find_implementation


@dataclass(frozen=True)
class LossParts:
    """Loss with its graph, and statistics without a graph, as fractions in 0 … 1."""

    loss: Tensor
    # share of queries whose own document has the highest score of all unmasked documents
    accuracy: Tensor
    masked_fraction: Tensor  # share of masked terms of the sum, without the target

    def detach(self) -> LossParts:
        """Return the same values without a graph."""
        return LossParts(self.loss.detach(), self.accuracy, self.masked_fraction)


def info_nce(
    queries_QD: Tensor, documents_MD: Tensor, temperature: float = 0.02, masked_QM: Tensor | None = None
) -> LossParts:
    """Return the InfoNCE loss, computed in at least float32. Document q is the positive of query q.

    `masked_QM` is True where a document is not a negative of a query.
    """
    assert len(documents_MD) >= len(queries_QD), "each query has a document"
    return _cross_entropy(_normalize(queries_QD) @ _normalize(documents_MD).T / temperature, masked_QM)


def improved_contrastive(
    queries_QD: Tensor, documents_MD: Tensor, temperature: float = 0.02, masked_QK: Tensor | None = None
) -> LossParts:
    """Return the improved contrastive loss, computed in at least float32.

    `masked_QK` is True where a text is not a negative of a query or of its document, in the four directions.
    """
    num_queries, num_documents = len(queries_QD), len(documents_MD)
    queries_QD, documents_MD = _normalize(queries_QD), _normalize(documents_MD)
    own_QD = documents_MD[:num_queries]
    # the four directions, in the order of `mask_directions`
    scores = [queries_QD @ documents_MD.T, queries_QD @ queries_QD.T, own_QD @ queries_QD.T, own_QD @ documents_MD.T]
    absent_QK = _find_own_entries(num_queries, num_documents, queries_QD.device)
    scores_QK = (torch.cat(scores, 1) / temperature).masked_fill(absent_QK, -torch.inf)
    return _cross_entropy(scores_QK, None if masked_QK is None else masked_QK & ~absent_QK, num_documents)


def _cross_entropy(scores_QK: Tensor, masked_QK: Tensor | None, num_documents: int | None = None) -> LossParts:
    """Return the loss of a score matrix whose column q is the own document of query q.

    `num_documents` has the meaning of `compute_masked_fraction`.
    """
    # A mask of another shape would be broadcast.
    assert masked_QK is None or masked_QK.shape == scores_QK.shape, "a mask has one entry per score"
    # Column q is the target of row q, and it is never masked.
    targets_Q = torch.arange(len(scores_QK), device=scores_QK.device)
    fraction = scores_QK.new_zeros(())
    if masked_QK is not None:
        # A score of −inf removes a term: its exponential and its gradient are zero.
        masked_QK = masked_QK.scatter(1, targets_Q[:, None], False)
        scores_QK = scores_QK.masked_fill(masked_QK, -torch.inf)
        fraction = compute_masked_fraction(masked_QK, num_documents)
    loss = nn.functional.cross_entropy(scores_QK, targets_Q)
    # accuracy compares documents only, not the other three directions
    accuracy = (scores_QK[:, :num_documents].detach().argmax(1) == targets_Q).float().mean()
    return LossParts(loss, accuracy, fraction)


def _find_own_entries(num_queries: int, num_documents: int, device: torch.device) -> Tensor:
    """Return the entries that are not terms of the sum, bool (Q, K): a text with itself, and a document with its own
    hard negatives.
    """
    itself_QQ = torch.eye(num_queries, dtype=torch.bool, device=device)
    num_negatives = num_documents // num_queries - 1
    own_QM = torch.cat([itself_QQ, itself_QQ.repeat_interleave(num_negatives, 1)], 1)
    return torch.cat([torch.zeros_like(own_QM), itself_QQ, torch.zeros_like(itself_QQ), own_QM], 1)


def _normalize(vectors_ND: Tensor) -> Tensor:
    """Return L2-normalised vectors in at least float32."""
    # Half precision rounds cosines to two or three digits, and a temperature of 0.02 multiplies the error by 50.
    wide = torch.promote_types(vectors_ND.dtype, torch.float32)
    return nn.functional.normalize(vectors_ND.to(wide), dim=-1)


def batch_loss(
    queries_QD: Tensor,
    documents_MD: Tensor,
    *,
    loss: str = "infonce",
    widths: Sequence[int] = (),
    temperature: float = 0.02,
    masked: Tensor | None = None,
) -> LossParts:
    """Return the loss `LOSSES[loss]`, summed over prefixes with these widths. Without widths, it uses whole vectors.

    `masked` has the shape that this loss requires. Accuracy and masked fraction are those of the widest prefix.
    """
    compute = find_implementation("loss", loss, LOSSES, f"LOSSES in {__name__}")
    if not widths:
        return compute(queries_QD, documents_MD, temperature, masked)
    # A slice would silently be narrower.
    assert max(widths) <= queries_QD.shape[-1], "a prefix is no wider than the vectors"
    # Each prefix is normalised again, inside the loss. The filter's mask is the same for all prefixes.
    parts = [compute(queries_QD[:, :width], documents_MD[:, :width], temperature, masked) for width in sorted(widths)]
    return LossParts(torch.stack([part.loss for part in parts]).sum(), parts[-1].accuracy, parts[-1].masked_fraction)


LOSSES: dict[str, Callable[[Tensor, Tensor, float, Tensor | None], LossParts]] = {
    "infonce": info_nce,
    "icl": improved_contrastive,
}
"""Losses by their name in `Run.loss`."""
