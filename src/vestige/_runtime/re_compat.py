"""The module `re`, with possessive quantifiers and atomic groups on Python 3.10 too.

    from vestige._runtime.re_compat import re

Python 3.10 compiles `a*+` as `a*` and `(?>a)` as `(?:a)`: the same matches, found more slowly.
"""

from __future__ import annotations

import re as _re
import sys
from typing import TYPE_CHECKING, Any, AnyStr

if TYPE_CHECKING:
    import re

__all__ = ["re"]


def remove_possessive(pattern: AnyStr) -> AnyStr:
    """Return a pattern without possessive quantifiers and atomic groups."""
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    parts: list[str] = []
    at, in_class = 0, False
    while at < len(text):
        character = text[at]
        if character == "\\":
            parts.append(text[at : at + 2])
            at += 2
            continue
        if in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
            skipped = 3 if text.startswith("[^]", at) else 2 if text.startswith("[]", at) else 1
            parts.append(text[at : at + skipped])
            at += skipped
            continue
        elif text.startswith("(?>", at):
            parts.append("(?:")
            at += 3
            continue
        elif character == "+" and parts and parts[-1] in ("*", "+", "?", "}"):
            at += 1
            continue
        parts.append(character)
        at += 1
    joined = "".join(parts)
    found: AnyStr = joined.encode("latin-1") if isinstance(pattern, bytes) else joined
    return found


class _Module:
    """`re` for patterns of newer Pythons."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(_re, name)
        if name not in ("compile", "search", "match", "fullmatch", "sub", "split", "findall"):
            return found

        def call(pattern: Any, *args: Any, **kwargs: Any) -> Any:
            is_text = isinstance(pattern, (str, bytes))
            pattern = remove_possessive(pattern) if is_text else pattern
            return found(pattern, *args, **kwargs)

        setattr(self, name, call)
        return call


if not TYPE_CHECKING:
    re = _re if sys.version_info >= (3, 11) else _Module()
