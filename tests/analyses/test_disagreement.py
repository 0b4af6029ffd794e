"""Disagreement across dimensions: the outcome of each query by hand."""

from pathlib import Path

import numpy as np
import pytest

from repro.analyses import disagreement
from repro.data.beir import Suite, SuiteDataset
from repro.spec import base
from tests.analyses.by_hand import make_inputs, make_numbered_collection, write_collections

WIDTH = 32


class Placed:
    """A model that places texts by hand: in 8 dimensions and in all 32 they have different neighbours."""

    def __init__(self, vectors: dict[str, tuple[int, int]]) -> None:
        """Take the axis of each text within the first 8 dimensions and within the others."""
        self.vectors = vectors

    def encode(self, texts: list[str], prompt: str = "document") -> np.ndarray:
        """Return vectors whose wide part is much longer than the narrow part."""
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        for row, text in enumerate(texts):
            narrow, wide = self.vectors[text]
            vectors[row, narrow] = 1
            vectors[row, 8 + wide] = 10
        return vectors


def test_outcomes_by_hand(tmp_path: Path) -> None:
    """Two collections share a family. Each query finds another outcome at the narrow width."""
    folders = write_collections(
        tmp_path,
        make_numbered_collection("cats", 2, (0, 0, 1)),
        make_numbered_collection("dogs", 1, (0,)),
        make_numbered_collection("cars", 1, (0,)),
    ).datasets
    families = {"cats": "animals", "dogs": "animals", "cars": "things"}
    suite = Suite("desk", tuple(SuiteDataset(row.name, families[row.name], row.path) for row in folders))
    documents = {"cats text 0": (0, 0), "cats text 1": (1, 1), "dogs text 0": (2, 2), "cars text 0": (3, 3)}
    # narrow: another document of the collection, another collection, another family; whole: right, right, elsewhere
    queries = {"cats asks 0": (1, 0), "cats asks 1": (2, 0), "cats asks 2": (3, 3)}
    queries |= {"dogs asks 0": (2, 2), "cars asks 0": (3, 3)}
    run = base("smoke", measure="disagreement", nested_sizes="8+32")
    measured = disagreement.measure(make_inputs(run, suite=suite), Placed(documents | queries), tmp_path)
    metrics = measured.metrics
    narrow = [metrics[f"desk+width8/mean/{name}"] for name in disagreement.OUTCOMES]
    whole = [metrics[f"desk+width32/mean/{name}"] for name in disagreement.OUTCOMES]
    assert narrow == pytest.approx([2 / 5, 1 / 5, 1 / 5, 1 / 5])
    assert whole == pytest.approx([4 / 5, 0, 0, 1 / 5])
    assert measured.arrays["desk+width32/mean/relevant"].tolist() == [1, 1, 0, 1, 1]


def test_regained_counts_narrow_successes(tmp_path: Path) -> None:
    """A query that is right at 8 dimensions and wrong with all of them is regained."""
    suite = write_collections(tmp_path, make_numbered_collection("cats", 2, (0, 1)))
    texts = {"cats text 0": (0, 0), "cats text 1": (1, 1), "cats asks 0": (0, 1), "cats asks 1": (1, 1)}
    run = base("smoke", measure="disagreement", nested_sizes="8+32")
    metrics = disagreement.measure(make_inputs(run, suite=suite), Placed(texts), tmp_path).metrics
    assert metrics["desk+width8/mean/regained"] == 0.5
    assert metrics["desk+width32/mean/regained"] == 0
