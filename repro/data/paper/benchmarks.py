"""The paper's evaluation collections: archives, sizes, licences, and the same collections on the hub.

Names, archives and md5 come from BEIR. Hub ids, revisions and licences come from mteb 2. Numbers of queries and
documents come from Table 6 where it has them. Its 5,000 queries of Quora are the split dev.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from repro.data.beir import write_suite
from repro.data.folders import is_beir

ARCHIVES = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets"
UNSTATED = "not stated by mteb"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One archive of BEIR. `parts` are its BEIR folders, empty if the archive is a single BEIR folder."""

    md5: str
    num_queries: int
    num_documents: int
    size_mb: int
    hub_id: str
    revision: str
    licence: str = UNSTATED
    parts: tuple[str, ...] = ()


def _beir(md5: str, counts: tuple[int, int, int], hub: tuple[str, str], licence: str = UNSTATED) -> Benchmark:
    queries, documents, size = counts
    hub_id, revision = hub
    return Benchmark(
        md5=md5,
        num_queries=queries,
        num_documents=documents,
        size_mb=size,
        hub_id=f"mteb/{hub_id}",
        revision=revision,
        licence=licence,
    )


FORUMS = (
    *("android", "english", "gaming", "gis", "mathematica", "physics"),
    *("programmers", "stats", "tex", "unix", "webmasters", "wordpress"),
)
BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        "arguana": _beir(
            "8ad3e3c2a5867cdced806d6503f29b99",
            (1_406, 8_674, 4),
            ("arguana", "c22ab2a51041ffd869aaddef7af8d8215647e41a"),
            "cc-by-sa-4.0",
        ),
        "quora": _beir(
            "18fb154900ba42a600f84b839c173167",
            (10_000, 522_931, 17),
            ("quora", "e4e08e0b7dbe3c8700f0daef558ff32256715259"),
        ),
        "nfcorpus": _beir(
            "a89dba18a62ef92f7d323ec890a0d38d",
            (323, 3_633, 3),
            ("nfcorpus", "ec0fa4fe99da2ff19ca1214b7966684033a58814"),
        ),
        "scidocs": _beir(
            "38121350fc3a4d2f48850f6aff52e4a9",
            (1_000, 25_657, 137),
            ("scidocs", "f8c2fcf00f625baaa80f62ec5bd9e1fff3b8ae88"),
            "cc-by-sa-4.0",
        ),
        "scifact": _beir(
            "5f7d1de60b170fc8027bb7898e2efca1",
            (300, 5_183, 3),
            ("scifact", "d56462d0e63a25450459c4f213e49ffdb866f7f9"),
            "cc-by-nc-4.0",
        ),
        "trec-covid": _beir(
            "ce62140cb23feb9becf6270d0d1fe6d1",
            (50, 171_332, 74),
            ("trec-covid", "bb9466bac8153a0349341eb1b22e06409e78ef4e"),
        ),
        "fiqa": _beir(
            "17918ed23cd04fb15047f73e6c3bd9d9",
            (648, 57_638, 18),
            ("fiqa", "27a168819829fe9bcd655c2df245fb19452e8e06"),
        ),
        "msmarco": _beir(
            "444067daf65d982533ea17ebd59501e4",
            (6_980, 8_841_823, 1_082),
            ("msmarco", "c5a29a104738b98a9e76336939199e264163d4a0"),
            "msr-la-nc",
        ),
        "nq": _beir(
            "d4d3d2e48787a744b6f6e691ff534307",
            (3_452, 2_681_468, 498),
            ("nq", "b774495ed302d8c44a3a7ea25c90dbce03968f31"),
            "cc-by-nc-sa-3.0",
        ),
        "cqadupstack": Benchmark(
            md5="4e41456d7df8ee7760a7f866133bda78",
            num_queries=13_145,
            num_documents=457_199,
            size_mb=5_500,
            hub_id="mteb/cqadupstack-*",
            revision="one a forum: those of the installed mteb",
            licence="apache-2.0",
            parts=FORUMS,
        ),
    }
)
SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "beir": ("arguana", "quora", "nfcorpus", "scidocs", "scifact", "trec-covid", "fiqa", "msmarco", "nq"),
        "cqadupstack": ("cqadupstack",),
    }
)
"""The nine collections of truncated BEIR in the official code, and the forums of figure 7."""


def list_beir_folders(name: str, data_dir: Path) -> dict[str, Path]:
    """Return the BEIR folders of an archive by their names in a suite, whether they exist or not."""
    root = data_dir / "beir" / name
    parts = BENCHMARKS[name].parts
    return {f"{name}-{part}": root / part for part in parts} if parts else {name: root}


def list_missing_archives(suite: str, data_dir: Path) -> list[str]:
    """Return the archives of a suite that are missing or incomplete."""
    return [name for name in SUITES[suite] if not all(map(is_beir, list_beir_folders(name, data_dir).values()))]


def check_suite(suite: str, data_dir: Path) -> None:
    """Raise ValueError if archives of a suite are missing. The message has their size and the fetch command."""
    missing = list_missing_archives(suite, data_dir)
    if missing:
        size = sum(BENCHMARKS[name].size_mb for name in missing)
        label = "truncated BEIR" if suite == "beir" else suite
        raise ValueError(
            f"suite {suite!r}: {missing} of {label} (archives of about {size} MB) are not in {data_dir / 'beir'}; on a "
            f"machine with internet: repro fetch {suite} --data-dir {data_dir}"
        )


def make_suite(suite: str, data_dir: Path, folder: Path) -> None:
    """Write a suite of symbolic links to the folders of a local copy. Raises ValueError if archives are missing."""
    check_suite(suite, data_dir)
    rows = []
    for name in SUITES[suite]:
        for dataset, source in list_beir_folders(name, data_dir).items():
            (folder / dataset).parent.mkdir(parents=True, exist_ok=True)
            # Links, because the collections take gigabytes and are never written to.
            (folder / dataset).symlink_to(source.resolve(), target_is_directory=True)
            rows.append((dataset, f"{suite} set"))
    write_suite(folder, suite, rows)
