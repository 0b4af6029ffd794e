"""Read performance options from REPRO_SWITCHES. They change only rounding and random drops.

    REPRO_SWITCHES="compile checkpoint" repro run table1 --scale small

- `autocast` computes the stages in bfloat16. Default: on, effective only on a GPU.
- `fused` runs AdamW in one kernel. Default: on.
- `compile` applies torch.compile to the backbone. Default: off.
- `checkpoint` recomputes layers in backward. It needs less memory and a third more time. Default: off.

`no-autocast` and `no-fused` turn an option off. On a CPU, `compile` and `checkpoint` disable the packing of texts, so
compare them with unpacked runs. On a GPU the chunk sizes depend on the options (`repro.train.chunks`), and random drops
depend on the chunk sizes. Set REPRO_CHUNKS to compare options.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace

VARIABLE = "REPRO_SWITCHES"


@dataclass(frozen=True)
class Switches:
    """Options that are on."""

    autocast: bool = True
    fused: bool = True
    compile: bool = False
    checkpoint: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Words that set the values that differ from the defaults."""
        defaults = vars(Switches())
        changes = {name: value for name, value in vars(self).items() if value != defaults[name]}
        return tuple(name if value else f"no-{name}" for name, value in changes.items())


def parse_switches(text: str) -> Switches:
    """Parse the words of REPRO_SWITCHES. Raises ValueError if a word is unknown."""
    names = [field.name for field in fields(Switches)]
    switches = Switches()
    for word in text.split():
        name = word.removeprefix("no-")
        if name not in names:
            raise ValueError(f"{VARIABLE} has {word[:40]!r}: it takes {names}, each with no- in front to turn it off")
        switches = replace(switches, **{name: word == name})
    return switches


def read_switches() -> Switches:
    """Return the switches of this environment. Raises ValueError if a word is unknown."""
    return parse_switches(os.environ.get(VARIABLE, ""))
