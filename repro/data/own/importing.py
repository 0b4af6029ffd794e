"""Read a user's own pairs, audit them, and write those to train on, completely or not at all.

1. Pairs are read in blocks. Rows with a low label, without a text, with two equal texts, and with an evaluated text are
   dropped and counted. So are repeated pairs. Negatives that are documents of their own row are removed.
2. The remaining pairs are written to pairs.arrow, and the counts to audit.json.
3. Documents that are in no pair are written to documents.arrow. They are searched, but not trained on.

Memory holds 16 bytes per pair, one batch of rows, the names of the domains, and the evaluated texts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

import numpy as np

from repro.data.beir import DOCUMENT, Retrieval, iter_texts
from repro.data.columns import ACCEPTED, Columns
from repro.data.filters import SeenKeys, hash_texts
from repro.data.folders import is_beir, list_pair_files
from repro.data.labels import Labels, read_labels, split_by_label
from repro.data.own.languages import detect_language, space_evenly
from repro.data.pairs import Row, make_id, read_pairs, write_pairs
from repro.data.readers import ForeignRow, UsedColumns, explain_unread, read_beir_pairs, read_foreign_rows
from repro.data.wording import is_empty
from repro.storage.files import json_object
from repro.text import shorten

PAIRS_FILE, AUDIT_FILE = "pairs.arrow", "audit.json"
DOCUMENTS_FILE = "documents.arrow"
"""Documents that are in no pair: of a BEIR folder, negatives, and those of dropped rows. They are searched."""
SWAPPED_RATIO = 2
"""If queries have this many times the characters of documents, the columns may be swapped."""
PAIRS_PER_BLOCK = 8_192
MIN_SHARE_WITH_NEGATIVES = 0.5
"""Share of pairs with negatives from which runs train on them."""


@dataclass
class Audit:
    """The audit of an import.

    Attributes:
        num_read: Number of pairs that were read, including dropped ones.
        num_kept: Number of pairs that were written.
        num_domains: Number of domains.
        dropped: Numbers of dropped pairs by reason.
        num_with_negatives: Number of written pairs with negatives.
        language: The language that BM25 stems.
        notes: Lines for the owner: columns, labels, files that were not read, and warnings.
    """

    num_read: int = 0
    num_kept: int = 0
    num_domains: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    num_with_negatives: int = 0
    language: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def trains_on_negatives(self) -> bool:
        """Whether so many pairs have negatives that the planned runs train on them."""
        return self.num_with_negatives >= MIN_SHARE_WITH_NEGATIVES * self.num_kept > 0

    def describe_rows(self) -> str:
        """Return the numbers of read, kept and dropped pairs."""
        counts = [f"{count} {reason}" for reason, count in self.dropped.items()]
        return f"{self.num_read} pairs read, {self.num_kept} kept" + (f" ({', '.join(counts)})" if counts else "")


def import_pairs(
    source: Path,
    folder: Path,
    *,
    name: str,
    columns: Columns,
    evaluated: Sequence[Retrieval] = (),
    language: str = "",
    keeps_domains: bool = False,
) -> Audit:
    """Write the pairs of a file, a folder of files, a saved dataset or a BEIR folder into `folder`, and audit them.

    Args:
        source: The file or folder.
        folder: Target folder of pairs and audit.
        name: The name of the corpus.
        columns: The names of the columns.
        evaluated: Collections whose texts must not be trained on.
        language: The language that BM25 stems. Default: detected.
        keeps_domains: Whether a pair that occurs in two domains stays in both, of which one may be held out.

    Raises:
        ValueError: with file, line and reason, if a file is malformed, or if no pair is left.
    """
    audit, used = Audit(), UsedColumns()
    labels = None if is_beir(source) else read_labels(_list_files(source), columns)
    texts = (text for each in evaluated for text in (*each.queries, *each.documents))
    evaluated_keys = np.unique(hash_texts(texts))
    rows = split_by_label(_iter_source(source, columns, used), labels)
    folder.mkdir(parents=True)
    blocks = _Blocks(name, evaluated_keys, audit, keeps_domains)
    audit.num_kept = write_pairs(folder / PAIRS_FILE, blocks.iter_kept(rows), with_negatives=True)
    audit.num_domains = len(blocks.domains)
    audit.dropped = {reason: count for reason, count in sorted(blocks.counts.items()) if count}
    audit.notes = _describe_source(source, used, labels)
    if not audit.num_kept:
        raise ValueError(f"{source} has no pair to train on: {'; '.join([audit.describe_rows(), *audit.notes])}")
    pairs = read_pairs(folder / PAIRS_FILE)
    audit.language = language or detect_language(pairs.texts("document", space_evenly(len(pairs))))
    if blocks.num_characters[0] >= SWAPPED_RATIO * blocks.num_characters[1]:
        audit.notes.append("warning: queries are longer than documents. Name swapped columns: --query and --document")
    (folder / AUDIT_FILE).write_text(json.dumps(vars(audit), indent=1) + "\n", encoding="utf-8")
    return audit


def load_audit(folder: Path) -> Audit:
    """Read the audit of an import."""
    return Audit(**json_object(folder / AUDIT_FILE))


def _list_files(source: Path) -> list[Path]:
    if not (files := list_pair_files(source)):
        raise ValueError(f"{source} holds no file of pairs (jsonl, csv, tsv, parquet), and is no BEIR folder")
    return files


def _iter_source(source: Path, columns: Columns, used: UsedColumns) -> Iterator[ForeignRow]:
    if not is_beir(source):
        return chain.from_iterable(read_foreign_rows(path, columns, used) for path in _list_files(source))
    if options := [option for option in columns.options if option != "--threshold"]:
        raise ValueError(f"{', '.join(options)}: {source} is a BEIR folder, which has no columns to choose")
    if columns.threshold and not columns.threshold.isdecimal():
        raise ValueError(f"--threshold {columns.threshold}: grades of a BEIR folder are whole numbers")
    return read_beir_pairs(source, int(columns.threshold or 1))


def _describe_source(source: Path, used: UsedColumns, labels: Labels | None) -> list[str]:
    parts = [f"{part} <- {shorten(', '.join(used[part]))}" for part in ACCEPTED if part in used]
    if unread := [name for name in used.get("", ()) if name.strip().casefold() not in ("_id", "id", "metadata")]:
        parts.append(f"not read: {shorten(', '.join(unread))}")
    notes = [f"columns: {', '.join(parts)}"] if parts else []
    notes += [labels.describe()] if labels else []
    return notes + ([] if is_beir(source) else explain_unread(source, _list_files(source)))


@dataclass
class _Blocks:
    """Select the pairs to train on, block by block, and count the others."""

    name: str
    evaluated_keys: np.ndarray
    audit: Audit
    keeps_domains: bool
    counts: Counter[str] = field(default_factory=Counter)
    domains: set[str] = field(default_factory=set)
    num_characters: list[int] = field(default_factory=lambda: [0, 0])
    seen: SeenKeys = field(default_factory=SeenKeys)

    def iter_kept(self, rows: Iterator[ForeignRow]) -> Iterator[Row]:
        """Yield the remaining pairs."""
        while block := list(islice(rows, PAIRS_PER_BLOCK)):
            numbers = range(self.audit.num_read, self.audit.num_read + len(block))
            self.audit.num_read += len(block)
            pairs = [each for each in zip(numbers, block, strict=True) if self._has_texts(each[1])]
            keys_2n = np.stack(
                [hash_texts(row.query for _, row in pairs), hash_texts(row.document for _, row in pairs)]
            )
            # Such a query would find its document for sure.
            is_same_n = keys_2n[0] == keys_2n[1]
            is_evaluated_n = ~is_same_n & np.isin(keys_2n, self.evaluated_keys).any(axis=0)
            # Repetitions are checked last, so that a dropped row never hides a valid one.
            is_valid_n = ~is_evaluated_n & ~is_same_n
            is_kept_n = is_valid_n.copy()
            queries_n, documents_n = keys_2n[:, is_kept_n]
            # One key per pair. The order of its texts counts.
            pair_keys_n = queries_n * np.uint64(0x9E3779B97F4A7C15) + documents_n
            if self.keeps_domains:
                pair_keys_n ^= hash_texts(
                    row.domain for (_, row), is_kept in zip(pairs, is_kept_n, strict=True) if is_kept
                )
            is_kept_n[is_kept_n] = self.seen.add(pair_keys_n)
            self.counts["with a query equal to its document"] += int(is_same_n.sum())
            self.counts["evaluated"] += int(is_evaluated_n.sum())
            self.counts["repeated"] += int((is_valid_n & ~is_kept_n).sum())
            yield from self._make_rows([pair for pair, is_kept in zip(pairs, is_kept_n, strict=True) if is_kept])

    def _has_texts(self, row: ForeignRow) -> bool:
        if row.is_low:
            self.counts["not labelled as pairs"] += 1
        elif is_empty(row.query) or is_empty(row.document):
            self.counts["with an empty text"] += 1
        else:
            return True
        return False

    def _make_rows(self, pairs: Sequence[tuple[int, ForeignRow]]) -> Iterator[Row]:
        negatives = self._select_negatives([row for _, row in pairs])
        for (number, row), texts in zip(pairs, negatives, strict=True):
            self.audit.num_with_negatives += bool(texts)
            self.num_characters[0] += len(row.query)
            self.num_characters[1] += len(row.document)
            self.domains.add(row.domain or self.name)
            identifier = make_id(self.name, number, row.domain, row.query, row.document)
            yield Row(identifier, row.query, row.document, row.domain or self.name, self.name, tuple(texts))

    def _select_negatives(self, rows: Sequence[ForeignRow]) -> list[list[str]]:
        """Return the negatives of each row that are neither empty, a document of the row, nor evaluated."""
        keys = iter(hash_texts(chain.from_iterable(row.negatives for row in rows)).tolist())
        own = [set(hash_texts((row.document, *row.documents)).tolist()) if row.negatives else set() for row in rows]
        evaluated = set(self.evaluated_keys.tolist())
        selected = []
        for row, own_keys in zip(rows, own, strict=True):
            keyed = [(next(keys), text) for text in row.negatives]
            selected.append(
                [text for key, text in keyed if not is_empty(text) and key not in own_keys and key not in evaluated]
            )
        return selected


def write_documents(source: Path, folder: Path, *, name: str, columns: Columns) -> None:
    """Write the documents of a source that are in no pair of `folder`, if there are any."""
    pairs, seen = read_pairs(folder / PAIRS_FILE), SeenKeys()
    for block in pairs.blocks("document"):
        seen.add(hash_texts(block))
    if is_beir(source):
        texts: Iterator[str] = (text for _, _, text in iter_texts(source / "corpus.jsonl", DOCUMENT))
    else:
        texts = (text for row in _iter_source(source, columns, {}) for text in (row.document, *row.negatives))
    if not write_pairs(folder / DOCUMENTS_FILE, _iter_new_documents(texts, seen, name)):
        (folder / DOCUMENTS_FILE).unlink()


def _iter_new_documents(texts: Iterable[str], seen: SeenKeys, name: str) -> Iterator[Row]:
    texts = (text for text in texts if not is_empty(text))
    while block := list(islice(texts, PAIRS_PER_BLOCK)):
        for text, is_new in zip(block, seen.add(hash_texts(block)).tolist(), strict=True):
            if is_new:
                yield Row(make_id(name, 0, "document", "", text), "", text, name, name)
