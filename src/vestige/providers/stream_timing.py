"""Find the first thought and the first word of a streamed answer, and whether it has ended.

    first = find_first(body)        # byte offsets; None if the answer is not streamed

Offsets are ends of events. With the time at which each byte arrived they give the time to the
first token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re
from vestige.providers.json_access import as_dict, as_list, as_str, dicts

EVENTS_MAX = 5_000
"""Events that are searched. A model that only thinks for longer has no first word."""

CONTAINERS_MAX = 10_000
"""Brackets of one event. Decoding `[[],[],…` takes thirty times its size in memory, and seconds."""

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
    b"event: metadata",
    b'"type":"message-end"',
    b'"type": "message-end"',
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
    """The first events of a stream that have content."""

    token: int
    """End of the first event with a thought, a word or a tool call."""
    answer: int | None
    """End of the first event that is not a thought."""
    thought: bool
    """True if the first event is a thought."""


def find_first(body: bytes | bytearray) -> First | None:
    """Find the first events with content. None: there are none, or this is not a stream."""
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
    """Remove the events that only have text. The rest has the usage, finish reason and tool calls,
    and is parsed in a fraction of the time."""
    gap = b"\r\n\r\n" if b"\r\n\r\n" in body[:_TAIL] else b"\n\n"
    if body.count(gap) < THIN_FROM:
        return body
    ranges: dict[int, int] = {}

    def keep(at: int) -> tuple[int, int]:
        """Keep the event around an offset, and return its range."""
        before, after = body.rfind(gap, 0, at), body.find(gap, at)
        begin = 0 if before < 0 else before + len(gap)
        ranges[begin] = end = len(body) if after < 0 else after + len(gap)
        return begin, end

    keep(0)
    last = len(body)
    for _ in range(LAST_KEPT):
        last, _ = keep(last - len(gap))  # inside the event, not in the next one
    for word in _MARKERS:
        at = body.find(word)
        while at >= 0:
            at = body.find(word, keep(at)[1])
    for word in _LAST_MARKERS:
        at = body.rfind(word)
        if at >= 0:
            keep(at)
    return b"".join(body[begin:end] for begin, end in sorted(ranges.items()))


LAST_KEPT = 3
"""Events at the end that are always kept."""

THIN_FROM = 100
"""Events. Fewer are parsed quickly anyway."""

_MARKERS = (
    b'"finish_reason":"', b'"finish_reason": "', b'"tool_calls"',
    b'"function_call"', b'"error"', b"message_start", b"message_delta", b"content_block_start",
    b"input_json_delta",
    b"response.c", b"response.failed", b"response.incomplete", b"response.output_item",
    b"functionCall", b"finishReason", b"contentBlockStart", b'"toolUse"', b"messageStop",
    b"Exception",
    b"tool-call-", b"message-end", b"generated_text",
)  # fmt: skip
"""Literals that are searched one by one in the body. A regular expression of all of them, or a loop
over the events, is many times slower."""

_LAST_MARKERS = (b'"usage":{', b'"usage": {', b"usageMetadata")
"""Literals of which only the last occurrence counts: some servers add them to every event."""


def has_ended(body: bytes | bytearray) -> bool:
    """Return whether a stream has its last event: an SDK may stop reading there."""
    tail = bytes(memoryview(body)[-_TAIL:])
    if any(end in tail for end in _ENDS):
        return True
    # The last event of Responses repeats the instructions and tools of the request, so it is long.
    last = body.rfind(b"\nevent: ")
    return last >= 0 and tail.endswith(_BLANK_LINES) and body.startswith(_LONG_ENDS, last + 1)


def is_event_stream(body: bytes | bytearray) -> bool:
    """Return whether a body starts as server-sent events do."""
    head = bytes(memoryview(body)[:64]).lstrip()
    return head.startswith((b"data:", b"event:", b"id:", b"retry:", b":"))


def is_stream(body: bytes | bytearray) -> bool:
    """Return whether a body starts as a stream of events or JSON lines does."""
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
    """Return `thought`, `answer` or None for an event of any provider."""
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
    if "contentBlockDelta" in event:
        delta = as_dict(as_dict(event["contentBlockDelta"]).get("delta"))
        return "thought" if "reasoningContent" in delta else "answer"
    if name in ("content-delta", "tool-plan-delta", "tool-call-start"):
        content = as_dict(as_dict(as_dict(event.get("delta")).get("message")).get("content"))
        return "thought" if "thinking" in content else "answer"
    if "done" in event:
        message = as_dict(event.get("message")) or event
        return _kind_of_message(message, ("content", "tool_calls", "response"), ("thinking",))
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
        kind = _kind_of_message(
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


def _kind_of_message(
    message: dict[str, Any], answers: tuple[str, ...], thoughts: tuple[str, ...]
) -> str | None:
    if any(message.get(key) for key in answers):
        return "answer"
    return "thought" if any(message.get(key) for key in thoughts) else None
