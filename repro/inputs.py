"""What a run needs before it starts: the stages it shares with other runs, and the views of them it works on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from repro.data.beir import Suite, load_suite
from repro.data.elsewhere import brought, holder_of, names_elsewhere, suites_elsewhere
from repro.data.hub import SOURCES, prompts_by_domain
from repro.data.pairs import Pairs, Side, read_pairs
from repro.data.tokens import Tokens, load_tokenizer, load_tokens, tokenize
from repro.spec import TRAINED, Run, first_phase_of
from repro.stages import Stage

Report = Callable[[str], None]
SELECTION_SEED = CLUSTER_SEED = (
    0  # clusters, like the surrogate, are part of the data: runs that differ in seed share them
)
LOOKS_AT_PAIRS = ("batches", "neighbours", "cluster")
"""Measures of the training pairs under the surrogate, whatever is trained."""
READS_PAIRS = ("counts", "divergence")
"""Measures of the training pairs as text."""
SIDES: tuple[Side, ...] = ("query", "document")


def _planted(num_domains: int, pairs_per_domain: int, num_heldout: int, text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from repro.data.planted import TEXTS, build_planted

        build_planted(
            folder,
            num_domains=num_domains,
            pairs_per_domain=pairs_per_domain,
            seed=0,
            num_heldout_domains=num_heldout,
            text=TEXTS[text],
        )

    return make


def _mined(views: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from repro.data.desk import build_desk, build_lab

        {"desk": build_desk, "lab": build_lab}[views](folder)

    return make


@dataclass(frozen=True)
class Corpus:
    """A named source of training pairs and evaluation suites that is made here."""

    make: Callable[[Path], None]
    suites: tuple[str, ...] = ()


CORPORA: dict[str, Corpus] = {
    "planted-tiny": Corpus(_planted(6, 40, 3, "wide"), ("planted", "planted-validation")),
    "planted": Corpus(_planted(400, 128, 16, "small"), ("planted", "planted-validation")),
    "desk": Corpus(_mined("desk"), ("desk", "desk-validation")),
    "lab": Corpus(_mined("lab")),
}


def corpus_stage(name: str) -> Stage:
    """Gives the stage of a corpus; ValueError when it is unknown, or not here: how to get it is said."""
    if name in CORPORA:
        return Stage("corpus", {"corpus": name, "made_from": _origin(name)}, CORPORA[name].make)
    found = brought(name)
    if found is None:
        raise ValueError(f"unknown corpus {name!r}; choose of {[*CORPORA, *names_elsewhere()]}")
    return Stage("corpus", {"corpus": name, "made_from": found.origin}, found.make)


@cache
def _origin(name: str) -> str:
    """Gives a hash of what decides a corpus: the code that makes it, and the manifests of what is mined."""
    folder = Path(__file__).parent / "data"
    mined = [folder / f"{module}.py" for module in ("mining", "splits", "suites", "training", "views", "desk")]
    mined += sorted([*folder.glob("sources/*.py"), *folder.glob("manifests/*.json")])
    files = mined if name in ("desk", "lab") else [folder / "planted.py"]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]


def suite_corpus(run: Run) -> str:
    """Gives the corpus that holds a run's evaluation suite; ValueError says how to get one that is not made here."""
    holders = [name for name, corpus in CORPORA.items() if run.suite in corpus.suites]
    if not holders:
        elsewhere = holder_of(run.suite)
        if elsewhere is not None:
            return elsewhere
        known = sorted({suite for corpus in CORPORA.values() for suite in corpus.suites} | set(suites_elsewhere()))
        raise ValueError(f"unknown suite {run.suite!r}; choose of {known}")
    return run.corpus if run.corpus in holders else holders[0]


def check_available(runs: Iterable[Run]) -> None:
    """ValueError, before anything is spent, when a run needs data that is not made here."""
    for run in runs:
        suite_corpus(run)
        corpus_stage(run.corpus)


