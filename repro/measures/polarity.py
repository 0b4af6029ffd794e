"""Zero-shot polarity of film reviews: the label whose words are nearest, bare and within a sentence (GTE table 4)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from repro.evaluate.polarity import LABELS, VERBALISERS, Encode, classify, film_reviews, label_numbers
from repro.evaluate.suites import Encoder
from repro.inputs.inputs import Inputs
from repro.measures import Measured
from repro.spec import Run


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `polarity/VERBALISER/accuracy`, with a 1 or 0 for every text, and `…/called_positive`, a share."""
    texts, labels = film_reviews()
    right_N = label_numbers(labels)
    encode = _encoder(inputs.run, model, texts)
    texts_ND = encode(texts)
    metrics: dict[str, float] = {}
    arrays: dict[str, np.ndarray] = {}
    for verbaliser in VERBALISERS:
        chosen_N = classify(texts_ND, encode, verbaliser)
        arrays[f"polarity/{verbaliser}/accuracy"] = (chosen_N == right_N).astype(np.float64)
        metrics[f"polarity/{verbaliser}/accuracy"] = float(np.mean(chosen_N == right_N))
        metrics[f"polarity/{verbaliser}/called_positive"] = float(np.mean(chosen_N == LABELS.index("positive")))
    return Measured(metrics, arrays, {"num_texts": len(texts), "verbalisers": VERBALISERS})


def _encoder(run: Run, model: Encoder | None, texts: list[str]) -> Encode:
    """Return how texts become vectors: all as documents, under the texts themselves where there is a context."""
    if model is not None:
        model.set_context(texts, run.context_seed)
        return partial(model.encode, prompt="document")
    if run.architecture != "surrogate":
        raise ValueError(f"the measure 'polarity' needs vectors of texts; architecture={run.architecture!r} has none")
    from repro.batches.surrogate import load_surrogate

    return partial(load_surrogate(run.surrogate).embed, max_tokens=run.max_tokens)
