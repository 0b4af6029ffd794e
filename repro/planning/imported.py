"""What to do with an imported corpus: its audit in words, a file of runs at a scale, the commands to go on with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.data.beir import load_suite
from repro.data.own.holdout import LEAST_PAIRS, MOST_DOMAINS, SHARE
from repro.data.own.imported import GIVEN_FOLDER, ImportedCorpus, check_trainable, find_imported, write_runs
from repro.data.own.importing import plan_runs
from repro.data.pairs import read_pairs
from repro.data.suites import SuiteRules
from repro.pipeline.corpora import make_corpus_stage
from repro.pipeline.texts_read import AT_IMPORT, TextsRead, check_known, count_tokens
from repro.records.lookup import read_runs
from repro.spec import TRAINED, Run
from repro.spec.identity import run_id
from repro.spec.scales import get_scale
from repro.spec.values import count_noun
from repro.storage.json_files import read_json

LEAST_OF_A_TENTH = 0.8  # hashes give a tenth or so; below this share of it something else took the rest
FEW_QUERIES = 50
"""Where a query's difference in NDCG@10 has a standard deviation of 35 points, so many give an interval of ±10."""
SENTENCES = {
    "empty": "pairs with an empty side, left out",
    "malformed": "rows without a query or document, or with one that is no text, left out",
    "low_label": "rows whose label is below the threshold, left out",
    "used_as_negatives": "rows whose label is below the threshold: negatives of the pairs of their query",
    "unlabelled": "rows without a label in files that have labels, left out",
    "repeated_pair": "pairs that were there already, left out",
    "evaluated": "pairs with a judged text of the given evaluation set, left out",
    "negatives_taken_out": "negatives that were empty or the positive itself, taken out",
    "near_copies": "pairs that differ from another pair only in case or punctuation, kept",
    "query_is_document": "pairs whose query is the document",
    "with_negatives": "pairs with negatives: kept, not trained on (only mined hard negatives are)",
    "evaluated_negatives": "negatives with a judged text of the given evaluation set, taken out",
    "more_positives": "further positives, not used: of several the first is",
}


@dataclass(frozen=True)
class Planned:
    """An imported corpus with its runs."""

    corpus: ImportedCorpus
    report: dict[str, Any]  # of the stage: what is trained on, left out, evaluated
    runs: tuple[Run, ...]
    path: Path
    texts: TextsRead | None = None
    was_edited: bool = False  # the file of runs was there and differs from what would be written: it is as it was

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        runs = {run_id(run): {"architecture": run.architecture, "batch_size": run.batch_size} for run in self.runs}
        told = {"corpus": self.corpus.corpus, "file": str(self.path), "file_was_edited": self.was_edited}
        return {**told, "runs": runs, "texts": self.texts and asdict(self.texts), **self.report}

    def lines(self) -> list[str]:
        """Return it as lines for a reader."""
        found, suite = self.corpus.found, self.report["suite"]
        lines = [
            f"{self.corpus.corpus}: {count_noun(found.num_read, 'pair')} read, {found.num_kept} kept, "
            f"{count_noun(found.num_domains, 'domain')}"
        ]
        lines += [f"  columns: {words}" for words in found.columns]
        lines += [f"  {found.labels}"] * bool(found.labels)
        shown = [(name, count) for name, count in found.counts.items() if count and name != "long_documents"]
        near = f"; for example {' and '.join(found.near_copy)}" if found.near_copy else ""
        lines += [
            f"  {count} {SENTENCES.get(name, name)}{near if name == 'near_copies' else ''}" for name, count in shown
        ]
        lines += self.texts.lines() if self.texts else []
        lines += [f"  look at this: {warning}" for warning in found.warnings]
        is_given = (self.corpus.folder / GIVEN_FOLDER).is_dir()
        asked, searched = (sum(one[of] for one in suite.values()) for of in ("num_queries", "num_documents"))
        kind = "given" if is_given else "held out"
        lines.append(
            f"evaluated on {count_noun(asked, 'query', 'queries')} searched among {count_noun(searched, 'document')} in "
            f"{count_noun(len(suite), f'{kind} collection')}: {', '.join(suite)}"
        )
        lines += oddities(self.corpus, suite)
        lines += few_queries(asked, is_given=is_given)
        if not is_given:
            held_out = self.report.get("held_out_documents", searched)
            is_full = held_out >= SuiteRules().max_documents * max(1, len(suite))
            is_part = is_full or found.num_domains > 1
            lines.append(format_held_out_line(held_out, found.num_kept, self.corpus.held_out_domains, is_part=is_part))
        lines += near_duplicates(self.report.get("near_duplicates", {}))
        left_out = ", ".join(
            f"{count} {why.replace('_', ' ')}" for why, count in self.report["left_out"].items() if count
        )
        lines.append(f"trained on {count_noun(self.report['num_pairs'], 'pair')}; not trained on: {left_out or 'none'}")
        held = found.num_kept - self.report["num_pairs"]
        lines.append(
            f"of {found.num_read} rows given: {self.report['num_pairs']} trained on, {held} held out or with a "
            f"text that is, {found.num_read - found.num_kept} dropped"
        )
        for run in self.runs:
            name = "MiniLM as it is" if run.architecture == "surrogate" else run.architecture
            lines.append(f"  {run_id(run)}  {name}{_measure_length(run)}")
        last = next((run_id(run) for run in reversed(self.runs) if run.architecture in TRAINED), "bm25")
        kept = ", which differs from what would be planned, so it is left as it is: remove it to plan again"
        return [
            *lines,
            f"the runs are in {self.path}{kept if self.was_edited else ''}. Go on with",
            f"  repro run {self.path}",
            f"  repro evaluate --model {last} --suite {self.corpus.name}",
            f"  repro export {last} FOLDER --to sentence-transformers",
        ]


