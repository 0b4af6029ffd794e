"""The model card of an export, generated from its run and records."""

from __future__ import annotations

from collections.abc import Sequence

from repro.evaluate.digests import compute_model_digest
from repro.interop.comparison import make_scores_view
from repro.interop.opening import Opened
from repro.records.store import Record
from repro.report.formats import as_markdown
from repro.report.query_scores import QueryScores
from repro.report.scores import find_records, list_notes, list_suite_rows, list_variants
from repro.report.view import View
from repro.spec import Run, get_first_phase
from repro.spec.identity import difference, run_id
from repro.text import CONTEXT_NAMES

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
STORED_WITH_CONTEXT = (
    "`save_pretrained` stores the context with the weights, so an index and its context stay together: "
    "`model.set_context(documents, seed=0)`, embed, `model.save_pretrained(folder)`."
)


def make_model_card(
    opened: Opened,
    name: str,
    how_to_use: Sequence[str],
    install: str,
    *,
    training_run: Run | None = None,
) -> str:
    """Return the card as Markdown with its front matter. Unknown facts are marked as unknown.

    Args:
        opened: The model, and its run if it was opened as one.
        name: The heading.
        how_to_use: Lines of Python.
        install: What a program needs that opens the folder.
        training_run: The run that trained a model which was not opened by its run. Its scores are not shown, because
            the weights of a folder may have changed.
    """
    config = opened.ours.config
    reads_documents = opened.num_contexts and not config.is_blind
    limits = [limit for limit in LIMITS if reads_documents or limit != CONTEXT_NOTE]
    run = opened.run or training_run
    records = [] if run is None else find_records([run])
    scored = [] if opened.run is None else records
    front = ["---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity", "tags:"]
    front += ["- contextual-document-embeddings", f"- {config.architecture}", "---"]
    unknown = f"Not known: the weights came from {opened.called!r}."
    code = "```python\n" + "\n".join(how_to_use) + "\n```"
    parts = [
        f"# {name}",
        f"A {config.architecture} text encoder with vectors of {config.hidden_size} numbers.",
        "## Scores\n\n" + _format_scores(scored),
        f"## Use\n\nInstall: {install}.\n\n{code}",
        "## Context\n\n" + _describe_context(opened),
        "## Limits\n\n" + "\n".join(f"- {limit.format(**vars(config))}" for limit in limits),
        "## Data\n\n" + ("Not known." if run is None else _describe_data(run, records)),
        "## Recipe\n\n" + (unknown if run is None else _describe_recipe(run, records)),
        f"## Digests\n\n- weights and configuration: {compute_model_digest(opened.ours)}",
    ]
    return "\n".join(front) + "\n\n" + "\n\n".join(part.rstrip() for part in parts) + "\n"


def _describe_recipe(run: Run, records: Sequence[Record]) -> str:
    rows = tuple((name, str(value)) for name, value in difference(run).items())
    lines = [as_markdown(View(f"Run {run_id(run)}; what differs from its scale:", ("field", "value"), rows))]
    for record in records:
        training = record.provenance.get("training", {})
        lines.append(
            f"{training.get('num_parameters', 'unknown')} parameters, {training.get('num_steps')} steps of "
            f"{run.batches_a_step * run.batch_size} pairs, "
            f"weights of step {training.get('kept_weights', {}).get('step', training.get('num_steps'))}; "
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


def _format_scores(records: Sequence[Record]) -> str:
    """Return a table per record: NDCG@10 of each collection and the mean under each context, and the mean's intervals."""
    if not records:
        return "Not evaluated here."
    tables = []
    for record in records:
        columns = _list_columns(record)
        notes = [
            f"{column.label}: 95 % interval of the mean: {bounds[0]:.1f} to {bounds[1]:.1f}"
            for column in columns
            if (bounds := column.interval()) is not None
        ]
        if columns:
            title = f"NDCG@10 on {record.run.suite}, points"
            tables.append(as_markdown(make_scores_view(title, columns, notes + list_notes(record.provenance["suite"]))))
    return "\n\n".join(tables) or "Not evaluated by retrieval here."


def _list_columns(record: Record) -> list[QueryScores]:
    """Return the scores of each variant, such as a context or a width. Records of other measures than retrieval have no score per query."""
    rows, contexts = list_suite_rows(record.provenance), record.provenance.get("suite", {}).get("contexts")
    num_queries = sum(row["num_queries"] for row in rows)
    labels = {"own": "NDCG@10"}
    if contexts:
        labels = {kind: f"{name} context" for kind, name in CONTEXT_NAMES.items()}
    return [
        QueryScores.of(labels.get(variant, variant), values_Q, rows)
        for path, variant in list_variants(record.metrics, record.run.suite)
        if (values_Q := record.arrays.get(path)) is not None and len(values_Q) == num_queries > 0
    ]
