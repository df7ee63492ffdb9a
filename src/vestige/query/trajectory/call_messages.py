"""`messages`: a model call as a chat: the messages of its request and its answer, in parts.

Each message says whether an earlier call of the run sent it, so a reader can skip the history.
Images that the request or the answer contains are `data:` URLs, up to IMAGE_BYTES_MAX in total.

    messages_answer(evidence, span_id)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import msgspec

from vestige.errors import NotFoundError
from vestige.limits import TRANSCRIPT_CODE_MAX
from vestige.providers.chat_types import Request
from vestige.providers.media import describe_base64
from vestige.query import formatting
from vestige.query.body_cache import BODY_READ_MAX
from vestige.query.evidence import Evidence
from vestige.query.text_layout import CommandAnswer, fit
from vestige.query.trajectory.actions import error_text
from vestige.query.trajectory.earlier_calls import Key, LostHead, earlier_calls, find_lost_head
from vestige.query.trajectory.message_items import (
    answer_items,
    make_item,
    message_items,
    request_of_text,
    response_of_text,
)
from vestige.query.trajectory.seen_contents import normalize
from vestige.query.trajectory.types import Item
from vestige.record.run import SpanInfo

MESSAGES_MAX = 2_000
"""Messages of one request that are listed; further ones are counted."""
IMAGE_BYTES_MAX = 4 * 1024 * 1024
"""Characters of all `data:` URLs of an answer."""
PART_MAX = TRANSCRIPT_CODE_MAX * 4
"""Characters of one part; the body has the rest."""
EARLIER_CALLS = 3
"""Calls before this one whose requests are compared: a planning call may send less."""
KEYS_KEPT = 8
"""Calls whose message keys stay in memory."""
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types that a page shows. SVG is not among them: it is a document, not a picture."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message of a request, or the answer."""

    role: str
    items: Sequence[Item]
    size_bytes: int
    is_new: bool
    """True if no earlier call sent it."""
    images: Sequence[str] = ()
    """`data:` URLs of its images, in order."""

    def data(self) -> dict[str, Any]:
        images = iter(self.images)
        return {
            "role": self.role,
            "size_bytes": self.size_bytes,
            "new": self.is_new,
            "parts": [_part_data(item, images) for item in self.items],
        }


@dataclass
class MessagesAnswer(CommandAnswer):
    """A model call as a chat."""

    verb: ClassVar[str] = "messages"
    budget: ClassVar[int] = 2_000

    span: SpanInfo
    previous: SpanInfo | None
    """The call whose request this one continues."""
    model: str | None
    tools: Sequence[str]
    """Names of the tools that the request offers."""
    messages: Sequence[ChatMessage]
    left_out: int
    lost_head: LostHead | None
    """First messages that the request has lost, and the call that still has them."""
    answer: ChatMessage | None
    finish_reason: str | None
    error: str | None = field(default=None)
    has_sizes: bool = False
    """True if `segments` can divide the request."""

    def lines(self, budget: int) -> list[str]:
        short = self.span.short_id
        rows = [
            f"{message.role}{' (new)' if message.is_new else ''}: "
            + formatting.single_line(" ".join(item.text for item in message.items), 200)
            for message in (*self.messages, *([self.answer] if self.answer else ()))
        ]
        body = self.command("body", short, "--text")
        head = [f"{short}: {formatting.pluralize(len(self.messages), 'message')}"]
        if lost := self.lost_head:
            first = formatting.pluralize(lost.messages, "message")
            head.append(
                f"the first {first} of {lost.span.short_id} are missing:"
                f" {self.command('body', lost.span.short_id, '--text')}"
            )
        return fit(head, rows, [], budget, lambda n: f"… {n} messages hidden: {body}")

    def data(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "span": self.span.short_id,
            "previous": None if self.previous is None else self.previous.short_id,
            "model": self.model,
            "tools": list(self.tools),
            "messages": [message.data() for message in self.messages],
            "messages_left_out": self.left_out,
            "lost_head": None
            if self.lost_head is None
            else {
                "messages": self.lost_head.messages,
                "span": self.lost_head.span.short_id,
            },
            "answer": None if self.answer is None else self.answer.data(),
            "finish_reason": self.finish_reason,
            "error": self.error,
            "has_sizes": self.has_sizes,
        }


def messages_answer(evidence: Evidence, span_id: str) -> MessagesAnswer:
    """Read the request and the answer of a model call."""
    span = evidence.spans[span_id]
    request, body = _read_request(evidence, span)
    calls = earlier_calls(evidence, span)
    messages, left_out = _request_messages(evidence, span, request, body, calls[:EARLIER_CALLS])
    answer, finish_reason, error = _read_answer(evidence, span)
    if not messages and answer is None:
        raise NotFoundError(
            f"{span.short_id}: has no messages (expected a model call with a recorded request or"
            f" answer). See `vestige span {span.short_id}`."
        )
    keys = [_key(message.items) for message in messages]
    keys_of = evidence.once(_message_keys)
    lost = find_lost_head(keys, calls, keys_of)
    if lost is not None:
        messages[0] = _as_sent_before(messages[0], keys_of(lost.span))
    return MessagesAnswer(
        span,
        _find_previous(keys, calls[:EARLIER_CALLS], keys_of),
        request.model if request is not None else None,
        [tool.name for tool in request.tools] if request is not None else [],
        messages,
        left_out,
        lost,
        answer,
        finish_reason,
        error or error_text(span),
        _has_sizes(evidence, span),
    )


def _has_sizes(evidence: Evidence, span: SpanInfo) -> bool:
    request = evidence.request(span)
    return bool(request is not None and request.prompt) or evidence.assembly(span) is not None


