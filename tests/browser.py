"""Control headless Chromium over a pipe, without a port or a package: open pages, read values, list requests."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LOAD_TIMEOUT_SECONDS = 120.0
# Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
MOVE_PIPES_TO_3_AND_4 = """import fcntl, os, sys
pipes = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3]]
for target, pipe in zip((3, 4), pipes):
    os.dup2(pipe, target)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page of a running browser. `events` collects requests, console messages and errors."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._number, self._rest = to_browser, from_browser, 0, b""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    _session: str | None = None

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result. Other messages are stored as events."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._from, 1 << 16)
            assert chunk, "the browser closed its pipe"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, page: Path, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Open a file at this size and colour scheme and wait until it is complete."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + LOAD_TIMEOUT_SECONDS
        while self.value("document.readyState") != "complete":
            assert time.monotonic() < deadline, "the page did not load"

    def value(self, expression: str) -> Any:
        """Return the value of an expression on the page."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self, path: Path) -> bytes:
        """Write a picture of the whole page and return its bytes."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(picture := base64.b64decode(shot["data"]))
        return picture

    @property
    def requests(self) -> list[str]:
        """The addresses that pages requested."""
        sent = (event for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    @property
    def complaints(self) -> list[str]:
        """Messages of the console and the log, and uncaught errors."""
        methods = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in methods]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium with a fresh profile under `folder`, and stop it at the end of the block."""
    assert CHROMIUM, "Chromium is not installed: check CHROMIUM first"
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
    command = [
        CHROMIUM,
        *flags,
        "--no-first-run",
        "--disable-background-networking",
        f"--user-data-dir={folder}/profile",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", MOVE_PIPES_TO_3_AND_4, str(in_read), str(out_write), *command],
        pass_fds=(in_read, out_write),
        stderr=subprocess.DEVNULL,
    )
    os.close(in_read)
    os.close(out_write)
    try:
        yield Browser(in_write, out_read)
    finally:
        process.kill()
        process.wait()
        os.close(in_write)
        os.close(out_read)
