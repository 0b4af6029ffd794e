"""Four ways to compute the same training, each set by one word of REPRO_SWITCHES: rounding and random drops differ.

    REPRO_SWITCHES="compile checkpoint" repro run table1 --scale small

`autocast` (stages in bfloat16) and `fused` (AdamW in one kernel) are on, and act where a GPU is; `no-autocast` and
`no-fused` turn them off. `compile` (torch.compile over the backbone) and `checkpoint` (layers are computed again in
backward instead of kept: less memory, a third more time) are off. On a CPU, texts are then no longer packed, which is
what the two would have to be compared with. On a GPU chunks are as large as the switches leave room for
(`repro.train.chunks`), and what is dropped at random is drawn chunk by chunk: set REPRO_CHUNKS to compare switches.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace

VARIABLE = "REPRO_SWITCHES"


@dataclass(frozen=True)
class Switches:
    """What is on."""

    autocast: bool = True
    fused: bool = True
    compile: bool = False
    checkpoint: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words that set what differs from the default."""
        given, usual = vars(self), vars(Switches())
        return tuple(name if given[name] else f"no-{name}" for name in given if given[name] != usual[name])


def switches_from(words: str) -> Switches:
    """Return the switches as these words set them; ValueError for an unknown word."""
    names = [field.name for field in fields(Switches)]
    found = Switches()
    for word in words.split():
        name = word.removeprefix("no-")
        if name not in names:
            raise ValueError(f"{VARIABLE} has {word[:40]!r}: it takes {names}, each with no- in front to turn it off")
        found = replace(found, **{name: word == name})
    return found


def switches_here() -> Switches:
    """Return the switches as the environment sets them; ValueError for an unknown word."""
    return switches_from(os.environ.get(VARIABLE, ""))
