"""Adaptive classification: a cascade of prefixes that widens only for uncertain texts.

Matryoshka Representation Learning (Kusupati et al. 2022), adaptive classification:

1. A class is the mean of its documents. A text belongs to the class with the nearest mean, at every width.
2. The confidence is the largest softmax probability of the cosines.
3. Each width but the last has a threshold. Thresholds are chosen on separate texts, from the narrowest width on. The
   choice is the lowest value on a grid at which the texts that stop are classified as well as by the last width.
4. A text stops at the first width whose confidence reaches the threshold.

Shapes: N texts, W dimensions, C classes, M widths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.evaluate.prefixes import prefix

GRID = np.linspace(0, 1, 101)
"""Candidate thresholds."""
NEVER = 2.0  # above every confidence: no text stops


def compute_class_means(documents: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Return the unit mean of the prefixes of each class, float32 (C, width). `documents` holds (N, W) per class."""
    return prefix(np.stack([prefix(vectors_NW, width).mean(axis=0) for vectors_NW in documents]), width)


def answers(texts_NW: np.ndarray, means_CM: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each text, int64 (N,), and its confidence in (0, 1]. The means set the width."""
    scores_NC = (prefix(texts_NW, means_CM.shape[1]) @ means_CM.T).astype(np.float64) / temperature
    # The largest term is exp(0) = 1, so the largest probability is 1 over the sum.
    below_NC = np.exp(scores_NC - scores_NC.max(axis=1, keepdims=True))
    return scores_NC.argmax(axis=1), 1 / below_NC.sum(axis=1)


def choose_thresholds(is_right_MN: np.ndarray, sureness_MN: np.ndarray) -> np.ndarray:
    """Return a threshold per width but the last, (M - 1,), at which early stopping costs no accuracy.

    This holds on the given texts. On other texts the accuracy has to be measured.
    """
    left_N = np.ones(is_right_MN.shape[1], bool)
    gain_MN = is_right_MN.astype(np.int64) - is_right_MN[-1].astype(np.int64)
    chosen = []
    for gain_N, sureness_N in zip(gain_MN[:-1], sureness_MN[:-1], strict=True):
        good = (threshold for threshold in GRID if gain_N[left_N & (sureness_N >= threshold)].sum() >= 0)
        chosen.append(next(good, NEVER))
        left_N &= sureness_N < chosen[-1]
    return np.array(chosen)


def stops(sureness_MN: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the index of the width at which each text stops, int64 (N,)."""
    is_sure_MN = np.vstack([sureness_MN[:-1] >= thresholds[:, None], np.ones((1, sureness_MN.shape[1]), bool)])
    places_N: np.ndarray = is_sure_MN.argmax(axis=0)
    return places_N
