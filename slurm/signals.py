"""Handle signals between processes: stop requests to jobs, and children that end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from repro.stopping import Stopped, stop

EXIT_INTERRUPTED = 75
"""Exit status of a job that stopped early and can resume from its checkpoint."""
PR_SET_PDEATHSIG = 1
REASONS = {
    signal.SIGUSR2: "time limit near, or preempted by another job (SIGUSR2)",
    signal.SIGTERM: "received SIGTERM",
    signal.SIGINT: "interrupted from the keyboard (SIGINT)",
}
SAME_KEYSTROKE_SECONDS = 1.0
"""A terminal and an intermediate program may both pass on the same Ctrl-C."""


@dataclass
class Stop:
    """A stop request and its reason. Training checks it after each step. All other work is interrupted."""

    reason: str = ""
    signal_number: int | None = None
    at: float = 0.0  # arrival of the signal, in seconds of the monotonic clock
    # The work has ended, so a later signal has nothing left to stop.
    is_over: bool = False

    def __call__(self) -> bool:
        """Return whether to stop."""
        return bool(self.reason)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Record a stop request. A second Ctrl-C does not wait for a checkpoint. Other repeated signals are ignored."""
        if self.is_over:
            return
        if self.signal_number is not None:
            if number == signal.SIGINT and time.monotonic() - self.at > SAME_KEYSTROKE_SECONDS:
                raise self.stopped()
            return
        self.signal_number = number
        self.at = time.monotonic()
        # A cancellation may have set the reason before the signal arrived.
        self.reason = self.reason or REASONS[signal.Signals(number)]
        stop(self.stopped())

    def stopped(self, how: str = "") -> Stopped:
        """Return the Stopped exception to raise, with this message or the reason as its text."""
        return Stopped(how or self.reason, self.signal_number)


@contextmanager
def handle_stop_signals(stop_request: Stop) -> Iterator[None]:
    """Stop on SIGINT, SIGTERM and SIGUSR2, even if the process was started with SIGINT ignored.

    Restores the previous handlers at the end. Does nothing outside the main thread, which alone may set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handlers = {number: signal.signal(number, stop_request.on_signal) for number in REASONS}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def die_with_parent(parent: int) -> None:
    """Make this process receive SIGTERM when its parent dies, even if that was killed. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have died before the request.
    if os.getppid() != parent:
        os._exit(EXIT_INTERRUPTED)


def log_line(line: str) -> None:
    """Write a line to the log and flush it."""
    print(line, flush=True)
