"""Cascades over prefixes: a text is classified by a narrow prefix, and by a wider one only where that is unsure.

1. A class is the mean of its documents; a text has the class whose mean is nearest, at every width.
2. How sure that is: the largest share of a softmax of the cosines.
3. Thresholds, one for each width but the last, are chosen on texts of their own, from the narrowest on: the lowest on a
   grid at which those that stop there are told right as often as the last width tells the same ones right.
4. A text stops at the first width that is sure enough (Matryoshka Representation Learning, adaptive classification).

Shapes: N texts, W dimensions, C classes, M widths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.evaluate.prefixes import prefix

GRID = np.linspace(0, 1, 101)
"""Thresholds that are tried; above all of them no text stops."""
NEVER = 2.0


def compute_class_means(documents: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Return the unit mean of each class's prefixes, float32 (C, width), from its documents, (N, W) each."""
    return prefix(np.stack([prefix(vectors_NW, width).mean(axis=0) for vectors_NW in documents]), width)


def answers(texts_NW: np.ndarray, means_CM: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each text by its prefix of the means' width, int64 (N,), and how sure that is, (N,) to 1."""
    scores_NC = (prefix(texts_NW, means_CM.shape[1]) @ means_CM.T).astype(np.float64) / temperature
    below_NC = np.exp(scores_NC - scores_NC.max(axis=1, keepdims=True))
    return scores_NC.argmax(axis=1), 1 / below_NC.sum(axis=1)


def choose_thresholds(is_right_MN: np.ndarray, sureness_MN: np.ndarray) -> np.ndarray:
    """Return a threshold for each width but the last, (M - 1,), so that stopping loses nothing against the last.

    That holds on these texts; on others it is a measurement.
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
    """Return the place of the width at which each text stops, int64 (N,)."""
    is_sure_MN = np.vstack([sureness_MN[:-1] >= thresholds[:, None], np.ones((1, sureness_MN.shape[1]), bool)])
    places_N: np.ndarray = is_sure_MN.argmax(axis=0)
    return places_N
