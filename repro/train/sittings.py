"""Who trained: one entry for each sitting of a training, kept in its checkpoint and copied into the records it gives.

A training may be begun on one machine, taken up on another and measured, much later, by a third process; only the
first two computed its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from repro.records.provenance import get_code_identity, machine, versions
from repro.train.parallel import count_processes
from repro.train.switches import Switches


def sitting_here(from_step: int, switches: Switches) -> dict[str, Any]:
    """Return who goes on training after so many steps: code, switches, processes, and this process's machine."""
    return {
        "from_step": from_step,
        **get_code_identity(),
        "versions": versions(),
        "switches": list(switches.words),
        "machine": machine(narrow=switches.autocast),
        "num_processes": count_processes(),
    }


def words_of(sittings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the words of the switches that any sitting had on, in the order in which they came."""
    return list(dict.fromkeys(word for sitting in sittings for word in sitting.get("switches", ())))
