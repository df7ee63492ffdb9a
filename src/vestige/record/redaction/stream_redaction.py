"""Redact a streamed response as a reader assembles it, not as its events split it.

    body = redact_stream(body, redactor)        # the same object if nothing had to change

A model streams a response a few characters at a time, so no event contains a complete secret,
but the transcript does. The strings of all events are grouped into channels (the text of choice
0, the arguments of tool call 2). Each channel is joined and redacted as one text, and the result
is put back into the events: the mask where the secret began, nothing where it continued. The
stored body is still a valid stream, which assembles to exactly the redacted text.

The grouping differs between providers (streams/event_strings.py). The framing is server-sent
events, JSON lines, the data stream of the AI SDK, a JSON array of objects, or the binary event
stream of AWS.

Most streams contain no secret. Nearly all events of a stream have one of a few shapes, so each
shape becomes a regular expression that captures the strings, and JSON is not parsed at all.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from vestige._runtime.re_compat import re
from vestige.record.redaction.streams.channel_redaction import FACTS, join, redact_lines
from vestige.record.redaction.streams.event_stream import EventStream, StringSource

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor

_STREAM_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")

_HEAD = 4096

_PART = re.compile(rb"""[0-9a-f]:["{\[]""")
"""A line of the AI SDK's data stream: `0:"text"`, `c:{"argsTextDelta":"x"}`."""

_NEXT_OBJECT = re.compile(rb"\}[ \t]*\r?\n[ \t]*\{")

Path = tuple[str, ...]

Edit = tuple[int, int, str]
"""Start, end, and the replacement."""


def redact_stream(
    body: bytes | bytearray, redactor: Redactor, *, is_partial: bool = False
) -> bytes | bytearray:
    """Return a streamed body with its assembled texts redacted; any other body unchanged.

    `is_partial`: more follows; see `redact_lines`."""
    head = bytes(memoryview(body)[:_HEAD]).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(_STREAM_STARTS):
        return _redact_events(bytes(body), redactor, is_partial)
    for start_of in (_start_of_object, _start_of_part):
        if start_of(head) >= 0:
            return _redact_json_lines(bytes(body), start_of, redactor, is_partial)
    if _is_aws_frame(body, 0):
        return _redact_aws_frames(bytes(body), redactor)
    if head.startswith(b"[") and head[1:].lstrip().startswith(b"{"):
        changed = redact_lines([bytes(body)], _start_of_array, redactor)
        return changed.get(0, body)
    return body


def spell(body: bytes) -> list[str]:
    """Return the texts that the events of a stream, or of a part of one, assemble to."""
    head = body[:_SPELL_HEAD]
    if head.startswith(_STREAM_STARTS) or b"\ndata:" in head:
        start_of = _start_of_data
    elif _NEXT_OBJECT.search(head):
        start_of = _start_of_object
    elif _start_of_part(head) >= 0:
        start_of = _start_of_part
    else:
        return []
    texts = []
    for sources in EventStream(body.split(b"\n"), start_of).groups():
        if sources[0].channel.begun[0] not in FACTS and sum(map(_count, sources)) > 1:
            joined = b"".join(join(sources))
            try:
                texts.append(json.loads(b'"' + joined + b'"', strict=False))
            except ValueError:
                texts.append(joined.decode(errors="replace"))
    return texts


_SPELL_HEAD = 16 * 1024
"""Bytes. A part of a stream may begin inside a long event."""


def _count(source: StringSource) -> int:
    return len(source.contents)


def is_stream(body: bytes | bytearray | str) -> bool:
    """Return whether a body begins like a stream of events."""
    head = body[:_HEAD]
    data = head.encode(errors="replace") if isinstance(head, str) else bytes(head)
    data = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    return data.startswith(_STREAM_STARTS) or bool(
        (data.startswith(b"{") and _NEXT_OBJECT.search(data)) or _start_of_part(data) >= 0
    )


def _redact_events(body: bytes, redactor: Redactor, is_partial: bool) -> bytes:
    """Redact server-sent events."""
    end = b"\n" if b"\n" in body else b"\r"
    lines = body.split(end)
    if body.count(end + b"data:") > body.count(end + end) + body.count(b"\r\n\r\n"):
        lines = _join_data_lines(lines, end)
    changed = redact_lines(lines, _start_of_data, redactor, is_partial)
    return _join_changed(body, lines, end, changed)


