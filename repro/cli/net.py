"""The net under the command line: whatever a verb raises ends in one line and an exit code.

What is not a bug of ours (a value, a file, a disk, a missing package) is one line and exit code 2. Anything else is a
bug: one line that names it and the file of a full report, and exit code 70. `--debug` shows the traceback of either. A
terminal gets the line wrapped at its width, paths and commands in one piece.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from repro.cli.options import EXIT_NOT_RUN, EXIT_STOPPED
from repro.stopping import Stopped, unwrap_stop
from repro.storage.atomic import MAKE_ROOM
from repro.storage.json_files import short, visible
from repro.storage.paths import home

EXIT_BUG = 70
"""A bug of ours: sysexits' EX_SOFTWARE."""
EXIT_PIPE = 141
"""Nobody reads what is printed any more, as when `head` has seen enough."""
NOT_OUR_BUGS = (ValueError, OSError, MemoryError, ModuleNotFoundError)
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
NOT_TO_BE_WRITTEN = (errno.EACCES, errno.EPERM, errno.EROFS)
ELSEWHERE = "name another folder (REPRO_HOME, for what this program keeps)"
DEBUG = "--debug"
LONGEST_LINE = 1000
UNKNOWN_WIDTH = 80
COMMAND = re.compile(r"`[^`]*`")
NO_BREAK = "\x1f"
"""Stands for a space that is no place to break; no message has one, since control characters are replaced."""


def run_with_error_handling(action: Callable[[], int | None]) -> int:
    """Return the exit code of an action, or that of what it raised, which is told in a line on stderr."""
    import click

    from slurm.signals import Stop, handle_stop_signals

    show_traceback = _wants_debug()
    try:
        with handle_stop_signals(Stop()), unwrap_stop():
            status = action() or 0
            print(end="", flush=True)  # here, where it can still be told that nobody reads it
            return status
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_NOT_RUN
    except Stopped as stopped:
        _print_line(f"stopped: {stopped}")
        return stopped.exit_status
    except BrokenPipeError:
        return _without_readers()
    except SystemExit as leave:
        if isinstance(leave.__context__, BrokenPipeError):  # for which typer leaves with 1: "a claim differs"
            return _without_readers()
        raise
    except (KeyboardInterrupt, click.exceptions.Abort) as stop:
        if isinstance(stop.__cause__, EOFError):  # click takes the end of any file for Ctrl-D
            return _tell(stop.__cause__, show_traceback)
        return EXIT_STOPPED
    except Exception as error:  # noqa: BLE001 — the one net
        return _tell(error, show_traceback)


def _without_readers() -> int:
    """Send what is left to print nowhere; return the exit code that says so."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE


def _wants_debug() -> bool:
    """Take `--debug` out of the command line, wherever it stands; return whether it was there."""
    is_there = DEBUG in sys.argv
    sys.argv[:] = [word for word in sys.argv if word != DEBUG]
    return is_there


def _tell(error: BaseException, show_traceback: bool) -> int:
    if show_traceback:
        traceback.print_exception(error)
    if isinstance(error, ModuleNotFoundError) and error.name == "faiss":
        _print_line("error: faiss is not installed; install this project with [cpu], or [gpu] for CUDA")
        return EXIT_NOT_RUN
    said = short(" ".join(str(error).split()), LONGEST_LINE)
    if isinstance(error, OSError) and error.errno in DISK_IS_FULL:
        said = f"the disk is full ({said}); nothing half made is kept: {MAKE_ROOM}"
    if isinstance(error, OSError) and error.errno in NOT_TO_BE_WRITTEN:
        said = f"{said}; nothing half made is kept: give yourself the permission, or {ELSEWHERE}"
    if isinstance(error, NOT_OUR_BUGS):
        _print_line(f"error: {said or type(error).__name__}")
        return EXIT_NOT_RUN
    _print_line(f"bug: {type(error).__name__}: {said}; {_report(error)}")
    return EXIT_BUG


def _print_line(line: str) -> None:
    """Print a line on stderr; on a terminal as lines of its width, 80 where it does not tell."""
    if sys.stderr.isatty():
        try:
            width = os.get_terminal_size(sys.stderr.fileno()).columns or UNKNOWN_WIDTH
        except OSError:
            width = UNKNOWN_WIDTH
        line = wrap_line(line, width)
    print(visible(line), file=sys.stderr)


def wrap_line(line: str, width: int) -> str:
    """Return a line as lines of at most `width` letters, broken at spaces only, and none inside `a command`.

    What has to be copied stays in one piece, if need be on a line that is longer.
    """
    in_one_piece = COMMAND.sub(lambda found: found[0].replace(" ", NO_BREAK), line)
    lines = textwrap.wrap(in_one_piece, width, break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")
    return "\n".join(lines).replace(NO_BREAK, " ")


def _report(error: BaseException) -> str:
    """Write what a maintainer needs; return where it is, or that it could not be written."""
    from repro.records.provenance import get_code_identity, versions

    path = home() / "bugs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    lines = [
        f"command: {sys.argv!r}",
        f"code: {get_code_identity()}",
        f"versions: {versions()}",
        f"cwd: {Path.cwd()}",
        "",
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, "".join(traceback.format_exception(error))]), encoding="utf-8")
    except OSError as why:
        return f"no report could be written ({why}); {DEBUG} shows the traceback"
    return f"please send the report {path}"
