"""Promises of pooling."""

import torch

from repro.model.pooling import mean_pool, segment_pool
from tests.model.samples import random_texts


def test_the_mean_is_over_real_tokens_only() -> None:
    texts = random_texts(7)
    states = torch.randn(7, 9, 4)
    expected = torch.stack([row[: mask.sum()].mean(0) for row, mask in zip(states, texts.mask_NS, strict=True)])
    torch.testing.assert_close(mean_pool(states, texts.mask_NS), expected)


def test_segments_cut_each_text_by_its_own_length_and_an_empty_one_is_the_whole_text() -> None:
    texts = random_texts(20, seed=1)
    states = torch.randn(20, 9, 4)
    found = segment_pool(states, texts.mask_NS, 3)
    for row, mask, segments in zip(states, texts.mask_NS, found, strict=True):
        length = int(mask.sum())
        for number in range(3):
            tokens = [i for i in range(length) if i * 3 // length == number] or list(range(length))
            torch.testing.assert_close(segments[number], row[tokens].mean(0))


def test_segments_do_not_depend_on_padding() -> None:
    texts = random_texts(5, longest=4)
    states = torch.randn(5, 4, 4)
    wider = torch.cat([states, torch.full((5, 6, 4), 99.0)], dim=1)
    mask = torch.cat([texts.mask_NS, texts.mask_NS.new_zeros(5, 6)], dim=1)
    torch.testing.assert_close(segment_pool(wider, mask, 2), segment_pool(states, texts.mask_NS, 2))
