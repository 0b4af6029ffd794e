"""The paper's evaluation collections: archives, sizes and md5, as in BEIR."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from repro.data.beir import write_suite
from repro.data.folders import is_beir
from repro.storage.paths import get_data_folder

ARCHIVES = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One archive of BEIR. `parts` are its BEIR folders, empty if the archive is a single BEIR folder."""

    md5: str
    size_mb: int
    parts: tuple[str, ...] = ()


FORUMS = (
    *("android", "english", "gaming", "gis", "mathematica", "physics"),
    *("programmers", "stats", "tex", "unix", "webmasters", "wordpress"),
)
BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        "arguana": Benchmark(md5="8ad3e3c2a5867cdced806d6503f29b99", size_mb=4),
        "quora": Benchmark(md5="18fb154900ba42a600f84b839c173167", size_mb=17),
        "nfcorpus": Benchmark(md5="a89dba18a62ef92f7d323ec890a0d38d", size_mb=3),
        "scidocs": Benchmark(md5="38121350fc3a4d2f48850f6aff52e4a9", size_mb=137),
        "scifact": Benchmark(md5="5f7d1de60b170fc8027bb7898e2efca1", size_mb=3),
        "trec-covid": Benchmark(md5="ce62140cb23feb9becf6270d0d1fe6d1", size_mb=74),
        "fiqa": Benchmark(md5="17918ed23cd04fb15047f73e6c3bd9d9", size_mb=18),
        "msmarco": Benchmark(md5="444067daf65d982533ea17ebd59501e4", size_mb=1_082),
        "nq": Benchmark(md5="d4d3d2e48787a744b6f6e691ff534307", size_mb=498),
        "cqadupstack": Benchmark(md5="4e41456d7df8ee7760a7f866133bda78", size_mb=5_500, parts=FORUMS),
    }
)
SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "beir": ("arguana", "quora", "nfcorpus", "scidocs", "scifact", "trec-covid", "fiqa", "msmarco", "nq"),
        "cqadupstack": ("cqadupstack",),
    }
)
"""The nine collections of truncated BEIR in the official code, and the forums of figure 7."""


def list_beir_folders(name: str) -> dict[str, Path]:
    """Return the BEIR folders of an archive by their names in a suite, whether they exist or not."""
    root = get_data_folder() / "beir" / name
    parts = BENCHMARKS[name].parts
    return {f"{name}-{part}": root / part for part in parts} if parts else {name: root}


def check_suite(suite: str) -> None:
    """Raise ValueError if archives of a suite are missing. The message has their size and the fetch command."""
    missing = [name for name in SUITES[suite] if not all(map(is_beir, list_beir_folders(name).values()))]
    if missing:
        size = sum(BENCHMARKS[name].size_mb for name in missing)
        label = "truncated BEIR" if suite == "beir" else suite
        raise ValueError(
            f"suite {suite!r}: {missing} of {label} (archives of about {size} MB) are not in {get_data_folder() / 'beir'}; on "
            f"a machine with internet: REPRO_DATA={shlex.quote(str(get_data_folder()))} repro fetch {suite}"
        )


def make_suite(suite: str, folder: Path) -> None:
    """Write a suite of symbolic links to the folders of a local copy. Raises ValueError if archives are missing."""
    check_suite(suite)
    rows = []
    for name in SUITES[suite]:
        for dataset, source in list_beir_folders(name).items():
            (folder / dataset).parent.mkdir(parents=True, exist_ok=True)
            # Links, because the collections take gigabytes and are never written to.
            (folder / dataset).symlink_to(source.resolve(), target_is_directory=True)
            rows.append((dataset, f"{suite} set"))
    write_suite(folder, suite, rows)
