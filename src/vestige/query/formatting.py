"""Format times, sizes and untrusted text for an answer.

Recorded text is untrusted: control characters, which a terminal would execute, are removed,
newlines are replaced, and lengths are bounded.
"""

from __future__ import annotations

import datetime
import re
import unicodedata

from vestige.record.types import Scalar

_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069"
    "\ufeff\ufff9-\ufffb\ud800-\udfff]+"
)


def seconds(value: float) -> str:
    """Format exactly to the nanosecond, as an option value: `2592000`, `12.345678901`."""
    return f"{value:.9f}".rstrip("0").rstrip(".")


def duration(ns: int | None) -> str:
    """`12µs`, `3.4ms`, `1.8s`, `2m05s`, `3h10m`, `7d`; empty if it is not known, or 0."""
    if not ns:
        return ""
    if ns < 1_000_000:
        return f"{ns / 1000:.0f}µs"
    if ns < 1_000_000_000:
        return f"{ns / 1e6:.1f}ms"
    seconds = ns / 1e9
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h" if hours else f"{days}d"


def after(ns: int | None) -> str:
    """Return ` after 1.8s`, or nothing if the duration is not known."""
    return f" after {duration(ns)}" if ns else ""


def size(count: int) -> str:
    """`14B`, `2.0k`, `1.3M`."""
    if count < 1000:
        return f"{count}B"
    for unit in "kMG":
        count_in = count / 1000
        if count_in < 999.95 or unit == "G":
            return f"{count_in:.1f}{unit}"
        count //= 1000
    raise AssertionError("unreachable")


def number(count: int) -> str:
    """`950`, `12.3k`, `4.1M`."""
    return str(count) if count < 1000 else size(count)


def token_counts(input_tokens: int, output_tokens: int) -> str:
    """`12.3k → 950 tokens`: input and output of one or many calls."""
    return f"{number(input_tokens)} → {number(output_tokens)} tokens"


def timestamp(ns: int | None) -> str | None:
    """Format as ISO 8601 in UTC, with milliseconds."""
    if ns is None:
        return None
    seconds, rest = divmod(ns, 10**9)
    when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{rest // 10**6:03d}Z"


def width(text: str) -> int:
    """Return the columns on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char)
        for char in text
    )


def truncate(text: str, columns: int) -> str:
    """Truncate a text to columns of a terminal."""
    if width(text) <= columns:
        return text
    end = min(len(text), max(0, columns - 1))
    while end and width(text[:end]) > columns - 1:
        end -= 1
    return text[:end].rstrip() + "…"


def pluralize(count: int, noun: str) -> str:
    """`1 span`, `2 spans`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def relative_time(ns: int, now_ns: int) -> str:
    """`12s ago`, `5m ago`, `3h ago`, `2d ago`; a date after a month."""
    seconds = max(0, now_ns - ns) // 10**9
    if seconds >= 30 * 86400:
        when = datetime.datetime.fromtimestamp(ns // 10**9, datetime.UTC)
        return f"{when.day} {when:%b %Y}"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit} ago"
    return f"{seconds}s ago"


def single_line(text: str, length_max: int) -> str:
    """Put untrusted text on one line: show newlines as ⏎, drop control characters, truncate."""
    shown = _CONTROL.sub(" ", text[: length_max * 4].replace("\n", "⏎")).strip()
    if len(shown) > length_max:
        return shown[: length_max - 1] + "…"
    return shown if len(text) <= length_max * 4 else shown + "…"


def clean_controls(text: str) -> str:
    """Replace control characters, which a terminal would execute, by blanks."""
    return _CONTROL.sub(" ", text)


def to_valid_utf8(text: str) -> str:
    """Replace surrogates, which stand for undecodable bytes in command-line arguments."""
    return text.encode(errors="replace").decode()


def value(scalar: Scalar, length_max: int) -> str:
    """Format an attribute's value; a text with spaces is quoted."""
    if scalar is None or isinstance(scalar, bool):
        return {None: "null", True: "true", False: "false"}[scalar]
    if not isinstance(scalar, str):
        return str(scalar)
    shown = single_line(scalar, length_max)
    return f'"{shown}"' if " " in shown or not shown else shown


_WORD = re.compile(r"[a-z]+(?=[ ,:.]|$)")
_LOWER_CASE = frozenset(["llm", "step", "run", "tool", "agent", "state", "file", "span"])
"""Types of spans, which begin a sentence as a part of a name."""


def capitalize(sentence: str) -> str:
    """Begin a sentence in upper case, unless it begins with a name such as `case_bad`."""
    first = _WORD.match(sentence)
    if first is None or first[0] in _LOWER_CASE:
        return sentence
    return sentence[0].upper() + sentence[1:]
