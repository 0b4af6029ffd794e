"""Rows from Python docstrings of installed packages, parsed with `ast`.

The source `packages` has summary line → rest, or name → summary. The source `functions` has first paragraph → remaining
code. Its format follows CodeSearchNet (Husain et al. 2019) for one language. White space of the code is collapsed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePath

from repro.data.mined.sources import merge_small_domains, parse_python
from repro.data.pairs import Row
from repro.data.wording import MIN_DOCUMENT_WORDS, get_package_folder, join_words, split_identifier

SOURCE, FUNCTIONS = "packages", "functions"
MIN_SUMMARY_WORDS = 4
MIN_LINES = 3
"""Smallest function without its docstring. Shorter ones only call another, and CodeSearchNet drops them too."""

# Packages whose version determines their text. PyTorch and transformers are excluded, because users install builds with
# different text, and the corpus must be the same on every machine.
PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "pandas": "pandas",
    "sklearn": "scikit-learn",
    "matplotlib": "matplotlib",
    "seaborn": "seaborn",
    "statsmodels": "statsmodels",
    "sympy": "sympy",
    "mpmath": "mpmath",
    "networkx": "networkx",
    "gensim": "gensim",
    "polars": "polars",
    "datasets": "datasets",
    "huggingface_hub": "huggingface_hub",
    "sentence_transformers": "sentence-transformers",
    "mteb": "mteb",
    "pydantic": "pydantic",
    "PIL": "pillow",
    "fontTools": "fonttools",
    "rich": "rich",
}
"""The wheel of each package. Its manifest has the licence of the text."""

# numpy.distutils exists in wheels of some Python versions only. The others are tests or copies of other packages.
_SKIPPED_FOLDERS = frozenset(
    {"tests", "test", "testing", "_vendor", "vendor", "externals", "external", "_lib", "distutils"}
)
# These files are generated when a wheel is built, so they differ between platforms.
_GENERATED_FILES = frozenset({"__config__.py", "version.py", "_version.py", "_version_meson.py", "_buildinfo.py"})

_MARKUP = (
    (re.compile(r"^\s*(>>>|\.\.\. |\.\. |[-=~^*+#]{3,}\s*$).*$", re.MULTILINE), " "),
    (re.compile(r":[\w:+-]+:`~?([^`]*)`"), r"\1"),
    (re.compile(r"``?|\*\*"), ""),
    (re.compile(r"\*(\w+)\*"), r"\1"),
    (re.compile(r"^:(param|type|return|returns|rtype|raises)\b ?", re.MULTILINE), r"\1 "),
    (re.compile(r"\[[0-9]+\]_"), ""),
)
_LAST_SECTIONS = re.compile(r"^\s*(?:Examples?|References|See Also|Doctests?)\s*:{0,2}\s*$", re.MULTILINE)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.Module | ast.ClassDef | _Function


def mine_packages() -> Iterator[Row]:
    """Yield the rows of all packages. See `mine_package`."""
    for module in PACKAGES:
        yield from mine_package(module)


def mine_package(module: str) -> Iterator[Row]:
    """Yield the documented modules, classes and functions of one package. The domain is the direct sub-package.

    Small sub-packages share the domain of the package.
    """
    rows: list[Row] = []
    for relative, name, code in iter_documented_files(module):
        domain = f"{module}.{relative.parts[0].removesuffix('.py')}"
        rows += iter_file_rows(code, name, domain)
    yield from merge_small_domains(rows, module)


def iter_documented_files(package: str) -> Iterator[tuple[Path, str, str]]:
    """Yield the relative path, the module name and the code of each file of a package that may have docstrings."""
    root = get_package_folder(package)
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if is_mined(relative):
            code = path.read_text(encoding="utf-8")
            if '"""' in code or "'''" in code:
                yield relative, ".".join([package, *relative.with_suffix("").parts]), code


def is_mined(relative: PurePath) -> bool:
    """Return whether a file, given by its path inside a package, has the package's own text on every platform."""
    is_test = relative.name.startswith(("test_", "conftest"))
    return not is_test and relative.name not in _GENERATED_FILES and _SKIPPED_FOLDERS.isdisjoint(relative.parts)


def iter_file_rows(code: str, name: str, domain: str) -> Iterator[Row]:
    """Yield the documented objects of the code of one module."""
    for owner, node in iter_documented_nodes(parse_python(code), name):
        if docstring := ast.get_docstring(node):
            query, document = _split(owner, _LAST_SECTIONS.split(docstring, maxsplit=1)[0])
            yield Row(f"{SOURCE}/{owner}", query, document, domain, SOURCE)


def iter_documented_nodes(node: _Documented, name: str) -> Iterator[tuple[str, _Documented]]:
    """Yield a module, class or function and those inside it, with their names. Dunder names are skipped."""
    yield name, node
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | _Function) and not inner.name.startswith("__"):
            yield from iter_documented_nodes(inner, f"{name}.{inner.name}")


def _split(owner: str, docstring: str) -> tuple[str, str]:
    """Split a docstring into summary and rest, at the first blank line or else after the first sentence.

    Without a rest, return the owner's name and the summary. A short summary gets the name in front.
    """
    head, _, body = docstring.partition("\n\n")
    if not body:
        head, _, body = " ".join(docstring.split()).partition(". ")
    summary, rest = strip_markup(head).rstrip("."), strip_markup(body)
    parts = [split_identifier(part) for part in owner.split(".")[-2:]]
    if len(rest.split()) < MIN_DOCUMENT_WORDS:
        return " ".join(parts), f"{summary}. {rest}".strip()
    return (summary if len(summary.split()) >= MIN_SUMMARY_WORDS else f"{parts[-1]} {summary}"), rest


def strip_markup(text: str) -> str:
    """Return the text of a docstring without markup, on one line."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return join_words(text)


def mine_functions() -> Iterator[Row]:
    """Yield the documented functions and methods of all packages. The domain is the package."""
    for package in PACKAGES:
        for _, name, code in iter_documented_files(package):
            yield from _iter_function_rows(code, name, package)


def _iter_function_rows(code: str, name: str, domain: str) -> Iterator[Row]:
    lines = code.splitlines()
    for owner, node in iter_documented_nodes(parse_python(code), name):
        docstring = ast.get_docstring(node)
        if docstring and isinstance(node, _Function):
            query = strip_markup(docstring.partition("\n\n")[0]).rstrip(".")
            body = strip_docstring(node, lines)
            if len(query.split()) >= MIN_SUMMARY_WORDS and len(body) >= MIN_LINES:
                yield Row(f"{FUNCTIONS}/{owner}", query, join_words(" ".join(body)), domain, FUNCTIONS)


def strip_docstring(node: _Function, lines: list[str]) -> list[str]:
    """Return the lines of a function from its `def` on, without its docstring and empty lines."""
    docstring = node.body[0]
    first, last = docstring.lineno, docstring.end_lineno or docstring.lineno
    # line numbers begin with 1
    numbered = enumerate(lines[node.lineno - 1 : node.end_lineno], node.lineno)
    return [line.strip() for number, line in numbered if line.strip() and not first <= number <= last]
