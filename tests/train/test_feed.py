"""What a step trains on: texts, contexts, masks, their order over steps, and errors of the feeding thread."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from repro.model.modeling_cde import draw_batch_context
from repro.model.texts import Texts
from repro.train.feed import Batch, Feed, Filtered, TrainData, feed_batch, iter_step_feeds, step_batches
from tests.train.fixtures import make_small_data


def make_feed(data: TrainData, step: int = 3, **changes: Any) -> Feed:
    values = {"seed": 0, "num_contexts": 5, "is_shared": False}
    return feed_batch(data, get_batch(data, step), **(values | changes))


def get_batch(data: TrainData, step: int = 3) -> Batch:
    return step_batches(data.batches, step, 1)[0]


def list_rows(texts: Texts) -> list[tuple[int, ...]]:
    return [tuple(ids[mask.bool()].tolist()) for ids, mask in zip(texts.ids_NS, texts.mask_NS, strict=True)]


def test_contexts_differ_by_step_and_seed() -> None:
    data = make_small_data()
    first, repeated = (list_rows(make_feed(data).texts.contexts) for _ in range(2))
    assert first == repeated
    assert first != list_rows(make_feed(data, seed=1).texts.contexts)
    assert list(draw_batch_context(8, 5, 0, 1)) != list(draw_batch_context(8, 5, 0, 2))


def test_contexts_repeat_if_needed() -> None:
    assert len(set(draw_batch_context(8, 8, 0, 0))) == 8
    positions = draw_batch_context(4, 10, 0, 0)
    assert len(positions) == 10 and set(positions) == {0, 1, 2, 3}


def watch_filter(on_call: Callable[[int], Any]) -> TrainData:
    """Return data whose filter first calls `on_call` with the number of its earlier calls."""
    calls = itertools.count()

    def filter_batch(pairs_B: np.ndarray, number: int) -> Filtered:
        on_call(next(calls))
        return Filtered(None, None)

    return replace(make_small_data(), filter=filter_batch)


def test_steps_come_in_order() -> None:
    data = make_small_data()
    for step, step_feed in enumerate(iter_step_feeds(data, range(3, 6), 2, num_contexts=5, seed=0), 3):
        assert [batch.number for batch in step_feed.batches] == [2 * step, 2 * step + 1]
        for batch_feed, number in zip(step_feed.feeds, (2 * step, 2 * step + 1), strict=True):
            expected = make_feed(data, number)
            assert list_rows(batch_feed.texts.queries) == list_rows(expected.texts.queries)
            assert batch_feed.draw_seed == expected.draw_seed
    assert step == 5


def test_errors_are_raised_at_their_step() -> None:
    """The thread ends after an error, after the last step and when it is closed."""

    def fail_at_third(number: int) -> None:
        if number == 2:
            raise ValueError("the vectors are gone")

    feeds, received = iter_step_feeds(watch_filter(fail_at_third), range(9), 1, num_contexts=5, seed=0), []
    with pytest.raises(ValueError, match="the vectors are gone"):
        received.extend(feeds)
    assert list(iter_step_feeds(make_small_data(), range(4, 4), 1, num_contexts=5, seed=0)) == []
    stopped = iter_step_feeds(make_small_data(), range(9), 1, num_contexts=5, seed=0)
    next(stopped)
    stopped.close()
    assert len(received) == 2 and not [thread for thread in threading.enumerate() if thread.name.startswith("feed")]
