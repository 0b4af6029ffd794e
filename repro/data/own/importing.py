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

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import compress, islice
from operator import eq
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from repro.data.beir import DOCUMENT, Retrieval, iter_texts
from repro.data.columns import Columns
from repro.data.filters import EVALUATED_NEGATIVES, EvaluatedTexts, SeenKeys, compute_pair_keys
from repro.data.folders import describe_skipped_files, list_skipped_files
from repro.data.labels import USED_AS_NEGATIVES, read_labels, split_by_label
from repro.data.own.evaluation_folders import open_archive
from repro.data.pairs import Row, make_id, read_pairs, write_columns, write_pairs
from repro.data.readers import ForeignRow, UsedColumns, estimate_text_size, read_foreign_rows
from repro.data.wording import count_words, is_empty, normalize_loosely, normalize_text
from repro.storage.files import atomic_folder, check_room, json_object
from repro.text import shorten

PAIRS_FILE, AUDIT_FILE = "pairs.arrow", "audit.json"
DOCUMENTS_FILE = "documents.arrow"
"""All documents of a BEIR folder, which are searched. Not all of them are in pairs."""
MAX_SKIPPED_SHARE = 0.5
SWAPPED_RATIO = 2
"""If queries have this many times the words of documents, the columns may be swapped."""
MAX_WORDS = 1_000
"""Length at which longer texts are clipped for the median."""
MAX_EXAMPLES = 3
"""Number of examples that are named: malformed rows, skipped files, sets of columns."""
BATCH_SIZES = (512, 256, 128, 64, 32, 16, 8)
BATCHES_PER_EPOCH = 16
MIN_TRAINABLE_SHARE = 0.9
PAIRS_PER_BLOCK = 8_192
MIN_SHARE_WITH_NEGATIVES = 0.5
"""Share of pairs with negatives from which runs train on them."""
MAX_NEAR_COPY_CHARACTERS = 60
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
        skipped_share = 1 - (self.num_kept + num_negatives) / self.num_read
        warnings = []
        if skipped_share > MAX_SKIPPED_SHARE:
            warnings.append(f"{skipped_share:.0%} of the pairs were left out")
        if self.query_words >= SWAPPED_RATIO * self.document_words > 0:
            warnings.append(
                f"queries have {self.query_words} words and documents {self.document_words} (medians): are the columns the "
                "right way round? If not, name them with --query and --document"
            )
        if self.num_passed_over:
            warnings.append(describe_skipped_files(self.num_passed_over, self.passed_over))
        if self.malformed:
            num_more = self.counts["malformed"] - len(self.malformed)
            warnings.append("; ".join(self.malformed) + (f"; and {num_more} more" if num_more else ""))
        return tuple(warnings)

    def describe_rows(self) -> str:
        """Return the numbers of read and dropped rows and the labels, which explain why few pairs are left."""
        return "; ".join(_list_counts(self.num_read, self.counts, self.labels))

    @property
    def trains_on_negatives(self) -> bool:
        """Whether so many pairs have negatives that the planned runs train on them."""
        return self.counts.get("with_negatives", 0) >= MIN_SHARE_WITH_NEGATIVES * self.num_kept

    def to_json(self) -> dict[str, Any]:
        """Return the fields as audit.json stores them, which is everything but the folder."""
        return {name: value for name, value in vars(self).items() if name != "folder"}


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
        part = stack.enter_context(atomic_folder(folder, must_be_first=True))
        labels = read_labels(source, columns, skip_bad=skip_bad)
        rows = split_by_label(read_foreign_rows(source, columns, tally.used_columns, skip_bad=skip_bad), labels)
        blocks = iter(lambda: list(islice(rows, PAIRS_PER_BLOCK)), [])
        kept_columns = _iter_kept_columns(blocks, name, EvaluatedTexts(evaluated, normalize_loosely), tally)
        num_kept = write_columns(part / PAIRS_FILE, kept_columns)
        # Near copies are reported, not dropped: only the owner knows whether they are mistakes.
        num_near, near_rows = find_near_copies(tally.near_keys)
        if num_near:
            tally.counts["near_copies"] = num_near
        # The counts are complete only now: the writer above has consumed the iterator.
        num_read, counts = tally.counts.pop("read", 0), dict(sorted(tally.counts.items()))
        if not num_kept:
            reasons = _list_counts(num_read, counts, labels.describe() if labels else "")
            # the first malformed row explains what is wrong with all of them
            reasons += tally.malformed[:1]
            raise ValueError(f"{source} has no pair to train on: {'; '.join(reasons)}")
        skipped = [shorten(str(path.relative_to(source))) for path in list_skipped_files(source)]
        query_words, document_words = tally.medians()
        imported = Imported(
            folder,
            name,
            num_read,
            num_kept,
            len(tally.domains),
            counts,
            malformed=tuple(tally.malformed),
            num_passed_over=len(skipped),
            passed_over=tuple(skipped[:MAX_EXAMPLES]),
            columns=tally.describe_columns(),
            query_words=query_words,
            document_words=document_words,
            labels=labels.describe() if labels else "",
            near_copy=_format_pairs(part / PAIRS_FILE, near_rows),
        )
        audit = json.dumps(imported.to_json(), indent=1, sort_keys=True)
        (part / AUDIT_FILE).write_text(audit + "\n", encoding="utf-8")
    return imported


