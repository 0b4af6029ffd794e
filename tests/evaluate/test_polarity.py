"""Zero-shot polarity: the nearest label, by two ways of writing it, on sentences whose labels are at hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from repro.analyses.polarity import measure
from repro.evaluate.polarity import LABELS, classify, encode_labels, load_film_reviews
from repro.pipeline.inputs import Inputs
from repro.spec import base

DIRECTIONS = {"positive": (1.0, 0.0), "negative": (0.0, 1.0)}


def by_word(texts: Sequence[str]) -> np.ndarray:
    """Vectors of two dimensions: how often each label is said, the first preferred in a sentence."""
    rows = [sum(np.array(DIRECTIONS[word]) for word in text.split() if word in DIRECTIONS) for text in texts]
    return np.array(
        [row + (len(text.split()) > 1) * np.array([0.5, 0.0]) for row, text in zip(rows, texts, strict=True)]
    )


def test_a_text_has_the_label_whose_words_are_nearest() -> None:
    texts_ND = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    assert classify(texts_ND, by_word, "plain").tolist() == [1, 0, 0], "of equals the first"
    # Within a sentence 'negative' points to (0.5, 1) and 'positive' to (1.5, 0): by hand 1.35 to 0.55, 0.3 to 0.9, …
    assert classify(texts_ND, by_word, "prompted").tolist() == [1, 0, 0]
    assert classify(np.array([[0.55, 0.5]]), by_word, "prompted").tolist() == [1]
    with pytest.raises(ValueError, match=r"unknown verbaliser 'shouted'; choose one of \['plain', 'prompted'\]"):
        classify(texts_ND, by_word, "shouted")


def test_the_prompt_is_the_papers() -> None:
    seen: list[str] = []

    def encode(texts: Sequence[str]) -> np.ndarray:
        seen.extend(texts)
        return by_word(texts)

    for verbaliser in ("plain", "prompted"):
        classify(np.zeros((1, 2)), encode, verbaliser)
    prompted = [f"this is an example of {label} movie review" for label in ("negative", "positive")]
    assert seen == ["negative", "positive", *prompted]


def test_the_reviews_are_two_hundred_sentences_half_of_each_label() -> None:
    texts, labels = load_film_reviews()
    assert np.bincount(encode_labels(labels)).tolist() == [100, 100]
    assert texts[0] == "simplistic , silly and tedious . " and LABELS[encode_labels(labels)[0]] == "negative"


def test_the_measure_agrees_with_scikit_learn_and_brute_force() -> None:
    run = base("smoke", architecture="surrogate", measure="polarity")
    found = measure(Inputs(run), None, Path())
    from repro.batches.surrogate import load_surrogate

    encoder = load_surrogate("minilm-words")
    texts, labels = load_film_reviews()
    vectors = encoder.embed(texts, run.max_tokens)
    for name, words in (("plain", ("negative", "positive")), ("prompted", None)):
        said = words or tuple(f"this is an example of {label} movie review" for label in LABELS)
        negative, positive = encoder.embed(list(said), run.max_tokens)
        chosen = ["__label__pos" if vector @ positive > vector @ negative else "__label__neg" for vector in vectors]
        assert found.metrics[f"polarity/{name}/accuracy"] == pytest.approx(accuracy_score(labels, chosen))
        assert found.arrays[f"polarity/{name}/accuracy"].mean() == found.metrics[f"polarity/{name}/accuracy"]
        assert found.metrics[f"polarity/{name}/called_positive"] == chosen.count("__label__pos") / len(texts)
