"""Import a user's own corpus as training pairs, completely or not at all, and plan runs for it.

1. Pairs are read in blocks, which are processed column by column.
2. Malformed, empty, repeated and evaluated rows are dropped and counted. Negatives that equal the positive or an
   evaluated text are removed.
3. The remaining pairs are written to pairs.arrow, and the counts to audit.json.
4. The plan suggests a biencoder and a contextual model for this number of pairs.

Memory holds 16 bytes per pair for the detection of repetitions and near copies (24 while they are merged or sorted),
one batch of rows, the names of the domains, and the evaluated texts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import compress, islice
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from repro.data.beir import Retrieval
from repro.data.columns import Columns, suggest_swapped_columns
from repro.data.filters import EVALUATED_NEGATIVES, EvaluatedTexts, SeenKeys, compute_pair_keys
from repro.data.folders import describe_skipped_files, list_skipped_files
from repro.data.labels import USED_AS_NEGATIVES, read_labels, split_by_label
from repro.data.own.given import open_archive
from repro.data.pairs import read_pairs, write_columns
from repro.data.readers import Found, Taken, estimate_text_size, read_foreign
from repro.data.wording import count_words, identity, near_form
from repro.storage.files import check_room, json_object, whole_folder
from repro.text import short

PAIRS_FILE, AUDIT_FILE = "pairs.arrow", "audit.json"
MAX_SKIPPED_SHARE = 0.5
REVERSED = 2
"""If queries have so many times the words of documents, the columns may be swapped."""
MAX_WORDS = 1_000
"""Length at which longer texts are clipped for the median."""
NAMED = 3
"""Number of examples that are named: malformed rows, skipped files, sets of columns."""
BATCH_SIZES = (512, 256, 128, 64, 32, 16, 8)
BATCHES_PER_EPOCH = 16
PAIRS_PER_LOOK = 8_192
NEAR_SHOWN = 60
"""Number of characters that are shown of each text of a near copy."""


@dataclass(frozen=True)
class Imported:
    """The audit of an import.

    Attributes:
        folder: Folder of the pairs and the audit.
        name: Name of the corpus.
        num_read: Number of rows that were read.
        num_kept: Number of pairs that were written.
        num_domains: Number of domains.
        counts: Numbers of dropped rows by reason, and other counts.
        malformed: Place and flaw of the first malformed rows.
        num_passed_over: Number of files and folders that were not read.
        passed_over: The first of them.
        columns: The used columns, each set with the first place of its use.
        query_words: Median number of words of a query. 0 if it was not counted.
        document_words: The same for documents.
        labels: The range of labels and the threshold of pairs.
        near_copy: The first two pairs that are near copies.
    """

    folder: Path
    name: str
    num_read: int
    num_kept: int
    num_domains: int
    counts: Mapping[str, int]
    malformed: tuple[str, ...] = ()
    num_passed_over: int = 0
    passed_over: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    query_words: int = 0
    document_words: int = 0
    labels: str = ""
    near_copy: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the owner of the corpus, in addition to the counts."""
        # these rows are not lost, since they are negatives of other rows
        num_negatives = self.counts.get(USED_AS_NEGATIVES, 0)
        share = 1 - (self.num_kept + num_negatives) / self.num_read
        found = []
        if share > MAX_SKIPPED_SHARE:
            found.append(f"{share:.0%} of the pairs were left out")
        if self.query_words >= REVERSED * self.document_words > 0:
            options = suggest_swapped_columns(self.columns[0]) if self.columns else ""
            found.append(
                f"queries have {self.query_words} words and documents {self.document_words} (medians): "
                f"are the columns the right way round?{f' If not: {options}' * bool(options)}"
            )
        if self.num_passed_over:
            found.append(describe_skipped_files(self.num_passed_over, self.passed_over))
        if self.malformed:
            more = self.counts["malformed"] - len(self.malformed)
            found.append("; ".join(self.malformed) + (f"; and {more} more" if more else ""))
        return tuple(found)


