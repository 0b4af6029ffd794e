"""Compute gradients of one or two stages with a fixed memory budget, equal to plain autograd (§4.2, GradCache).

If all texts fit in one chunk, one graph and one backward pass suffice. Otherwise there are two passes:
1. Without a graph, the first stage computes the context vectors and the second stage computes all representations. The
   random state before each piece is recorded.
2. The loss is computed on the representations, and its gradient with respect to them.
3. Each piece of texts runs again with a graph, from its recorded random state. Its backward pass starts from the
   gradient of its representations. It adds gradients to the second stage's weights and to the context vectors.
4. Each piece of context documents runs again in the same way. Its backward pass starts from the gradient of its context
   vectors.

If processes share a batch, each computes a share of the context documents. In step 1, `gather` collects the context
vectors of all processes. Before step 4, its backward sums the gradients of all processes with respect to a process's
own vectors. No state is stored between steps.

The result equals autograd over the same pieces. Stages with random drops draw per piece. Other chunk or piece sizes may
therefore draw other values of the same distribution.

Shapes: N texts, Q queries, M documents, C context vectors, T context vectors per document, D vector size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from repro.model.texts import Pieces, Texts, cut_by_length
from repro.train.loss import LossParts
from repro.train.performance import ChunkSizes

FirstStage = Callable[[Texts], Tensor]
SecondStage = Callable[[Texts, Tensor | None], Tensor]
Loss = Callable[[Tensor, Tensor], LossParts]
Gather = Callable[[Tensor], Tensor]
DEFAULT = ChunkSizes()


@dataclass(frozen=True)
class Stages:
    """Functions to differentiate. `second(texts, contexts_CD)` returns (N, D), `first(texts)` returns (N × T, D).

    `gather` returns the context vectors of all processes, given those of this process. It is differentiable and is
    called once per step.
    """

    second: SecondStage
    loss: Loss
    first: FirstStage | None = None
    gather: Gather = lambda own_CD: own_CD


@dataclass(frozen=True)
class StepTexts:
    """Texts of one step. `contexts` are the documents for the first stage, or None for a model with one stage."""

    queries: Texts
    documents: Texts
    contexts: Texts | None = None

    def to(self, device: torch.device) -> StepTexts:
        """Return the texts on a device."""
        contexts = None if self.contexts is None else self.contexts.to(device)
        return StepTexts(self.queries.to(device), self.documents.to(device), contexts)


def add_gradients(stages: Stages, step: StepTexts, sizes: ChunkSizes = DEFAULT) -> LossParts:
    """Add the gradient of the step's loss to the `.grad` of all weights. Return the loss without its graph."""
    assert (stages.first is None) == (step.contexts is None), "a first stage and context documents belong together"
    num_texts = step.queries.num_texts + step.documents.num_texts
    num_contexts = step.contexts.num_texts if step.contexts is not None else 0
    if sizes.hold(num_texts, num_contexts):
        return _add_gradients_directly(stages, step, sizes)
    return _add_gradients_in_chunks(stages, step, sizes)


def _add_gradients_directly(stages: Stages, step: StepTexts, sizes: ChunkSizes) -> LossParts:
    """Add the gradients in one pass, with the graphs of all texts in memory."""
    piece_sizes = sizes.on(step.queries.ids_NS.device)
    contexts_CD = None
    if stages.first is not None and step.contexts is not None:
        contexts = cut_by_length(step.contexts, piece_sizes.contexts)
        contexts_CD = stages.gather(_join(contexts, [stages.first(piece) for piece in contexts.pieces]))
    queries = cut_by_length(step.queries, piece_sizes.texts)
    documents = cut_by_length(step.documents, piece_sizes.texts)
    queries_QD = _join(queries, [stages.second(piece, contexts_CD) for piece in queries.pieces])
    documents_MD = _join(documents, [stages.second(piece, contexts_CD) for piece in documents.pieces])
    parts = stages.loss(queries_QD, documents_MD)
    parts.loss.backward()
    return parts.detach()


