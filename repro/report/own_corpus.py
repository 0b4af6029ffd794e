"""Summary of models trained on an imported corpus, compared with BM25 and untrained MiniLM.

Every system searches the same documents for the same queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from repro.records.store import Record
from repro.report.query_scores import QueryScores
from repro.report.scores import find_records, get_model_name
from repro.report.view import format_with_sign
from repro.spec import TRAINED, Run
from repro.spec.start import MINILM_TOKENS
from repro.text import ABSENT, count_noun, format_number

WHITENED = ", whitened"
"""End of the name of a system whose vectors are whitened by the corpus."""


@dataclass(frozen=True)
class System(QueryScores):
    """The scores of one system, its record, and whether its vectors are whitened by the corpus."""

    record: Record
    is_whitened: bool = False

    @property
    def is_trained(self) -> bool:
        """Whether it is a model after training."""
        return self.record.run.architecture in TRAINED and self.record.run.num_steps != 0


def format_own_corpus_lines(runs: Sequence[Run], sizes: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the summary of the runs on one imported corpus: the winner, and each system with its interval.

    Args:
        runs: Runs of one suite.
        sizes: `num_documents` and `num_queries` of each collection of the suite, or empty if they are unknown.
    """
    systems = _load_systems(find_records(runs))
    trained = [system for system in systems if system.is_trained]
    if not trained:
        return []
    best = max(trained, key=lambda system: system.mean)
    references = [system for system in systems if not system.is_trained]
    references.sort(key=lambda system: -system.mean)
    better = [system for system in references if system.mean > best.mean]
    counts = count_noun(len(best.values_Q), "query", "queries")
    if sizes:
        counts += f" searched {format_searched(sizes)}"
    # All references that beat the model are compared with it, or only the best reference if none does.
    lines = [_format_verdict(best, system) for system in better or references[:1]]
    lines.append(f"NDCG@10 with its 95 % interval, {counts}:")
    return [
        *lines,
        *_list_scores(sorted(systems, key=lambda system: -system.mean)),
        *_list_notes(references),
        *_list_commands(systems),
    ]


def _list_scores(systems: Sequence[System]) -> list[str]:
    """Return a line per system with its score and interval."""
    width, lines = max(len(system.label) for system in systems), []
    for system in systems:
        bounds = system.interval()
        interval = ABSENT if bounds is None else f"{format_number(bounds[0])} to {format_number(bounds[1])}"
        lines.append(f"  {system.label:<{width}}  {format_number(system.mean):>5}  {interval}")
    return lines


def format_searched(sizes: Mapping[str, Mapping[str, int]]) -> str:
    """Return what queries search, for example "among 20 documents in 1 collection".

    Held-out domains of one corpus search the same documents, which count once.
    """
    counts = [size.get("num_documents", 0) for size in sizes.values()]
    collections = count_noun(len(sizes), "collection")
    if len(counts) > 1 and len(set(counts)) == 1:
        return f"among {count_noun(counts[0], 'document')} in each of {collections}"
    return f"among {count_noun(sum(counts), 'document')} in {collections}"


def _load_systems(records: Sequence[Record]) -> list[System]:
    systems = []
    for record in records:
        rows = record.datasets
        for variant, values_Q in _list_values(record):
            if len(values_Q) == sum(row["num_queries"] for row in rows) > 0:
                owner = "your " if record.run.architecture in TRAINED else ""
                name = f"{owner}{get_model_name(record.run)}{variant}{_format_stemmer(record)}"
                scores = vars(QueryScores.of(name, values_Q, rows))
                systems.append(System(**scores, record=record, is_whitened=variant == WHITENED))
    num_named = Counter(system.label for system in systems)
    return [
        replace(system, label=f"{system.label} {system.record.id[:6]}") if num_named[system.label] > 1 else system
        for system in systems
    ]


def _format_stemmer(record: Record) -> str:
    """Return the language of BM25 for the name of the system, or an empty string for other systems."""
    parameters: Mapping[str, Any] = record.provenance.get("suite", {}).get("bm25", {})
    if "stemmer" not in parameters:
        return ""
    return f" ({str(parameters['stemmer'] or 'no stemmer').removesuffix(' (Snowball)')})"


def _list_values(record: Record) -> list[tuple[str, np.ndarray]]:
    """Return the end of the name of each system of a record, and its NDCG@10 per query, (Q,).

    A context-blind model has scores under the null context only.
    """
    ends = {"": "", "+whitened": WHITENED}
    if record.run.suite not in record.arrays:
        ends = {"+null": ", null context"}
    return [
        (name, record.arrays[path]) for end, name in ends.items() if (path := record.run.suite + end) in record.arrays
    ]


def _format_verdict(best: System, other: System) -> str:
    """Return one sentence on the best trained model and another system, with the interval of the difference."""
    first, second = (best, other) if best.mean >= other.mean else (other, best)
    if first.mean == second.mean:
        return f"{first.label} and {second.label} score the same: {first.mean:.1f} points."
    bounds = first.interval(second)
    is_clear = bounds is not None and bounds[0] > 0
    unclear = "" if is_clear else ". The difference is not clear: other queries could reverse it"
    interval = "" if bounds is None else f" ({' to '.join(format_with_sign(bound, 1) for bound in bounds)})"
    gain = format_with_sign(first.mean - second.mean, 1)
    return f"{first.label} wins over {second.label}: {gain} points{interval}{unclear}."


def _list_notes(references: Sequence[System]) -> list[str]:
    """Return the notes of BM25 about ties and queries without a hit, and one if MiniLM read less of each text than it can."""
    suites = [system.record.provenance["suite"] for system in references if system.record.run.architecture == "bm25"]
    notes = [f"  BM25 on {row['dataset']}: {row['note']}" for suite in suites for row in suite.get("ties", ())]
    runs = dict.fromkeys(system.record.run for system in references if system.record.run.surrogate == "minilm")
    return notes + [
        f"  {get_model_name(run)} read the first {run.max_tokens} tokens of each text, as in your runs. With up to "
        f"{MINILM_TOKENS} its score may be higher: repro evaluate --model minilm --suite {run.suite}"
        for run in runs
        if run.architecture == "surrogate" and run.max_tokens < MINILM_TOKENS
    ]


def _list_commands(systems: Sequence[System]) -> list[str]:
    """Return the system to deploy, the reason, and the next commands."""
    best, *others = sorted(systems, key=lambda system: -system.mean)
    run, suite = best.record.run, best.record.run.suite
    if run.architecture in TRAINED:
        model, deploy = best.record.id, f"repro export {best.record.id} FOLDER"
    elif run.architecture == "bm25":
        model, deploy = "bm25", "the BM25 of your search engine"
    elif best.is_whitened:
        model, deploy = "minilm --whiten own", f"repro adapt minilm --corpus {suite} --to FOLDER"
    else:
        model, deploy = "minilm", 'SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2")'
    unclear = [other.label for other in others if (best.interval(other) or (0.0,))[0] <= 0]
    reason = f"not clearly above {', '.join(unclear)}" if unclear else "clearly above all others"
    return [
        f"Deploy {best.label}: its score is the highest, {reason}",
        f"  repro evaluate --model {model} --suite {suite}",
        f"  {deploy}",
    ]
