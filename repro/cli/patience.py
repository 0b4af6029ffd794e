"""What a verb says while it works: at most a line every two seconds on stderr, so that quick work says nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from repro.text import visible

SILENT_SECONDS = 2.0
"""How long a reader waits before they are told what for."""
Item = TypeVar("Item")


class Seldom:
    """Print a line unless one was printed in the last two seconds; those that come sooner are dropped."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, line: str) -> None:
        """Print a line, or drop it."""
        if time.monotonic() - self.last >= SILENT_SECONDS:
            tell(line)
            self.last = time.monotonic()


def tell(line: str) -> None:
    """Print a line on stderr at once: what is printed on stdout stays what was asked for."""
    print(visible(line), file=sys.stderr, flush=True)


def in_turn(items: Sequence[Item], words: Callable[[Item], str]) -> Iterator[Item]:
    """Return the items one by one, and say which is begun when the ones before took long."""
    say_seldom = Seldom()
    for number, item in enumerate(items, 1):
        say_seldom(f"{words(item)} ({number} of {len(items)})")
        yield item
