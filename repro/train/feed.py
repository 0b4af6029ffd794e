"""Prepare the data of a step: queries, documents, context documents and masks of each batch.

1. The sampler selects the pairs of each batch.
2. A process computes a whole batch, or its share of a shared one. Contexts and masks always belong to the whole batch.
3. Documents are the positives, then the hard negatives of the first pair, of the second, and so on.
4. Context documents are drawn from these documents, without replacement if there are enough. The generator depends on
   (seed, batch number), and queries and documents share the contexts (eq. 6). If a batch is shared, each process also
   embeds a share of the context documents, and the vectors are exchanged.
5. A thread prepares the next step while the current one is computed. Preparation uses CPU cores and computation uses
   the GPU, so neither waits for the other.

Shapes: N pairs of the data set, B pairs of a batch, H hard negatives per pair, M = B (1 + H) documents, C context
documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from repro.batches.negatives import list_document_rows
from repro.batches.sampler import DroppedPairs
from repro.data.tokens import JoinedTokens, Tokens
from repro.model.modeling_cde import draw_batch_context
from repro.model.texts import make_texts
from repro.seeds import derive
from repro.train.gradcache import StepTexts
from repro.train.parallel import count_processes, rank, select_own_contexts
from repro.train.performance import batches_are_sharded, list_own_places


class Sampler(Protocol):
    """Source of batches as a pure function of the batch number, for example `repro.batches.sampler.BatchSampler`."""

    seed: int

    def at(self, number: int) -> np.ndarray:
        """Return the pair indices of a batch, int64 (B,)."""
        ...

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        ...

    @property
    def dropped_pairs(self) -> DroppedPairs:
        """Pairs that an epoch drops, on average."""
        ...


class Filtered(NamedTuple):
    """Output of the false-negative filter for a batch.

    `masked` has one row per pair and the columns of the run's loss, or is None. `difficulty` is the mean surrogate
    similarity.
    """

    masked: np.ndarray | None
    difficulty: float | None


@dataclass(frozen=True)
class TrainData:
    """Training pairs as token ids with prompts, and the functions that build batches.

    `filter` receives the pair indices of a batch (B,) and its number. It covers the documents in the order of the module
    docstring.
    The hard negatives of pair n are the rows `negative_rows_NH[n]` of `documents`. `set_apart` are pairs that are not
    trained on. If they are given, the weights with the lowest loss on them are kept.
    """

    queries: Tokens
    documents: Tokens | JoinedTokens
    batches: Sampler
    filter: Callable[[np.ndarray, int], Filtered] | None = None
    negative_rows_NH: np.ndarray | None = None
    set_apart: SetApart | None = None


class SetApart(NamedTuple):
    """Pairs that are not trained on, as token ids with prompts. Query n belongs to document n, and none repeats."""

    queries: Tokens
    documents: Tokens


class Batch(NamedTuple):
    """One training batch: its number, counted from 0, and its pair indices, int64 (B,)."""

    number: int
    pairs_B: np.ndarray


class Feed(NamedTuple):
    """Input that one process computes for one batch. `masked` covers the whole batch, like the loss."""

    texts: StepTexts
    num_own_pairs: int
    masked: Tensor | None
    difficulty: float | None
    draw_seed: int = 0  # seed of random drops inside the stages

    def to(self, device: torch.device) -> Feed:
        """Return the feed on a device."""
        masked = None if self.masked is None else self.masked.to(device)
        return self._replace(texts=self.texts.to(device), masked=masked)


class StepFeed(NamedTuple):
    """Batches of a step, the feeds of this process in main memory, and the sampler's state after the step."""

    batches: Sequence[Batch]
    feeds: Sequence[Feed]
    sampler: Sequence[int]


def step_batches(batches: Sampler, step: int, batches_a_step: int) -> list[Batch]:
    """Return the consecutive batches of a step. Steps are counted from 0."""
    numbers = range(step * batches_a_step, (step + 1) * batches_a_step)
    return [Batch(number, np.asarray(batches.at(number), dtype=np.int64)) for number in numbers]


def compute_batch_hash(pairs_B: np.ndarray) -> str:
    """Return 16 hex digits that identify a batch's ordered pair indices, for the training log."""
    # A fixed byte order and width, because the log is compared across machines.
    return hashlib.sha256(np.asarray(pairs_B, dtype="<i8").tobytes()).hexdigest()[:16]


def compute_step_hash(batches: Sequence[Batch]) -> str:
    """Return the hashes of the batches of a step."""
    return "+".join(compute_batch_hash(batch.pairs_B) for batch in batches)


def feed_batch(data: TrainData, batch: Batch, *, seed: int, num_contexts: int, is_shared: bool) -> Feed:
    """Return the texts of a batch, or this process's share. `num_contexts` is 0 for a model without context."""
    own_B = batch.pairs_B
    if is_shared:
        # Shares are equal, because `explain_indivisible` rejects other numbers of processes.
        own_B = own_B.reshape(count_processes(), -1)[rank()]
    contexts = None
    if num_contexts:
        # Contexts come from the whole batch, also if this process computes only a share of it.
        # Hard negatives are candidates too: they are documents of the batch.
        rows_M = list_document_rows(batch.pairs_B, data.negative_rows_NH)
        positions_C = draw_batch_context(len(rows_M), num_contexts, seed, batch.number)
        if is_shared:
            positions_C = select_own_contexts(positions_C)
        contexts = make_texts(*data.documents.pad(rows_M[positions_C]))
    filtered = data.filter(batch.pairs_B, batch.number) if data.filter else Filtered(None, None)
    masked = None if filtered.masked is None else torch.from_numpy(filtered.masked)
    texts = StepTexts(
        queries=make_texts(*data.queries.pad(own_B)),
        documents=make_texts(*data.documents.pad(list_document_rows(own_B, data.negative_rows_NH))),
        contexts=contexts,
    )
    for tokens in (data.queries, data.documents):
        tokens.release_pages()
    # Processes that share a batch draw from separate streams.
    stream = rank() if is_shared else 0
    return Feed(texts, len(own_B), masked, filtered.difficulty, derive(seed, "dropout", batch.number + 1, stream))


def iter_step_feeds(
    data: TrainData, steps: range, batches_a_step: int, *, num_contexts: int, seed: int
) -> Generator[StepFeed, None, None]:
    """Yield the feeds of this process for each step, counted from 0. A thread prepares the next step in the meantime.

    An error in the preparation of a step is raised when that step is requested. Close the generator to stop the thread.
    """
    is_shared = batches_are_sharded(batches_a_step, count_processes())
    own_positions = list_own_places(batches_a_step, rank=rank(), num_processes=count_processes())

    def prepare(step: int) -> StepFeed:
        batches = step_batches(data.batches, step, batches_a_step)
        feeds = [
            feed_batch(data, batches[position], seed=seed, num_contexts=num_contexts, is_shared=is_shared)
            for position in own_positions
        ]
        return StepFeed(batches, feeds, get_sampler_state(data.batches, (step + 1) * batches_a_step))

    with ThreadPoolExecutor(1, thread_name_prefix="feed") as pool:
        pending = [pool.submit(prepare, step) for step in steps[:1]]
        for step in steps:
            step_feed = pending.pop().result()
            # Submitted before this step is yielded, so the thread works while the caller computes.
            if step + 1 in steps:
                pending.append(pool.submit(prepare, step + 1))
            yield step_feed


def get_sampler_state(batches: Sampler, num_batches: int) -> Sequence[int]:
    """Return the sampler state for the checkpoint: seed, epoch, and number of batches already used in this epoch."""
    return (batches.seed, *divmod(num_batches, len(batches)))