def _list_counts(num_read: int, counts: Mapping[str, int], labels: str) -> list[str]:
    non_zero = [f"{key.replace('_', ' ')}: {count}" for key, count in counts.items() if count]
    return [", ".join([f"read {num_read}", *non_zero]), *([labels] if labels else [])]


def write_documents(source: Path, path: Path, name: str) -> None:
    """Write the documents of a BEIR folder as rows without a query."""
    texts = iter_texts(source / "corpus.jsonl", DOCUMENT)
    rows = (Row(make_id(name, line, "", "", text), "", text, name, name) for line, _, text in texts)
    write_pairs(path, (row for row in rows if not is_empty(row.document)))


def find_near_copies(keys: Sequence[np.ndarray]) -> tuple[int, list[int]]:
    """Return the number of pairs with the near form of an earlier pair, and the rows of the first two of one form."""
    keys_N = np.concatenate([np.zeros(0, np.uint64), *keys])
    # After sorting, equal keys are neighbours. This needs no set of millions of keys.
    sorted_N = np.sort(keys_N)
    repeated = sorted_N[1:][sorted_N[1:] == sorted_N[:-1]]
    if not len(repeated):
        return 0, []
    return len(repeated), np.flatnonzero(keys_N == repeated[0])[:2].tolist()


def _format_pairs(path: Path, rows: Sequence[int]) -> tuple[str, ...]:
    if not rows:
        return ()
    pairs = read_pairs(path)
    queries = _cut_to_difference(pairs.texts("query", rows))
    documents = _cut_to_difference(pairs.texts("document", rows))
    return tuple(f"{query} – {document}" for query, document in zip(queries, documents, strict=True))


