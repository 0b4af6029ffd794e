"""Repeats are found as a set finds them, at eight bytes a key."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from repro.data.repeats import SeenKeys


@given(st.lists(st.lists(st.integers(0, 30).map(lambda n: n * 2**58), max_size=12), max_size=30))
def test_keys_are_new_once(blocks: list[list[int]]) -> None:
    seen, keys = set[int](), SeenKeys()
    for block in blocks:
        expected = []
        for key in block:
            expected.append(key not in seen)
            seen.add(key)
        assert keys.tell(np.array(block, np.uint64)).tolist() == expected


def test_many_blocks_lie_in_few_runs() -> None:
    keys, rng = SeenKeys(), np.random.default_rng(0)
    for _ in range(300):
        keys.tell(rng.integers(0, 2**63, 100).astype(np.uint64))
    assert len(keys._runs) <= 9 and sum(map(len, keys._runs)) == 30_000
