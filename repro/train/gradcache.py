"""One engine for the gradients of one or two stages, whatever of the batch fits in memory; equal to plain autograd.

Direct, when all texts fit in one chunk: one graph, one backward. Otherwise, in two passes (§4.2):
1. without graph, the first stage gives the context vectors, the second stage all representations; the state of the
   random generators is kept for every chunk;
2. the loss is taken at the representations, which gives their gradient;
3. each chunk of texts runs again with graph, under its kept random state, and is sent the gradient of its
   representations: that adds to the second stage's weights and to the gradient at the context vectors;
4. each chunk of context documents runs again likewise, and is sent its part of that gradient.
Processes that share a batch have a share of its context documents each: between 1's stages `gather` makes all context
vectors of these, and before 4 its backward sums the gradients of all processes at a process's own vectors.
Everything that passes from one step to the next is an argument: no state outlives a call.

Equal to autograd over the same pieces: a stage that draws at random draws piece by piece, so that another size of
chunks or pieces may give a text other draws, of the same distribution.

Shapes: Q queries, M documents, C context vectors, D size of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from repro.model.texts import Pieces, Texts, cut_by_length
from repro.train.chunks import ChunkSizes
from repro.train.loss import LossParts

FirstStage = Callable[[Texts], Tensor]
SecondStage = Callable[[Texts, Tensor | None], Tensor]
Loss = Callable[[Tensor, Tensor], LossParts]
Gather = Callable[[Tensor], Tensor]
DEFAULT = ChunkSizes()


@dataclass(frozen=True)
class Stages:
    """What is differentiated: `second(texts, contexts_CD)` gives (N, D), `first(texts)` gives (N × T, D).

    `gather` gives the context vectors of all processes from this one's, differentiably, and is called once a step.
    """

    second: SecondStage
    loss: Loss
    first: FirstStage | None = None
    gather: Gather = lambda own_CD: own_CD


@dataclass(frozen=True)
class StepTexts:
    """The texts of one step; `contexts` are documents for the first stage, None for a model of one stage."""

    queries: Texts
    documents: Texts
    contexts: Texts | None = None

    def to(self, device: torch.device) -> StepTexts:
        """Return the same on a device."""
        contexts = None if self.contexts is None else self.contexts.to(device)
        return StepTexts(self.queries.to(device), self.documents.to(device), contexts)


def add_gradients(stages: Stages, step: StepTexts, sizes: ChunkSizes = DEFAULT) -> LossParts:
    """Add the gradient of the step's loss to the `.grad` of all weights; return the loss without graph.

    ValueError when contexts come without a first stage, or the other way round.
    """
    if (stages.first is None) != (step.contexts is None):
        raise ValueError("a first stage and context documents belong together: give both or neither")
    num_texts = step.queries.num_texts + step.documents.num_texts
    num_contexts = step.contexts.num_texts if step.contexts is not None else 0
    if sizes.hold(num_texts, num_contexts):
        return _direct(stages, step, sizes)
    return _add_gradients_in_chunks(stages, step, sizes)


def _direct(stages: Stages, step: StepTexts, sizes: ChunkSizes) -> LossParts:
    contexts_CD, cuts = None, sizes.on(step.queries.ids_NS.device)
    if stages.first is not None and step.contexts is not None:
        contexts = cut_by_length(step.contexts, cuts.contexts)
        contexts_CD = stages.gather(_join(contexts, [stages.first(piece) for piece in contexts.pieces]))
    queries, documents = cut_by_length(step.queries, cuts.texts), cut_by_length(step.documents, cuts.texts)
    queries_QD = _join(queries, [stages.second(piece, contexts_CD) for piece in queries.pieces])
    documents_MD = _join(documents, [stages.second(piece, contexts_CD) for piece in documents.pieces])
    parts = stages.loss(queries_QD, documents_MD)
    parts.loss.backward()
    return parts.detach()


def _add_gradients_in_chunks(stages: Stages, step: StepTexts, sizes: ChunkSizes) -> LossParts:
    contexts_CD, cuts = None, sizes.on(step.queries.ids_NS.device)
    if stages.first is not None and step.contexts is not None:
        contexts = Replay.of(stages.first, cut_by_length(step.contexts, cuts.contexts))
        all_CD = stages.gather(contexts.vectors_ND)
        contexts_CD = all_CD.detach().requires_grad_()

    def second(texts: Texts) -> Tensor:
        return stages.second(texts, contexts_CD)

    queries = Replay.of(second, cut_by_length(step.queries, cuts.texts))
    documents = Replay.of(second, cut_by_length(step.documents, cuts.texts))
    parts = stages.loss(queries.vectors_ND, documents.vectors_ND)
    parts.loss.backward()
    queries.send_back()
    documents.send_back()
    if contexts_CD is not None:
        all_CD.backward(torch.zeros_like(all_CD) if contexts_CD.grad is None else contexts_CD.grad)
        contexts.send_back()
    return parts.detach()


def _join(pieces: Pieces, results: Sequence[Tensor]) -> Tensor:
    """Join vectors, the same number of rows for each text (1, or T context vectors), into the order of the texts."""
    pairs = zip(pieces.pieces, results, strict=True)
    return pieces.join([result.unflatten(0, (piece.num_texts, -1)) for piece, result in pairs]).flatten(0, 1)


@dataclass(frozen=True)
class Replay:
    """What a stage made of pieces of texts without graph, and what it takes to make it again with graph."""

    stage: FirstStage
    pieces: Pieces
    states: Sequence[RandomState]  # before each piece
    vectors_ND: Tensor  # a leaf, whose gradient is sent back

    @classmethod
    def of(cls, stage: FirstStage, pieces: Pieces) -> Replay:
        """Run the stage on every piece."""
        results, states = [], []
        with torch.no_grad():
            for piece in pieces.pieces:
                states.append(RandomState.now())
                results.append(stage(piece))
            vectors_ND = _join(pieces, results)
        return cls(stage, pieces, states, vectors_ND.requires_grad_())

    def send_back(self) -> None:
        """Run it again, piece by piece, and send each its part of the gradient, if there is one."""
        if self.vectors_ND.grad is None:
            return
        gradient = self.vectors_ND.grad.unflatten(0, (len(self.pieces.back_N), -1))
        for piece, part, state in zip(self.pieces.pieces, self.pieces.split(gradient), self.states, strict=True):
            with state.restored():
                result = self.stage(piece)
            result.backward(part.reshape(result.shape).to(result.dtype))


@dataclass(frozen=True)
class RandomState:
    """The state of torch's global generators, CPU and current GPU, at one moment."""

    cpu: Tensor
    gpu: Tensor | None

    @classmethod
    def now(cls) -> RandomState:
        """Take it down."""
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put it back for the length of a block; the stream outside goes on undisturbed."""
        devices = [] if self.gpu is None else [torch.cuda.current_device()]
        with torch.random.fork_rng(devices=devices):
            torch.set_rng_state(self.cpu)
            if self.gpu is not None:
                torch.cuda.set_rng_state(self.gpu)
            yield
