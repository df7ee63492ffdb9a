"""`body`: an exact slice of a span's input or output, and the command for the next slice.

Lines are printed behind a bar, which marks them as a quotation; control characters are
escaped. Slices are counted in bytes: a page ends where the budget does, possibly inside a
line but never inside a character, and the next page starts there.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from vestige.errors import NotFoundError, UsageError
from vestige.limits import MIB
from vestige.query import formatting
from vestige.query.text_layout import CommandAnswer, cost
from vestige.query.token_budget import count_tokens
from vestige.record.redaction.output_redaction import redact_body, redact_text
from vestige.record.run import SpanInfo
from vestige.store.protocol import Store

HEAD_LINES = 10
HEX_A_LINE = 32
JSON_PAGE = MIB
"""Bytes of a body in one JSON answer."""

_READ_STEP = MIB
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069"
    "\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_PATH_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(-?\d{1,9})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")

Which = Literal["input", "output"]
Read = Callable[[int, int], bytes]
"""(start, end) -> the bytes in between."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The requested part of a body; at most one of head, lines and bytes."""

    head: bool = False
    lines: tuple[int, int | None] | None = None
    """First and last line, counted from 1 and both included."""
    bytes: tuple[int, int | None] | None = None
    path: str | None = None
    text: bool = False
    """Messages as text, strings without escapes."""


@dataclass
class BodyAnswer(CommandAnswer):
    """A slice of one body."""

    verb: ClassVar[str] = "body"
    budget: ClassVar[int] = 1_500

    span: SpanInfo
    which: Which
    read: Read
    size_bytes: int
    start: int
    end: int
    path: str | None
    note: str | None
    """The reason why the stored body is incomplete."""
    as_text: bool = False

    def raw(self) -> bytes:
        """Return the bytes of the slice, redacted as every output is."""
        return redact_body(self.read(self.start, self.end))

    def lines(self, budget: int) -> list[str]:
        data = self.read(self.start, min(self.end, self.start + 4 * budget + 8))
        binary = _is_binary(data)
        again = ["body", self.span.short_id, "--in" if self.which == "input" else "--out"]
        again += ["--path", self.path] if self.path else []
        again += ["--text"] if self.as_text else []

        def head(shown: int) -> list[str]:
            path = f" at {formatting.single_line(self.path, 80)}" if self.path else ""
            facts = f"bytes {self.start}:{self.start + shown} of {self.size_bytes}"
            extra = [fact for fact in ("binary" if binary else "", self.note or "") if fact]
            return [f"{self.span.short_id} {self.which}{path}, {', '.join([facts, *extra])}"]

        def end(shown: int) -> list[str]:
            at = self.start + shown
            if at >= self.end:
                return []
            upto = "" if self.end == self.size_bytes else str(self.end)
            return [
                f"… {self.end - at} bytes left: {self.command(*again, '--bytes', f'{at}:{upto}')}"
            ]

        first = head(10**9) if budget >= 150 else []
        room = budget - cost(first) - cost(end(0))
        rows, shown = (_hex_rows if binary else _text_rows)(data, room)
        if not binary:
            rows = _redact_rows(rows)
        if self.start >= self.end:
            rows = ["(empty)" if not self.size_bytes else "(no bytes in this range)"]
        return [*(head(shown) if first else []), *rows, *end(shown)]

    def data(self) -> dict[str, Any]:
        end = min(self.end, self.start + JSON_PAGE)
        raw = self.read(self.start, end)
        if end < self.end:
            raw = _drop_partial_character(raw)
            end = self.start + len(raw)
        try:
            content: dict[str, Any] = {"encoding": "text", "text": raw.decode()}
        except UnicodeDecodeError:
            content = {"encoding": "base64", "text": base64.b64encode(raw).decode()}
        return {
            "version": self.version,
            "span_id": self.span.id,
            "short_id": self.span.short_id,
            "which": self.which,
            "path": self.path,
            "size_bytes": self.size_bytes,
            "start": self.start,
            "end": end,
            "next": end if end < self.end else None,
            "note": self.note,
            **content,
        }


