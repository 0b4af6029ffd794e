"""The paper's data: declared, fetched, verified, read from local copies."""

import tomllib
from pathlib import Path
from typing import Any

DECLARED: dict[str, Any] = tomllib.loads(Path(__file__).with_name("declared.toml").read_text(encoding="utf-8"))
"""All data of the paper by its name."""