# --- the request ----------------------------------------------------------------------------------


def _read_request(evidence: Evidence, span: SpanInfo) -> tuple[Request | None, str]:
    if span.input is None or span.input.size_bytes > BODY_READ_MAX:
        return None, ""
    text = evidence.input(span) or ""
    return evidence.request(span) or request_of_text(text), text


def _request_messages(
    evidence: Evidence,
    span: SpanInfo,
    request: Request | None,
    body: str,
    earlier: Sequence[SpanInfo],
) -> tuple[list[ChatMessage], int]:
    sent = _sent_before(evidence, earlier)
    if request is None:
        if not body.strip():
            return [], 0
        item = make_item("user", "text", body, span.id, "input")
        return [ChatMessage("user", [item], item.size_bytes, True)], 0
    raw = body.encode(errors="replace") if "base64" in body or '"data"' in body else b""
    found: list[ChatMessage] = []
    room = IMAGE_BYTES_MAX
    for index, message in enumerate(request.messages[:MESSAGES_MAX]):
        items = message_items(message, index, span.id)
        key = _key(items)
        is_new = sent is not None and sent[key] == 0
        if sent is not None and not is_new:
            sent[key] -= 1
        images = _images(raw[message.begin : message.end], items, room) if raw else []
        room -= sum(map(len, images))
        size = message.end - message.begin or sum(item.size_bytes for item in items)
        found.append(ChatMessage(items[0].role, items, size, is_new, images))
    return found, max(0, len(request.messages) - MESSAGES_MAX)


def _as_sent_before(message: ChatMessage, earlier: Sequence[Key]) -> ChatMessage:
    """Return the message with the role of an earlier request: its own may be lost, too."""
    text = _key(message.items)[1]
    role = next((key[0] for key in earlier if key[1] == text), message.role)
    return replace(message, role=role, is_new=False)


def _find_previous(
    keys: Sequence[Key], earlier: Sequence[SpanInfo], keys_of: Callable[[SpanInfo], Sequence[Key]]
) -> SpanInfo | None:
    """Return the earlier call that shares most messages: a planning call may share none."""
    sent = Counter(keys)
    return max(earlier, key=lambda call: (sent & Counter(keys_of(call))).total(), default=None)


def _sent_before(evidence: Evidence, earlier: Sequence[SpanInfo]) -> Counter[Key] | None:
    """Count the messages that earlier calls sent; None for the first call."""
    most: Counter[Key] = Counter()
    keys_of = evidence.once(_message_keys)
    for call in earlier:
        most |= Counter(keys_of(call))
    return most if earlier else None


def _message_keys(evidence: Evidence) -> Callable[[SpanInfo], Sequence[Key]]:
    """Return a function that reads the keys of a call's messages; several later calls use them."""

    @lru_cache(KEYS_KEPT)
    def read(span_id: str) -> Sequence[Key]:
        request, _ = _read_request(evidence, evidence.spans[span_id])
        messages = [] if request is None else request.messages[:MESSAGES_MAX]
        return [_key(message_items(each, at, span_id)) for at, each in enumerate(messages)]

    return lambda span: read(span.id)


def _key(items: Sequence[Item]) -> Key:
    return items[0].role, normalize("\n".join(item.text for item in items))


# --- the answer -----------------------------------------------------------------------------------


def _read_answer(
    evidence: Evidence, span: SpanInfo
) -> tuple[ChatMessage | None, str | None, str | None]:
    if span.output is None or span.output.size_bytes > BODY_READ_MAX:
        return None, None, None
    text = evidence.output(span) or ""
    response = evidence.response(span) or response_of_text(text)
    size = span.output.size_bytes
    if response is None:
        if not text.strip():
            return None, None, None
        item = make_item("assistant", "text", text, span.id, "output")
        return ChatMessage("assistant", [item], size, True), None, None
    items = answer_items(response, span.id)
    images = _images(text.encode(errors="replace"), items, IMAGE_BYTES_MAX)
    answer = ChatMessage("assistant", items, size, True, images) if items else None
    return answer, response.finish_reason, response.error


# --- parts ----------------------------------------------------------------------------------------


def _part_data(item: Item, images: Iterator[str]) -> dict[str, Any]:
    text = item.text[:PART_MAX]
    return {
        "kind": item.kind,
        "text": text,
        "size_bytes": item.size_bytes,
        "truncated": item.truncated or len(text) < len(item.text),
        "name": item.name,
        "call_id": item.call_id,
        "is_error": item.is_error,
        "image": next(images, None) if item.kind == "image" else None,
        "side": item.side,
    }


def _images(raw: bytes, items: Sequence[Item], room: int) -> list[str]:
    """Return the images of a message as `data:` URLs, if all of them are found."""
    expected = sum(item.kind == "image" for item in items)
    if not expected or not raw:
        return []
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    found: list[str] = []
    for text in _strings(value):
        url = _data_url(text)
        if url is not None and len(url) <= room:
            found.append(url)
            room -= len(url)
    return found if len(found) == expected else []


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < 40:
        inner = value.values() if isinstance(value, dict) else value
        for each in inner if isinstance(inner, list) or isinstance(value, dict) else ():
            yield from _strings(each, depth + 1)


def _data_url(text: str) -> str | None:
    """Return a `data:` URL for a string that contains an image, else None."""
    head, comma, data = text.partition(",") if text.startswith("data:image/") else ("", "", text)
    if comma and not head.endswith(";base64"):
        return None
    if len(data) < 40 or " " in data[:200]:
        return None
    mime_type = describe_base64(data).mime_type
    return f"data:{mime_type};base64,{data}" if mime_type in IMAGE_TYPES else None
