"""Mixing: each batch is of one source, drawn as often as GTE eq. 4 says, at any step without the ones before."""

import numpy as np
import pytest

from repro.batches import mixing
from repro.batches.mixing import BLOCK, MixedSampler, compute_mixing_shares
from repro.batches.sampler import SamplerState

SIZES = (400, 100, 25)
CODES = np.random.default_rng(0).permutation(np.repeat([0, 2, 5], SIZES)).astype(np.int32)
NAMES = ("large", "unused", "medium", "unused", "unused", "small")


def mixed(alpha: float, seed: int = 0, batch_size: int = 8) -> MixedSampler:
    return MixedSampler(CODES, alpha=alpha, batch_size=batch_size, seed=seed, names=NAMES)


def source_of(batches: MixedSampler, step: int) -> int:
    """The place of a step's source among the codes, read off its batch."""
    return [0, 2, 5].index(CODES[batches.at(step)[0]])


def test_shares_are_those_of_the_equation() -> None:
    """Sizes 400, 100 and 25: square roots 20, 10 and 5."""
    assert compute_mixing_shares(np.array(SIZES), 0.5) == pytest.approx([20 / 35, 10 / 35, 5 / 35])
    assert compute_mixing_shares(np.array(SIZES), 0) == pytest.approx([1 / 3] * 3)
    assert compute_mixing_shares(np.array(SIZES), 1) == pytest.approx([400 / 525, 100 / 525, 25 / 525])


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_sources_come_as_often_as_their_share(alpha: float) -> None:
    batches, num = mixed(alpha), 3000
    drawn = np.array([np.unique(CODES[batches.at(step)]).tolist() for step in range(num)])
    assert drawn.shape == (num, 1), "each batch is of one source"
    found = np.array([(drawn == code).mean() for code in (0, 2, 5)])
    spread = np.sqrt(batches.shares_S * (1 - batches.shares_S) / num)
    assert (np.abs(found - batches.shares_S) < 4 * spread).all()


def test_batches_of_a_source_are_whole_epochs_of_it() -> None:
    """100 pairs make twelve batches of 8: no pair twice in the first twelve of the source, nor in the next twelve."""
    batches = mixed(0.5)
    of_medium = [batches.at(step) for step in range(600) if source_of(batches, step) == 1]
    assert len(of_medium) > 24
    for start in (0, 12):
        rows = np.concatenate(of_medium[start : start + 12])
        assert len(set(rows.tolist())) == 96 and (CODES[rows] == 2).all()
    assert not np.array_equal(of_medium[0], of_medium[12]), "a second epoch is packed anew"


@pytest.mark.parametrize("step", [0, 17, BLOCK - 1, BLOCK, BLOCK + 5])
def test_any_step_is_the_same_whatever_was_asked_before(step: int) -> None:
    fresh, asked = mixed(0.5), mixed(0.5)
    for other in (2 * BLOCK, 3, step + 1):
        asked.at(other)
    assert np.array_equal(fresh.at(step), asked.at(step))
    assert not np.array_equal(fresh.at(step), mixed(0.5, seed=1).at(step))


def test_numbers_of_a_source_go_on_over_blocks_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches of each source, counted by hand over several blocks, are its own in their order."""
    monkeypatch.setattr(mixing, "BLOCK", 16)
    batches, counted = mixed(0.5), [0, 0, 0]
    for step in range(100):
        source = source_of(batches, step)
        expected = batches._rows[source][batches._sources[source].at(counted[source])]
        assert np.array_equal(batches.at(step), expected), step
        counted[source] += 1
    assert min(counted) > 5
    blocks = {tuple(source_of(batches, 16 * block + place) for place in range(16)) for block in range(6)}
    assert len(blocks) == 6, "each block is drawn anew"


def test_the_state_is_that_of_an_epoch_of_all_pairs() -> None:
    batches = mixed(0.5)
    assert len(batches) == 400 // 8 + 100 // 8 + 25 // 8
    assert batches.state_at(len(batches) + 2) == SamplerState(0, 1, 2)
    assert batches.left_out.num_in_tails == 400 % 8 + 100 % 8 + 25 % 8


@pytest.mark.parametrize("alpha", [-0.1, 1.5, float("nan")])
def test_an_exponent_outside_its_range_is_named(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"mixing_alpha=.*at least 0.*at most 1"):
        mixed(alpha)


def test_a_source_smaller_than_a_batch_is_named() -> None:
    with pytest.raises(ValueError, match=r"batch_size=32 with mixing_alpha: 1 of 3 sources .*'small', has 25 pairs"):
        mixed(0.5, batch_size=32)
