"""Rows from the help of Azure's command line: summary of a command → details, title → example, option → text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from repro.data.mined.sources import join_lines, parse_python, parse_yaml
from repro.data.mined.wheels import iter_wheel_texts
from repro.data.pairs import Row
from repro.data.wording import MIN_DOCUMENT_WORDS, join_words, split_identifier

SOURCE = "commands"
_EXAMPLE = re.compile(r"^\s*:example:", re.MULTILINE)


def mine_commands() -> Iterator[Row]:
    """Yield commands, their examples and options. The domain is the first word of the command."""
    for name, text in iter_wheel_texts("azure-cli", "azure/cli/command_modules/*.py"):
        if PurePosixPath(name).name == "_help.py":
            rows = _iter_help_rows(text)
        elif "/aaz/latest/" in name and "register_command" in text:
            rows = _iter_command_rows(text)
        else:
            continue
        for key, query, document in rows:
            domain = f"{SOURCE}.{key.split(maxsplit=1)[0]}"
            yield Row(f"{SOURCE}/{key}", join_words(query), join_words(document), domain, SOURCE)


def _iter_help_rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a module with assignments `helps["command"] = YAML`."""
    for node in parse_python(text).body:
        match node:
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str(command)))], value=ast.Constant(value)):
                content = parse_yaml(str(value))
                summary = join_lines(content.get("short-summary"))
                yield from _iter_summary_rows(command, summary, join_lines(content.get("long-summary")))
                for number, example in enumerate(content.get("examples") or ()):
                    if isinstance(example, dict):
                        title = join_lines(example.get("name")).rstrip(".")
                        yield f"{command}#{number}", title, join_lines(example.get("text"))


def _iter_command_rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a module that declares one command as a class with options."""
    for owner in parse_python(text).body:
        if isinstance(owner, ast.ClassDef) and (command := _parse_command_name(owner)):
            description, *examples = _EXAMPLE.split(ast.get_docstring(owner) or "")
            summary, _, details = description.partition("\n\n")
            yield from _iter_summary_rows(command, summary, details)
            for number, example in enumerate(examples):
                title, _, lines = example.partition("\n")
                yield f"{command}#{number}", title.strip().rstrip("."), lines
            yield from _iter_option_rows(command, owner)


def _parse_command_name(owner: ast.ClassDef) -> str | None:
    for node in owner.decorator_list:
        match node:
            case ast.Call(func=ast.Name(id="register_command"), args=[ast.Constant(value=str(command)), *_]):
                return command
    return None


def _iter_option_rows(command: str, owner: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(owner):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=option)], value=ast.Call(keywords=keywords)):
                for keyword in keywords:
                    if keyword.arg == "help" and isinstance(keyword.value, ast.Constant):
                        query = f"{split_identifier(command)} {split_identifier(option)}"
                        yield f"{command} {option}", query, str(keyword.value.value)


def _iter_summary_rows(command: str, summary: str, details: str) -> Iterator[tuple[str, str, str]]:
    """Yield summary → details. If there are no details, yield the words of the command → summary."""
    if len(details.split()) < MIN_DOCUMENT_WORDS:
        yield command, split_identifier(command), f"{summary} {details}"
    else:
        yield command, summary.rstrip("."), details
