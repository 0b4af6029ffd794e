"""A reader's own corpus becomes training pairs: streamed, audited, written whole or not at all, with a plan of runs.

1. Pairs are read a block at a time and looked at column by column. 2. Rows that are no pairs, empty ones, repeated ones
and ones with evaluated text are left out and counted; negatives that are the positive, or evaluated, are taken out.
3. What stays is written to pairs.arrow, the counts to audit.json. 4. The plan suggests a biencoder and a contextual
model for that size.

Memory: sixteen bytes per pair for finding repeats and near copies (24 while they are merged or sorted), one batch of
rows, the name of every domain, and the texts that are evaluated.
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
MOST_LEFT_OUT = 0.5
REVERSED = 2  # queries that have so many times the words of documents may be documents
MOST_WORDS = 1_000  # longer texts count as so long, where a median is sought
NAMED = 3
"""So many are named: rows that are no pairs, files that are passed over, ways in which columns are taken."""
BATCH_SIZES = (512, 256, 128, 64, 32, 16, 8)
BATCHES_AN_EPOCH = 16
PAIRS_PER_LOOK = 8_192
NEAR_SHOWN = 60
"""Characters that are shown of each text of a near copy."""


@dataclass(frozen=True)
class Imported:
    """What an import gave: where it lies, how many pairs were read and kept, and what was found on the way."""

    folder: Path
    name: str
    num_read: int
    num_kept: int
    num_domains: int
    counts: Mapping[str, int]
    malformed: tuple[str, ...] = ()  # the first rows that are no pairs: where, and why
    num_passed_over: int = 0  # of a folder: files and folders that were not read
    list_skipped_files: tuple[str, ...] = ()  # the first of them
    columns: tuple[str, ...] = ()  # which columns were taken, each way with the first place where they were
    query_words: int = 0  # median; 0: not counted
    document_words: int = 0
    labels: str = ""  # which labels were found, and which of them make a pair
    near_copy: tuple[str, ...] = ()  # two queries of the first pairs that are near copies

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for what its owner should look at, beside the counts."""
        num_negatives = self.counts.get(USED_AS_NEGATIVES, 0)  # kept, as negatives of other rows
        share = 1 - (self.num_kept + num_negatives) / self.num_read
        found = []
        if share > MOST_LEFT_OUT:
            found.append(f"{share:.0%} of the pairs were left out")
        if self.query_words >= REVERSED * self.document_words > 0:
            options = suggest_swapped_columns(self.columns[0]) if self.columns else ""
            found.append(
                f"queries have {self.query_words} words and documents {self.document_words} (medians): "
                f"are the columns the right way round?{f' If not: {options}' * bool(options)}"
            )
        if self.num_passed_over:
            found.append(describe_skipped_files(self.num_passed_over, self.list_skipped_files))
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
        folder: Where pairs and audit are written.
        name: The name of the corpus.
        columns: The names of the columns.
        evaluated: Collections whose texts must not be trained on.
        skip_bad: Skip and count malformed rows instead of refusing a file that has them.

    Raises:
        ValueError: Names the file, the line and what is wrong. Then nothing is left.
    """
    if folder.exists():
        raise ValueError(f"{folder} is there already: remove it or choose another name")
    told = Tally()
    with ExitStack() as stack:
        source = stack.enter_context(open_archive(source, folder))
        if source.is_file() and not source.stat().st_size:
            raise ValueError(f"{source}: the file is empty, so it gave no pair to train on")
        check_room(estimate_text_size(source), folder.parent, f"the import of {source}")
        part = stack.enter_context(whole_folder(folder, must_be_first=True))
        labels = read_labels(source, columns, skip_bad=skip_bad)
        rows = split_by_label(read_foreign(source, columns, told.taken, skip_bad=skip_bad), labels)
        blocks = _iter_kept_columns(_blocks(rows), name, EvaluatedTexts(evaluated, near_form), told)
        num_kept = write_columns(part / PAIRS_FILE, blocks)
        num_near, near_rows = find_near_copies(told.near_keys)
        if num_near:
            told.counts["near_copies"] = num_near
        num_read, counts = told.counts.pop("read", 0), dict(sorted(told.counts.items()))
        if not num_kept:
            chosen = f"; {labels.describe()}" if labels else ""
            raise ValueError(f"{source} gave no pair to train on: read {num_read}, {_counted(counts)}{chosen}")
        unread = [short(str(path.relative_to(source))) for path in list_skipped_files(source)]
        query_words, document_words = told.medians()
        imported = Imported(
            folder,
            name,
            num_read,
            num_kept,
            len(told.domains),
            counts,
            malformed=tuple(told.malformed),
            num_passed_over=len(unread),
            list_skipped_files=tuple(unread[:NAMED]),
            columns=told.columns(),
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
    """Return how many pairs have the near form of an earlier pair, and the rows of the first two of one form."""
    keys_N = np.concatenate([np.zeros(0, np.uint64), *keys])
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
    """Read what `import_corpus` found; ValueError when `folder` is no import."""
    path = folder / AUDIT_FILE
    if not path.is_file() or not (folder / PAIRS_FILE).is_file():
        raise ValueError(f"{folder} is no imported corpus: {AUDIT_FILE} or {PAIRS_FILE} is missing")
    try:
        told = json_object(path)
        lists = {key: tuple(value) for key, value in told.items() if isinstance(value, list)}
        return Imported(folder=folder, **told | lists)
    except (ValueError, TypeError) as error:
        why = error if isinstance(error, ValueError) else f"{path} does not have the fields of an import"
        raise ValueError(
            f"{why}; the pairs beside it stay as they are: put the file back from a copy, or remove the corpus' folder "
            "and import again"
        ) from error


def plan_runs(
    imported: Imported, *, domain_sizes: Sequence[int] | None = None, largest_batch: int = BATCH_SIZES[0]
) -> tuple[dict[str, Any], ...]:
    """Return what to change in a scale's run: a biencoder, then a contextual model, on clustered batches.

    `domain_sizes`: pairs of each domain that is trained on (default: all in one). A batch never mixes domains: it is
    the largest that still gives 16 of them an epoch and uses half of the pairs, else domains are not told apart.
    Clusters are as large as batches, as in the paper's best.
    """
    sizes = [imported.num_kept] if domain_sizes is None else list(domain_sizes)
    fitting = _list_batch_sizes(sizes, largest_batch)
    column = {} if domain_sizes is None else {"domain_column": "domain"}
    if not fitting:
        fitting, column = _list_batch_sizes([sum(sizes)], largest_batch), {"domain_column": "source"}
    if not fitting:
        least = BATCH_SIZES[-1] * BATCHES_AN_EPOCH
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
        return num_batches >= BATCHES_AN_EPOCH and 2 * batch * num_batches >= sum(sizes)

    return [size for size in BATCH_SIZES if size <= largest and fits(size)]


def _blocks(found: Iterator[Found]) -> Iterator[list[Found]]:
    return iter(lambda: list(islice(found, PAIRS_PER_LOOK)), [])


@dataclass
class Tally:
    """What is found while the pairs are read."""

    counts: Counter[str] = field(default_factory=Counter)
    domains: set[str] = field(default_factory=set)
    malformed: list[str] = field(default_factory=list)
    taken: Taken = field(default_factory=dict)
    near_keys: list[np.ndarray] = field(default_factory=list)  # of the near form of each pair that is kept
    lengths: np.ndarray = field(default_factory=lambda: np.zeros((2, MOST_WORDS + 1), np.int64))  # texts by words

    def note_lengths(self, *sides: Sequence[str]) -> None:
        """Count the words of queries, and of documents; in scripts without spaces each character counts as one."""
        for lengths, texts in zip(self.lengths, sides, strict=True):
            num_words = [min(count_words(text), MOST_WORDS) for text in texts]
            lengths += np.bincount(num_words, minlength=MOST_WORDS + 1)

    def medians(self) -> tuple[int, int]:
        """Return the median number of words of a query, and of a document."""
        queries, documents = (int(np.searchsorted(np.cumsum(one), one.sum() / 2)) for one in self.lengths)
        return queries, documents

    def columns(self) -> tuple[str, ...]:
        """Say which columns were taken: the first ways, and how many more there are."""
        words = [f"{PurePath(place).name}: {columns}" for columns, place in self.taken.items()]
        more = [f"… and {len(words) - NAMED} more"] * (len(words) > NAMED)
        return (*words[:NAMED], *more)

    def note_flaws(self, block: Sequence[Found]) -> None:
        """Of the pairs that were counted as empty, count those that are none apart, and name the first."""
        if flawed := [pair for pair in block if pair.flaw]:
            self.counts["empty"] -= len(flawed)
            self.counts["malformed"] += len(flawed)
            named = flawed[: NAMED - len(self.malformed)]
            self.malformed += [f"{PurePath(pair.place).name}: {pair.flaw}" for pair in named]


def _iter_kept_columns(
    blocks: Iterable[Sequence[Found]], name: str, evaluated: EvaluatedTexts, told: Tally
) -> Iterator[dict[str, list]]:
    """Return the columns of the pairs that are kept, a block at a time; tells `told` of them."""
    seen, counts = SeenKeys(), told.counts
    for block in blocks:
        first, counts["read"] = counts["read"], counts["read"] + len(block)
        numbers = [first + place for place, pair in enumerate(block) if not pair.dropped]
        if len(numbers) < len(block):
            counts.update(pair.dropped for pair in block if pair.dropped)
            block = [pair for pair in block if not pair.dropped]
        looked = Looked.at(block, evaluated)
        if num_more := sum(pair.num_more_positives for pair in block):
            counts["more_positives"] += num_more
        num_empty = counts["empty"]
        chosen = looked.kept(evaluated, seen, counts)
        if counts["empty"] > num_empty:
            told.note_flaws(block)
        pairs = [block[place] for place in chosen]
        found: dict[str, list[Any]] = {
            "id": [f"{name}:{numbers[place]}:{_digest(block[place])}" for place in chosen],
            "query": [pair.query for pair in pairs],
            "document": [pair.document for pair in pairs],
            "domain": [pair.domain or name for pair in pairs],
            "source": [name] * len(pairs),
            "negatives": [looked.negatives[place] for place in chosen],
        }
        told.domains.update(found["domain"])
        if chosen:
            told.near_keys.append(looked.near_keys(chosen))
            told.note_lengths(*([texts[place] for place in chosen] for texts in (looked.queries, looked.documents)))
            looked.note(chosen, found, counts)
        yield found


@dataclass(frozen=True)
class Looked:
    """A block of pairs as the rules see it: the identity of each text, and the negatives that are not the positive."""

    queries: list[str]
    documents: list[str]
    negatives: list[list[str]]
    num_taken_out: list[int]
    num_evaluated: list[int]

    @classmethod
    def at(cls, block: Sequence[Found], evaluated: EvaluatedTexts) -> Looked:
        """Compare the texts of a block by their identity; negatives that are evaluated are none."""
        queries = [identity(pair.query) for pair in block]
        documents = [identity(pair.document) for pair in block]
        plain = iter([identity(text) for pair in block for text in pair.negatives])
        negatives, lost, num_evaluated = [], [], []
        for pair, document in zip(block, documents, strict=True):
            found = list(zip(pair.negatives, plain, strict=False))  # so many of the texts that follow
            own = [(text, words) for text, words in found if words not in ("", document)]
            negatives.append([text for text, _ in own if not evaluated or evaluated.form(text) not in evaluated])
            lost.append(len(found) - len(own))
            num_evaluated.append(len(own) - len(negatives[-1]))
        return cls(queries, documents, negatives, lost, num_evaluated)

    def kept(self, evaluated: EvaluatedTexts, seen: SeenKeys, counts: Counter[str]) -> list[int]:
        """Return the places of the pairs that are kept: none empty, none evaluated, none that came before."""
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
        keys = compute_pair_keys([self.queries[place] for place in fresh], [self.documents[place] for place in fresh])
        chosen = list(compress(fresh, seen.tell(keys).tolist()))
        if fresh:
            counts["repeated_pair"] += len(fresh) - len(chosen)
        return chosen

    def near_keys(self, chosen: Sequence[int]) -> np.ndarray:
        """Return a key of the near form of each of these pairs, uint64: case and punctuation do not count."""
        return compute_pair_keys(
            *([near_form(texts[place]) for place in chosen] for texts in (self.queries, self.documents))
        )

    def note(self, chosen: Sequence[int], found: Mapping[str, list], counts: Counter[str]) -> None:
        """Count what its owner may want to know of the pairs that are kept."""
        if lost := sum(self.num_evaluated[place] for place in chosen):
            counts[EVALUATED_NEGATIVES] += lost
        counts["with_negatives"] += sum(map(bool, found["negatives"]))
        counts["query_is_document"] += sum(self.queries[place] == self.documents[place] for place in chosen)


def _counted(counts: Mapping[str, int]) -> str:
    """Say how many were left out or found, and why; the kinds are those of an audit."""
    return ", ".join(f"{why.replace('_', ' ')}: {number}" for why, number in sorted(counts.items()) if number)


def _digest(pair: Found) -> str:
    return hashlib.sha256(f"{pair.domain}\0{pair.query}\0{pair.document}".encode()).hexdigest()[:16]


def _as_json(imported: Imported) -> dict[str, Any]:
    return {name: value for name, value in vars(imported).items() if name != "folder"}
