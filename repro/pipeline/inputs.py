"""What a run works on, read from its built stages when it is asked for: one object, made once and handed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from repro.batches.known_positives import KnownPositives
from repro.data.beir import Suite
from repro.data.pairs import Pairs, Side
from repro.data.tokens import Tokens, load_tokens
from repro.pipeline.corpora import load_run_suite
from repro.pipeline.kinds import needs_surrogate
from repro.pipeline.stages import KEYS_FILE, SAMPLED_FILE, StageGraph
from repro.seeds import generator_for
from repro.spec import Run
from repro.storage.arrays import load_array, read_here_and_there
from repro.storage.json_files import read_json


def draw_training_rows(inputs: Inputs, count: int) -> np.ndarray:
    """Draw pairs whose documents serve as random context, rising; of fewer pairs than `count` some twice."""
    num_pairs = len(inputs.pairs)
    generator = generator_for(inputs.run.context_seed, "random context")
    rows: np.ndarray = np.sort(generator.choice(num_pairs, count, replace=num_pairs < count))
    return rows


@dataclass(frozen=True)
class Inputs:
    """A run's stages and the training data in them; build the stages first (`build`)."""

    run: Run

    @cached_property
    def graph(self) -> StageGraph:
        """The run's stages."""
        return StageGraph(self.run)

    def build(self, progress: Callable[[str], None]) -> None:
        """Build the stages that are not there yet."""
        self.graph.build(progress)

    @cached_property
    def first_phase(self) -> Inputs | None:
        """The inputs of the training that a two-phase run goes on from."""
        first = self.graph.first_phase
        return None if first is None else Inputs(first.run)

    @cached_property
    def pairs(self) -> Pairs:
        """The training pairs, N of them."""
        return self.graph.selected_pairs()

    @cached_property
    def suite(self) -> Suite:
        """The evaluation suite."""
        return load_run_suite(self.run)

    def tokens(self, side: str, num_words: int | None = None) -> Tokens:
        """Token ids of every query or document, prompt included; all below `num_words`, the model's vocabulary."""
        found = load_tokens(self.graph.tokens.path / side, len(self.pairs), num_words)
        read_here_and_there(found.ids, found.offsets)
        return found

    def embeddings(self, side: Side) -> np.ndarray | None:
        """The surrogate's vectors (N, D), memory-mapped; None for a run whose batches do not depend on them."""
        return self.graph.load_embeddings(side) if needs_surrogate(self.run) else None

    def filter_embeddings(self, side: Side) -> np.ndarray | None:
        """The vectors (N, E) that the filter goes by, memory-mapped; None for a run without the filter."""
        if self.run.filter != "surrogate" or not needs_surrogate(self.run):
            return None
        return self.graph.load_embeddings(side, of_filter=True)

    @cached_property
    def content_keys(self) -> np.ndarray:
        """The key of each pair's document, int64 (N,), memory-mapped; equal keys are the same text."""
        keys_N = load_array(self.graph.keys.path / KEYS_FILE, kind="i", shape=(len(self.pairs),), mapped=True)
        read_here_and_there(keys_N)
        return keys_N

    @cached_property
    def known_positives(self) -> KnownPositives | None:
        """The documents of pairs of an equal query; None for a run that ignores them."""
        if self.run.known_positives == "ignore":
            return None
        found = KnownPositives.load(self.graph.positives.path, len(self.pairs))
        read_here_and_there(found.query_keys_N, found.links_2L)
        return found

    @cached_property
    def negatives(self) -> np.ndarray | None:
        """Rows of each pair's hard negatives among the pairs, int64 (N, H); None for a run without."""
        if not self.run.num_hard_negatives:
            return None
        count, shape = len(self.pairs), (len(self.pairs), self.run.num_hard_negatives)
        return load_array(self.graph.negatives.path / "rows.npy", kind="i", shape=shape, below=count)

    @cached_property
    def clusters(self) -> Any:
        """The clusters of the pairs, for sampler "cluster"."""
        from repro.batches.cluster import load_clusters

        return load_clusters(self.graph.clusters.path, len(self.pairs))

    @property
    def sampled_domains(self) -> Any:
        """Domains whose clusters were fitted on a sample, and on how many of how many pairs; None when all were exact.

        Only for runs with clusters.
        """
        path = self.graph.clusters.path / SAMPLED_FILE
        return read_json(path) if path.is_file() else None
