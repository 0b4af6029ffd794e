"""Error handling of the command line: every exception ends in one line and an exit code.

A user error (a bad value, a damaged file, a full disk, a missing package) prints one line and exits with 2. Errors of the
libraries that read the user's files are user errors too. Anything else is a bug and exits with 70. `--debug` shows the
traceback in both cases.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

from repro.cli.common import EXIT_NOT_RUN, EXIT_STOPPED, print_progress
from repro.stopping import Stopped, unwrap_stop
from repro.storage.files import MAKE_ROOM
from repro.text import shorten

EXIT_BUG = 70
"""A bug in this program: EX_SOFTWARE of sysexits."""
EXIT_PIPE = 141
"""The reader of stdout has closed it, for example `head`."""
USER_ERRORS = (ValueError, OSError, EOFError, OverflowError, MemoryError, ModuleNotFoundError)
"""JSON, TOML, text encodings and most errors of pyarrow are kinds of ValueError. A date out of range is an overflow."""
READING_LIBRARIES = frozenset(
    {
        *("json", "tomllib", "_csv", "struct", "yaml", "dateutil"),
        *("gzip", "zlib", "_lzma", "bz2", "zipfile", "tarfile"),
        *("datasets", "fsspec", "httpx2", "huggingface_hub", "pyarrow", "safetensors", "tokenizers"),
        *("sentence_transformers", "transformers"),
    }
)
"""Libraries that read files of the user. What they raise is an error in a file, whatever its type."""
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
    except BaseException as error:  # noqa: BLE001 — the only catch-all; a panic of Rust is no Exception
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
    message = shorten(" ".join(_describe(error).split()), MAX_LINE_CHARACTERS)
    if not is_user_error(error):
        print_progress(f"bug: {message}; {DEBUG} shows the traceback, please report it")
        return EXIT_BUG
    print_progress(f"error: {message}")
    return EXIT_NOT_RUN


def is_user_error(error: BaseException) -> bool:
    """Return whether an error is one of the user, a file or the machine, and not a bug of this program."""
    # an error that names a file of the user was raised while it was read
    names_file = bool(getattr(error, "__notes__", ()))
    is_known = isinstance(error, USER_ERRORS) or _is_gpu_full(error) or _is_disk_full(error)
    return is_known or names_file or is_raised_by_reader(error)


def _describe(error: BaseException) -> str:
    """Return the cause of an error and, for some kinds, a remedy."""
    message = str(error) or type(error).__name__
    # faiss has two packages, so the message names both extras.
    if isinstance(error, ModuleNotFoundError) and error.name == "faiss":
        return "faiss is not installed; install this project with [cpu], or [gpu] for CUDA"
    if _is_gpu_full(error):
        return f"the GPU is out of memory ({message}): give each process its own, or set REPRO_CHUNKS=32,32"
    if _is_disk_full(error):
        return f"the disk is full ({message}); no incomplete file remains: {MAKE_ROOM}"
    if isinstance(error, OSError) and error.errno in PERMISSION_ERRORS:
        return f"{message}; no incomplete file remains: give yourself the permission, or {FOLDER_ADVICE}"
    if not isinstance(error, USER_ERRORS):
        # such as KeyError, whose text is a name only
        message = f"{type(error).__name__}: {message}"
    return ": ".join([*getattr(error, "__notes__", ()), message])


def is_raised_by_reader(error: BaseException) -> bool:
    """Return whether an error or its cause comes from a library that reads files of the user.

    That is its class, or the code that raised it. `tokenizers` is written in Rust: it has no frames, and raises plain
    exceptions and panics.
    """
    links = list(_iterate_causes(error))
    is_from_rust = any(type(link) is Exception or type(link).__name__ == "PanicException" for link in links)
    return is_from_rust or any(not READING_LIBRARIES.isdisjoint(_list_origins(link)) for link in links)


def _list_origins(error: BaseException) -> Iterator[str]:
    """Yield the packages that define the class of an error, and the package of the frame that raised it."""
    yield from (kind.__module__.partition(".")[0] for kind in type(error).__mro__)
    frames = list(traceback.walk_tb(error.__traceback__))
    if frames:
        yield str(frames[-1][0].f_globals.get("__name__", "")).partition(".")[0]


def _iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes. Damaged data raised it, not what was handled before."""
    while error is not None:
        yield error
        error = error.__cause__


def _is_gpu_full(error: BaseException) -> bool:
    # by name, because importing torch takes a second
    return type(error).__name__ == "OutOfMemoryError"


def _is_disk_full(error: BaseException) -> bool:
    """Return whether the disk is full. Libraries wrap this error, some as text only."""
    return any(
        (isinstance(link, OSError) and link.errno in DISK_FULL_ERRORS)
        or any(os.strerror(number) in str(link) for number in DISK_FULL_ERRORS)
        for link in _iterate_causes(error)
    )
