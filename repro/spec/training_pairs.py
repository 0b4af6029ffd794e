"""The paper's unsupervised training data: the number of pairs of each source (Table 5)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_TABLE = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
TRAINING_PAIRS: Mapping[str, int] = MappingProxyType(tomllib.loads(_TABLE))
