"""The language of the project: plain English in code, docs and product.

Each rule counts what breaks it. A limit may only go down; most are zero.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

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
    ]
)
"""Names that say nothing to a stranger, whether of a module, class, function, argument or local."""

BANNED_PROSE = re.compile(
    r"\b(told|tells|stands|whoever|somebody|nobody says|anew|as above|so many|the one before"
    r"|what it takes|mends?|gravest?)\b|\bis no (?!longer\b|more\b|such\b)[a-z]+",
    re.IGNORECASE,
)
"""Words and turns that make a reader parse a sentence twice."""

WEAK_OPENING = re.compile(r"(What|Of|As|Where|Whether|By|One)\b")
"""Openings of a docstring that is not a sentence."""


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def text_files() -> list[Path]:
    """Everything that a person reads: source, web source, docs."""
    docs = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "rules.md"]
    web = [
        path
        for suffix in ("ts", "tsx", "css", "html")
        for path in (ROOT / "web/src").rglob(f"*.{suffix}")
    ]
    web = [path for path in web if "generated" not in path.parts]
    return [*python_files("src"), *sorted(web), *sorted(docs), ROOT / "README.md"]


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that a file gives to something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_no_name_is_on_the_list_of_banned_ones() -> None:
    found: Counter[str] = Counter()
    for path in python_files("src", "bench"):
        names = bound_names(ast.parse(path.read_text(encoding="utf-8")))
        banned = sum(name.strip("_").lower() in BANNED_NAMES for name in names)
        if banned or path.stem in BANNED_NAMES:
            found[str(path.relative_to(ROOT))] += banned + (path.stem in BANNED_NAMES)

    assert found.total() <= 369, found.most_common(20)


def test_no_banned_word_is_in_what_a_person_reads() -> None:
    found: Counter[str] = Counter()
    for path in text_files():
        hits = BANNED_PROSE.findall(path.read_text(encoding="utf-8"))
        if hits:
            found[str(path.relative_to(ROOT))] += len(hits)

    assert found.total() <= 1044, found.most_common(20)


def test_docstrings_of_functions_start_with_a_verb_or_a_noun() -> None:
    every = weak = 0
    for path in python_files("src"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                every += text is not None
                weak += bool(text and WEAK_OPENING.match(text))

    assert weak / every < 0.086, f"{weak} of {every}"


@pytest.mark.parametrize(
    ("folder", "most"), [("src", 433), ("tests", 331), ("bench", 61), ("docs", 13)]
)
def test_lines_are_at_most_100_columns(folder: str, most: int) -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in python_files(folder)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 100
    ]

    assert len(long) <= most, long[:20]


def test_the_formatter_is_switched_off_for_tables_of_constants_only() -> None:
    off = [
        str(path.relative_to(ROOT))
        for path in python_files("src", "tests", "bench", "docs", "examples")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.endswith("# fmt: " + "skip")
    ]

    assert len(off) <= 40, off
    assert all(name.startswith("src/") for name in off)
