"""The model cards of exported and adapted models, from `card.md.j2` and `adapted_card.md.j2`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from repro.evaluate.digests import compute_model_digest
from repro.interop.comparison import make_scores_view
from repro.interop.opening import Opened
from repro.records.store import Record
from repro.report.formats import as_markdown
from repro.report.query_scores import QueryScores
from repro.report.scores import find_records, list_notes, list_variants
from repro.report.view import View
from repro.spec import Run, list_phases
from repro.spec.identity import difference, run_id
from repro.text import CONTEXT_NAMES

_WRITTEN = f"(written with {version('sentence-transformers')} and {version('transformers')})"
INSTALL_CONTEXTUAL = f'`pip install "sentence-transformers>=6" "transformers>=5.17"` {_WRITTEN}'
INSTALL_STOCK = f'`pip install "sentence-transformers>=3"`; a NomicBERT needs `"transformers>=5"` {_WRITTEN}'


def render_card(template: str, **values: Any) -> str:
    """Return the Markdown of a template in this folder."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.get_template(template).render(values)


def make_model_card(opened: Opened, name: str, training_run: Run | None = None) -> str:
    """Return the card as Markdown with its front matter. Unknown facts are marked as unknown.

    Args:
        opened: The model, and its run if it was opened as one.
        name: The heading, which is the name of the folder.
        training_run: The run that trained a model which was not opened by its run. Its scores are not shown, because
            the weights of a folder may have changed.
    """
    run = opened.run or training_run
    records = [] if run is None else find_records([run])
    trainings = [
        {"commit": record.provenance.get("commit"), **record.provenance.get("training", {})} for record in records
    ]
    return render_card(
        "card.md.j2",
        config=opened.ours.config,
        num_contexts=opened.num_contexts,
        name=name,
        install=INSTALL_CONTEXTUAL if opened.num_contexts else INSTALL_STOCK,
        scores=_format_scores([] if opened.run is None else records),
        run=run,
        phases=[] if run is None else list_phases(run)[::-1],
        trainings=trainings,
        recipe="" if run is None else _tabulate_changes(run),
        called=opened.called,
        digest=compute_model_digest(opened.ours),
    )


def _tabulate_changes(run: Run) -> str:
    rows = tuple((name, str(value)) for name, value in difference(run).items())
    return as_markdown(View(f"Run {run_id(run)}; what differs from its scale:", ("field", "value"), rows))


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
            tables.append(as_markdown(make_scores_view(title, columns, notes + list_notes(record.datasets))))
    return "\n\n".join(tables) or "Not evaluated by retrieval here."


def _list_columns(record: Record) -> list[QueryScores]:
    """Return the scores of each variant, such as a context or a width. Records of other measures than retrieval have no score per query."""
    rows, contexts = record.datasets, record.provenance.get("suite", {}).get("contexts")
    num_queries = sum(row["num_queries"] for row in rows)
    labels = {"own": "NDCG@10"}
    if contexts:
        labels = {kind: f"{name} context" for kind, name in CONTEXT_NAMES.items()}
    return [
        QueryScores.of(labels.get(variant, variant), values_Q, rows)
        for path, variant in list_variants(record.metrics, record.run.suite)
        if (values_Q := record.arrays.get(path)) is not None and len(values_Q) == num_queries > 0
    ]
