"""Stop a process on a signal: immediately, or at the end of a block that must not be interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Interrupted(RuntimeError):  # noqa: N818 — not an error
    """A training run stopped on request. Its checkpoint is written."""


class Stopped(BaseException):
    """The process received a stop signal. It is no Exception, so libraries do not catch it and continue."""

    def __init__(self, reason: str, signal_number: int | None = None) -> None:
        """Store the reason and the signal. `signal_number` is None if the stop did not come from a signal."""
        super().__init__(reason)
        self.signal_number = signal_number

    @property
    def exit_status(self) -> int:
        """The exit status that a shell expects: 130 after SIGINT, 143 after SIGTERM."""
        return 128 + (self.signal_number or signal.SIGINT)

    def add_advice(self, advice: str) -> Stopped:
        """Return the same stop with advice on saved work and how to resume."""
        return Stopped(f"{self}; {advice}", self.signal_number)


@dataclass
class _Blocks:
    """The nested blocks that the process is in, and the stop that waits for their end."""

    depth: int = 0
    pending: Stopped | None = None


_BLOCKS = _Blocks()


@contextmanager
def delay_stops() -> Iterator[None]:
    """Delay stops until this block has ended. A stop that arrives meanwhile is raised if the block succeeds.

    Use it for blocks that are short, or that poll `is_asked_to_stop` and then raise `Interrupted`. Training polls after
    each step.
    """
    _BLOCKS.depth += 1
    try:
        yield
    except Interrupted as interrupted:
        pending = _leave_block()
        if pending is None:
            raise
        raise Stopped(f"{pending}: {interrupted}", pending.signal_number) from interrupted
    except BaseException:
        _leave_block()
        raise
    pending = _leave_block()
    if pending is not None:
        raise pending


def _leave_block() -> Stopped | None:
    """Leave a block. Return the pending stop if this was the outermost block."""
    _BLOCKS.depth -= 1
    if _BLOCKS.depth:
        return None
    pending, _BLOCKS.pending = _BLOCKS.pending, None
    return pending


@contextmanager
def unwrap_stop() -> Iterator[None]:
    """Re-raise our stop if a library wrapped it in an error of its own, as an interrupted C++ import does."""
    try:
        yield
    except Exception as error:
        stopped = _find_stop(error)
        if stopped is None:
            raise
        raise stopped from error


def _find_stop(error: BaseException | None) -> Stopped | None:
    """Return the stop among the causes of an error, or None."""
    while error is not None and not isinstance(error, Stopped):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, Stopped) else None


def is_asked_to_stop() -> bool:
    """Return whether a stop waits for the end of the current `delay_stops` block."""
    return _BLOCKS.pending is not None


def stop(stopped: Stopped) -> None:
    """Raise `stopped` now, or at the end of the current `delay_stops` block."""
    if not _BLOCKS.depth:
        raise stopped
    _BLOCKS.pending = stopped
