"""When a streamed answer began to speak: the events that carry its first thought and its first word.

    first = find_first(body)        # offsets of bytes; None where the answer is not streamed

Offsets are ends of events: whoever knows when a byte came knows when the model began.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from vestige.providers.json_access import as_dict, as_list, as_str, dicts

EVENTS_MAX = 5_000
"""Looked at from the start. A model that only thinks for longer than this has no first word here."""

CONTAINERS_MAX = 10_000
"""Of one event, which carries a word or two: `[[],[],…` costs thirty times its size, and seconds."""

_DATA = re.compile(rb"^data:(.*)", re.MULTILINE)
_LINE = re.compile(rb"^(\{.*\})\r?$", re.MULTILINE)

_ENDS = (
    b"data: [DONE]",
    b"data:[DONE]",
    b'"type":"message_stop"',
    b'"type": "message_stop"',
    b"event: message_stop",
    b"event: response.completed",
    b"event: response.failed",
    b"event: response.incomplete",
    b'"done":true',
    b'"done": true',
)
_LONG_ENDS = (
    b"event: response.completed",
    b"event: response.failed",
    b"event: response.incomplete",
)
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")
_TAIL = 16 * 1024


class First(msgspec.Struct, frozen=True, gc=False):
    """Where a stream first says something."""

    token: int
    """The first sign of the model: a thought, a word, a tool call."""
    answer: int | None
    """The first that is no thought."""
    thought: bool
    """The first sign is a thought."""


def find_first(body: bytes | bytearray) -> First | None:
    """The first events that speak; nothing if none does, or this is no stream."""
    if not is_stream(body):
        return None
    token: int | None = None
    thought = False
    for event, end in _events(body):
        kind = _kind(event)
        if kind is None:
            continue
        if token is None:
            token, thought = end, kind == "thought"
        if kind == "answer":
            return First(token, end, thought)
    return None if token is None else First(token, None, thought)


def drop_deltas(body: bytes) -> bytes:
    """A stream without the events that only carry text: what is left says how it ended, what it cost
    and what it asked for, and is read in a fraction of the time."""
    gap = b"\r\n\r\n" if b"\r\n\r\n" in body[:_TAIL] else b"\n\n"
    if body.count(gap) < THIN_FROM:
        return body
    kept: dict[int, int] = {}

    def keep(at: int) -> tuple[int, int]:
        """The event around a place."""
        before, after = body.rfind(gap, 0, at), body.find(gap, at)
        begin = 0 if before < 0 else before + len(gap)
        kept[begin] = end = len(body) if after < 0 else after + len(gap)
        return begin, end

    keep(0)
    last = len(body)
    for _ in range(LAST_KEPT):
        last, _ = keep(last - len(gap))  # in the event, not in the one after it
    for word in _TELLING:
        at = body.find(word)
        while at >= 0:
            at = body.find(word, keep(at)[1])
    for word in _TELLING_LAST:
        at = body.rfind(word)
        if at >= 0:
            keep(at)
    return b"".join(body[begin:end] for begin, end in sorted(kept.items()))


LAST_KEPT = 3
"""Events at the end that are kept whatever they say."""

THIN_FROM = 100
"""Events. Reading fewer costs nothing worth saving."""

_TELLING = (
    b'"finish_reason":"', b'"finish_reason": "', b'"tool_calls"',
    b'"function_call"', b'"error"', b"message_start", b"message_delta", b"content_block_start", b"input_json_delta",
    b"response.c", b"response.failed", b"response.incomplete", b"response.output_item",
    b"functionCall", b"finishReason",
)  # fmt: skip
"""Literals, each sought by itself in the whole body: an expression of them all, or a look at each event, is
many times slower."""

_TELLING_LAST = (b'"usage":{', b'"usage": {', b"usageMetadata")
"""Of these the last one counts, and some servers put them into every event."""


def has_ended(body: bytes | bytearray) -> bool:
    """Whether a stream has said its last: an SDK may stop reading there, before the body's end."""
    tail = bytes(memoryview(body)[-_TAIL:])
    if any(end in tail for end in _ENDS):
        return True
    # The last event of Responses repeats the request's instructions and tools, and is as long as they are.
    last = body.rfind(b"\nevent: ")
    return last >= 0 and tail.endswith(_BLANK_LINES) and body.startswith(_LONG_ENDS, last + 1)


def is_event_stream(body: bytes | bytearray) -> bool:
    """Whether a body begins as server-sent events do."""
    head = bytes(memoryview(body)[:64]).lstrip()
    return head.startswith((b"data:", b"event:", b"id:", b"retry:", b":"))


def is_stream(body: bytes | bytearray) -> bool:
    """Whether a body begins as a stream of events or JSON lines does."""
    head = bytes(memoryview(body)[:_TAIL]).lstrip()
    if head.startswith(b"{"):
        return b"}\n{" in head or b"}\r\n{" in head
    return is_event_stream(body)


def _events(body: bytes | bytearray) -> Iterator[tuple[dict[str, Any], int]]:
    head = bytes(memoryview(body)[:64]).lstrip()
    expression = _LINE if head.startswith(b"{") else _DATA
    for count, found in enumerate(expression.finditer(body)):
        if count >= EVENTS_MAX:
            return
        data = found[1]
        if data.count(b"[") + data.count(b"{") > CONTAINERS_MAX:
            continue
        try:
            event = msgspec.json.decode(data)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event, found.end()


def _kind(event: dict[str, Any]) -> str | None:
    """`thought`, `answer`, or nothing: what an event of any provider carries."""
    name = as_str(event.get("type"))
    if name.startswith("response."):
        if not name.endswith(".delta"):
            return None
        return "thought" if name.startswith("response.reasoning") else "answer"
    if name.startswith("content_block"):
        return _kind_of_block(event)
    if "choices" in event:
        return _kind_of_choices(event)
    if "candidates" in event:
        return _kind_of_candidates(event)
    if "done" in event:
        message = as_dict(event.get("message")) or event
        return _said(message, ("content", "tool_calls", "response"), ("thinking",))
    return None


def _kind_of_block(event: dict[str, Any]) -> str | None:
    if event.get("type") == "content_block_delta":
        kind = as_str(as_dict(event.get("delta")).get("type"))
        return "thought" if kind in ("thinking_delta", "signature_delta") else "answer"
    block = as_str(as_dict(event.get("content_block")).get("type"))
    return "answer" if block == "tool_use" else None


def _kind_of_choices(event: dict[str, Any]) -> str | None:
    for choice in dicts(event.get("choices")):
        delta = as_dict(choice.get("delta")) or choice
        kind = _said(
            delta,
            ("content", "tool_calls", "refusal", "text", "function_call"),
            ("reasoning_content", "reasoning"),
        )
        if kind is not None:
            return kind
    return None


def _kind_of_candidates(event: dict[str, Any]) -> str | None:
    parts = [
        part
        for candidate in dicts(event.get("candidates"))
        for part in dicts(as_list(as_dict(candidate.get("content")).get("parts")))
    ]
    if not parts:
        return None
    return "thought" if all(part.get("thought") is True for part in parts) else "answer"


def _said(
    message: dict[str, Any], answers: tuple[str, ...], thoughts: tuple[str, ...]
) -> str | None:
    if any(message.get(key) for key in answers):
        return "answer"
    return "thought" if any(message.get(key) for key in thoughts) else None
