"""The losses of a batch: InfoNCE, GTE's improved contrastive loss, and either summed over prefixes of the vectors.

InfoNCE (CDE eq. 1 and 4): 1. Rows are L2-normalised. 2. Scores are dot products divided by the temperature. 3. Entries
of the mask leave the sum, but a query's own document never does. 4. The loss is the mean cross entropy of each query's
own document. Only queries look for documents, not the other way round.

Improved contrastive loss (GTE eq. 5 and 6): the same with a larger sum: of a query and its document, scores with all
documents, of the query with other queries, of the document with all queries, and with other documents. The own pair
stands in it twice, as printed; a document's own hard negatives are no other documents.

Nested (Matryoshka Representation Learning, c_m = 1): the sum of a loss over prefixes, each normalised anew.

Shapes: Q queries, M documents (B positives, then the hard negatives of query 1, of query 2, …), D size of a vector,
K = 2 (Q + M) entries of the four directions: query to documents, to queries, document to queries, to documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from repro.batches.mask import compute_masked_fraction


@dataclass(frozen=True)
class LossParts:
    """The loss (a tensor with graph), and what is worth seeing of it: fractions in 0 … 1, without graph."""

    loss: Tensor
    accuracy: Tensor  # queries whose own document scores above every document that was not masked
    masked_fraction: Tensor  # of the terms of the sum but the target

    def detach(self) -> LossParts:
        """Return the same numbers without graph."""
        return LossParts(self.loss.detach(), self.accuracy, self.masked_fraction)


def info_nce(
    queries_QD: Tensor, documents_MD: Tensor, temperature: float = 0.02, masked_QM: Tensor | None = None
) -> LossParts:
    """Return the loss of queries against documents, computed in at least float32; a query's own is that of its row.

    `masked_QM` is True where a document is no negative for a query. ValueError when the shapes do not fit.
    """
    num_queries, num_documents = len(queries_QD), len(documents_MD)
    if num_documents < num_queries:
        raise ValueError(f"{num_queries} queries but {num_documents} documents: each needs one")
    if masked_QM is not None and masked_QM.shape != (num_queries, num_documents):
        raise ValueError(f"masked_QM has shape {tuple(masked_QM.shape)}, not {(num_queries, num_documents)}")
    return _cross_entropy(_unit(queries_QD) @ _unit(documents_MD).T / temperature, masked_QM)


def improved_contrastive(
    queries_QD: Tensor, documents_MD: Tensor, temperature: float = 0.02, masked_QK: Tensor | None = None
) -> LossParts:
    """Return the improved contrastive loss, computed in at least float32; `masked_QK` is True where a text is no
    negative for a query (or for its document), in any of the four directions. ValueError when the shapes do not fit.
    """
    num_queries, num_documents = len(queries_QD), len(documents_MD)
    if not num_queries or num_documents % num_queries:
        raise ValueError(f"{num_documents} documents are no pairs of {num_queries} queries with as many negatives each")
    shape = (num_queries, 2 * (num_queries + num_documents))
    if masked_QK is not None and masked_QK.shape != shape:
        raise ValueError(f"masked_QK has shape {tuple(masked_QK.shape)}, not {shape}")
    queries_QD, documents_MD = _unit(queries_QD), _unit(documents_MD)
    own_QD = documents_MD[:num_queries]
    every = [queries_QD @ documents_MD.T, queries_QD @ queries_QD.T, own_QD @ queries_QD.T, own_QD @ documents_MD.T]
    absent_QK = _itself(num_queries, num_documents, queries_QD.device)
    scores_QK = (torch.cat(every, 1) / temperature).masked_fill(absent_QK, -torch.inf)
    return _cross_entropy(scores_QK, None if masked_QK is None else masked_QK & ~absent_QK, num_documents)


def _cross_entropy(scores_QK: Tensor, masked_QK: Tensor | None, num_documents: int | None = None) -> LossParts:
    """Return the loss by scores, column q the own document of query q; `num_documents` as `compute_masked_fraction` has it."""
    targets_Q = torch.arange(len(scores_QK), device=scores_QK.device)
    fraction = scores_QK.new_zeros(())
    if masked_QK is not None:
        masked_QK = masked_QK.scatter(1, targets_Q[:, None], False)
        scores_QK = scores_QK.masked_fill(masked_QK, -torch.inf)
        fraction = compute_masked_fraction(masked_QK, num_documents)
    loss = nn.functional.cross_entropy(scores_QK, targets_Q)
    accuracy = (scores_QK[:, :num_documents].detach().argmax(1) == targets_Q).float().mean()
    return LossParts(loss, accuracy, fraction)


def _itself(num_queries: int, num_documents: int, device: torch.device) -> Tensor:
    """Return the entries that stand in no sum: a text and itself, a document and its own hard negatives, (Q, K)."""
    itself_QQ = torch.eye(num_queries, dtype=torch.bool, device=device)
    num_negatives = num_documents // num_queries - 1
    own_QM = torch.cat([itself_QQ, itself_QQ.repeat_interleave(num_negatives, 1)], 1)
    return torch.cat([torch.zeros_like(own_QM), itself_QQ, torch.zeros_like(itself_QQ), own_QM], 1)


def _unit(vectors_ND: Tensor) -> Tensor:
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
    """Return a loss by its name in `LOSSES`, summed over prefixes of these widths; without any, of whole vectors.

    `masked` is as that loss has it. Accuracy and masked fraction are those of the widest prefix. ValueError when a
    prefix is wider than the vectors.
    """
    of, size = LOSSES[loss], queries_QD.shape[-1]
    if not widths:
        return of(queries_QD, documents_MD, temperature, masked)
    if max(widths) > size:
        raise ValueError(f"a prefix of {max(widths)} dimensions is wider than vectors of {size}")
    parts = [of(queries_QD[:, :m], documents_MD[:, :m], temperature, masked) for m in sorted(widths)]
    return LossParts(torch.stack([part.loss for part in parts]).sum(), parts[-1].accuracy, parts[-1].masked_fraction)


LOSSES: Mapping[str, Callable[[Tensor, Tensor, float, Tensor | None], LossParts]] = {
    "infonce": info_nce,
    "icl": improved_contrastive,
}
"""The losses by the words of `Run.loss`."""
