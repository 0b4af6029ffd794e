"""Signals between processes: how a job hears that it should stop, and children that end with their parent."""

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
"""Exit status of a job that stopped before its end and can go on from its checkpoint."""

LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1
GRACE_SECONDS = 60.0
"""How long a child may take for its checkpoint once its parent has died."""


REASONS = {
    signal.SIGUSR2: "time nearly up, or its place wanted by another job (SIGUSR2)",
    signal.SIGTERM: "told to end (SIGTERM)",
    signal.SIGINT: "interrupted from the keyboard (SIGINT)",
}
SAME_KEYSTROKE_SECONDS = 1.0
"""A terminal and a program in between may both pass on one Ctrl-C."""


@dataclass
class Stop:
    """Whether a job should stop, and why. A training asks after each step; everything else is broken off."""

    reason: str = ""
    signal_number: int | None = None
    at: float = 0.0  # when the signal came, by the monotonic clock
    is_over: bool = False  # the work has ended: a signal that comes now has nothing left to stop

    def __call__(self) -> bool:
        """Return whether it should stop."""
        return bool(self.reason)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Stop because of a signal. A second Ctrl-C does not wait for a checkpoint; any other repetition is ignored."""
        if self.is_over:
            return
        if self.signal_number is not None:
            if number == signal.SIGINT and time.monotonic() - self.at > SAME_KEYSTROKE_SECONDS:
                raise self.stopped()
            return
        self.signal_number, self.at = number, time.monotonic()
        self.reason = self.reason or REASONS[signal.Signals(number)]
        stop(self.stopped())

    def stopped(self, how: str = "") -> Stopped:
        """Return the stop to raise, in these words or its reason's."""
        return Stopped(how or self.reason, self.signal_number)


@contextmanager
def handle_stop_signals(heard: Stop) -> Iterator[None]:
    """Stop on SIGINT, SIGTERM and SIGUSR2, also in a process that was started with SIGINT ignored.

    Puts the former handlers back at the end. Outside the main thread, which alone may do this, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, heard.on_signal) for number in REASONS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def ask_for_signal(number: int) -> None:
    """Ask the kernel to send this process a signal when its parent dies; kept over exec. Only Linux can."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int) -> None:
    """Make this process get SIGTERM when its parent dies, and end whatever it does GRACE_SECONDS later."""
    ask_for_signal(signal.SIGTERM)
    if os.getppid() != parent:  # it died before we could ask
        os._exit(EXIT_INTERRUPTED)
    threading.Thread(target=_watch, args=(parent,), name="watch the parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    if sys.platform != "linux":
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(EXIT_INTERRUPTED)


def say(line: str) -> None:
    """Write a line to the log at once."""
    print(line, flush=True)
