"""Tables of scores of single runs: a row per run and variant of its scores, a column per collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from repro.data.beir import HEADLINE
from repro.records.store import Record, list_records
from repro.report.view import Number, View, format_mean
from repro.spec import CONTEXTS, FIELDS, Run
from repro.spec.identity import get_setting_id, run_id
from repro.storage.paths import get_local_records, get_published_records
from repro.text import ABSENT, CONTEXT_NAMES, count_noun

POINTS = 100.0


def find_records(runs: Sequence[Run]) -> list[Record]:
    """Return the available record of each run. Records of this machine take precedence over published ones."""
    folders = (get_local_records(), get_published_records())
    by_run = ([record for folder in folders for record in list_records(folder, [run])] for run in dict.fromkeys(runs))
    return [records[0] for records in by_run if records]


def make_scores_view(runs: Sequence[Run], *, is_for_programs: bool = False) -> View:
    """Return a table of scores in points: columns for varying fields, the mean, and each collection.

    Below the runs, each setting with several seeds has a row of means. Notes describe peculiarities of the data. A table
    for programs has runs only, with the id and the model of the run in each row.
    """
    records = find_records(runs)
    datasets = list(dict.fromkeys(row["name"] for record in records for row in record.datasets))
    settings: dict[str, list[Record]] = {}
    for record in records:
        settings.setdefault(get_setting_id(record.run), []).append(record)
    groups = [(record.id, [record]) for record in records]
    if not is_for_programs:
        groups += [(f"{len(seeds)} seeds", seeds) for seeds in settings.values() if len(seeds) > 1]
    varying_by_architecture = find_varying_fields([record.run for record in records])
    varying = [name for name in FIELDS if any(name in names for names in varying_by_architecture.values())]
    lines: list[tuple[str, ...]] = []
    unscored: list[Record] = []
    for label, members in groups:
        run = members[0].run
        shown = [name for name in varying_by_architecture[run.architecture] if name != "seed" or len(members) == 1]
        values = [format_field(run, name) if name in shown else "" for name in varying]
        scores = _list_variant_scores(members, datasets)
        if run.measure == "whitening" and not is_for_programs:
            # The controls of the artefact whitening are in --format csv.
            scores = [each for each in scores if each[0] in ("", "whitened")]
        for index, (variant, cells) in enumerate(scores):
            # a model that is scored without its own corpus, as context-blind ones, has no line for it
            names = (label, ", ".join(filter(None, (get_model_name(run), variant))))
            if index and not is_for_programs:
                names = ("", f"· {variant}")
            lines.append((*names, *values, *cells))
        if not scores and len(members) == 1:
            unscored += members
    notes = dict.fromkeys(note for record in records for note in list_notes(record.datasets))
    num_runs = count_noun(len(set(runs)), "run has", "runs have")
    if unscored:
        measures = ", ".join(dict.fromkeys(record.run.measure for record in unscored))
        without = count_noun(len(unscored), "run has", "runs have")
        notes[f"{without} no NDCG@10 (measure {measures}): `repro show RUN --json` prints their metrics"] = None
    num_yours = sum(record.path.parent == get_local_records() for record in records)
    if 0 < num_yours < len(records):
        notes[f"{num_yours} of {len(records)} records are yours, the others are published"] = None
    if any("±" in cell for line in lines for cell in line):
        notes["±: standard deviation over the seeds of a line"] = None
    title = f"NDCG@10, points; {len(records)} of {num_runs} ended"
    return View(title, ("run", "model", *varying, "mean", *datasets), tuple(lines), tuple(notes))


def find_varying_fields(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the fields in which runs of each architecture differ, in the order of `Run`."""
    by_architecture: dict[str, list[Run]] = {}
    for run in runs:
        by_architecture.setdefault(run.architecture, []).append(run)
    return {
        architecture: [name for name in FIELDS if len({getattr(run, name) for run in group}) > 1]
        for architecture, group in by_architecture.items()
    }


def _list_variant_scores(records: Sequence[Record], datasets: Sequence[str]) -> list[tuple[str, list[Number]]]:
    """Return each variant with a score, for one run or for all seeds of a setting, and its cells.

    The name of a variant is empty for in-corpus context.
    """
    scored = []
    for name, variant in list_variants(records[0].metrics, records[0].run.suite):
        paths = [f"{name}/{dataset}/{HEADLINE}" for dataset in ["mean", *datasets]]
        scores = [[POINTS * record.metrics[path] for record in records if path in record.metrics] for path in paths]
        if any(scores):
            label = f"{CONTEXT_NAMES[variant]} context" if variant in CONTEXT_NAMES else variant
            scored.append(("" if variant == "own" else label, [format_mean(values, 1) for values in scores]))
    return scored


def get_model_name(run: Run) -> str:
    """Return the name of a run's model in a table. An encoder that is no model of this suite has its own name."""
    if run.architecture == "surrogate":
        return f"off-the-shelf {'MiniLM' if run.surrogate == 'minilm' else run.surrogate}"
    if run.architecture == "bm25":
        return "BM25"
    return f"untrained {run.architecture}" if run.num_steps == 0 else run.architecture


def format_field(run: Run, name: str) -> str:
    """Return the value of a field as text."""
    value = getattr(run, name)
    if value is None:
        return ABSENT
    return f"{value:g}" if isinstance(value, float) else str(value)


def tabulate_scores(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return each run as plain values: id, all fields, and metrics (None if it has no record)."""
    metrics = {record.run: dict(record.metrics) for record in find_records(runs)}
    return [{"id": run_id(run), "run": asdict(run), "metrics": metrics.get(run)} for run in dict.fromkeys(runs)]


def list_variants(metrics: Mapping[str, float], suite: str) -> list[tuple[str, str]]:
    """Return the metric path and the name of each variant of a suite's scores: contexts, "own" first, then others.

    The others depend on the measure, for example widths ("width8") or parts of a training run ("fifth1").
    """
    names = {path.split("/")[0] for path in metrics}
    variants = [(name, name[len(suite) + 1 :] or "own") for name in names if f"{name}+".startswith(f"{suite}+")]

    def get_rank(pair: tuple[str, str]) -> tuple[int, str, int]:
        variant = pair[1]
        prefix = variant.rstrip("0123456789")
        rank = CONTEXTS.index(variant) if variant in CONTEXTS else len(CONTEXTS)
        return rank, prefix, int(variant[len(prefix) :] or 0)

    return sorted(variants, key=get_rank)


def list_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note per collection with a peculiarity, from the provenance of the collections."""
    parts = Counter(row["part_of"] for row in rows if row.get("part_of"))
    combined = [f"{name}: {count_noun(size, 'collection')}, counted once in the mean" for name, size in parts.items()]
    return [*combined, *(f"{row['name']}: {note}" for row in rows for note in row.get("quirks", []))]
