"""Download a file over HTTP. Interrupted downloads resume, and the file gets its name only when it is complete."""

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

from repro.text import shorten

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
    """Download `url` to `path` if it does not exist. A partial download (`….part`) is resumed.

    A broken connection is retried a few times.

    Raises:
        ValueError: if the file has another md5, or if the URL or a redirect is not http(s). A part with another md5 is
            removed.
        OSError: if the server does not answer.
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
                raise OSError(f"could not download {url} ({error}); repeat to resume from {part}") from error
            progress(f"{url}: {error}; trying again")
            time.sleep(wait_seconds)
    if md5 is not None and _compute_md5(part) != md5:
        part.unlink()
        raise ValueError(f"{url} is not the file that was expected (md5 is not {md5}): it was removed; try again")
    part.replace(path)
    return path


def _check_scheme(url: str) -> None:
    """Raise ValueError for other schemes than http(s), since urllib would also read ftp and local files."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{shorten(url, 200)} is not http or https: nothing was fetched")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http(s), and from https to https only."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Return the next request. Raises ValueError for a forbidden redirect."""
        _check_scheme(newurl)
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise ValueError(f"{shorten(req.full_url, 200)} leads to {shorten(newurl, 200)}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _compute_md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _fetch_rest(url: str, part: Path, progress: Callable[[str], None]) -> None:
    num_bytes = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={num_bytes}-"} if num_bytes else {})
    try:
        with urllib.request.build_opener(_SafeRedirects).open(request, timeout=TIMEOUT_SECONDS) as response:
            _append(response, part, num_bytes, progress)
    except urllib.error.HTTPError as error:
        # the server has nothing to send if the part is complete
        if error.code != NOT_SATISFIABLE or not num_bytes:
            raise


def _append(response: Any, part: Path, start: int, progress: Callable[[str], None]) -> None:
    content_range = response.headers.get("Content-Range", "")
    resumes = response.status == PARTIAL and content_range.startswith(f"bytes {start}-")
    if start and resumes:
        progress(f"resuming {part.name} at {start} bytes")
    expected = response.headers.get("Content-Length")
    received = 0
    # a server that ignores the range sends the file from its beginning
    with part.open("ab" if resumes else "wb") as file:
        while block := response.read(BLOCK_BYTES):
            file.write(block)
            received += len(block)
    if expected is not None and received < int(expected):
        raise ConnectionError(f"the connection broke after {received} of {expected} bytes")
