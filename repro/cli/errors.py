"""Error handling of the command line: every exception ends in one line and an exit code.

A user error (a bad value, a file, a full disk, a missing package) prints one line and exits with 2. Anything else is a
bug: one line names it and the file with a full report, and the exit code is 70. `--debug` shows the traceback in both
cases.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from repro.cli.common import EXIT_NOT_RUN, EXIT_STOPPED, print_progress
from repro.stopping import Stopped, unwrap_stop
from repro.storage.files import MAKE_ROOM
from repro.storage.paths import get_home
from repro.text import shorten

EXIT_BUG = 70
"""A bug in this program: EX_SOFTWARE of sysexits."""
EXIT_PIPE = 141
"""The reader of stdout has closed it, for example `head`."""
USER_ERRORS = (ValueError, OSError, MemoryError, ModuleNotFoundError)
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
PERMISSION_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS)
FOLDER_ADVICE = "name another folder (set REPRO_HOME for the files of this program)"
DEBUG = "--debug"
MAX_LINE_CHARACTERS = 1000


def run_with_error_handling(action: Callable[[], int | None]) -> int:
    """Run an action and return its exit code. An exception is printed as a line on stderr and gives its own code."""
    import click

    from slurm.signals import Stop, handle_stop_signals

    show_traceback = _pop_debug_option()
    try:
        with handle_stop_signals(Stop()), unwrap_stop():
            status = action() or 0
            # flush here, where a broken pipe is still handled
            print(end="", flush=True)
            return status
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_NOT_RUN
    except Stopped as stopped:
        print_progress(f"stopped: {stopped}")
        return stopped.exit_status
    except BrokenPipeError:
        return _discard_output()
    except SystemExit as leave:
        if isinstance(leave.__context__, BrokenPipeError):
            # typer exits with 1 here, which means "a claim differs"
            return _discard_output()
        raise
    except (KeyboardInterrupt, click.exceptions.Abort) as stop:
        if isinstance(stop.__cause__, EOFError):
            # click mistakes any end of file for Ctrl-D
            return _print_error(stop.__cause__, show_traceback)
        return EXIT_STOPPED
    except Exception as error:  # noqa: BLE001 — the only catch-all
        return _print_error(error, show_traceback)


def end_without_traceback() -> None:
    """Let Ctrl-C end the process immediately. Call it after the last line of a command.

    Python would print a traceback of its own shutdown.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _discard_output() -> int:
    """Redirect the rest of the output to the null device, and return the exit code of a broken pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE


def _pop_debug_option() -> bool:
    """Remove `--debug` from the command line at any position, and return whether it was given."""
    was_given = DEBUG in sys.argv
    sys.argv[:] = [word for word in sys.argv if word != DEBUG]
    return was_given


def _print_error(error: BaseException, show_traceback: bool) -> int:
    """Print an exception as one line and return its exit code."""
    if show_traceback:
        traceback.print_exception(error)
    # faiss has two packages, so the message names both extras.
    if isinstance(error, ModuleNotFoundError) and error.name == "faiss":
        print_progress("error: faiss is not installed; install this project with [cpu], or [gpu] for CUDA")
        return EXIT_NOT_RUN
    message = shorten(" ".join(str(error).split()), MAX_LINE_CHARACTERS)
    # by name, because importing torch takes a second
    if type(error).__name__ == "OutOfMemoryError":
        print_progress(
            f"error: the GPU is out of memory ({message}): give each process a GPU of its own; in training, smaller "
            "numbers of texts also help, such as REPRO_CHUNKS=32,32"
        )
        return EXIT_NOT_RUN
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:
        message = f"the disk is full ({message}); no incomplete file remains: {MAKE_ROOM}"
    if isinstance(error, OSError) and error.errno in PERMISSION_ERRORS:
        message = f"{message}; no incomplete file remains: give yourself the permission, or {FOLDER_ADVICE}"
    if isinstance(error, USER_ERRORS):
        print_progress(f"error: {message or type(error).__name__}")
        return EXIT_NOT_RUN
    print_progress(f"bug: {type(error).__name__}: {message}; {_write_report(error)}")
    return EXIT_BUG


def _write_report(error: BaseException) -> str:
    """Write a bug report for the maintainers, and return a sentence with its path or the reason it was not written."""
    from repro.records.provenance import get_code_identity, list_versions

    path = get_home() / "bugs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    lines = [
        f"command: {sys.argv!r}",
        f"code: {get_code_identity()}",
        f"versions: {list_versions()}",
        f"cwd: {Path.cwd()}",
        "",
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, "".join(traceback.format_exception(error))]), encoding="utf-8")
    except OSError as write_error:
        return f"no report could be written ({write_error}); {DEBUG} shows the traceback"
    return f"please send the report {path}"
