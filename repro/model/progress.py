"""Report how many texts have been encoded. This module does not import torch."""

from __future__ import annotations

import time
from collections.abc import Callable

REPORT_EVERY_SECONDS = 8.0


def make_encoding_reporter(progress: Callable[[str], None]) -> Callable[[int, int], None]:
    """Return a callback for encoders: the number of texts encoded since the start, every `REPORT_EVERY_SECONDS`.

    The encoder passes the texts done and the texts in all of one call. A suite needs a call per collection and context.
    """
    started = reported = time.monotonic()
    num_before = 0

    def report(num_done: int, num_texts: int) -> None:
        nonlocal reported, num_before
        if time.monotonic() - reported >= REPORT_EVERY_SECONDS:
            reported = time.monotonic()
            progress(f"  {num_before + num_done:,} texts encoded in {reported - started:.0f} s")
        if num_done == num_texts:
            num_before += num_done

    return report
