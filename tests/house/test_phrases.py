"""Phrases of earlier versions that readers had to parse twice, and plain ones have replaced.

`replaced_phrases.txt` lists them, one on a line. They must not return to what a person reads.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

PHRASES = (Path(__file__).parent / "replaced_phrases.txt").read_text(encoding="utf-8").splitlines()

LIMITS: dict[str, int] = {}
"""Occurrences that a folder may have today. A limit only ever goes down."""

_BETWEEN_LITERALS = re.compile(r"""["']\s*\n\s*[a-z]?["']""")
_SPACE = re.compile(r"\s+")


def read_plain(path: Path) -> str:
    """Read a file with adjacent string literals joined and lines unwrapped."""
    text = _BETWEEN_LITERALS.sub("", path.read_text(encoding="utf-8"))
    return _SPACE.sub(" ", text)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["src", "docs", "README.md", "examples", "web/src"])
def test_no_replaced_phrase_returns(folder: str) -> None:
    root = ROOT / folder
    files = [root] if root.is_file() else sorted(root.rglob("*"))
    suffixes = {".py", ".md", ".ts", ".tsx", ".html"}
    texts = {
        path: read_plain(path)
        for path in files
        if path.suffix in suffixes and not {"generated", "page"} & set(path.parts)
    }
    found = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for path, text in texts.items()
        for phrase in PHRASES
        if phrase in text
    ]

    assert len(found) <= LIMITS.get(folder, 0), found
