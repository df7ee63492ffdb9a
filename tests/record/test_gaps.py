"""A line with gaps, filled, is the line that its struct would give."""

from __future__ import annotations

import msgspec
import pytest

from vestige.record.codec import encode, parse_line
from vestige.record.line_template import GAP, NUMBER, line_template
from vestige.record.types import SpanOpen


@pytest.mark.parametrize("name", ["plain", '100 % "sure"\\', "%b %d %", "\x1b\n\u2028 é 😀"])
def test_a_filled_line_is_that_of_the_record(name: str) -> None:
    """What is filled in, and what stays the same, may hold anything, a `%` too."""
    line = line_template(
        msgspec.json.encode(SpanOpen(1, "50%", NUMBER, NUMBER, "r%d", GAP, name, "test", GAP))
    )
    meant = SpanOpen(1, "50%", 7, 8, "r%d", "5f2b", name, "test", name)

    filled = line % (7, 8, b'"5f2b"', msgspec.json.encode(name))

    assert filled == encode((meant,))
    assert parse_line(filled) == meant