def _selection_stage(run: Run) -> Stage:
    corpus = corpus_stage(run.corpus)

    def make(folder: Path) -> None:
        from repro.data.selection import select_pairs

        pairs = read_pairs(corpus.path / "train.arrow")
        rows = _rows_of_sources(pairs, run.sources)
        if run.num_pairs is not None:
            rows = rows[select_pairs(pairs.take(rows), run.num_pairs, seed=SELECTION_SEED)]
        np.save(folder / "rows.npy", np.asarray(rows, np.int64))

    key = {"num_pairs": run.num_pairs} | ({"sources": run.sources} if run.sources else {})
    return Stage("selection", key, make, (corpus,))


def _rows_of_sources(pairs: Pairs, sources: str | None) -> np.ndarray:
    if sources is None:
        return np.arange(len(pairs))
    unknown = sorted(set(sources.split("+")) - set(pairs.source_names))
    if unknown:
        raise ValueError(f"sources={sources!r}: {unknown} are not in this corpus; it has {list(pairs.source_names)}")
    chosen = [list(pairs.source_names).index(name) for name in sources.split("+")]
    return np.flatnonzero(np.isin(pairs.source_codes, chosen))


def selected_pairs(run: Run) -> Pairs:
    """Gives the training pairs of a run, from built stages."""
    stage = _selection_stage(run)
    return read_pairs(corpus_stage(run.corpus).path / "train.arrow").take(np.load(stage.path / "rows.npy"))


def _tokens_stage(run: Run) -> Stage:
    selection = _selection_stage(run)

    def make(folder: Path) -> None:
        pairs, tokenizer = selected_pairs(run), load_tokenizer("minilm")
        for side, prompts in zip(SIDES, _prompts_of_pairs(run, pairs), strict=True):
            plain = pairs.texts(side, np.arange(len(pairs)))
            texts = [prompt + text for prompt, text in zip(prompts, plain, strict=True)]
            tokenize(texts, tokenizer, run.max_tokens).save(folder / side)

    key = {"prompts": run.prompts, "max_tokens": run.max_tokens}
    if run.prompts != "none" and run.corpus in SOURCES:
        key["by_domain"] = True
    return Stage("tokens", key, make, (selection,))


def _prompts_of_pairs(run: Run, pairs: Pairs) -> tuple[list[str], list[str]]:
    """Gives what stands in front of each query and each document: the domain's own prompts, where it has some."""
    from repro.model.prompts import PROMPTS

    of_all = PROMPTS[run.prompts]
    codes, names = np.unique(pairs.domain_codes, return_inverse=True)
    here = [pairs.domain_names[code] for code in codes]
    own = {} if run.prompts == "none" else prompts_by_domain(run.corpus, here)
    each = [own.get(name, of_all) for name in here]
    return [each[n][0] for n in names], [each[n][1] for n in names]


def _embeddings_stage(run: Run) -> Stage:
    selection = _selection_stage(run)

    def make(folder: Path) -> None:
        from repro.batches.surrogate import embed_texts, load_surrogate

        pairs, surrogate = selected_pairs(run), load_surrogate(run.surrogate)
        for side in SIDES:
            texts = pairs.texts(side, np.arange(len(pairs)))
            embed_texts(surrogate, texts, folder / f"{side}.npy", max_tokens=run.max_tokens)

    return Stage("embeddings", {"surrogate": run.surrogate, "max_tokens": run.max_tokens}, make, (selection,))


def _clusters_stage(run: Run) -> Stage:
    embeddings = _embeddings_stage(run)

    def make(folder: Path) -> None:
        from repro.batches.cluster import cluster_pairs

        assert run.cluster_size is not None, "only runs with clusters have this stage"
        pairs = selected_pairs(run)
        queries, documents = (np.load(embeddings.path / f"{side}.npy", mmap_mode="r") for side in SIDES)
        codes = domain_codes(run, pairs)
        clusters = cluster_pairs(queries, documents, codes, cluster_size=run.cluster_size, seed=CLUSTER_SEED)
        clusters.save(folder)

    key = {"cluster_size": run.cluster_size, "domain_column": run.domain_column}
    return Stage("clusters", key, make, (embeddings,))


