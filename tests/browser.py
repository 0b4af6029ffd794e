"""Evaluate expressions on a page in headless Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files")
# The page is in a frame, because a window cannot be as narrow as a telephone. Its policy forbids scripts, so expressions
# are evaluated outside of it.
FRAME = """<iframe src="{address}" style="border: 0; width: {width}px; height: 900px"></iframe><pre></pre>
<script>onload = () => {{
  const {{document: page, innerWidth: width, performance: times}} = frames[0];
  const evaluate = text => Function("document", "innerWidth", "performance", `return (${{text}})`)(page, width, times);
  document.querySelector("pre").textContent = JSON.stringify({expressions}.map(evaluate));
}}</script>"""


def evaluate(page: Path, folder: Path, expressions: Sequence[str], *, width: int) -> list[Any]:
    """Return the values of expressions on a page of this width. They are evaluated in order."""
    assert CHROMIUM, "Chromium is not installed: check CHROMIUM first"
    content = FRAME.format(address=page.resolve().as_uri(), width=width, expressions=json.dumps(expressions))
    (folder / "frame.html").write_text(content, encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}/profile", "--virtual-time-budget=10000", "--dump-dom"]
    command.append((folder / "frame.html").as_uri())
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    values: list[Any] = json.loads(html.unescape(re.findall(r"<pre>(.*?)</pre>", shown, re.DOTALL)[0]))
    return values
