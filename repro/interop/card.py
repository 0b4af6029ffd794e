"""The model card of an export, generated from its run and records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from repro.evaluate.digests import compute_model_digest
from repro.interop.opening import Opened
from repro.records.store import Record
from repro.report.formats import as_markdown
from repro.report.query_scores import QueryScores
from repro.report.scores import find_records, list_notes, list_suite_rows, list_variants
from repro.report.view import View
from repro.spec import Run, get_first_phase
from repro.spec.identity import difference, run_id
from repro.text import ABSENT

CONTEXT_NOTE = "Scores depend on the context documents: compare only scores that were made with the same ones."
LIMITS = (
    "Trained with a replication of the recipe of *Contextual Document Embeddings* (Morris & Rush, 2025), not by its "
    "authors. Its scores are not theirs.",
    "Texts are truncated to {max_tokens} tokens. Prompts are those of the row {prompts!r} of the project's table.",
    CONTEXT_NOTE,
    "Expect it to work only in the language of the training text. It was not checked for bias.",
)
GROWING_CORPUS_NOTE = (
    "If the corpus grows, nothing has to be embedded again as long as the context stays as it is: embed the new documents "
    "under the old context, and keep the seed and the documents that it was drawn from. After a new `set_context` all "
    "documents must be embedded again, and queries as well."
)
SAMPLE_OF_EVALUATE = (
    "`repro evaluate` draws its sample by the seed and the name of the collection. For the same sample, give the name, and "
    "the documents in the order of the collection: `model.set_context(documents, seed=0, name=NAME)`. For Quora, whose "
    'documents are questions, add `prompt_name="query"`.'
)
STORED_WITH_CONTEXT = (
    "`save_pretrained` stores the context with the weights, so an index and its context stay together: "
    "`model.set_context(documents, seed=0)`, embed, `model.save_pretrained(folder)`."
)


def make_model_card(
    opened: Opened,
    name: str,
    library: str,
    how_to_use: Sequence[str],
    *,
    training_run: Run | None = None,
    install: str = "",
) -> str:
    """Return the card as Markdown with its front matter. Unknown facts are marked as unknown.

    Args:
        opened: The model, and its run if it was opened as one.
        name: The heading.
        library: The format of the folder.
        how_to_use: Lines of Python.
        training_run: The run that trained a model which was not opened by its run. Its scores are not shown, because
            the weights of a folder may have changed.
        install: What a program needs that opens the folder.
    """
    config = opened.ours.config
    reads_documents = opened.num_contexts and not config.is_blind
    limits = [limit for limit in LIMITS if reads_documents or limit != CONTEXT_NOTE]
    run = opened.run or training_run
    records = [] if run is None else find_records([run])
    scored = [] if opened.run is None else records
    front = ["---", f"library_name: {library}", "pipeline_tag: sentence-similarity", "tags:"]
    front += ["- contextual-document-embeddings", f"- {config.architecture}", "---"]
    unknown = f"Not known: the weights came from {opened.called!r}."
    code = "```python\n" + "\n".join(how_to_use) + "\n```"
    parts = [
        f"# {name}",
        f"A {config.architecture} text encoder with vectors of {config.hidden_size} numbers.",
        "## Scores\n\n" + _format_scores(scored),
        "## Use\n\n" + (f"Install: {install}.\n\n" if install else "") + code,
        "## Context\n\n" + _describe_context(opened),
        "## Limits\n\n" + "\n".join(f"- {limit.format(**vars(config))}" for limit in limits),
        "## Data\n\n" + ("Not known." if run is None else _describe_data(run, records)),
        "## Recipe\n\n" + (unknown if run is None else _describe_recipe(run, records)),
        "## Digests\n\n" + "\n".join(_list_digests(opened, scored)),
    ]
    return "\n".join(front) + "\n\n" + "\n\n".join(part.rstrip() for part in parts) + "\n"


def _describe_recipe(run: Run, records: Sequence[Record]) -> str:
    rows = tuple((name, str(value)) for name, value in difference(run).items())
    lines = [as_markdown(View(f"Run {run_id(run)}; what differs from its scale:", ("field", "value"), rows))]
    for record in records:
        training = record.provenance.get("training", {})
        lines.append(
            f"{training.get('num_parameters', 'unknown')} parameters, {training.get('num_steps')} steps of "
            f"{run.batches_a_step * run.batch_size} pairs; "
            f"code at commit {record.provenance.get('commit')}."
        )
    return "\n".join(lines)


def _describe_data(run: Run, records: Sequence[Record]) -> str:
    num_pairs = [str(record.provenance.get("training", {}).get("num_pairs", "unknown")) for record in records]
    corpora = [_format_corpus(phase) for phase in (get_first_phase(run), run) if phase is not None]
    return (
        f"Trained on {', then on '.join(corpora)}; {', '.join(num_pairs) or 'an unknown number of'} pairs at the end."
    )


def _format_corpus(run: Run) -> str:
    sources = f" (sources {run.sources})" if run.sources else ""
    return f"the corpus `{run.corpus}`{sources}"


def _describe_context(opened: Opened) -> str:
    if not opened.num_contexts:
        return "None: a text's vector depends on the text alone."
    if opened.ours.config.is_blind:
        return "This model was trained without documents: it has the null context alone, and takes no other."
    lines = [
        f"The context is {opened.num_contexts} documents of the corpus that is searched. If there are more documents, a "
        "sample of this size is drawn with a seed. Fewer are repeated. Queries and documents are comparable only under "
        "the same context.",
        _describe_missing_context(opened),
        GROWING_CORPUS_NOTE,
        SAMPLE_OF_EVALUATE,
        STORED_WITH_CONTEXT,
    ]
    return "\n\n".join(lines)


def _describe_missing_context(opened: Opened) -> str:
    if opened.ours.config.sequence_dropout == 0:
        return "There is no vector without a context: a call without one raises an error."
    return (
        "If no context is set, texts are embedded under the null context, with one warning. `set_context(None)` "
        "chooses the null context without a warning."
    )


def _list_digests(opened: Opened, records: Sequence[Record]) -> list[str]:
    lines = [f"- weights and configuration: {compute_model_digest(opened.ours)}"]
    for record in records:
        for row in record.provenance.get("suite", {}).get("contexts", []):
            if row.get("kind") == "own":
                lines.append(
                    f"- context of {row.get('dataset') or row.get('corpus')}: {row['num_documents']} documents, "
                    f"seed {row['seed']}, sha256 of their ids {row['ids_sha256']}"
                )
    return lines


def _format_scores(records: Sequence[Record]) -> str:
    if not records:
        return "Not evaluated here."
    tables = [as_markdown(make_interval_view(record)) for record in records if _list_scored_contexts(record)]
    return "\n\n".join(tables) or "Not evaluated by retrieval here."


def _list_scored_contexts(record: Record) -> list[tuple[str, str]]:
    """Return the contexts with one score per query. Records of other measures than retrieval have none."""
    num_queries = sum(row["num_queries"] for row in list_suite_rows(record.provenance))
    contexts = list_variants(record.metrics, record.run.suite)
    return [(name, context) for name, context in contexts if len(record.arrays.get(name, ())) == num_queries > 0]


def make_interval_view(record: Record) -> View:
    """Return a table of NDCG@10 per context: the mean and each collection, with 95 % bootstrap intervals."""
    datasets = list_suite_rows(record.provenance)
    contexts = _list_scored_contexts(record)
    columns = [QueryScores.of(context, record.arrays[name], datasets) for name, context in contexts]
    # Row by row, because all intervals of a row share their resamples, which `paired_bootstrap` caches.
    rows = [("mean", *chain.from_iterable(map(_format_interval_cells, columns)))]
    for index, dataset in enumerate(datasets):
        cells = [_format_interval_cells(column.select(index)) for column in columns]
        rows.append((dataset["name"], *chain.from_iterable(cells)))
    header = ["collection"]
    for _, context in contexts:
        header += [_get_column_header(record, context), "95 %"]
    notes = (
        "Intervals: 2000 bootstrap resamples of the queries of each collection.",
        *list_notes(record.provenance["suite"]),
    )
    align = "l" + "r" * (len(header) - 1)
    return View(f"NDCG@10 on {record.run.suite}, points", tuple(header), tuple(rows), notes, align)


def _get_column_header(record: Record, context: str) -> str:
    """Return the header of a column of scores, which names the context of a contextual model."""
    if record.run.architecture == "contextual":
        return f"{context} context"
    return "NDCG@10" if context == "own" else context


def _format_interval_cells(scores: QueryScores) -> tuple[str, str]:
    bounds = scores.interval()
    return f"{scores.mean:.1f}", ABSENT if bounds is None else f"{bounds[0]:.1f} – {bounds[1]:.1f}"
