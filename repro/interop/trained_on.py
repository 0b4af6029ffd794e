"""Queries of a suite that a model was trained on, found by comparing their text with the model's training pairs.

The comparison ignores case and the punctuation around words (`identify_text`). The training pairs of a model are known if
it is a run, or a folder that `repro export` wrote from a run, and if the corpus of that run is available.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from repro.data.beir import Retrieval, Suite
from repro.data.pairs import Pairs
from repro.data.wording import identify_text
from repro.evaluate.collections import Collection
from repro.interop.arguments import BM25, MINILM
from repro.interop.opening import find_named_run, is_hub_id
from repro.pipeline.stages import StageGraph
from repro.spec import TRAINED, Run, list_phases
from repro.spec.identity import difference, run_from_record, run_id
from repro.spec.start import get_encoder_folder
from repro.storage.files import json_object, write_json
from repro.storage.hub import find_model

TRAINED_ON_FILE = "trained_on.json"
MAX_COMPARED_PAIRS = 5_000_000
"""Maximal number of training pairs to compare, which takes about a minute."""


def write_trained_on(folder: Path, run: Run) -> None:
    """Write which run an exported model comes from."""
    write_json(folder / TRAINED_ON_FILE, {"id": run_id(run), "run": difference(run)})


def find_training_run(source: str, folder: Path | None = None) -> Run | None:
    """Return the run that trained a model, or None if it is unknown. `folder` has the opened files of a hub id."""
    folder = folder or (find_model(source) if is_hub_id(source) else None) or Path(source)
    run, path = find_named_run(source), folder / TRAINED_ON_FILE
    if run is None and path.is_file():
        # another version of this project may have written the folder, so that its run cannot be read
        with suppress(ValueError, TypeError):
            metadata = json_object(path)
            run = run_from_record(metadata["run"], metadata["id"]) if {"run", "id"} <= metadata.keys() else None
    return run if run is not None and run.architecture in TRAINED else None


@dataclass
class SeenQueries:
    """The queries that a model was trained on.

    Attributes:
        ids: The ids of the queries by collection.
        is_complete: Whether all training pairs of the model were compared.
    """

    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    is_complete: bool = True

    def count(self, collections: Mapping[str, Collection]) -> dict[str, dict[str, int]]:
        """Return the number of queries, and of seen queries, of each collection with a seen query."""
        return {
            name: {"num_queries": len(collection.retrieval.judgements), "num_seen_queries": len(self.ids[name])}
            for name, collection in collections.items()
            if name in self.ids
        }


def find_seen_queries(
    source: str, collections: Mapping[str, Collection], progress: Callable[[str], None], folder: Path | None = None
) -> SeenQueries:
    """Return the queries that a model was trained on, on either side of a pair, as far as its pairs are known."""
    run, seen = find_training_run(source, folder), SeenQueries()
    if run is None:
        # BM25 and a run that is not trained have no training pairs
        seen.is_complete = source == BM25 or find_named_run(source) is not None
        return seen
    queries = _group_queries_by_text(collections)
    # Text of a first phase counts as trained on, too.
    for phase in list_phases(run):
        pairs = _read_pairs(StageGraph(phase), source, progress)
        if pairs is None or len(pairs) > MAX_COMPARED_PAIRS:
            seen.is_complete = False
            continue
        for text in chain.from_iterable(chain(pairs.blocks("query"), pairs.blocks("document"))):
            for name, query_id in queries.get(identify_text(text), ()):
                seen.ids[name].add(query_id)
    # The model may have started from an exported one.
    try:
        start = get_encoder_folder(list_phases(run)[0].start)
    except ValueError:  # the folder is not here, or has changed
        seen.is_complete, start = False, None
    if start is not None and find_training_run(str(start)) is not None:
        earlier = find_seen_queries(str(start), collections, progress)
        seen.is_complete = seen.is_complete and earlier.is_complete
        for name, ids in earlier.ids.items():
            seen.ids[name] |= ids
    return seen


def _read_pairs(graph: StageGraph, source: str, progress: Callable[[str], None]) -> Pairs | None:
    """Return the training pairs of a run, or None if its corpus is not on this machine."""
    # ValueError is raised if this machine has no corpus of this name, or one with other text.
    try:
        if not graph.corpus.is_built:
            # The comparison alone does not justify building the corpus of a folder.
            if Path(source).is_dir():
                return None
            graph.corpus.build(progress)
    except ValueError:
        return None
    # outside, so that a damaged stage is reported
    graph.selection.build(progress)
    return graph.selected_pairs()


def _group_queries_by_text(collections: Mapping[str, Collection]) -> Mapping[str, list[tuple[str, str]]]:
    """Return collection and id of the queries by their text."""
    queries_by_text: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, collection in collections.items():
        for query_id, text in zip(collection.retrieval.query_ids, collection.retrieval.queries, strict=True):
            queries_by_text[identify_text(text)].append((name, query_id))
    # Texts that consist of punctuation have an empty normalised form, and would all match each other.
    queries_by_text.pop("", None)
    return queries_by_text


@dataclass(frozen=True)
class Review:
    """A suite without excluded queries, the counts of seen queries by model and collection, and warnings about them."""

    suite: Suite
    collections: Mapping[str, Collection]
    counts: dict[str, dict[str, dict[str, int]]]
    lines: tuple[str, ...]


def review_seen_queries(
    models: Sequence[str],
    suite: Suite,
    collections: Mapping[str, Collection],
    progress: Callable[[str], None],
    folders: Mapping[str, Path | None],
    *,
    leave_out: bool,
) -> Review:
    """Find the queries of a suite that some models were trained on, warn about them, and optionally exclude them."""
    seen = {source: find_seen_queries(source, collections, progress, folders.get(source)) for source in models}
    counts = {source: queries.count(collections) for source, queries in seen.items() if queries.ids}
    num_queries = _count_queries(collections)
    lines = [_format_seen_line(source, counts[source], num_queries, left_out=leave_out) for source in counts]
    lines += [
        f"warning: {source} may be trained on queries of this suite, since its training queries are not known here"
        for source, queries in seen.items()
        if not queries.is_complete and (leave_out or source != MINILM)
    ]
    if leave_out:
        suite, collections = drop_seen_queries(suite, collections, list(seen.values()))
        lines.append(f"--leave-out-seen: {_count_queries(collections)} of {num_queries} queries are left")
    for line in lines:
        progress(line)
    return Review(suite, collections, counts, tuple(lines))


def _count_queries(collections: Mapping[str, Collection]) -> int:
    return sum(len(collection.retrieval.judgements) for collection in collections.values())


def _format_seen_line(called: str, counts: Mapping[str, Mapping[str, int]], num_queries: int, *, left_out: bool) -> str:
    num_seen = sum(row["num_seen_queries"] for row in counts.values())
    by_collection = ", ".join(f"{name} {row['num_seen_queries']}" for name, row in counts.items())
    effect = "they are left out" if left_out else "its scores are too high; --leave-out-seen scores the others only"
    return f"warning: {called} was trained on {num_seen} of {num_queries} queries ({by_collection}): {effect}"


def drop_seen_queries(
    suite: Suite, collections: Mapping[str, Collection], seen: Sequence[SeenQueries]
) -> tuple[Suite, dict[str, Collection]]:
    """Return a suite and its collections without the seen queries. Collections without other queries are dropped.

    Raises:
        ValueError: if no query is left.
    """
    remaining: dict[str, Collection] = {}
    for name, collection in collections.items():
        ids = {query_id for model in seen for query_id in model.ids.get(name, ())}
        retrieval = _drop_queries(collection.retrieval, ids)
        if retrieval.judgements:
            remaining[name] = replace(collection, retrieval=retrieval)
    if not remaining:
        raise ValueError(f"--leave-out-seen: every query of {suite.name} was trained on, so none is left")
    datasets = tuple(dataset for dataset in suite.datasets if dataset.name in remaining)
    return replace(suite, datasets=datasets), remaining


def _drop_queries(retrieval: Retrieval, ids: set[str]) -> Retrieval:
    queries = dict(zip(retrieval.query_ids, retrieval.queries, strict=True))
    queries = {query_id: text for query_id, text in queries.items() if query_id not in ids}
    judgements = {query_id: grades for query_id, grades in retrieval.judgements.items() if query_id not in ids}
    return replace(retrieval, query_ids=tuple(queries), queries=tuple(queries.values()), judgements=judgements)
