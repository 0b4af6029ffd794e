"""Define the stages of a run: data that is built before the run and shared with every run that needs the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from repro.batches.cluster import (
    Clusters,
    cluster_pairs,
    cluster_part,
    join_clusters,
    list_sampled_domains,
    load_clusters,
)
from repro.batches.fixed_encoder import FixedEncoder, get_filter_encoder, get_surrogate
from repro.batches.mask import QUERIES_FILE, KnownPositives, write_content_keys, write_known_positives
from repro.batches.negatives import mine_negatives, write_given_negatives
from repro.batches.sampler import BatchSampler
from repro.batches.surrogate import embed_part, embed_texts, join_embeddings
from repro.data.pairs import SIDES, Pairs, Side, read_pairs
from repro.data.paper.hub import SOURCES
from repro.data.selection import select_pairs, select_source_rows
from repro.data.tokens import join_tokens, load_tokenizer, write_tokens
from repro.pipeline.corpora import load_run_suite, make_corpus_stage, make_searched_stage, make_suite_stage
from repro.pipeline.encoders import find_commit, get_files_in_key
from repro.pipeline.needs import (
    MINILM,
    check_domain_sizes,
    count_test_contexts,
    domain_codes,
    get_tokenizer_name,
    list_domain_names,
    list_evaluation_kinds,
    list_pair_kinds,
    uses_given_negatives,
)
from repro.pipeline.prompting import PromptedTexts, get_encoder_in_key, get_prompts_in_key
from repro.spec import Run, draws_within_domains, get_first_phase
from repro.storage.arrays import ArrayWriter, append_all, load_array
from repro.storage.files import write_json
from repro.storage.stages import WHOLE, Part, Sharding, Stage

SELECTION_SEED = CLUSTER_SEED = 0
"""Clusters and the surrogate are part of the data, so runs with different seeds share them."""
RECIPE = {"selection": 1, "tokens": 1, "embeddings": 1, "keys": 2, "clusters": 1, "negatives": 2}
RECIPE |= {"candidates": 1, "headroom": 1, "positives": 1}
"""Versions of how a stage is built. Raise one if the same input would give other content. Every stage of that kind, and
all stages that depend on it, are then rebuilt. Version 1 is not part of a key, so old stages stay valid."""
KEYS_FILE, SAMPLED_FILE, GIVEN_FILE = "keys.npy", "sampled.json", "given.arrow"
ORDER_FIELDS = (
    "sampler",
    "domain_column",
    "batch_size",
    "packing",
    "seed",
    "num_epochs",
    "num_steps",
    "batches_a_step",
)
"""Fields that decide the batches of a run, in addition to its pairs and their clusters."""
TEXT_KINDS = ("tokens", "keys", "embeddings", "filter_embeddings")
"""Stages that the given hard negatives need too."""


@dataclass(frozen=True)
class StageGraph:
    """The stages of one run by kind, each created once. `stages` are those that the run needs, in building order."""

    run: Run
    of_negatives: bool = False
    """Whether tokens, embeddings and keys are those of the given hard negatives instead of the pairs."""

    @cached_property
    def given_negatives(self) -> StageGraph | None:
        """The graph of the hard negatives that were given with the pairs. None for a run that does not use them."""
        return StageGraph(self.run, of_negatives=True) if uses_given_negatives(self.run) else None

    @property
    def _texts(self) -> Stage:
        """The stage that holds the texts of this graph."""
        return self.negatives if self.of_negatives else self.selection

    def _shard(
        self, make: Callable[[Path, Part], None], join: Callable[[Path, Sequence[Path]], None]
    ) -> Sharding | None:
        """Return how to build a stage in shards. Given negatives may be fewer than the shards, so they have none."""
        return None if self.of_negatives else Sharding(make, join)

    @cached_property
    def corpus(self) -> Stage:
        """The training pairs of the whole corpus."""
        return make_corpus_stage(self.run.corpus)

    @cached_property
    def evaluation(self) -> Stage | None:
        """The corpus with the evaluation suite. None if the library mteb downloads the data."""
        return make_suite_stage(self.run)

    @cached_property
    def first_phase(self) -> StageGraph | None:
        """The graph of the first phase of a two-phase run."""
        first = get_first_phase(self.run)
        return None if first is None else StageGraph(first)

    @cached_property
    def selection(self) -> Stage:
        """The rows of the corpus that are trained on."""
        run, corpus = self.run, self.corpus

        def make(folder: Path) -> None:
            pairs = read_pairs(corpus.path / "train.arrow")
            # Sources are filtered first: the number of pairs counts rows of the selected sources.
            rows = select_source_rows(pairs, run.sources)
            if run.num_pairs is not None:
                rows = rows[select_pairs(pairs.take(rows), run.num_pairs, seed=SELECTION_SEED)]
            np.save(folder / "rows.npy", np.asarray(rows, np.int64))

        key: dict[str, Any] = {"num_pairs": run.num_pairs} | _get_recipe_key("selection")
        if run.sources:
            key["sources"] = run.sources
        return Stage("selection", key, make, (corpus,))

    @cached_property
    def tokens(self) -> Stage:
        """Token ids of every query and document, prompt included."""
        run = self.run
        tokenizer_name = get_tokenizer_name(run)

        def make(folder: Path, part: Part = WHOLE) -> None:
            self._check_domain_sizes()
            pairs = self.selected_pairs(part)
            tokenizer = load_tokenizer(tokenizer_name)
            for side in SIDES:
                texts = PromptedTexts(pairs, side, run.prompts, run.corpus)
                write_tokens(folder / side, texts.blocks(), tokenizer, run.max_tokens)

        def join(folder: Path, parts: Sequence[Path]) -> None:
            for side in SIDES:
                join_tokens(folder / side, [part / side for part in parts])

        key = {"prompts": run.prompts, "max_tokens": run.max_tokens}
        if run.prompts != "none" and run.corpus in SOURCES:
            # The prompts of the paper's corpora depend on the domain of a pair.
            key["by_domain"] = True
        # Defaults are left out of keys, so that stages from before a field existed stay valid.
        if tokenizer_name != MINILM:
            key |= {"tokenizer": tokenizer_name, **get_files_in_key(tokenizer_name, tokenizer_only=True)}
        key |= get_prompts_in_key(run.prompts, run.corpus) | _get_recipe_key("tokens")
        return Stage(
            "tokens",
            key,
            make,
            (self._texts,),
            self._shard(make, join),
            lambda: find_commit(tokenizer_name),
        )

    @cached_property
    def embeddings(self) -> Stage:
        """The surrogate's vectors of every query and document."""
        return self._make_embeddings_stage(get_surrogate(self.run))

    @cached_property
    def filter_embeddings(self) -> Stage:
        """The vectors of the filter's own model, or of the surrogate."""
        return self._make_embeddings_stage(get_filter_encoder(self.run))

    def _make_embeddings_stage(self, encoder: FixedEncoder) -> Stage:
        run = self.run

        def make(folder: Path, part: Part | None = None) -> None:
            self._check_domain_sizes()
            pairs = self.selected_pairs()
            surrogate = encoder.load()  # released afterwards
            for side in SIDES:
                texts = PromptedTexts(pairs, side, encoder.prompts, run.corpus)
                if part is None:
                    embed_texts(surrogate, texts, folder / f"{side}.npy", max_tokens=run.max_tokens)
                    continue
                # A shard holds vectors and row numbers, so each side has a folder.
                (folder / side).mkdir()
                embed_part(surrogate, texts, folder / side, max_tokens=run.max_tokens, part=part)

        def join(folder: Path, parts: Sequence[Path]) -> None:
            for side in SIDES:
                join_embeddings(folder / f"{side}.npy", [part / side for part in parts])

        return Stage(
            "embeddings",
            {"surrogate": encoder.name} | get_encoder_in_key(encoder, run.corpus) | _get_recipe_key("embeddings"),
            make,
            (self._texts,),
            self._shard(make, join),
            lambda: find_commit(encoder.name),
        )

    @cached_property
    def keys(self) -> Stage:
        """The content key of every document. Equal texts have equal keys."""

        def make(folder: Path, part: Part = WHOLE) -> None:
            write_content_keys(folder / KEYS_FILE, self.selected_pairs(part).blocks("document"), self.run.corpus)

        def join(folder: Path, parts: Sequence[Path]) -> None:
            with ArrayWriter(folder / KEYS_FILE, "int64") as keys:
                for part in parts:
                    append_all(keys, load_array(part / KEYS_FILE, kind="i", shape=(None,), mapped=True))

        key = {"of": "documents"} | _get_recipe_key("keys")
        return Stage("keys", key, make, (self._texts,), self._shard(make, join))

    @cached_property
    def positives(self) -> Stage:
        """The known positives: the documents of pairs with equal queries."""
        documents = self.keys

        def make(folder: Path) -> None:
            pairs = self.selected_pairs()
            write_content_keys(folder / QUERIES_FILE, pairs.blocks("query"), self.run.corpus)
            keys = load_array(documents.path / KEYS_FILE, kind="i", shape=(len(pairs),), mapped=True)
            write_known_positives(folder, keys)

        key = {"of": "equal queries"} | _get_recipe_key("positives")
        return Stage("positives", key, make, (documents,))

    @cached_property
    def clusters(self) -> Stage:
        """The cluster of every pair, for the sampler "cluster"."""
        run = self.run

        def make(folder: Path) -> None:
            save(folder, cluster_pairs(*load(), **settings))

        def make_part(folder: Path, part: Part) -> None:
            cluster_part(folder, part, *load(), **settings)

        def join(folder: Path, parts: Sequence[Path]) -> None:
            save(folder, join_clusters(parts, load()[2]))

        def load() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            codes = domain_codes(run, self.selected_pairs())
            return self.load_embeddings("query"), self.load_embeddings("document"), codes

        def save(folder: Path, clusters: Clusters) -> None:
            assert run.cluster_size is not None, "only runs with clusters have this stage"
            clusters.save(folder)
            pairs = self.selected_pairs()
            # Large domains are clustered from a sample. The record mentions them.
            if sampled := list_sampled_domains(domain_codes(run, pairs), run.cluster_size):
                names = list_domain_names(run, pairs)
                sample_sizes = {
                    names[code]: {"num_fitted": num_fitted, "num_pairs": num_pairs}
                    for code, (num_fitted, num_pairs) in sampled.items()
                }
                write_json(folder / SAMPLED_FILE, sample_sizes)
            shutil.rmtree(settings["progress_folder"], ignore_errors=True)

        key = {"cluster_size": run.cluster_size, "domain_column": run.domain_column} | _get_recipe_key("clusters")
        if run.cluster_dimensions is not None:
            key["dimensions"] = run.cluster_dimensions
        stage = Stage("clusters", key, make, (self.embeddings,), Sharding(make_part, join))
        settings: dict[str, Any] = {
            "cluster_size": run.cluster_size,
            "seed": CLUSTER_SEED,
            "num_dimensions": run.cluster_dimensions,
            "progress_folder": stage.building_folder / "kmeans",
        }
        return stage

    @cached_property
    def order(self) -> Stage:
        """The batches of all epochs of a training run, which one process packs for all."""
        run = self.run

        def make(folder: Path) -> None:
            pairs = self.selected_pairs()
            clusters = load_clusters(self.clusters.path, len(pairs)) if run.sampler == "cluster" else None
            sampler = make_batch_sampler(run, pairs, clusters)
            num_batches = (run.num_steps or 0) * run.batches_a_step
            sampler.save(folder, run.num_epochs or -(-num_batches // len(sampler)))

        key = {name: getattr(run, name) for name in ORDER_FIELDS}
        return Stage("order", key, make, (self.clusters if run.sampler == "cluster" else self.selection,))

    @cached_property
    def negatives(self) -> Stage:
        """The rows of the hard negatives of every pair."""
        run = self.run
        if self.of_negatives:
            return StageGraph(run).negatives
        if run.mined_negatives == "given":
            return self._make_given_negatives_stage()
        masks_positives = run.known_positives == "mask"

        def make(folder: Path) -> None:
            pairs = self.selected_pairs()
            keys = load_array(self.keys.path / KEYS_FILE, kind="i", shape=(len(pairs),), mapped=True)
            rows = mine_negatives(
                self.load_embeddings("query"),
                self.load_embeddings("document"),
                domain_codes(run, pairs),
                keys,
                num_hard_negatives=run.num_hard_negatives,
                with_near=run.mined_negatives == "any",
                known=KnownPositives.load(self.positives.path, len(pairs)) if masks_positives else None,
                seed=SELECTION_SEED,
            )
            np.save(folder / "rows.npy", rows)

        key: dict[str, Any] = {"num_hard_negatives": run.num_hard_negatives, "domain_column": run.domain_column}
        key |= _get_recipe_key("negatives")
        if run.mined_negatives != "below":
            key["mined"] = run.mined_negatives
        # the positives need the keys
        needs = (self.embeddings, self.positives if masks_positives else self.keys)
        return Stage("negatives", key, make, needs)

    def _make_given_negatives_stage(self) -> Stage:
        run = self.run

        def make(folder: Path) -> None:
            pairs = self.selected_pairs()
            options = {"num_hard_negatives": run.num_hard_negatives, "seed": SELECTION_SEED}
            rows = write_given_negatives(pairs, domain_codes(run, pairs), folder / GIVEN_FILE, **options)
            np.save(folder / "rows.npy", rows)

        key = {"num_hard_negatives": run.num_hard_negatives, "domain_column": run.domain_column, "mined": "given"}
        return Stage("negatives", key, make, (self.selection,))

    @cached_property
    def candidates(self) -> Stage:
        """The candidates that the first stage of a reranking run retrieves."""
        run = self.run
        is_bm25 = run.protocol == "rerank-bm25"

        def make(folder: Path) -> None:
            from repro.evaluate.first_stage import find_candidates

            find_candidates(run, load_run_suite(run), folder)

        key = {"suite": run.suite, "system": "bm25" if is_bm25 else run.surrogate, "depth": run.rerank_depth}
        if not is_bm25:
            key |= get_encoder_in_key(get_surrogate(run))
        return Stage("candidates", key | _get_recipe_key("candidates"), make, (make_searched_stage(run),))

    @cached_property
    def headroom(self) -> Stage:
        """The scores of word overlap under the context documents of a contextual run, from which the headroom follows."""
        run = self.run
        num_contexts = count_test_contexts(run)

        def make(folder: Path) -> None:
            from repro.evaluate.headroom import write_word_scores

            write_word_scores(folder, load_run_suite(run), self.selected_pairs(), num_contexts, run.context_seed)

        key = {"suite": run.suite, "num_contexts": num_contexts, "context_seed": run.context_seed}
        # version 1 too, because existing stages have it in their keys
        key["recipe"] = RECIPE["headroom"]
        return Stage("headroom", key, make, (self.selection, make_searched_stage(run)))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that the run needs, in the order of building, each once."""
        return self._collect_stages(lambda graph, kind: True)

    def known_stages(self) -> tuple[Stage, ...]:
        """Return the stages whose keys are known on this machine. Stages of missing data are skipped."""
        return self._collect_stages(StageGraph._is_known)

    def _collect_stages(self, is_included: Callable[[StageGraph, str], bool]) -> tuple[Stage, ...]:
        suite_kind, *later_kinds = list_evaluation_kinds(self.run)
        kinds = [(self, suite_kind), *self._list_pair_kinds(), *((self, kind) for kind in later_kinds)]
        required: list[Stage | None] = [getattr(graph, kind) for graph, kind in kinds if is_included(graph, kind)]
        # By path, because two graphs build equal stages as different objects. Inputs come before what needs them.
        return tuple({stage.path: stage for final in required if final for stage in final.all()}.values())

    def _list_pair_kinds(self) -> list[tuple[StageGraph, str]]:
        """Return the kinds of stages of the training pairs, after those of the first phase."""
        earlier = self.first_phase._list_pair_kinds() if self.first_phase else []
        kinds = list_pair_kinds(self.run)
        given = self.given_negatives
        later = [(given, kind) for kind in kinds if kind in TEXT_KINDS] if given else []
        return [*earlier, *((self, kind) for kind in kinds), *later]

    def describe_training_stages(self) -> dict[str, str]:
        """Return the keys of all stages that the training pairs come from, by kind."""
        finals: list[Stage | None] = [getattr(graph, kind) for graph, kind in self._list_pair_kinds()]
        keys: dict[str, str] = {}
        for title in sorted({stage.title for final in finals if final for stage in final.all()}):
            kind, _, key = title.partition("/")
            keys[f"stage {kind}"] = f"{keys.get(f'stage {kind}', '')} {key}".lstrip()
        return keys

    def _is_known(self, kind: str) -> bool:
        with suppress(ValueError):
            return bool(getattr(self, kind))
        return False

    def build(self, progress: Callable[[str], None]) -> None:
        """Build the missing stages, one after another."""
        for stage in self.stages:
            stage.build(progress)

    def selected_pairs(self, part: Part = WHOLE) -> Pairs:
        """Load the training pairs of the run, or a part of them, from built stages. Given negatives have no query."""
        if self.of_negatives:
            texts = read_pairs(self.negatives.path / GIVEN_FILE)
            return texts.take(np.arange(len(texts))[part.span(len(texts))])
        pairs = read_pairs(self.corpus.path / "train.arrow")
        path = self.selection.path / "rows.npy"
        rows = load_array(path, kind="i", shape=(None,), mapped=True)
        return pairs.take(rows[part.span(len(rows))])

    def _check_domain_sizes(self) -> None:
        """Refuse batches and clusters that no domain can fill, before days of embedding."""
        if not self.of_negatives:
            counts = np.bincount(domain_codes(self.run, self.selected_pairs()))
            check_domain_sizes(self.run, int(counts.max() if draws_within_domains(self.run) else counts.sum()))

    def _num_rows(self) -> int:
        """Return the number of training pairs, or of given negatives, from built stages."""
        if self.of_negatives:
            return len(self.selected_pairs())
        return len(load_array(self.selection.path / "rows.npy", kind="i", shape=(None,), mapped=True))

    def load_embeddings(self, side: Side, *, of_filter: bool = False) -> np.ndarray:
        """Load the vectors of the surrogate or the filter, (N, D), memory-mapped, from the built stage."""
        stage = self.filter_embeddings if of_filter else self.embeddings
        return load_array(stage.path / f"{side}.npy", kind="f", shape=(self._num_rows(), None), mapped=True)


def make_batch_sampler(run: Run, pairs: Pairs, clusters: Clusters | None) -> BatchSampler:
    """Return the sampler that packs the batches of a run."""
    return BatchSampler(
        run.sampler,
        domain_codes(run, pairs),
        batch_size=run.batch_size,
        seed=run.seed,
        clusters=clusters,
        packing=run.packing,
    )


def list_stages(run: Run) -> tuple[Stage, ...]:
    """Return the stages that a run needs, in the order of building, each once."""
    return StageGraph(run).stages


def _get_recipe_key(kind: str) -> dict[str, Any]:
    """Return the version of a recipe for a stage key. Version 1 is left out."""
    return {"recipe": RECIPE[kind]} if RECIPE[kind] > 1 else {}
