"""Search a corpus with a model: find or build the index, encode the queries, return the best documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from repro.interop.arguments import MINILM, check_contexts, check_model, find_model_folder, move_to_gpu
from repro.interop.corpus import find_corpus
from repro.interop.named_runs import find_named_run
from repro.interop.opening import open_model
from repro.interop.search.build import build_index, encode_queries
from repro.interop.search.index import CONTEXTS, VERSION, Found, Index, Progress, SearchRequest
from repro.records.store import try_read_record
from repro.spec import TRAINED, Run
from repro.spec.identity import get_training_id
from repro.spec.start import MINILM_TOKENS
from repro.storage.digests import get_cached_digests, hash_json
from repro.storage.paths import get_home, get_local_records, is_imported, run_folder
from repro.text import shorten
from repro.train.checkpoint import CHECKPOINT_FILE

HINT = "leave out --context"


def search(request: SearchRequest, queries: Sequence[str], top: int, progress: Progress) -> list[list[Found]]:
    """Return the best documents for each query. The index is built first if it is missing.

    Raises:
        ValueError: if the model, the corpus or the context does not exist.
    """
    if find_model_folder(request.model) is None and is_imported(request.model):
        request, note = choose_model(request)
        progress(f"searching {request.corpus} with {request.model}{note}")
    check_model(request.model)
    run = find_named_run(request.model)
    contexts = [] if request.context is None else [request.context]
    if run is not None:
        # by the fields of the run, because opening it may train it
        check_contexts({request.model: run}, contexts, hint=HINT)
    corpus = find_corpus(_get_corpus_name(request, run))
    context_corpus = None if {*contexts} <= {*CONTEXTS} else find_corpus(contexts[0])
    opened = open_model(request.model, progress=progress)
    move_to_gpu(opened.model)
    check_contexts({request.model: opened.config}, contexts, hint=HINT)
    if opened.num_contexts and not contexts:
        request = replace(request, context="null" if opened.ours.config.is_blind else "own")
    drawn_from = (request.context or "own") if context_corpus is None else context_corpus.key
    # after opening, which may have trained the run, so that its weights are in the key
    key = [VERSION, get_model_key(request.model, run), corpus.key, request.context_seed, drawn_from]
    index = Index(get_home() / "search" / hash_json(key)[:16])
    if not index.is_built:
        progress(f"the index of {corpus.name} is built once and cached")
        build_index(opened, request, corpus, context_corpus, index.folder, progress)
    return [index.search(vector_D, top) for vector_D in encode_queries(opened, index, queries)]


def choose_model(request: SearchRequest) -> tuple[SearchRequest, str]:
    """Return a request that names an imported corpus with a model instead, and a note on the comparison.

    The model is the one with the highest recorded NDCG@10 on the current text of the corpus, in a full search: a trained
    model whose weights are here, or MiniLM, also if nothing is recorded. The searched corpus is the named one unless the
    request has another.

    Raises:
        ValueError: if the name has the digest of other text.
    """
    from repro.data.own.imported import find_imported

    imported = find_imported(request.model)
    name = imported.name
    scores: dict[str, float] = {}
    minilm_tokens = 0
    for record in filter(None, map(try_read_record, sorted(get_local_records().glob("*.json")))):
        run, measure = record.run, f"{record.run.suite}/mean/ndcg_at_10"
        # The name of the suite alone would also select scores on the text of an earlier import.
        is_same_text = run.suite == imported.corpus or (run.suite == name and run.corpus == imported.corpus)
        if is_same_text and run.protocol == "full" and measure in record.metrics:
            if run.architecture in TRAINED and (run_folder(get_training_id(run)) / CHECKPOINT_FILE).is_file():
                scores[record.id] = record.metrics[measure]
            # The search reads MINILM_TOKENS tokens, so the score of the longest texts is the closest.
            elif (run.architecture, run.surrogate) == ("surrogate", MINILM) and run.max_tokens > minilm_tokens:
                scores[MINILM] = record.metrics[measure]
                minilm_tokens = run.max_tokens
    best = max(scores, key=scores.__getitem__, default=MINILM)
    note = ""
    if best != MINILM and 0 < minilm_tokens < MINILM_TOKENS:
        note = (
            f", the best recorded model. MiniLM was scored on {minilm_tokens} tokens of each text, and may be better with "
            f"{MINILM_TOKENS}: repro evaluate --compare {best} {MINILM} --suite {name}"
        )
    return replace(request, model=best, corpus=request.corpus or name), note


def get_model_key(source: str, run: Run | None) -> str | None:
    """Return a digest or commit that identifies a model's weights. None for a run that is not trained yet."""
    if run is not None:
        folder = run_folder(get_training_id(run))
        path = folder / CHECKPOINT_FILE
        if not path.is_file():
            return None
        note = get_home() / "digests" / f"run-{folder.name}.json"
        return get_cached_digests(folder, [path], note)[path.name]
    local_folder = find_model_folder(source)
    if local_folder is not None:
        from repro.pipeline.encoders import get_files_in_key

        return get_files_in_key(str(local_folder.resolve()))["files"]
    from repro.pipeline.encoders import find_commit

    return find_commit(source).get("commit", source)


def _get_corpus_name(request: SearchRequest, run: Run | None) -> str:
    if request.corpus is not None:
        return request.corpus
    if run is None:
        raise ValueError(
            f"which corpus should {shorten(request.model)} search? --corpus takes the name of an imported corpus or a "
            "suite, a BEIR folder, or a file (jsonl, csv, tsv, parquet, txt)"
        )
    return run.suite
