"""What of a reader's own corpus is held out: evaluation collections cut from it, and the pairs left to train on.

1. Named domains are held out whole. 2. Without names, a tenth of the documents of each of the largest domains is, by a
hash of their text; of a corpus of small domains, a tenth of all. 3. Each part becomes a collection by the rules of
`repro.data.suites`. 4. What shares a text with a collection is not trained on.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from repro.data.beir import Retrieval
from repro.data.filters import EvaluatedTexts, without_evaluated
from repro.data.pairs import Pairs, Row
from repro.data.suites import SuiteRules, build_collection
from repro.data.wording import normalise

FAMILY = "held-out"
ALL = "all"
MOST_DOMAINS = 16
LEAST_PAIRS = 200  # of a domain that gives a collection of its own: twenty documents to search
SHARE = 10  # one document in ten
ROWS_PER_READ = 65_536


def hold_out(pairs: Pairs, domains: Sequence[str] = (), rules: SuiteRules | None = None) -> list[Retrieval]:
    """Return the collections; ValueError for a domain the corpus lacks, or when nothing can be asked of them.

    Memory holds the rows of at most `rules.max_documents` documents a collection.
    """
    rules = rules or SuiteRules()
    unknown = sorted(set(domains) - set(pairs.domain_names))
    if unknown:
        raise ValueError(f"no domain {unknown} to hold out; this corpus has {_some(pairs.domain_names)}")
    groups = {name: name for name in domains} or _largest_domains(pairs)
    kept = _rows_of_lowest_hash(pairs, groups, rules.max_documents, whole=bool(domains))
    found: list[Retrieval] = []
    refused: list[str] = []
    for group, rows in sorted(kept.items()):
        try:
            found.append(build_collection(collection_name(group, [one.name for one in found]), rows, rules).retrieval)
        except ValueError as error:
            refused.append(str(error))
    if not found:
        raise ValueError(f"nothing can be held out to evaluate on ({'; '.join(refused[:3]) or 'too few pairs'})")
    return found


def training_rows(
    pairs: Pairs, collections: Sequence[Retrieval], domains: Sequence[str], counts: Counter[str]
) -> Iterator[Row]:
    """Return the rows outside the held-out domains that share no text with a collection; counts what is left out."""
    yield from without_evaluated(_outside(rows_of(pairs), set(domains), counts), EvaluatedTexts(collections), counts)


def rows_of(pairs: Pairs) -> Iterator[Row]:
    """Return every pair as a row, a block of them in memory."""
    domain_codes, source_codes = pairs.domain_codes, pairs.source_codes
    for start in range(0, len(pairs), ROWS_PER_READ):
        places = range(start, min(start + ROWS_PER_READ, len(pairs)))
        texts = zip(
            places,
            pairs.ids(places),
            pairs.texts("query", places),
            pairs.texts("document", places),
            pairs.negatives(places),
            strict=True,
        )
        for place, identifier, query, document, negatives in texts:
            domain, source = pairs.domain_names[domain_codes[place]], pairs.source_names[source_codes[place]]
            yield Row(identifier, query, document, domain, source, tuple(negatives or ()))


def collection_name(domain: str, taken: Sequence[str] = ()) -> str:
    """Return a domain's name as that of a folder and of a metric; a number tells apart two that would be the same."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", domain.lower()).strip("-.")[:60] or "domain"
    slug = f"{slug}-domain" if slug in ("mean", FAMILY) else slug
    number = sum(name == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", name) is not None for name in taken)
    return f"{slug}-{number + 1}" if number else slug


def _outside(rows: Iterator[Row], domains: set[str], counts: Counter[str]) -> Iterator[Row]:
    for row in rows:
        if row.domain in domains:
            counts["in_held_out_domains"] += 1
        else:
            yield row


def _largest_domains(pairs: Pairs) -> dict[str, str]:
    sizes = np.bincount(pairs.domain_codes, minlength=len(pairs.domain_names))
    order = np.argsort(-sizes, kind="stable")[:MOST_DOMAINS]
    large = {pairs.domain_names[code]: pairs.domain_names[code] for code in order if sizes[code] >= LEAST_PAIRS}
    return large or dict.fromkeys(pairs.domain_names, ALL)


def _rows_of_lowest_hash(
    pairs: Pairs, groups: dict[str, str], max_documents: int, *, whole: bool
) -> dict[str, list[Row]]:
    rows: dict[str, dict[int, list[Row]]] = defaultdict(dict)
    heaps: dict[str, list[int]] = defaultdict(list)
    for row in rows_of(pairs):
        group, key = groups.get(row.domain), _hash(normalise(row.document))
        if group is None or (not whole and key % SHARE):
            continue
        kept, heap = rows[group], heaps[group]
        if key in kept:
            kept[key].append(row)
        elif len(heap) < max_documents or -key > heap[0]:
            kept[key] = [row]
            if len(heap) < max_documents:
                heapq.heappush(heap, -key)
            else:
                del kept[-heapq.heapreplace(heap, -key)]
    return {group: [row for key in kept for row in kept[key]] for group, kept in rows.items()}


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _some(names: Sequence[str]) -> str:
    return f"{list(names[:20])}" + (f" and {len(names) - 20} more" if len(names) > 20 else "")