def _negatives_stage(run: Run) -> Stage:
    embeddings = _embeddings_stage(run)

    def make(folder: Path) -> None:
        from repro.batches.mask import content_keys
        from repro.batches.negatives import mine_negatives

        pairs = selected_pairs(run)
        queries, documents = (np.load(embeddings.path / f"{side}.npy", mmap_mode="r") for side in SIDES)
        keys = content_keys(pairs.texts("document", np.arange(len(pairs))))
        count, codes = run.num_hard_negatives, domain_codes(run, pairs)
        rows = mine_negatives(queries, documents, codes, keys, num_hard_negatives=count, seed=SELECTION_SEED)
        np.save(folder / "rows.npy", rows)

    key = {"num_hard_negatives": run.num_hard_negatives, "domain_column": run.domain_column}
    return Stage("negatives", key, make, (embeddings,))


def domain_codes(run: Run, pairs: Pairs) -> np.ndarray:
    """Gives each pair's domain (int32 N): its source, or its finest division."""
    return pairs.source_codes if run.domain_column == "source" else pairs.domain_codes


def needs_surrogate(run: Run) -> bool:
    """Says whether a run's batches depend on the surrogate's embeddings."""
    if run.measure in LOOKS_AT_PAIRS:
        return True
    wanted = run.sampler == "cluster" or run.filter == "surrogate" or run.num_hard_negatives > 0
    return run.architecture in TRAINED and wanted


def stages_of(run: Run) -> tuple[Stage, ...]:
    """Gives the stages a run needs, in the order of building, each once."""
    wanted, first = [corpus_stage(suite_corpus(run))], first_phase_of(run)
    if first is not None:
        wanted += stages_of(first)
    if run.measure in READS_PAIRS:
        wanted.append(_selection_stage(run))
    if run.architecture in TRAINED:
        wanted.append(_tokens_stage(run))
    if needs_surrogate(run):
        wanted.append(_embeddings_stage(run))
    if needs_surrogate(run) and run.sampler == "cluster":
        wanted.append(_clusters_stage(run))
    if run.architecture in TRAINED and run.num_hard_negatives:
        wanted.append(_negatives_stage(run))
    return tuple({stage.path: stage for last in wanted for stage in last.all()}.values())


@dataclass(frozen=True)
class Inputs:
    """A run's training data, read from its built stages when it is asked for."""

    run: Run

    @cached_property
    def pairs(self) -> Pairs:
        """The training pairs, N of them."""
        return selected_pairs(self.run)

    def tokens(self, side: str) -> Tokens:
        """Token ids of every query or document, prompt included."""
        return load_tokens(_tokens_stage(self.run).path / side)

    def embeddings(self, side: str) -> np.ndarray | None:
        """The surrogate's vectors (N, D), memory-mapped; None for a run whose batches do not depend on them."""
        if not needs_surrogate(self.run):
            return None
        return np.load(_embeddings_stage(self.run).path / f"{side}.npy", mmap_mode="r")

    @cached_property
    def negatives(self) -> np.ndarray | None:
        """Rows of each pair's hard negatives among the pairs, int64 (N, H); None for a run without."""
        if not self.run.num_hard_negatives:
            return None
        rows_NH: np.ndarray = np.load(_negatives_stage(self.run).path / "rows.npy")
        return rows_NH

    @cached_property
    def clusters(self) -> Any:
        """The clusters of the pairs, for sampler "cluster"."""
        from repro.batches.cluster import load_clusters

        return load_clusters(_clusters_stage(self.run).path)


def suite_of(run: Run) -> Suite:
    """Gives the evaluation suite of a run, from its built corpus."""
    return load_suite(corpus_stage(suite_corpus(run)).path / "suites" / run.suite)


def describe_corpus(name: str, num_samples: int, report: Report) -> dict[str, Any]:
    """Builds a corpus when it is missing; gives its counts and a few rows of each source."""
    folder = corpus_stage(name).build(report)
    pairs = read_pairs(folder / "train.arrow")
    samples = []
    for code, source in enumerate(pairs.source_names):
        rows = np.flatnonzero(pairs.source_codes == code)[:num_samples]
        for query, document in zip(pairs.texts("query", rows), pairs.texts("document", rows), strict=True):
            samples.append({"source": source, "query": query, "document": document})
    counts = json.loads((folder / "report.json").read_text()) if (folder / "report.json").is_file() else {}
    return {
        "corpus": name,
        "num_pairs": len(pairs),
        "num_domains": len(pairs.domain_names),
        "counts": counts,
        "samples": samples,
    }
