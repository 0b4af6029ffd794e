"""Promises of what a step trains on."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from repro.data.tokens import Tokens
from repro.model.texts import Texts
from repro.train import feed as feeding
from repro.train import parallel
from repro.train.feed import (
    Batch,
    Feed,
    Filtered,
    TrainData,
    compute_batch_hash,
    draw_contexts,
    feed_batch,
    iter_step_feeds,
    step_batches,
)
from tests.train.fixtures import small_data


def feed(data: TrainData, step: int = 3, **changes: Any) -> Feed:
    values = {"seed": 0, "num_contexts": 5, "is_shared": False}
    return feed_batch(data, batch(data, step), **(values | changes))


def batch(data: TrainData, step: int = 3) -> Batch:
    return step_batches(data.batches, step, 1)[0]


def rows_of(texts: Texts) -> list[tuple[int, ...]]:
    return [tuple(ids[mask.bool()].tolist()) for ids, mask in zip(texts.ids_NS, texts.mask_NS, strict=True)]


def text(tokens: Tokens, row: int) -> tuple[int, ...]:
    return tuple(tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]].tolist())


def test_documents_are_positives_then_negatives() -> None:
    data = small_data(num_hard=3)
    found = feed(data)
    pairs_B = batch(data).pairs_B
    expected = [text(data.documents, pair) for pair in pairs_B]
    expected += [text(data.documents, row) for pair in pairs_B for row in data.negative_rows_NH[pair]]
    assert rows_of(found.texts.documents) == expected
    assert rows_of(found.texts.queries) == [text(data.queries, pair) for pair in pairs_B]


def test_contexts_come_from_the_batch() -> None:
    data, drawn = small_data(num_hard=3), set[int]()
    for step in range(30):
        found = feed(data, step)
        documents, places = rows_of(found.texts.documents), draw_contexts(32, 5, seed=0, number=step).tolist()
        assert rows_of(found.texts.contexts) == [documents[place] for place in places]
        drawn.update(places)
    assert min(drawn) < 8 and max(drawn) > 29, "positives, and the last of the hard negatives, have their turn"


def test_contexts_differ_by_step_and_seed() -> None:
    data = small_data()
    first, again = (rows_of(feed(data).texts.contexts) for _ in range(2))
    assert first == again
    assert first != rows_of(feed(data, seed=1).texts.contexts)
    assert list(draw_contexts(8, 5, seed=0, number=1)) != list(draw_contexts(8, 5, seed=0, number=2))


def test_contexts_repeat_if_needed() -> None:
    assert len(set(draw_contexts(8, 8, seed=0, number=0))) == 8
    drawn = draw_contexts(4, 10, seed=0, number=0)
    assert len(drawn) == 10 and set(drawn) == {0, 1, 2, 3}


def test_processes_share_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    data, places = small_data(num_hard=3), []
    alone = feed(data, is_shared=True).texts.contexts
    for module in (feeding, parallel):
        monkeypatch.setattr(module, "count_processes", lambda: 2)
    for number in range(2):
        for module in (feeding, parallel):
            monkeypatch.setattr(module, "rank", lambda number=number: number)
        found = feed(data, is_shared=True).texts.contexts
        assert found.num_texts == 3
        places += rows_of(found)
    assert places[:5] == rows_of(alone)
    assert feed(data).texts.contexts.num_texts == 5, "with batches of their own, each has all contexts of its own"


def test_filter_sees_the_steps_batch() -> None:
    data = small_data()
    found, pairs_B = feed(data), batch(data).pairs_B
    np.testing.assert_array_equal(found.masked.numpy(), pairs_B[:, None] % 3 == pairs_B[None] % 3)
    assert found.difficulty == pairs_B.mean()


def test_a_model_without_context_gets_none() -> None:
    assert feed(small_data(), num_contexts=0).texts.contexts is None


def test_batch_hash_depends_on_order() -> None:
    data = small_data()
    first = batch(data).pairs_B
    assert (
        compute_batch_hash(first)
        == compute_batch_hash(batch(data).pairs_B)
        != compute_batch_hash(batch(data, 4).pairs_B)
    )
    assert compute_batch_hash(first[::-1]) != compute_batch_hash(first)


def watched(judge: Callable[[int], Any]) -> TrainData:
    """Return data whose filter calls `judge` with how many batches it was asked about before."""
    asked: list[int] = []

    def judged(pairs_B: np.ndarray) -> Filtered:
        asked.append(len(asked))
        judge(asked[-1])
        return Filtered(None, None)

    return replace(small_data(), filter=judged)


def test_next_step_is_prepared_early() -> None:
    is_made = [threading.Event() for _ in range(4)]
    data = watched(lambda number: is_made[number].set())
    for place, _ in enumerate(iter_step_feeds(data, range(3, 7), 1, num_contexts=5, seed=0)):
        assert is_made[min(place + 1, 3)].wait(30), "the step is computed, and nobody makes the next one"


def test_steps_come_in_order() -> None:
    data = small_data()
    for step, found in enumerate(iter_step_feeds(data, range(3, 6), 2, num_contexts=5, seed=0), 3):
        assert [batch.number for batch in found.batches] == [2 * step, 2 * step + 1]
        for of_step, number in zip(found.feeds, (2 * step, 2 * step + 1), strict=True):
            alone = feed(data, number)
            assert rows_of(of_step.texts.queries) == rows_of(alone.texts.queries)
            assert of_step.draw_seed == alone.draw_seed
    assert step == 5


def test_errors_are_raised_at_their_step() -> None:
    def judge(number: int) -> None:
        if number == 2:
            raise ValueError("the vectors are gone")

    feeds, given = iter_step_feeds(watched(judge), range(9), 1, num_contexts=5, seed=0), []
    with pytest.raises(ValueError, match="the vectors are gone"):
        given.extend(feeds)
    assert list(iter_step_feeds(small_data(), range(4, 4), 1, num_contexts=5, seed=0)) == []
    stopped = iter_step_feeds(small_data(), range(9), 1, num_contexts=5, seed=0)
    next(stopped)
    stopped.close()
    assert len(given) == 2 and not [one for one in threading.enumerate() if one.name.startswith("feed")]