def body_answer(
    store: Store, span: SpanInfo, which: Which | None, part: Slice | None = None
) -> BodyAnswer:
    part = part or Slice()
    if sum((part.head, part.lines is not None, part.bytes is not None)) > 1:
        raise UsageError("body: --head, --lines and --bytes exclude each other. Use one of them.")
    if which is None:
        which = "input" if span.input is not None or span.output is None else "output"
    ref = span.input if which == "input" else span.output
    if ref is None:
        hint = ""
        if which == "input" and span.output is not None:
            hint = " It has an output: --out."
        elif which == "output" and span.input is not None:
            hint = " It has an input: --in."
        raise NotFoundError(f"{span.short_id} has no {which}.{hint}")
    if ref.id is None:
        reason = ref.cut or "reason unknown"
        raise NotFoundError(f"{span.short_id}: the {which} is missing ({reason}).")
    body = ref.id

    read: Read = lambda start, end: store.read_body(body, start, end)  # noqa: E731
    size = ref.size_bytes
    if part.path is not None:
        inner = _extract_path(read(0, size), part.path, span)
        size = len(inner)
        read = lambda start, end: inner[start:end]  # noqa: E731
    if part.text:
        from vestige.query.body_text import render_body_text

        provider = span.attributes.get("provider")
        known = provider if isinstance(provider, str) else None
        rendered = render_body_text(redact_body(read(0, size)), which, known).encode()
        size = len(rendered)
        read = lambda start, end: rendered[start:end]  # noqa: E731
    start, end = _byte_range(part, read, size)
    return BodyAnswer(span, which, read, size, start, end, part.path, ref.cut, part.text)


# --- byte ranges ------------------------------------------------------------------------------


def _byte_range(part: Slice, read: Read, size: int) -> tuple[int, int]:
    if part.bytes is not None:
        first, last = part.bytes
        return min(first, size), size if last is None else max(first, min(last, size))
    lines = (1, HEAD_LINES) if part.head else part.lines
    if lines is None:
        return 0, size
    start = _line_start(read, size, lines[0] - 1)
    end = size if lines[1] is None else _line_start(read, size, lines[1])
    return start, max(start, end)


def _line_start(read: Read, size: int, before: int) -> int:
    """Return the offset of the line that follows the first `before` lines."""
    at = 0
    while before > 0 and at < size:
        chunk = read(at, at + _READ_STEP)
        if chunk.count(b"\n") < before:
            before -= chunk.count(b"\n")
            at += len(chunk)
            continue
        newline = -1
        for _ in range(before):
            newline = chunk.index(b"\n", newline + 1)
        return at + newline + 1
    return size if before > 0 else 0


def parse_range(text: str, least: int) -> tuple[int, int | None]:
    """Parse `a:b`, `a:`, `:b` or `a`."""
    match = re.fullmatch(r"(\d{0,15})(:?)(\d{0,15})", text.strip())
    if match is None or not text.strip(": "):
        raise ValueError("not a range (expected a:b, such as 1:40)")
    first = int(match[1]) if match[1] else least
    last = int(match[3]) if match[3] else (None if match[2] else first + 1 - least)
    if first < least or (last is not None and last < first):
        raise ValueError(f"not a range (expected a:b with {least} <= a <= b)")
    return first, last


# --- JSON paths -------------------------------------------------------------------------------


