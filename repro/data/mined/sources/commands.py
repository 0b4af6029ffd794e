"""Rows from the help of Azure's command line: summary of a command → details, title → example, option → text."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import yaml

from repro.data.mined.sources import merge_small_domains
from repro.data.mined.wheels import iter_wheel_texts
from repro.data.pairs import Row
from repro.data.wording import MIN_DOCUMENT_WORDS, one_line, phrase

SOURCE = "commands"
_EXAMPLE = re.compile(r"^\s*:example:", re.MULTILINE)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def mine_commands() -> Iterator[Row]:
    """Yield commands, their examples and options. The domain is the first word of the command."""
    yield from merge_small_domains(_rows())


def _rows() -> Iterator[Row]:
    for name, text in iter_wheel_texts("azure-cli", "azure/cli/command_modules/*.py"):
        if PurePosixPath(name).name == "_help.py":
            found = _rows_of_help(text)
        elif "/aaz/latest/" in name and "register_command" in text:
            found = _rows_of_command(text)
        else:
            continue
        for key, query, document in found:
            yield Row(
                f"{SOURCE}/{key}", one_line(query), one_line(document), f"{SOURCE}.{key.split(maxsplit=1)[0]}", SOURCE
            )


def _rows_of_help(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a module with assignments `helps["command"] = YAML`."""
    for node in _parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str(command)))], value=ast.Constant(value)):
                content = _read(str(value))
                summary, more = (_line(content.get(part)) for part in ("short-summary", "long-summary"))
                yield from _of_summary(command, summary, more)
                for number, example in enumerate(content.get("examples") or ()):
                    if isinstance(example, dict):
                        yield f"{command}#{number}", _line(example.get("name")).rstrip("."), _line(example.get("text"))


def _read(value: str) -> dict[str, Any]:
    try:
        content = yaml.load(value, Loader=_LOADER)
    except yaml.YAMLError:
        return {}
    return content if isinstance(content, dict) else {}


def _rows_of_command(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a module that declares one command as a class with options."""
    tree = _parse(text)
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef) and (command := _parse_command_name(owner)):
            value, *examples = _EXAMPLE.split(ast.get_docstring(owner) or "")
            summary, _, more = value.partition("\n\n")
            yield from _of_summary(command, summary, more)
            for number, example in enumerate(examples):
                title, _, lines = example.partition("\n")
                yield f"{command}#{number}", title.strip().rstrip("."), lines
            yield from _of_options(command, owner)


def _parse_command_name(owner: ast.ClassDef) -> str | None:
    for node in owner.decorator_list:
        match node:
            case ast.Call(func=ast.Name(id="register_command"), args=[ast.Constant(value=str(command)), *_]):
                return command
    return None


def _of_options(command: str, owner: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(owner):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=option)], value=ast.Call(keywords=words)):
                for word in words:
                    if word.arg == "help" and isinstance(word.value, ast.Constant):
                        yield f"{command} {option}", f"{phrase(command)} {phrase(option)}", str(word.value.value)


def _of_summary(command: str, summary: str, more: str) -> Iterator[tuple[str, str, str]]:
    """Yield summary → details. If there are no details, yield the words of the command → summary."""
    if len(more.split()) < MIN_DOCUMENT_WORDS:
        yield command, phrase(command), f"{summary} {more}"
    else:
        yield command, summary.rstrip("."), more


def _line(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.parse(text)