def _measure_length(run: Run) -> str:
    if run.architecture not in TRAINED:
        return ""
    if run.num_steps is not None:
        long = count_noun(run.num_steps, "step")
    else:
        assert run.num_epochs is not None, "a training is so many steps or epochs long"
        long = f"{count_noun(run.num_epochs, 'epoch')} in batches"
    return f", {long} of {run.batch_size}" + (f", {run.batches_a_step} a step" if run.batches_a_step > 1 else "")


def oddities(corpus: ImportedCorpus, sizes: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return what a reader of the scores must know of collections that were given, and how many queries were not."""
    given = corpus.folder / GIVEN_FOLDER
    rows = load_suite(given).datasets if given.is_dir() else ()
    told = [(one.name, one.quirks.describe_quirks(sizes[one.name]["num_queries"])) for one in rows if one.quirks]
    return [*(f"  {line}" for line in corpus.skipped), *(f"  {name}: {note}" for name, note in told if note)]


def near_duplicates(found: Mapping[str, int]) -> list[str]:
    """Return what the queries of each collection mean whose document has a near-duplicate; nothing without any."""
    if not found:
        return []
    named = ", ".join(f"{name} {count}" for name, count in found.items())
    of = count_noun(sum(found.values()), "query", "queries")
    return [
        f"  look at this: of {of} another document is nearly the same as their own ({named}): "
        "a model that finds that one instead is told it is wrong"
    ]


def few_queries(num: int, *, is_given: bool) -> list[str]:
    """Return what to do about so few evaluated queries that hardly any difference will be clear; nothing otherwise."""
    if num >= FEW_QUERIES:
        return []
    more = "--hold-out DOMAIN holds out a domain whole, --evaluate-on FOLDER takes a judged collection"
    what = "judge more queries" if is_given else f"{more}, more pairs give more"
    return [f"  look at this: {count_noun(num, 'query', 'queries')}: intervals will be wide; {what}"]


def format_held_out_line(num_documents: int, num_pairs: int, domains: Sequence[str], *, is_part: bool) -> str:
    """Return how much was held out, and why where it is less than the tenth that is meant.

    `is_part`: a domain gave nothing, or as much as a collection takes; else the hash alone decided how many there are.
    """
    line = f"  held out: {num_documents} documents of {num_pairs} pairs ({num_documents / num_pairs:.1%})"
    if domains:
        return f"{line}, the whole of {', '.join(domains)}, up to {SuiteRules().max_documents} documents each"
    if not is_part or num_documents * SHARE > num_pairs * LEAST_OF_A_TENTH:
        return line
    return (
        f"{line}; less than a tenth: only domains of at least {LEAST_PAIRS} pairs, the {MOST_DOMAINS} largest at most, "
        "give a tenth of their documents (where none is so large, all together do), up to "
        f"{SuiteRules().max_documents} each; --hold-out DOMAIN holds out others"
    )


def plan_imported(
    name: str, scale: str, progress: Callable[[str], None] = print, *, allow_unknown: bool = True
) -> Planned:
    """Build an imported corpus and write its file of runs at a scale; one that was edited is read, and left as it is.

    ValueError when the corpus is too small to train on, or when most of its tokens are unknown and that is not allowed.
    """
    corpus = find_imported(name)
    check_trainable(name)
    folder = make_corpus_stage(corpus.corpus).build(progress)
    told = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    pairs = read_pairs(folder / "train.arrow")
    sizes = np.bincount(pairs.domain_codes, minlength=1).tolist()
    fixed = get_scale(scale).fields
    changes = plan_runs(corpus.found, domain_sizes=sizes, largest_batch=fixed["batch_size"])
    shared = {"corpus": corpus.corpus, "suite": corpus.name}
    rows = [{"scale": scale, **change, **shared} for change in changes]
    untrained = {"scale": scale, **shared, "num_pairs": None}
    rows += [{**untrained, "architecture": "bm25"}, {**untrained, "architecture": "surrogate", "surrogate": "minilm"}]
    path = corpus.folder / f"{corpus.name}-{scale}.json"
    was_edited = path.is_file() and read_json(path) != json.loads(json.dumps(rows))
    if not was_edited:
        write_runs(path, rows)
    runs = tuple(read_runs(path))
    texts = count_tokens(pairs, runs[0], AT_IMPORT)
    if not allow_unknown:
        check_known(texts, corpus.corpus)
    return Planned(corpus, told, runs, path, texts, was_edited)


def format_evaluation_lines(name: str, progress: Callable[[str], None] = print) -> list[str]:
    """Return what an imported evaluation set holds, and the command that uses it; its suite is built."""
    corpus = find_imported(name)
    folder = make_corpus_stage(corpus.corpus).build(progress)
    sizes = json.loads((folder / "report.json").read_text(encoding="utf-8"))["suite"]
    rows = [
        f"  {one}: {count_noun(size['num_queries'], 'query', 'queries')}, {count_noun(size['num_documents'], 'document')}"
        for one, size in sizes.items()
    ]
    return [
        f"{name} is an evaluation set of {count_noun(len(sizes), 'collection')}: "
        "nothing in it is to train on (no qrels/train.tsv)",
        *rows,
        *oddities(corpus, sizes),
        "Go on with",
        f"  repro evaluate --model bm25 --suite {name}",
        f"  repro evaluate --model M --suite {name}",
    ]