def _add_gradients_in_chunks(stages: Stages, step: StepTexts, sizes: ChunkSizes) -> LossParts:
    """Add the gradients in two passes, with the graph of one piece in memory."""
    piece_sizes = sizes.on(step.queries.ids_NS.device)
    contexts_CD = None
    if stages.first is not None and step.contexts is not None:
        contexts = Replay.run(stages.first, cut_by_length(step.contexts, piece_sizes.contexts))
        all_CD = stages.gather(contexts.vectors_ND)
        # Cut the graph: the second stage collects the gradient of all texts at this leaf.
        contexts_CD = all_CD.detach().requires_grad_()

    def second(texts: Texts) -> Tensor:
        return stages.second(texts, contexts_CD)

    queries = Replay.run(second, cut_by_length(step.queries, piece_sizes.texts))
    documents = Replay.run(second, cut_by_length(step.documents, piece_sizes.texts))
    # Queries and documents are leaves too, so this backward pass ends at the representations.
    parts = stages.loss(queries.vectors_ND, documents.vectors_ND)
    parts.loss.backward()
    # Both add to the gradient at the context vectors, so they must finish before the first stage.
    queries.backpropagate()
    documents.backpropagate()
    if contexts_CD is not None:
        # All processes must call this backward, because it communicates. Without a gradient, send zeros.
        all_CD.backward(torch.zeros_like(all_CD) if contexts_CD.grad is None else contexts_CD.grad)
        contexts.backpropagate()
    return parts.detach()


def _join(pieces: Pieces, results: Sequence[Tensor]) -> Tensor:
    """Join the results of all pieces in the order of the texts. Each text has the same number of rows (1 or T)."""
    pairs = zip(pieces.pieces, results, strict=True)
    return pieces.join([result.unflatten(0, (piece.num_texts, -1)) for piece, result in pairs]).flatten(0, 1)


@dataclass(frozen=True)
class Replay:
    """Output of a stage without a graph, and the state needed to recompute it with a graph."""

    stage: FirstStage
    pieces: Pieces
    states: Sequence[RandomState]  # random state before each piece
    vectors_ND: Tensor  # leaf that receives the gradient

    @classmethod
    def run(cls, stage: FirstStage, pieces: Pieces) -> Replay:
        """Run the stage on all pieces without a graph."""
        results = []
        states = []
        with torch.no_grad():
            for piece in pieces.pieces:
                states.append(RandomState.capture())
                results.append(stage(piece))
            # Joined without a graph, so the result is a leaf and the loss's backward pass ends at it.
            vectors_ND = _join(pieces, results)
        return cls(stage, pieces, states, vectors_ND.requires_grad_())

    def backpropagate(self) -> None:
        """Run the stage again, piece by piece, and backpropagate the gradient of `vectors_ND`, if there is one."""
        if self.vectors_ND.grad is None:
            return
        # One entry per text, each with one row or, in the first stage, T rows.
        gradient = self.vectors_ND.grad.unflatten(0, (len(self.pieces.back_N), -1))
        for piece, part, state in zip(self.pieces.pieces, self.pieces.split(gradient), self.states, strict=True):
            # The same random state gives the same dropped slots as in the first pass.
            with state.restore():
                result = self.stage(piece)
            # The gradient has the type of the joined leaf, and a stage may return a narrower one.
            result.backward(part.reshape(result.shape).to(result.dtype))


@dataclass(frozen=True)
class RandomState:
    """State of torch's global random generators, CPU and current GPU."""

    cpu: Tensor
    gpu: Tensor | None

    @classmethod
    def capture(cls) -> RandomState:
        """Return the current state."""
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None)

    @contextmanager
    def restore(self) -> Iterator[None]:
        """Use this state inside a block. Afterwards the generators continue as if the block had not run."""
        devices = [] if self.gpu is None else [torch.cuda.current_device()]
        with torch.random.fork_rng(devices=devices):
            torch.set_rng_state(self.cpu)
            if self.gpu is not None:
                torch.cuda.set_rng_state(self.gpu)
            yield