def _redact_json_lines(
    body: bytes, start_of: Callable[[bytes], int], redactor: Redactor, is_partial: bool
) -> bytes:
    lines = body.split(b"\n")
    if sum(start_of(line) >= 0 for line in lines) < 2:
        return body
    changed = redact_lines(lines, start_of, redactor, is_partial)
    return _join_changed(body, lines, b"\n", changed)


def _join_changed(body: bytes, lines: list[bytes], end: bytes, changed: dict[int, bytes]) -> bytes:
    if not changed:
        return body
    return end.join(changed.get(number, line) for number, line in enumerate(lines))


def _join_data_lines(lines: list[bytes], end: bytes) -> list[bytes]:
    """Join the data lines of each event, over which JSON may be spread, but never a string.

    Data lines that are not JSON stay as they are."""
    joined: list[bytes] = []
    for line in lines:
        if line.startswith(b"data:") and joined and joined[-1].startswith(b"data:"):
            start = _start_of_data(joined[-1])
            if joined[-1].startswith((b"{", b"["), start):
                joined[-1] += end + line
                continue
        joined.append(line)
    return joined


def _start_of_data(line: bytes) -> int:
    if not line.startswith(b"data:"):
        return -1
    return 6 if line.startswith(b" ", 5) else 5


def _start_of_object(line: bytes) -> int:
    return 0 if line.startswith(b"{") else -1


def _start_of_part(line: bytes) -> int:
    return 2 if _PART.match(line) else -1


def _start_of_array(line: bytes) -> int:
    return line.index(b"[")


_PRELUDE = struct.Struct(">III")
"""The length of the frame and of its headers, and the CRC-32 of both. A frame ends with its own."""


def _is_aws_frame(body: bytes | bytearray, at: int) -> bool:
    """Return whether a frame of `application/vnd.amazon.eventstream` begins at an offset."""
    if len(body) < at + _PRELUDE.size:
        return False
    length, headers, crc = _PRELUDE.unpack_from(body, at)
    fits: bool = _PRELUDE.size + headers + 4 <= length
    return fits and zlib.crc32(bytes(body[at : at + 8])) == crc


def _redact_aws_frames(body: bytes, redactor: Redactor) -> bytes:
    """Redact the frames of Bedrock, whose payload is JSON, or JSON in base64 in JSON.

    Changed frames get new lengths and checksums. A truncated frame at the end stays unchanged."""
    frames: list[tuple[int, int, int]] = []
    payloads: list[bytes] = []
    at = 0
    while _is_aws_frame(body, at):
        length, headers, _ = _PRELUDE.unpack_from(body, at)
        begin, end = at + _PRELUDE.size + headers, at + length
        if end > len(body):
            break
        frames.append((at, begin, end))
        payloads.append(_unwrap(body[begin : end - 4]))
        at = end
    changed = redact_lines(payloads, _start_of_object, redactor)
    if not changed:
        return body
    parts = []
    for number, (start, begin, end) in enumerate(frames):
        if number in changed:
            payload = _wrap(changed[number], body[begin : end - 4])
            parts.append(_make_frame(body[start + _PRELUDE.size : begin], payload))
        else:
            parts.append(body[start:end])
    return b"".join((*parts, body[at:]))


def _unwrap(payload: bytes) -> bytes:
    """Return the event in a payload of InvokeModel, `{"bytes": "<base64>"}`, or the payload."""
    try:
        inner = json.loads(payload)["bytes"]
        return base64.b64decode(inner, validate=True)
    except (ValueError, KeyError, TypeError):
        return payload


def _wrap(event: bytes, payload: bytes) -> bytes:
    if _unwrap(payload) == payload:
        return event
    outer = json.loads(payload)
    outer["bytes"] = base64.b64encode(event).decode()
    return json.dumps(outer, separators=(",", ":")).encode()


def _make_frame(headers: bytes, payload: bytes) -> bytes:
    length = _PRELUDE.size + len(headers) + len(payload) + 4
    sizes = struct.pack(">II", length, len(headers))
    frame = sizes + struct.pack(">I", zlib.crc32(sizes)) + headers + payload
    return frame + struct.pack(">I", zlib.crc32(frame))
