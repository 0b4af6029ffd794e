"""What one batch of a step trains on: its queries, documents and context documents, and what the filter says of them.

1. The sampler names the pairs of each batch of the step. 2. A process takes a whole batch or, where it is shared, its
share; contexts and filter are of the whole one. 3. Documents are the positives, then the hard negatives of the first
pair, of the second, … 4. Context documents are drawn from those, without repeats while they last, by a generator of
(seed, number of the batch): queries and documents see the same ones (eq. 6). Of a shared batch, each process takes its
share of these, too: only their vectors are needed by all. 5. While a step is computed, a thread makes the next one's:
data take cores, a step takes a GPU, and neither waits for the other.

Shapes: N pairs of the data, B pairs of a batch, H hard negatives a pair, M = B (1 + H) documents, C context documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from repro.batches.negatives import list_document_rows
from repro.data.tokens import Tokens
from repro.model.texts import texts_from
from repro.seeds import derive, generator_for
from repro.train.gradcache import StepTexts
from repro.train.parallel import count_processes, rank, share_of_contexts
from repro.train.sharing import batches_are_sharded, own_places


class Batches(Protocol):
    """Which pairs meet: a pure function of the batch's number; `repro.batches.sampler.BatchSampler` is one."""

    def at(self, number: int) -> np.ndarray:
        """Return pair indices, int64 (B,)."""
        ...


class Filtered(NamedTuple):
    """What the surrogate says of a batch: entries that are no negatives, as the run's loss has them (bool, a row a
    pair) or None, and its difficulty."""

    masked: np.ndarray | None
    difficulty: float | None


@dataclass(frozen=True)
class TrainData:
    """The training pairs as token ids, prompts included, and what brings them together.

    `filter` gets the pair indices of a batch (B,) and answers for its documents in the order described above.
    Hard negatives of pair n are the rows `negative_rows_NH[n]` of `documents`.
    """

    queries: Tokens
    documents: Tokens
    batches: Batches
    filter: Callable[[np.ndarray], Filtered] | None = None
    negative_rows_NH: np.ndarray | None = None


class Batch(NamedTuple):
    """One batch of a training: its number, counted from 0, and its pairs, int64 (B,)."""

    number: int
    pairs_B: np.ndarray


class Feed(NamedTuple):
    """What one process computes of one batch; `masked` is of the whole batch, which the loss is over."""

    texts: StepTexts
    num_own_pairs: int
    masked: Tensor | None
    difficulty: float | None
    draw_seed: int = 0  # of what a stage drops at random

    def to(self, device: torch.device) -> Feed:
        """Return the same on a device."""
        masked = None if self.masked is None else self.masked.to(device)
        return self._replace(texts=self.texts.to(device), masked=masked)


class StepFeed(NamedTuple):
    """The batches of a step, what one process computes of them, in main memory, and the sampler's state after them."""

    batches: Sequence[Batch]
    feeds: Sequence[Feed]
    sampler: Sequence[int]


def step_batches(batches: Batches, step: int, batches_a_step: int) -> list[Batch]:
    """Return the batches of a step, counted from 0: the next ones, so that no process leaves any out."""
    numbers = range(step * batches_a_step, (step + 1) * batches_a_step)
    return [Batch(number, np.asarray(batches.at(number), dtype=np.int64)) for number in numbers]


def compute_batch_hash(pairs_B: np.ndarray) -> str:
    """Return 16 hex digits of a batch's pair indices in their order, as the training's log has them."""
    return hashlib.sha256(np.asarray(pairs_B, dtype="<i8").tobytes()).hexdigest()[:16]


def feed_batch(data: TrainData, batch: Batch, *, seed: int, num_contexts: int, is_shared: bool) -> Feed:
    """Return a batch's texts, or this process's share of them; `num_contexts` 0 for a model without context."""
    whole_B = batch.pairs_B
    own_B = _share(whole_B) if is_shared else whole_B
    contexts = None
    if num_contexts:
        rows_M = list_document_rows(whole_B, data.negative_rows_NH)
        places_C = draw_contexts(len(rows_M), num_contexts, seed=seed, number=batch.number)
        places_C = share_of_contexts(places_C) if is_shared else places_C
        contexts = texts_from(*data.documents.pad(rows_M[places_C]))
    filtered = data.filter(whole_B) if data.filter else Filtered(None, None)
    masked = None if filtered.masked is None else torch.from_numpy(filtered.masked)
    texts = StepTexts(
        queries=texts_from(*data.queries.pad(own_B)),
        documents=texts_from(*data.documents.pad(list_document_rows(own_B, data.negative_rows_NH))),
        contexts=contexts,
    )
    for tokens in (data.queries, data.documents):
        tokens.give_back()
    stream = rank() if is_shared else 0
    return Feed(texts, len(own_B), masked, filtered.difficulty, derive(seed, "dropout", batch.number + 1, stream))


def feeds_of_steps(
    data: TrainData, steps: range, batches_a_step: int, *, num_contexts: int, seed: int
) -> Generator[StepFeed, None, None]:
    """Give what this process computes of each step, counted from 0; a thread makes the next one's meanwhile.

    What goes wrong in the making of a step is raised where that step would be given. Close it to end the thread.
    """
    is_shared = batches_are_sharded(batches_a_step, count_processes())
    own = own_places(batches_a_step, rank=rank(), num_processes=count_processes())

    def make(step: int) -> StepFeed:
        batches = step_batches(data.batches, step, batches_a_step)
        feed = partial(feed_batch, data, seed=seed, num_contexts=num_contexts, is_shared=is_shared)
        after = sampler_state(data.batches, (step + 1) * batches_a_step)
        return StepFeed(batches, [feed(batches[place]) for place in own], after)

    with ThreadPoolExecutor(1, thread_name_prefix="feed") as pool:
        coming = [pool.submit(make, step) for step in steps[:1]]
        for step in steps:
            found = coming.pop().result()
            coming += [pool.submit(make, step + 1)] if step + 1 in steps else []
            yield found


def draw_contexts(num_documents: int, num_contexts: int, *, seed: int, number: int) -> np.ndarray:
    """Return places among a batch's documents, int64 (C,): all different, unless there are too few of them."""
    generator = generator_for(seed, "contexts", number)
    if num_documents >= num_contexts:
        return generator.choice(num_documents, num_contexts, replace=False)
    extra = generator.choice(num_documents, num_contexts - num_documents, replace=True)
    return np.concatenate([np.arange(num_documents), extra])


def _share(whole_B: np.ndarray) -> np.ndarray:
    assert len(whole_B) % count_processes() == 0, (
        "`repro.train.sharing.explain_indivisible` says which numbers of processes can be"
    )
    return whole_B.reshape(count_processes(), -1)[rank()]


def sampler_state(batches: Batches, num_batches: int) -> Sequence[int]:
    """Return what a checkpoint keeps of a sampler that has a state to tell; nothing for one that has none."""
    state_at = getattr(batches, "state_at", None)
    return tuple(int(value) for value in state_at(num_batches)) if state_at else ()
