"""A line of which most is always the same: encoded once, and filled as often as it is needed.

    line = with_gaps(encode(SpanOpen(VERSION, writer, NUMBER, NUMBER, run_id, GAP, ...)))
    line % (7, now_ns, b'"5f2b"', ...)          # a number as it is, all else as JSON

A suite writes the same few lines for thousands of tests. Made of its struct, a line here has the keys
that the struct has, in their order.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

# Any: they stand in for values of other types. Nothing that stays the same is such a text.
GAP: Final[Any] = "\0gap\0"
NUMBER: Final[Any] = "\0number\0"
_ENCODED_GAP, _ENCODED_NUMBER = map(msgspec.json.encode, (GAP, NUMBER))


def with_gaps(encoded: bytes) -> bytes:
    """An encoded value as its line, to be filled by `%`."""
    line = encoded.replace(b"%", b"%%")
    return line.replace(_ENCODED_GAP, b"%b").replace(_ENCODED_NUMBER, b"%d") + b"\n"
