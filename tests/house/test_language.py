"""The language of the project: plain English in code, docs and product."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

PYTHON_FOLDERS = ("src", "tests", "bench", "tools", "examples")

BANNED_NAMES = frozenset(
    [
        "told",
        "telling",
        "said",
        "saying",
        "asked",
        "wanted",
        "given",
        "held",
        "kept",
        "apart",
        "carried",
        "calm",
        "hush",
        "hushed",
        "voice",
        "last_words",
        "standing",
        "pulse",
        "sheet",
        "headless",
        "noting",
        "tops",
        "whole",
        "tell",
        "say",
        "hear",
    ]
)
"""Names that say nothing to a stranger, whether of a module, class, function, argument or local."""

BANNED_PROSE = re.compile(
    r"\b(told|tells|stands|whoever|somebody|nobody says|anew|as above|so many|the one before"
    r"|what it takes|mends?|gravest?)\b|(?<!there )\bis no (?!longer\b|more\b|such\b)[a-z]+",
    re.IGNORECASE,
)
"""Words and turns that make a reader parse a sentence twice."""

BANNED_IN_PRODUCT = re.compile(r"\b(said|telling|saying)\b", re.IGNORECASE)
"""Words that tests may use, but sources, docs and pages may not."""

WEAK_OPENING = re.compile(r"(What|Of|As|Where|Whether|How|Why|By|One)\b")
"""Openings of a docstring that is not a sentence."""


PRAGMA = re.compile(r"  # (type: ignore|noqa|pragma)\b.*$")
"""A comment for a tool, which does not count for the length of a line."""


class Counts:
    """Offences by folder, with the places of each."""

    def __init__(self) -> None:
        self.places: dict[str, list[str]] = {}

    def add(self, path: Path, what: str) -> None:
        name = path.relative_to(ROOT)
        self.places.setdefault(folder_of(path), []).append(f"{name}: {what}")


def folder_of(path: Path) -> str:
    """Return the folder that has its own limits: a package of src, a folder of tests or docs."""
    parts = path.relative_to(ROOT).parts
    depth = {"src": 3, "tests": 2, "docs": 2, "web": 2}.get(parts[0], 1)
    return "/".join(parts[:depth])


def python_files(*folders: str) -> list[Path]:
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in files if path != Path(__file__))


def text_files() -> list[Path]:
    """Return everything that a person reads: sources, web sources, docs."""
    docs = (ROOT / "docs").rglob("*.md")
    web = [
        path
        for suffix in ("ts", "tsx", "css", "html")
        for path in (ROOT / "web/src").rglob(f"*.{suffix}")
    ]
    web = [path for path in web if "generated" not in path.parts]
    return [*python_files(*PYTHON_FOLDERS), *sorted(web), *sorted(docs), ROOT / "README.md"]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that a file binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Every string that is a statement: the docstring of what it begins or follows."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value.lstrip()


@pytest.mark.slow
def test_no_name_is_on_the_list_of_banned_ones() -> None:
    found = Counts()
    banned = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(BANNED_NAMES)})(?![A-Za-z0-9])", re.I)
    for path in python_files(*PYTHON_FOLDERS):
        # Most files have no such word anywhere, so they need not be parsed.
        has_word = banned.search(path.read_text(encoding="utf-8"))
        for name in (path.stem, *(bound_names(parse(path)) if has_word else ())):
            if name.strip("_").lower() in BANNED_NAMES:
                found.add(path, name)

    assert found.places == {}


@pytest.mark.slow
def test_no_banned_word_is_in_what_a_person_reads() -> None:
    found = Counts()
    for path in text_files():
        for match in BANNED_PROSE.finditer(path.read_text(encoding="utf-8")):
            found.add(path, match[0])

    assert found.places == {}


def test_no_verb_of_speech_is_in_sources_or_docs() -> None:
    found = Counts()
    for path in text_files():
        if path.relative_to(ROOT).parts[0] in ("src", "web", "docs", "README.md"):
            for match in BANNED_IN_PRODUCT.finditer(path.read_text(encoding="utf-8")):
                found.add(path, match[0])

    assert found.places == {}


@pytest.mark.slow
def test_docstrings_start_with_a_verb_or_a_noun() -> None:
    """Those of modules, classes, functions, fields and constants."""
    weak = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in python_files("src")
        for text in docstrings(parse(path))
        if WEAK_OPENING.match(text)
    ]

    assert weak == []


def test_lines_are_at_most_100_columns() -> None:
    found = Counts()
    for path in python_files(*PYTHON_FOLDERS, "docs"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(PRAGMA.sub("", line)) > 100:
                found.add(path, str(number))

    assert found.places == {}


def test_the_formatter_is_switched_off_for_tables_of_constants_only() -> None:
    off = [
        str(path.relative_to(ROOT))
        for path in python_files("src", "tests", "bench", "docs", "examples")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.endswith("# fmt: " + "skip")
    ]

    assert len(off) <= 29, off
    assert all(name.startswith("src/") for name in off)
