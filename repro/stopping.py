"""How a process stops when it is told to: at once, except in a block that must come to its own end first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Interrupted(RuntimeError):  # noqa: N818 — no mistake was made
    """A training was asked to stop; its checkpoint is written."""


class Stopped(BaseException):
    """This process was told to stop. Not an Exception, so that no library takes it for an error and goes on."""

    def __init__(self, reason: str, signal_number: int | None = None) -> None:
        """Take the reason in words, and the signal that told us so; None: it was another way of telling."""
        super().__init__(reason)
        self.signal_number = signal_number

    @property
    def exit_status(self) -> int:
        """The exit status a shell expects: 130 after SIGINT, 143 after SIGTERM."""
        return 128 + (self.signal_number or signal.SIGINT)

    def and_says(self, advice: str) -> Stopped:
        """Return the same with words on what is kept and how to go on."""
        return Stopped(f"{self}; {advice}", self.signal_number)


@dataclass
class _Blocks:
    depth: int = 0
    pending: Stopped | None = None


_BLOCKS = _Blocks()


@contextmanager
def unbroken() -> Iterator[None]:
    """Let no stop break this block off: one that comes meanwhile is raised when the block has ended well.

    For blocks that last a moment, or that ask `is_asked_to_stop` themselves and then end in `Interrupted`, as a
    training does after each step.
    """
    _BLOCKS.depth += 1
    try:
        yield
    except Interrupted as interrupted:
        pending = _leave()
        if pending is None:
            raise
        raise Stopped(f"{pending}: {interrupted}", pending.signal_number) from interrupted
    except BaseException:
        _leave()
        raise
    pending = _leave()
    if pending is not None:
        raise pending


def _leave() -> Stopped | None:
    """Leave a block; return the stop that was waiting for its end, if this was the outermost."""
    _BLOCKS.depth -= 1
    if _BLOCKS.depth:
        return None
    pending, _BLOCKS.pending = _BLOCKS.pending, None
    return pending


@contextmanager
def unwrap_stop() -> Iterator[None]:
    """Raise the stop itself where a library made an error of it, as an import in C++ that is broken off does."""
    try:
        yield
    except Exception as error:
        stopped = _behind(error)
        if stopped is None:
            raise
        raise stopped from error


def _behind(error: BaseException | None) -> Stopped | None:
    """Return the stop among the causes of an error."""
    seen: set[int] = set()
    while error is not None and not isinstance(error, Stopped) and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return error if isinstance(error, Stopped) else None


def is_asked_to_stop() -> bool:
    """Return whether a stop is waiting for the end of the unbroken block we are in."""
    return _BLOCKS.pending is not None


def stop(stopped: Stopped) -> None:
    """Raise `stopped` now, or at the end of the unbroken block that the process is in."""
    if not _BLOCKS.depth:
        raise stopped
    _BLOCKS.pending = stopped
