"""Rows from Home Assistant's English texts: name of an action, option or problem → its description."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from repro.data.mined.wheels import iter_wheel_texts
from repro.data.pairs import Row
from repro.data.wording import join_words, split_identifier

SOURCE = "homes"
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"[`*_#]+(?=\S)|(?<=\S)[`*_]+(?=\s|$)")


def mine_homes() -> Iterator[Row]:
    """Yield the texts of all integrations. The domain is the part of the program that shows them."""
    for name, text in iter_wheel_texts("homeassistant", "homeassistant/components/*/translations/en.json"):
        integration = PurePosixPath(name).parts[2]
        for part, content in json.loads(text).items():
            for path, query, document in _walk(content, split_identifier(integration)):
                key = f"{SOURCE}/{integration}/{part}/{path}"
                yield Row(key, _strip_markup(query), _strip_markup(document), f"{SOURCE}.{part}", SOURCE)


def _walk(content: Any, subject: str, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield path, query and document of each text below a part, outer ones first."""
    if not isinstance(content, dict):
        return
    name = str(content.get("name") or content.get("title") or "")
    if name and isinstance(content.get("description"), str):
        yield path, f"{subject} {name}", content["description"]
    if isinstance(content.get("message"), str):
        yield path, f"{subject} {split_identifier(path.rpartition('/')[2])}", content["message"]
    labels = content.get("data")
    for option, text in _texts(content.get("data_description")):
        label = labels.get(option) if isinstance(labels, dict) else None
        yield f"{path}/{option}", f"{subject} {name} {label or split_identifier(option)}", text
    for kind in ("error", "abort"):
        for reason, text in _texts(content.get(kind)):
            yield f"{path}/{kind}/{reason}", f"{subject} {split_identifier(reason)}", text
    for key, inner in content.items():
        yield from _walk(inner, subject, f"{path}/{key}" if path else key)


def _texts(content: Any) -> Iterator[tuple[str, str]]:
    if isinstance(content, dict):
        yield from ((key, text) for key, text in content.items() if isinstance(text, str))


def _strip_markup(text: str) -> str:
    """Remove images, links and emphasis from a text."""
    return join_words(_MARKS.sub("", _LINK.sub(r"\1", _IMAGE.sub("", text))))
