"""Rows from Python classes that describe a schema, parsed with `ast`: names of class and field → description.

Three wheels store the description in three ways. kubernetes has `Field(description=…)`. fhir.resources has
`Field(title=…, description=…)`, where the title is the query. stripe has a string after each field.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from repro.data.mined.wheels import iter_wheel_texts
from repro.data.pairs import Row
from repro.data.wording import MIN_DOCUMENT_WORDS, split_identifier, strip_html

CONTAINERS, HEALTH, PAYMENTS = "containers", "health", "payments"
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_VERSION = re.compile(r"^(V\d+(?:alpha|beta)?\d*)(?=[A-Z])")
_PARAMETERS = re.compile(r"(Create|Update|List|Modify|Retrieve)?Params")

Pair = tuple[str, str, str]
"""Key, query, document."""


def mine_containers() -> Iterator[Row]:
    """Return the objects of kubernetes and their fields. The domain is the version of the object."""
    return _iter_rows(CONTAINERS, "kubernetes", "kubernetes/client/models/*.py", _describe_field, _parse_version)


def mine_health() -> Iterator[Row]:
    """Return the elements of the resources of the newest FHIR release. The domain is the resource.

    Older releases have nearly the same text. They are in folders with capital letters, which are skipped.
    """
    return _iter_rows(HEALTH, "fhir.resources", "fhir/resources/[a-z]*.py", _make_title, lambda name, _: name.stem)


def mine_payments() -> Iterator[Row]:
    """Return the fields of stripe's objects and the parameters of its methods. The domain is the object."""
    return _iter_rows(PAYMENTS, "stripe", "stripe/*.py", _iter_documented_fields, _get_object_name)


def _iter_rows(
    source: str,
    wheel: str,
    pattern: str,
    iter_pairs: Callable[[ast.ClassDef, str], Iterator[Pair]],
    get_division: Callable[[PurePosixPath, str], str],
) -> Iterator[Row]:
    for name, text in iter_wheel_texts(wheel, pattern):
        for key, owner in _iter_classes(ast.parse(text)):
            division = get_division(PurePosixPath(name), key)
            for field, query, document in iter_pairs(owner, key):
                yield Row(f"{source}/{key}.{field}", query, _strip_markup(document), f"{source}.{division}", source)


def _iter_classes(node: ast.Module | ast.ClassDef, parent: str = "") -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield each class with its qualified name, outer ones first."""
    for inner in node.body:
        if isinstance(inner, ast.ClassDef):
            name = f"{parent}.{inner.name}" if parent else inner.name
            yield name, inner
            yield from _iter_classes(inner, name)


def _describe_field(owner: ast.ClassDef, name: str) -> Iterator[Pair]:
    subject = split_identifier(_VERSION.sub("", name))
    summary = (ast.get_docstring(owner) or "").partition("\n\n")[0]
    yield "", f"{subject} object", summary
    for field, arguments in _iter_fields(owner):
        if "description" in arguments:
            yield field, f"{subject} {split_identifier(field)}", arguments["description"]


def _make_title(owner: ast.ClassDef, name: str) -> Iterator[Pair]:
    subject = split_identifier(name)
    summary = (ast.get_docstring(owner) or "").partition("\n\n")[2]
    yield "", f"{subject} resource", summary
    for field, arguments in _iter_fields(owner):
        title, description = arguments.get("title", ""), arguments.get("description", "")
        if field.endswith("__ext") or not title:
            continue
        if len(description.split()) < MIN_DOCUMENT_WORDS or _strip_markup(description) == _strip_markup(title):
            yield field, f"{subject} {split_identifier(field)}", title
        else:
            yield field, title, description


def _iter_documented_fields(owner: ast.ClassDef, name: str) -> Iterator[Pair]:
    subject = split_identifier(_PARAMETERS.sub("", name.rpartition(".")[2]))
    for field, text in zip(owner.body, owner.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield field.target.id, f"{subject} {split_identifier(field.target.id)}", value.value


def _iter_fields(owner: ast.ClassDef) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the fields of a class that are declared by a call, with the string arguments of the call by name."""
    for node in owner.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call):
            constants = {
                word.arg: word.value.value for word in node.value.keywords if isinstance(word.value, ast.Constant)
            }
            yield node.target.id, {key: text for key, text in constants.items() if key and isinstance(text, str)}


def _parse_version(file: PurePosixPath, key: str) -> str:
    match = _VERSION.match(key)
    return match[1].lower() if match else "core"


def _get_object_name(file: PurePosixPath, key: str) -> str:
    return file.stem.removeprefix("_").removesuffix("_params").split("_")[0]


def _strip_markup(text: str) -> str:
    """Remove markup from a text: links, tags and code marks."""
    return strip_html(_LINK.sub(r"\1", text).replace("`", ""))