def _cut_to_difference(texts: Sequence[str]) -> list[str]:
    """Shorten near copies to a part that shows their first difference."""
    limit = MAX_NEAR_COPY_CHARACTERS
    first, second = texts
    # one text may be the beginning of the other
    end = min(len(first), len(second)) if first != second else 0
    difference = next((place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), end)
    # the difference must lie before the cut
    start = max(0, difference - limit // 2)
    return [shorten(repr(f"…{text[start:]}" if start else text), limit) for text in texts]


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
        reason = error if isinstance(error, ValueError) else f"{path} does not have the fields of an import"
        raise ValueError(
            f"{reason}; the pairs are unchanged: restore the file from a copy, or remove the folder of the corpus and "
            "import again"
        ) from error


def plan_runs(
    imported: Imported, *, domain_sizes: Sequence[int] | None = None, largest_batch: int = BATCH_SIZES[0]
) -> tuple[dict[str, Any], ...]:
    """Return the fields of two runs: a biencoder and a contextual model, with clustered batches.

    The batch is the largest one that gives 16 batches per epoch, uses half of the pairs in each, and leaves out at most a
    tenth of them for good, if batches do not mix domains. If none does, domains are ignored. Clusters are as large as
    batches, as in the paper's best setting. If half of the pairs have negatives, the runs train on the first one of each.

    Args:
        imported: The audit of the corpus.
        domain_sizes: Number of training pairs per domain. Default: one domain.
        largest_batch: Limit of the batch size.

    Raises:
        ValueError: if there are too few pairs for training.
    """
    sizes = [imported.num_kept] if domain_sizes is None else list(domain_sizes)
    batch_size = _find_batch_size(sizes, largest_batch)
    column = {} if domain_sizes is None else {"domain_column": "domain"}
    if batch_size is None:
        # Small domains cannot fill batches, so batches may mix them.
        batch_size = _find_batch_size([sum(sizes)], largest_batch)
        column = {"domain_column": "source"}
    if batch_size is None:
        minimum = BATCH_SIZES[-1] * BATCHES_PER_EPOCH
        if imported.num_kept >= minimum:
            domain = "hold out less with --hold-out, " if imported.num_domains > 1 else ""
            raise ValueError(
                f"{imported.name} has {sum(sizes)} of {imported.num_kept} pairs left to train on, which needs at least "
                f"{minimum}: {domain}give a collection with --evaluate-on, or import more pairs"
            )
        raise ValueError(
            f"{imported.name} has {sum(sizes)} pairs ({imported.describe_rows()}): training needs at least {minimum}; to "
            "evaluate on them only, write them as a BEIR folder (corpus.jsonl, queries.jsonl, qrels/test.tsv) and use "
            "`repro evaluate --model M --suite FOLDER`"
        )
    shared = {
        "corpus": imported.name,
        "num_pairs": None,
        "sampler": "cluster",
        "batch_size": batch_size,
        "cluster_size": batch_size,
        "filter": "surrogate",
        "known_positives": "mask",
        **column,
    }
    if imported.trains_on_negatives:
        # one, as in the paper's best model (§6)
        shared |= {"num_hard_negatives": 1, "mined_negatives": "given"}
    return tuple({**shared, "architecture": architecture} for architecture in ("biencoder", "contextual"))


def _find_batch_size(domain_sizes: Sequence[int], largest: int) -> int | None:
    for batch_size in BATCH_SIZES:
        num_batches = sum(size // batch_size for size in domain_sizes)
        # A domain smaller than a batch is never trained on. Other domains only leave out another rest in each epoch.
        num_trainable = sum(size for size in domain_sizes if size >= batch_size)
        is_complete = num_trainable >= MIN_TRAINABLE_SHARE * sum(domain_sizes)
        uses_half = 2 * batch_size * num_batches >= sum(domain_sizes)
        if batch_size <= largest and num_batches >= BATCHES_PER_EPOCH and uses_half and is_complete:
            return batch_size
    return None


@dataclass
class Tally:
    """Counts and examples that are collected while pairs are read.

    `near_keys` are hashes of the near form of each pair. `lengths` are histograms of the number of words of queries and
    of documents.
    """

    counts: Counter[str] = field(default_factory=Counter)
    domains: set[str] = field(default_factory=set)
    malformed: list[str] = field(default_factory=list)
    used_columns: UsedColumns = field(default_factory=dict)
    near_keys: list[np.ndarray] = field(default_factory=list)
    lengths: np.ndarray = field(default_factory=lambda: np.zeros((2, MAX_WORDS + 1), np.int64))

    def note_lengths(self, *sides: Sequence[str]) -> None:
        """Count the words of queries and documents. In scripts without spaces, each character is a word."""
        for lengths, texts in zip(self.lengths, sides, strict=True):
            num_words = [min(count_words(text), MAX_WORDS) for text in texts]
            lengths += np.bincount(num_words, minlength=MAX_WORDS + 1)

    def medians(self) -> tuple[int, int]:
        """Return the median number of words of queries and of documents."""
        query_median, document_median = (
            int(np.searchsorted(np.cumsum(histogram), histogram.sum() / 2)) for histogram in self.lengths
        )
        return query_median, document_median

    def describe_columns(self) -> tuple[str, ...]:
        """Describe the used columns: the first sets, and the number of further ones."""
        lines = [f"{PurePath(location).name}: {columns}" for columns, location in self.used_columns.items()]
        if len(lines) > MAX_EXAMPLES:
            lines[MAX_EXAMPLES:] = [f"… and {len(lines) - MAX_EXAMPLES} more"]
        return tuple(lines)

    def note_flaw(self, row: ForeignRow) -> None:
        """Count a malformed row. The first ones are stored as examples."""
        self.counts["malformed"] += 1
        if len(self.malformed) < MAX_EXAMPLES:
            self.malformed.append(f"{PurePath(row.location).name}: {row.flaw}")


class _Candidate(NamedTuple):
    """A pair with complete texts that are not evaluated, and both texts in normal form (`normalize_text`)."""

    number: int
    row: ForeignRow
    query: str
    document: str
    negatives: list[str]
    num_evaluated_negatives: int


def _iter_kept_columns(
    blocks: Iterable[Sequence[ForeignRow]], name: str, evaluated: EvaluatedTexts, tally: Tally
) -> Iterator[dict[str, list]]:
    """Yield the columns of the remaining pairs, block by block, and update the tally."""
    seen, counts = SeenKeys(), tally.counts
    for block in blocks:
        # Row numbers are part of the ids of pairs, so dropped rows count too.
        candidates = list(_iter_candidates(enumerate(block, counts["read"]), evaluated, tally))
        counts["read"] += len(block)
        # Repetitions are checked last, so that a dropped row never hides a valid one.
        keys = compute_pair_keys([pair.query for pair in candidates], [pair.document for pair in candidates])
        pairs = list(compress(candidates, seen.add(keys).tolist()))
        counts["repeated_pair"] += len(candidates) - len(pairs)
        queries, documents = [pair.query for pair in pairs], [pair.document for pair in pairs]
        # the near form ignores case and punctuation
        near_forms = (list(map(normalize_loosely, texts)) for texts in (queries, documents))
        tally.near_keys.append(compute_pair_keys(*near_forms))
        tally.note_lengths(queries, documents)
        _add_count(counts, EVALUATED_NEGATIVES, sum(pair.num_evaluated_negatives for pair in pairs))
        counts["with_negatives"] += sum(bool(pair.negatives) for pair in pairs)
        counts["query_is_document"] += sum(map(eq, queries, documents))
        rows = [pair.row for pair in pairs]
        domains = [row.domain or name for row in rows]
        tally.domains.update(domains)
        yield {
            "id": [make_id(name, pair.number, pair.row.domain, pair.row.query, pair.row.document) for pair in pairs],
            "query": [row.query for row in rows],
            "document": [row.document for row in rows],
            "domain": domains,
            "source": [name] * len(pairs),
            "negatives": [pair.negatives for pair in pairs],
        }


def _iter_candidates(
    numbered: Iterable[tuple[int, ForeignRow]], evaluated: EvaluatedTexts, tally: Tally
) -> Iterator[_Candidate]:
    """Yield the rows whose texts are neither empty nor evaluated, and count the others.

    Negatives that equal a document of their row or an evaluated text are removed.
    """
    counts, form = tally.counts, evaluated.form
    for number, row in numbered:
        if row.dropped:
            counts[row.dropped] += 1
            continue
        _add_count(counts, "further_pairs", row.is_further)
        query, document = normalize_text(row.query), normalize_text(row.document)
        if row.flaw:
            tally.note_flaw(row)
        elif not (query and document):
            counts["empty"] += 1
        else:
            not_negative = {"", document, *map(normalize_text, row.documents)}
            different = [text for text in row.negatives if normalize_text(text) not in not_negative]
            counts["negatives_taken_out"] += len(row.negatives) - len(different)
            if evaluated and (form(document) in evaluated or form(query) in evaluated):
                counts["evaluated"] += 1
                continue
            remaining = [text for text in different if not evaluated or form(text) not in evaluated]
            yield _Candidate(number, row, query, document, remaining, len(different) - len(remaining))


def _add_count(counts: Counter[str], key: str, number: int) -> None:
    """Add to a count. A count of 0 gets no entry, so that the audit does not store it."""
    if number:
        counts[key] += number
