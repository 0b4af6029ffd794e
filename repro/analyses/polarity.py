"""Classify the polarity of film reviews zero-shot, by the nearest label: its bare word or a sentence (GTE table 4)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.evaluate.polarity import LABELS, VERBALISERS, classify, encode_labels, load_film_reviews
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `polarity/VERBALISER/accuracy`, with a 1 or 0 for every text, and the share `…/called_positive`."""
    texts, labels = load_film_reviews()
    expected_N = encode_labels(labels)
    encoder = inputs.surrogate if inputs.run.architecture == "surrogate" else model
    assert encoder is not None, f"a run measures no polarity of architecture={inputs.run.architecture!r}"
    # the texts themselves serve as context
    encoder.set_context(texts, inputs.run.context_seed)
    texts_ND = encoder.encode(texts)
    metrics: dict[str, float] = {}
    arrays: dict[str, np.ndarray] = {}
    for verbaliser in VERBALISERS:
        predicted_N = classify(texts_ND, encoder.encode, verbaliser)
        is_correct_N = predicted_N == expected_N
        arrays[f"polarity/{verbaliser}/accuracy"] = is_correct_N.astype(np.float64)
        metrics[f"polarity/{verbaliser}/accuracy"] = float(np.mean(is_correct_N))
        metrics[f"polarity/{verbaliser}/called_positive"] = float(np.mean(predicted_N == LABELS.index("positive")))
    return Measured(metrics, arrays, {"num_texts": len(texts), "verbalisers": VERBALISERS})