def _extract_path(data: bytes, path: str, span: SpanInfo) -> bytes:
    """Return the value at `$.messages[0].content`: a string as text, others as JSON."""
    steps, at = [], 1
    while path.startswith("$") and at < len(path):
        match = _PATH_STEP.match(path, at)
        if match is None:
            break
        steps.append(int(match[2]) if match[2] else match[1] or match[3] or match[4] or "")
        at = match.end()
    if not path.startswith("$") or at < len(path):
        raise UsageError(
            f"--path {formatting.single_line(path, 80)!r}: not a path"
            " (expected, for example, $.messages[0].content)."
        )
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{span.short_id}: the body is not JSON or is truncated (--path needs JSON)."
            " Use --bytes."
        ) from None
    parent = "$"
    for step in steps:
        value = _get_step(value, step, parent)
        parent += f"[{step}]" if isinstance(step, int) else f".{step}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return text.encode(errors="surrogatepass")


def _get_step(value: Any, step: int | str, parent: str) -> Any:
    if isinstance(step, int):
        if isinstance(value, list) and -len(value) <= step < len(value):
            return value[step]
    elif isinstance(value, dict) and step in value:
        return value[step]
    raise NotFoundError(
        f"--path: no {step!r} at {formatting.single_line(parent, 80)}, which is {_describe(value)}."
    )


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(formatting.single_line(key, 30) for key in list(value)[:20])
        return f"an object with {keys}" if keys else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "a string" if isinstance(value, str) else "a single value"


# --- rows -------------------------------------------------------------------------------------


def _is_binary(data: bytes) -> bool:
    """Return True if more than a tenth of the first 4 KiB is not UTF-8 text."""
    text = data[:4096].decode(errors="surrogateescape")
    odd = sum(1 for char in text if char == "\x00" or "\udc80" <= char <= "\udcff")
    return odd * 10 > len(text)


def _drop_partial_character(data: bytes) -> bytes:
    """Drop an incomplete UTF-8 character at the end: it belongs to the next page."""
    for back in (1, 2, 3):
        last = data[-back] if back < len(data) else 0
        if last >= 0xC0:  # the first byte of a multi-byte character
            length = 2 if last < 0xE0 else 3 if last < 0xF0 else 4
            return data[:-back] if length > back else data
        if last < 0x80:
            break
    return data


def _redact_rows(rows: list[str]) -> list[str]:
    """Redact secrets of several lines. An answer redacts each line by itself."""
    text = "\n".join(row.removeprefix("| ") for row in rows)
    redacted = redact_text(text)
    return rows if redacted == text else [f"| {line}" for line in redacted.split("\n")]


def _text_rows(data: bytes, room: int) -> tuple[list[str], int]:
    """Return lines behind a bar, and the number of bytes that they show."""
    rows: list[str] = []
    shown = 0
    texts = data.decode(errors="surrogateescape").split("\n")
    for number, text in enumerate(texts):
        last = number == len(texts) - 1
        if last and not text and rows:
            break
        row = "| " + visible(text)
        tokens = count_tokens(row) + 1
        if tokens > room:
            fitting = _fitting_length(text, room - 2)
            if fitting:
                rows.append("| " + visible(text[:fitting]))
                shown += len(text[:fitting].encode(errors="surrogateescape"))
            break
        room -= tokens
        rows.append(row)
        shown += len(text.encode(errors="surrogateescape")) + (not last)
    return rows, shown


def _fitting_length(text: str, room: int) -> int:
    """Return how many characters of a line fit."""
    low, high = 0, min(len(text), max(0, room) * 4)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens("| " + visible(text[:middle])) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def visible(text: str) -> str:
    """Escape control and invisible characters, except newlines and tabs."""
    return _INVISIBLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # surrogateescape: a byte that is not valid UTF-8
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _hex_rows(data: bytes, room: int) -> tuple[list[str], int]:
    count = room // (count_tokens("| " + "00 " * HEX_A_LINE) + 1)
    shown = data[: count * HEX_A_LINE] if count > 0 else data[: max(1, room - 1)]
    rows = ["| " + shown[at : at + HEX_A_LINE].hex(" ") for at in range(0, len(shown), HEX_A_LINE)]
    return rows, len(shown)