def import_corpus(
    source: Path,
    folder: Path,
    *,
    name: str,
    columns: Columns | None = None,
    evaluated: Sequence[Retrieval] = (),
    skip_bad: bool = False,
) -> Imported:
    """Import a file, a folder or an archive into `folder`, which must not exist yet.

    Args:
        source: The file, folder or archive.
        folder: Target folder of pairs and audit.
        name: The name of the corpus.
        columns: The names of the columns.
        evaluated: Collections whose texts must not be trained on.
        skip_bad: Skip and count malformed rows instead of rejecting a file that has them.

    Raises:
        ValueError: with file, line and reason, if a file is malformed. Then nothing is written.
    """
    if folder.exists():
        raise ValueError(f"{folder} exists already: remove it or choose another name")
    tally = Tally()
    with ExitStack() as stack:
        source = stack.enter_context(open_archive(source, folder))
        if source.is_file() and not source.stat().st_size:
            raise ValueError(f"{source}: the file is empty, so it has no pair to train on")
        check_room(estimate_text_size(source), folder.parent, f"the import of {source}")
        part = stack.enter_context(whole_folder(folder, must_be_first=True))
        labels = read_labels(source, columns, skip_bad=skip_bad)
        rows = split_by_label(read_foreign(source, columns, tally.taken, skip_bad=skip_bad), labels)
        blocks = _iter_kept_columns(_blocks(rows), name, EvaluatedTexts(evaluated, near_form), tally)
        num_kept = write_columns(part / PAIRS_FILE, blocks)
        # Near copies are reported, not dropped: only the owner knows whether they are mistakes.
        num_near, near_rows = find_near_copies(tally.near_keys)
        if num_near:
            tally.counts["near_copies"] = num_near
        # The counts are complete only now: the writer above has consumed the iterator.
        num_read, counts = tally.counts.pop("read", 0), dict(sorted(tally.counts.items()))
        if not num_kept:
            why = [labels.describe()] if labels else []
            # the first row tells what is wrong with all of them
            why += tally.malformed[:1]
            raise ValueError(
                f"{source} has no pair to train on: {'; '.join([f'read {num_read}, {_format_counts(counts)}', *why])}"
            )
        unread = [short(str(path.relative_to(source))) for path in list_skipped_files(source)]
        query_words, document_words = tally.medians()
        imported = Imported(
            folder,
            name,
            num_read,
            num_kept,
            len(tally.domains),
            counts,
            malformed=tuple(tally.malformed),
            num_passed_over=len(unread),
            passed_over=tuple(unread[:NAMED]),
            columns=tally.columns(),
            query_words=query_words,
            document_words=document_words,
            labels=labels.describe() if labels else "",
            near_copy=_pairs_at(part / PAIRS_FILE, near_rows),
        )
        (part / AUDIT_FILE).write_text(
            json.dumps(_as_json(imported), indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )
    return imported


def find_near_copies(keys: Sequence[np.ndarray]) -> tuple[int, list[int]]:
    """Return the number of pairs with the near form of an earlier pair, and the rows of the first two of one form."""
    keys_N = np.concatenate([np.zeros(0, np.uint64), *keys])
    # After sorting, equal keys are neighbours. This needs no set of millions of keys.
    sorted_N = np.sort(keys_N)
    is_again = sorted_N[1:] == sorted_N[:-1]
    if not is_again.any():
        return 0, []
    return int(is_again.sum()), np.flatnonzero(keys_N == sorted_N[1:][is_again][0])[:2].tolist()


def _pairs_at(path: Path, rows: Sequence[int]) -> tuple[str, ...]:
    if not rows:
        return ()
    pairs = read_pairs(path)
    texts = zip(pairs.texts("query", rows), pairs.texts("document", rows), strict=True)
    return tuple(f"{short(repr(query), NEAR_SHOWN)} – {short(repr(document), NEAR_SHOWN)}" for query, document in texts)


def load_import(folder: Path) -> Imported:
    """Read the audit of an import. Raises ValueError if `folder` is not an import."""
    path = folder / AUDIT_FILE
    if not path.is_file() or not (folder / PAIRS_FILE).is_file():
        raise ValueError(f"{folder} is not an imported corpus: {AUDIT_FILE} or {PAIRS_FILE} is missing")
    try:
        content = json_object(path)
        lists = {key: tuple(value) for key, value in content.items() if isinstance(value, list)}
        return Imported(folder=folder, **content | lists)
    except (ValueError, TypeError) as error:
        why = error if isinstance(error, ValueError) else f"{path} does not have the fields of an import"
        raise ValueError(
            f"{why}; the pairs are unchanged: restore the file from a copy, or remove the folder of the corpus and "
            "import again"
        ) from error


def plan_runs(
    imported: Imported, *, domain_sizes: Sequence[int] | None = None, largest_batch: int = BATCH_SIZES[0]
) -> tuple[dict[str, Any], ...]:
    """Return the fields of two runs: a biencoder and a contextual model, with clustered batches.

    The batch is the largest one that gives 16 batches per epoch and uses half of the pairs, if batches do not mix
    domains. If none does, domains are ignored. Clusters are as large as batches, as in the paper's best setting.

    Args:
        imported: The audit of the corpus.
        domain_sizes: Number of training pairs per domain. Default: one domain.
        largest_batch: Limit of the batch size.

    Raises:
        ValueError: if there are too few pairs for training.
    """
    sizes = [imported.num_kept] if domain_sizes is None else list(domain_sizes)
    fitting = _list_batch_sizes(sizes, largest_batch)
    column = {} if domain_sizes is None else {"domain_column": "domain"}
    # Small domains cannot fill batches, so batches may mix them.
    if not fitting:
        fitting, column = _list_batch_sizes([sum(sizes)], largest_batch), {"domain_column": "source"}
    if not fitting:
        least = BATCH_SIZES[-1] * BATCHES_PER_EPOCH
        raise ValueError(
            f"{imported.name} has {sum(sizes)} pairs: training needs at least {least}; to evaluate on them only, "
            "write them as a BEIR folder (corpus.jsonl, queries.jsonl, qrels/test.tsv) and use "
            "`repro evaluate --model M --suite FOLDER`"
        )
    shared = {
        "corpus": imported.name,
        "num_pairs": None,
        "sampler": "cluster",
        "batch_size": fitting[0],
        "cluster_size": fitting[0],
        "filter": "surrogate",
        "known_positives": "mask",
        **column,
    }
    return tuple({**shared, "architecture": architecture} for architecture in ("biencoder", "contextual"))


def _list_batch_sizes(sizes: Sequence[int], largest: int) -> list[int]:
    def fits(batch: int) -> bool:
        num_batches = sum(size // batch for size in sizes)
        return num_batches >= BATCHES_PER_EPOCH and 2 * batch * num_batches >= sum(sizes)

    return [size for size in BATCH_SIZES if size <= largest and fits(size)]


def _blocks(found: Iterator[Found]) -> Iterator[list[Found]]:
    return iter(lambda: list(islice(found, PAIRS_PER_LOOK)), [])


@dataclass
class Tally:
    """Counts and examples that are collected while pairs are read.

    `near_keys` are hashes of the near form of each pair. `lengths` are histograms of the number of words of queries and
    of documents.
    """

    counts: Counter[str] = field(default_factory=Counter)
    domains: set[str] = field(default_factory=set)
    malformed: list[str] = field(default_factory=list)
    taken: Taken = field(default_factory=dict)
    near_keys: list[np.ndarray] = field(default_factory=list)
    lengths: np.ndarray = field(default_factory=lambda: np.zeros((2, MAX_WORDS + 1), np.int64))

    def note_lengths(self, *sides: Sequence[str]) -> None:
        """Count the words of queries and documents. In scripts without spaces, each character is a word."""
        for lengths, texts in zip(self.lengths, sides, strict=True):
            num_words = [min(count_words(text), MAX_WORDS) for text in texts]
            lengths += np.bincount(num_words, minlength=MAX_WORDS + 1)

    def medians(self) -> tuple[int, int]:
        """Return the median number of words of queries and of documents."""
        queries, documents = (int(np.searchsorted(np.cumsum(one), one.sum() / 2)) for one in self.lengths)
        return queries, documents

    def columns(self) -> tuple[str, ...]:
        """Describe the used columns: the first sets, and the number of further ones."""
        words = [f"{PurePath(place).name}: {columns}" for columns, place in self.taken.items()]
        more = [f"… and {len(words) - NAMED} more"] * (len(words) > NAMED)
        return (*words[:NAMED], *more)

    def note_flaws(self, block: Sequence[Found]) -> None:
        """Move malformed rows from the count of empty ones to their own, and store the first examples."""
        if flawed := [pair for pair in block if pair.flaw]:
            # A row with a flaw has empty texts, so it was counted as empty.
            self.counts["empty"] -= len(flawed)
            self.counts["malformed"] += len(flawed)
            named = flawed[: NAMED - len(self.malformed)]
            self.malformed += [f"{PurePath(pair.place).name}: {pair.flaw}" for pair in named]


def _iter_kept_columns(
    blocks: Iterable[Sequence[Found]], name: str, evaluated: EvaluatedTexts, tally: Tally
) -> Iterator[dict[str, list]]:
    """Yield the columns of the remaining pairs, block by block, and update the tally."""
    seen, counts = SeenKeys(), tally.counts
    for block in blocks:
        # Row numbers are part of the ids of pairs, so dropped rows count too.
        first, counts["read"] = counts["read"], counts["read"] + len(block)
        numbers = [first + place for place, pair in enumerate(block) if not pair.dropped]
        if len(numbers) < len(block):
            counts.update(pair.dropped for pair in block if pair.dropped)
            block = [pair for pair in block if not pair.dropped]
        audit = BlockAudit.at(block, evaluated)
        if num_more := sum(pair.num_more_positives for pair in block):
            counts["more_positives"] += num_more
        if num_more := sum(pair.num_more_queries for pair in block):
            counts["more_queries"] += num_more
        num_empty = counts["empty"]
        chosen = audit.select_rows(evaluated, seen, counts)
        if counts["empty"] > num_empty:
            tally.note_flaws(block)
        pairs = [block[place] for place in chosen]
        found: dict[str, list[Any]] = {
            "id": [f"{name}:{numbers[place]}:{_digest(block[place])}" for place in chosen],
            "query": [pair.query for pair in pairs],
            "document": [pair.document for pair in pairs],
            "domain": [pair.domain or name for pair in pairs],
            "source": [name] * len(pairs),
            "negatives": [audit.negatives[place] for place in chosen],
        }
        tally.domains.update(found["domain"])
        if chosen:
            tally.near_keys.append(audit.near_keys(chosen))
            tally.note_lengths(*([texts[place] for place in chosen] for texts in (audit.queries, audit.documents)))
            audit.note(chosen, found, counts)
        yield found


@dataclass(frozen=True)
class BlockAudit:
    """A block of pairs in normal form (`identity`), with the remaining negatives and the numbers of removed ones."""

    queries: list[str]
    documents: list[str]
    negatives: list[list[str]]
    num_taken_out: list[int]
    num_evaluated: list[int]

    @classmethod
    def at(cls, block: Sequence[Found], evaluated: EvaluatedTexts) -> BlockAudit:
        """Normalise the texts of a block, and remove negatives that equal the positive or an evaluated text."""
        queries = [identity(pair.query) for pair in block]
        documents = [identity(pair.document) for pair in block]
        plain = iter([identity(text) for pair in block for text in pair.negatives])
        negatives, lost, num_evaluated = [], [], []
        for pair, document in zip(block, documents, strict=True):
            # takes as many of the normalised texts as this pair has negatives
            found = list(zip(pair.negatives, plain, strict=False))
            own = [(text, words) for text, words in found if words not in ("", document)]
            negatives.append([text for text, _ in own if not evaluated or evaluated.form(text) not in evaluated])
            lost.append(len(found) - len(own))
            num_evaluated.append(len(own) - len(negatives[-1]))
        return cls(queries, documents, negatives, lost, num_evaluated)

    def select_rows(self, evaluated: EvaluatedTexts, seen: SeenKeys, counts: Counter[str]) -> list[int]:
        """Return the indices of the remaining pairs, which are not empty, evaluated or repeated. Count the others."""
        places = range(len(self.queries))
        full = [place for place in places if self.queries[place] and self.documents[place]]
        if len(full) < len(places):
            counts["empty"] += len(places) - len(full)
        if full:
            counts["negatives_taken_out"] += sum(self.num_taken_out[place] for place in full)
        fresh = full
        if evaluated:
            form = evaluated.form
            is_free = (
                form(self.documents[n]) not in evaluated and form(self.queries[n]) not in evaluated for n in full
            )
            fresh = list(compress(full, is_free))
        if len(fresh) < len(full):
            counts["evaluated"] += len(full) - len(fresh)
        # Repetitions are checked last, so that a dropped row never hides a valid one.
        keys = compute_pair_keys([self.queries[place] for place in fresh], [self.documents[place] for place in fresh])
        chosen = list(compress(fresh, seen.add(keys).tolist()))
        if fresh:
            counts["repeated_pair"] += len(fresh) - len(chosen)
        return chosen

    def near_keys(self, chosen: Sequence[int]) -> np.ndarray:
        """Return a hash of the near form of these pairs, uint64 (N,). It ignores case and punctuation."""
        return compute_pair_keys(
            *([near_form(texts[place]) for place in chosen] for texts in (self.queries, self.documents))
        )

    def note(self, chosen: Sequence[int], found: Mapping[str, list], counts: Counter[str]) -> None:
        """Count removed negatives, pairs with negatives, and pairs whose query equals their document."""
        if lost := sum(self.num_evaluated[place] for place in chosen):
            counts[EVALUATED_NEGATIVES] += lost
        counts["with_negatives"] += sum(map(bool, found["negatives"]))
        counts["query_is_document"] += sum(self.queries[place] == self.documents[place] for place in chosen)


def _format_counts(counts: Mapping[str, int]) -> str:
    """Format the counts of an audit that are not zero."""
    return ", ".join(f"{why.replace('_', ' ')}: {number}" for why, number in sorted(counts.items()) if number)


def _digest(pair: Found) -> str:
    return hashlib.sha256(f"{pair.domain}\0{pair.query}\0{pair.document}".encode()).hexdigest()[:16]


def _as_json(imported: Imported) -> dict[str, Any]:
    return {name: value for name, value in vars(imported).items() if name != "folder"}
