"""Downloads one file over HTTP: broken off, it goes on where it stopped; it appears under its name when it is whole."""

from __future__ import annotations

import hashlib
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from repro.text import short

BLOCK_BYTES = 2**20
NUM_TRIES = 5
PARTIAL, NOT_SATISFIABLE = 206, 416
TIMEOUT_SECONDS = 60.0


def download(
    url: str,
    path: Path,
    *,
    md5: str | None = None,
    progress: Callable[[str], None] = print,
    wait_seconds: float = 2.0,
) -> Path:
    """Return `path` with the content of `url`; what is there is kept, what was begun (`….part`) goes on.

    A connection that breaks is tried again, a few times. ValueError, with the part removed, when the content has
    another md5 than the one given, also for a file that exists, and for a URL that is not,
    or leads to what is not, http(s). OSError when the server does not answer.
    """
    if path.is_file():
        if md5 is not None and _compute_md5(path) != md5:
            raise ValueError(f"{path} is not the file that was expected (md5 is not {md5}): remove it and fetch again")
        return path
    _check_scheme(url)
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, NUM_TRIES + 1):
        try:
            _fetch_rest(url, part, progress)
            break
        except (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError) as error:
            if isinstance(error, urllib.error.HTTPError) or attempt == NUM_TRIES:
                raise OSError(f"could not download {url} ({error}); the same command goes on from {part}") from error
            progress(f"{url}: {error}; trying again")
            time.sleep(wait_seconds)
    if md5 is not None and _compute_md5(part) != md5:
        part.unlink()
        raise ValueError(f"{url} is not the file that was expected (md5 is not {md5}): it was removed; try again")
    part.replace(path)
    return path


def _check_scheme(url: str) -> None:
    """ValueError for anything but the web: urllib would read ftp and local files, too."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{short(url, 200)} is not http or https: nothing was fetched")


class _OnTheWeb(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http(s), and from https to https only."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Return the next request; ValueError where it must not go."""
        _check_scheme(newurl)
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise ValueError(f"{short(req.full_url, 200)} leads to {short(newurl, 200)}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _compute_md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _fetch_rest(url: str, part: Path, progress: Callable[[str], None]) -> None:
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.build_opener(_OnTheWeb).open(request, timeout=TIMEOUT_SECONDS) as answer:
            _append(answer, part, have, progress)
    except urllib.error.HTTPError as error:
        if error.code != NOT_SATISFIABLE or not have:  # all of it was there already
            raise


def _append(answer: Any, part: Path, have: int, progress: Callable[[str], None]) -> None:
    goes_on = answer.status == PARTIAL and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
    if have and goes_on:
        progress(f"going on with {part.name} at {have} bytes")
    expected = answer.headers.get("Content-Length")
    received = 0
    with part.open("ab" if goes_on else "wb") as file:
        while block := answer.read(BLOCK_BYTES):
            file.write(block)
            received += len(block)
    if expected is not None and received < int(expected):
        raise ConnectionError(f"the connection broke after {received} of {expected} bytes")
