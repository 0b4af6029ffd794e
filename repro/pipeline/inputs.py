"""Load the inputs of a run from its built stages: pairs, tokens, embeddings, clusters and the evaluation suite.

The documents of batches are those of the N pairs. Hard negatives that were given with the pairs follow them as rows from
N on. The methods `document_…` cover both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from repro.batches.fixed_encoder import FixedEncoder, get_surrogate
from repro.batches.mask import KnownPositives
from repro.data.beir import Suite
from repro.data.pairs import Pairs, Side
from repro.data.tokens import JoinedTokens, Tokens, load_tokens
from repro.pipeline.corpora import load_run_suite
from repro.pipeline.prompting import PromptedTexts
from repro.pipeline.stages import KEYS_FILE, SAMPLED_FILE, StageGraph
from repro.seeds import make_rng
from repro.spec import Run, needs_surrogate
from repro.storage.arrays import JoinedRows, advise_random_access, load_array
from repro.storage.files import read_json


def draw_training_rows(inputs: Inputs, count: int) -> np.ndarray:
    """Draw sorted rows of pairs whose documents serve as random context, with repeats if there are too few pairs."""
    num_pairs = len(inputs.pairs)
    generator = make_rng(inputs.run.context_seed, "random context")
    # Sorted after drawing, which makes reading from disk sequential and leaves the set of rows unchanged.
    rows: np.ndarray = np.sort(generator.choice(num_pairs, count, replace=num_pairs < count))
    return rows


@dataclass(frozen=True)
class Inputs:
    """The stages of a run and the training data in them, loaded on first use. Call `build` first."""

    run: Run

    @cached_property
    def graph(self) -> StageGraph:
        """The stages of the run."""
        return StageGraph(self.run)

    def build(self, progress: Callable[[str], None]) -> None:
        """Build the missing stages."""
        self.graph.build(progress)

    @cached_property
    def surrogate(self) -> FixedEncoder:
        """The surrogate of the run."""
        return get_surrogate(self.run)

    @cached_property
    def first_phase(self) -> Inputs | None:
        """The inputs of the first phase of a two-phase run."""
        first = self.graph.first_phase
        return None if first is None else Inputs(first.run)

    @cached_property
    def pairs(self) -> Pairs:
        """The N training pairs."""
        return self.graph.selected_pairs()

    @cached_property
    def suite(self) -> Suite:
        """The evaluation suite."""
        return load_run_suite(self.run)

    def tokens(self, side: str, num_words: int | None = None) -> Tokens:
        """Load the token ids of every query or document, prompt included. Ids must be below `num_words`."""
        tokens = load_tokens(self.graph.tokens.path / side, len(self.pairs), num_words)
        advise_random_access(tokens.ids, tokens.offsets)
        return tokens

    def embeddings(self, side: Side, *, of_filter: bool = False) -> np.ndarray | None:
        """Load the vectors (N, D) of the surrogate or the filter, memory-mapped. None if the run does not need them."""
        if not needs_surrogate(self.run) or (of_filter and self.run.filter == "none"):
            return None
        return self.graph.load_embeddings(side, of_filter=of_filter)

    @cached_property
    def content_keys(self) -> np.ndarray:
        """The key of the document of each pair, int64 (N,), memory-mapped. Equal keys mean equal texts."""
        return self._load_keys(self.graph, len(self.pairs))

    def _load_keys(self, graph: StageGraph, length: int) -> np.ndarray:
        keys = load_array(graph.keys.path / KEYS_FILE, kind="i", shape=(length,), mapped=True)
        advise_random_access(keys)
        return keys

    @cached_property
    def given_negatives(self) -> Pairs | None:
        """The texts of the given hard negatives, as documents without queries. None for a run that does not use them."""
        given = self.graph.given_negatives
        return None if given is None else given.selected_pairs()

    def document_tokens(self, num_words: int | None = None) -> Tokens | JoinedTokens:
        """Load the token ids of all documents of batches, prompt included. Ids must be below `num_words`."""
        tokens = self.tokens("document", num_words)
        if self.graph.given_negatives is None:
            return tokens
        negatives = load_tokens(self.graph.given_negatives.tokens.path / "document", None, num_words)
        advise_random_access(negatives.ids, negatives.offsets)
        return JoinedTokens(tokens, negatives)

    def document_embeddings(self, *, of_filter: bool = False) -> np.ndarray | JoinedRows | None:
        """Load the vectors of all documents of batches by the surrogate or the filter. None if there are none."""
        vectors = self.embeddings("document", of_filter=of_filter)
        if vectors is None or self.graph.given_negatives is None:
            return vectors
        return JoinedRows(vectors, self.graph.given_negatives.load_embeddings("document", of_filter=of_filter))

    @cached_property
    def document_keys(self) -> np.ndarray | JoinedRows:
        """The keys of all documents of batches, int64. Equal keys mean equal texts."""
        given = self.graph.given_negatives
        if given is None:
            return self.content_keys
        return JoinedRows(self.content_keys, self._load_keys(given, len(self.given_negatives or ())))

    def document_texts(self, rows: np.ndarray, prompts: str = "none") -> list[str]:
        """Return the texts of documents of a batch, by their rows (int64), behind prompts (a row of their table)."""

        def read(pairs: Pairs, rows: np.ndarray) -> list[str]:
            return PromptedTexts(pairs, "document", prompts, self.run.corpus).texts(rows)

        if self.given_negatives is None:
            return read(self.pairs, rows)
        is_given = rows >= len(self.pairs)
        given_texts = iter(read(self.given_negatives, rows[is_given] - len(self.pairs)))
        pair_texts = iter(read(self.pairs, rows[~is_given]))
        return [next(given_texts if flag else pair_texts) for flag in is_given]

    @cached_property
    def known_positives(self) -> KnownPositives | None:
        """The documents of pairs with equal queries. None for a run that ignores them."""
        if self.run.known_positives == "ignore":
            return None
        positives = KnownPositives.load(self.graph.positives.path, len(self.pairs))
        advise_random_access(positives.query_keys_N, positives.links_2L)
        return positives

    @cached_property
    def negatives(self) -> np.ndarray | None:
        """Rows of the hard negatives of each pair among all documents, int64 (N, H). None for a run without them."""
        if not self.run.num_hard_negatives:
            return None
        shape = (len(self.pairs), self.run.num_hard_negatives)
        # In memory, because every batch reads random rows.
        return load_array(self.graph.negatives.path / "rows.npy", kind="i", shape=shape)

    @cached_property
    def clusters(self) -> Any:
        """The clusters of the pairs, for the sampler "cluster"."""
        from repro.batches.cluster import load_clusters

        return load_clusters(self.graph.clusters.path, len(self.pairs))

    @property
    def sampled_domains(self) -> Any:
        """Domains whose clusters were fitted on a sample, with the sizes of sample and domain. None if all were exact.

        Only for runs with clusters.
        """
        path = self.graph.clusters.path / SAMPLED_FILE
        return read_json(path) if path.is_file() else None
