"""Templates of journal lines: the constant part is encoded once, the rest is filled in each time.

    template = line_template(encode(SpanOpen(VERSION, writer, NUMBER, NUMBER, run_id, GAP, ...)))
    template % (7, now_ns, b'"5f2b"', ...)      # numbers as they are, other values as JSON

A suite writes the same few lines for thousands of tests. A template is encoded from its struct,
so it has the struct's keys in their order.
"""

from __future__ import annotations

from typing import Any, Final

from vestige._runtime.msgspec_or_fallback import msgspec

# Any: they take the place of values of other types. No constant part equals one of these texts.
GAP: Final[Any] = "\0gap\0"
NUMBER: Final[Any] = "\0number\0"
_ENCODED_GAP, _ENCODED_NUMBER = map(msgspec.json.encode, (GAP, NUMBER))


def line_template(encoded: bytes) -> bytes:
    """Return the template of an encoded value, to be filled in with `%`."""
    line = encoded.replace(b"%", b"%%")
    return line.replace(_ENCODED_GAP, b"%b").replace(_ENCODED_NUMBER, b"%d") + b"\n"
