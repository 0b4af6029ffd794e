"""The paper's training data as declared sources: where each comes from, its rows, domains, prompts, local copy.

Row counts of the 29 unsupervised domains are those of Table 5. What nobody could check here says so: revisions are
pinned by whoever fetches, licences are those of each dataset's card.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from repro.data.columns import Columns
from repro.data.folders import list_visible_files
from repro.data.pairs import Row
from repro.data.prompts import CLASSIFICATION, CLUSTERING, SEARCH
from repro.data.readers import read_foreign
from repro.data.wording import normalise

EMPTY = "[empty]"  # what an empty text became in the authors' loader
CHECKSUMS = "checksums.json"
"""What `fetch` writes last: sha256 and size of each file of a local copy."""
FETCHING = ".fetching"
"""What `fetch` puts into a folder first, and removes when the checksums are written."""
_SHARD = re.compile(r"(-train)?-\d{5}-of-\d{5}$")


@dataclass(frozen=True)
class Domain:
    """One domain of a source: its prompts (query, document) and its rows in the paper, None where none is printed."""

    prompts: tuple[str, str]
    num_rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """A dataset on the hub."""

    hub_id: str
    domains: Mapping[str, Domain]
    columns: Mapping[str, str]
    domain_is_file: bool = False  # one split a domain, told by the name of its file
    num_rows: int | None = None  # None: nobody here knows
    revision: str | None = None  # None: not pinned here; `fetch` writes down the one it got
    licence: str = "not verified: see the dataset's card"
    size_gb: int = 0  # an estimate


def _domains(**by_prompts: tuple[tuple[str, str], Mapping[str, int | None]]) -> Mapping[str, Domain]:
    return MappingProxyType(
        {name: Domain(prompts, rows) for prompts, names in by_prompts.values() for name, rows in names.items()}
    )


UNSUPERVISED = _domains(
    clustering=(
        CLUSTERING,
        {
            "reddit_title_body": 64_978_944,
            "s2orc_title_abstract": 35_438_592,
            "s2orc_citation_titles": 7_585_792,
            "s2orc_abstract_citation": 7_503_872,
            "s2orc_abstract_body": 6_389_760,
            "codesearch": 835_584,
            "stackexchange_duplicate_questions": 65_536,
            "stackexchange_title_body": 65_536,
            "stackexchange_body_body": 65_536,
        },
    ),
    search=(
        SEARCH,
        {
            "paq": 52_953_088,
            "gooaq": 1_245_184,
            "yahoo_title_answer": 262_144,
            "amazonqa": 212_992,
            "yahoo_title_question": 196_608,
            "yahoo_qa": 131_072,
            "eli5": 98_304,
            "squad": 16_384,
        },
    ),
    classification=(
        CLASSIFICATION,
        {
            "amazon_reviews": 38_682_624,
            "wikianswers": 9_912_320,
            "wikipedia": 6_078_464,
            "agnews": 409_600,
            "ccnews": 344_064,
            "npr": 344_064,
            "cnn": 278_528,
            "sentence_compression": 163_840,
            "altlex": 98_304,
            "wikihow": 81_920,
            "simplewiki": 81_920,
            "quora": 32_768,
        },
    ),
)
SUPERVISED = _domains(
    search=(SEARCH, dict.fromkeys(("msmarco", "nq", "hotpot", "fever"))),
    classification=(
        CLASSIFICATION,
        dict.fromkeys(("nli", "medi_wiki", "medi_stackexchange", "medi_flickr", "medi_supernli")),
    ),
    clustering=(CLUSTERING, {"reddit": None}),
)
SOURCES: Mapping[str, HubSource] = MappingProxyType(
    {
        "nomic-unsupervised": HubSource(
            hub_id="nomic-ai/nomic_embed_unsupervised",
            domains=UNSUPERVISED,
            columns={"query": "query", "document": "document", "domain": "dataset"},
            num_rows=238_998_494,  # what the authors' loader insists on; Table 5, whole batches only, has 234,553,344
            size_gb=300,
        ),
        "nomic-supervised": HubSource(
            hub_id="nomic-ai/nomic_embed_supervised",
            domains=SUPERVISED,
            columns={"query": "query", "document": "document", "negatives": "negative", "domain": "dataset"},
            num_rows=1_800_000,  # "1.8 M", §5
            size_gb=20,
        ),
        "bge-full-data": HubSource(
            hub_id="cfli/bge-full-data",
            domains=MappingProxyType({}),  # 33 splits, whose names nobody could read here
            columns={"query": "query", "document": "pos", "negatives": "neg"},
            domain_is_file=True,
            size_gb=15,
        ),
    }
)


def get_source(name: str) -> HubSource:
    """Return a source; ValueError lists the known ones."""
    if name not in SOURCES:
        raise ValueError(f"unknown source {name!r}; choose one of {list(SOURCES)}")
    return SOURCES[name]


def local_copy(name: str, data_dir: Path) -> Path:
    """Return the folder of a source below `data_dir`.

    ValueError where it is not there, or not all of it: its size, and the command that fetches it or goes on.
    """
    source = get_source(name)
    folder = data_dir / source.hub_id.split("/")[1]
    if not any(list_pair_files(folder)):
        raise ValueError(
            f"{name} (about {source.size_gb} GB) is not in {folder}; on a machine with internet: "
            f"repro fetch {name} --data-dir {data_dir}, or hf download {source.hub_id} --repo-type dataset "
            f"--local-dir {folder}"
        )
    if why := find_incomplete_reason(name, folder):
        raise ValueError(why)
    return folder


def find_incomplete_reason(name: str, folder: Path) -> str:
    """Return why a folder is no whole copy of a source, and what to do; empty for one whose fetching has ended."""
    if (folder / CHECKSUMS).is_file():
        return ""
    marks = [folder / FETCHING] if (folder / FETCHING).exists() else folder.rglob("*.incomplete")
    mark = next(iter(marks), None)
    remedy = f"on a machine with internet: repro fetch {name} --data-dir {folder.parent} goes on with it"
    return f"{name} in {folder} is fetched in part: there is {mark}; {remedy}" if mark else ""


def list_pair_files(folder: Path) -> Iterator[Path]:
    """Return the files of a local copy that hold its pairs, in no order; hidden ones are as if not there."""
    return (path for path in list_visible_files(folder) if path.suffix in (".parquet", ".jsonl"))


def load_source(name: str, data_dir: Path) -> Iterator[Row]:
    """Return the pairs of a local copy, file by file in the order of their names, in constant memory.

    A dataset of the collection is both domain and source of its pairs: it is what the paper clusters within (§5). Only
    the first document of a list of positives is taken, as by the authors; an empty text becomes "[empty]". Texts carry
    no prompts: those are put in front when they become tokens.
    """
    source, folder = get_source(name), local_copy(name, data_dir)
    number = 0
    for path in sorted(list_pair_files(folder)):
        for pair in read_foreign(path, Columns(source.columns)):
            if pair.flaw:  # else it would be trained on as "[empty]"
                raise ValueError(f"{pair.place}: {pair.flaw}")
            domain = _SHARD.sub("", path.stem) if source.domain_is_file else pair.domain
            query, document = pair.query or EMPTY, pair.document or EMPTY
            digest = hashlib.sha256(f"{domain}\0{query}\0{document}".encode()).hexdigest()[:16]
            negatives = tuple(text for text in pair.negatives if normalise(text))
            yield Row(f"{name}:{number}:{digest}", query, document, domain, domain, negatives)
            number += 1


def prompts_by_domain(name: str, domains: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the prompts (query, document) that a source has for its domains; nothing for one that declares none.

    ValueError for a domain that the source is not known to have: its prompts would be a guess.
    """
    declared = SOURCES[name].domains if name in SOURCES else {}
    if not declared:
        return {}
    if unknown := sorted(set(domains) - set(declared)):
        raise ValueError(f"{name}: no prompts are declared for the domains {unknown}; known are {sorted(declared)}")
    return {domain: declared[domain].prompts for domain in domains}
