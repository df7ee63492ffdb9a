"""Attributes of a model call: model, options, usage, tool calls, cache markers, times.

They are read from the bodies when the call has ended. Unreadable parts are left out; the bodies
are stored, and checks can read them again.
"""

from __future__ import annotations

import re
from typing import Any

from vestige.providers.chat_types import Request, Response
from vestige.providers.non_chat_calls import read_model_io
from vestige.providers.parsing import TEXT_MAX, parse_request, parse_response
from vestige.providers.prompt_cache import fingerprint
from vestige.providers.request_options import read_options
from vestige.providers.stream_timing import drop_deltas, find_first
from vestige.wire.byte_buffer import ByteBuffer
from vestige.wire.content_encoding import Decoded

Attributes = dict[str, Any]

TOOL_CALLS_MAX = 16
"""Tool calls with attributes of their own. The rest are only counted."""

BREAKPOINTS_MAX = 8

_MODEL = re.compile(
    rb'"model"\s*:\s*"((?:[^"\\]|\\.){1,200})"|name="model"\r\n\r\n([^\r\n]{1,200})\r\n'
)
"""A member of JSON, or a field of a multipart form."""
_EDGE = 2048


def glimpse_model(body: bytes) -> str | None:
    """Find the model near the ends of a request body, before the body is parsed.

    Inside a string the quotes would be escaped, so a match is a member of some object.
    """
    found = _MODEL.search(body, 0, _EDGE) or _MODEL.search(body, max(0, len(body) - _EDGE))
    return None if found is None else (found[1] or found[2]).decode(errors="replace")


def read_request(body: bytes | bytearray, provider: str | None) -> Request | None:
    """Parse a model request. None: unknown, or too long."""
    return parse_request(bytes(body), provider) if 0 < len(body) <= TEXT_MAX else None


def request_attributes(body: bytes | bytearray, request: Request | None) -> Attributes:
    """Return the attributes of a model request, which may be parsed."""
    attributes: Attributes = {}
    if not body or len(body) > TEXT_MAX:
        return attributes
    text = bytes(body)
    attributes.update(read_options(text))
    if request is None:
        return attributes
    if request.model:
        attributes["model"] = request.model
    attributes["request.messages"] = len(request.messages)
    if request.tools:
        attributes["request.tools"] = len(request.tools)
    if request.max_output_tokens is not None:
        attributes["max_tokens"] = request.max_output_tokens
    _add_cache(attributes, request, text)
    return attributes


def _add_cache(attributes: Attributes, request: Request, body: bytes) -> None:
    if request.prompt or request.prefix_end:
        attributes["prefix.fingerprint"] = fingerprint(request, body)
    if b'"cache_control"' not in body:
        return
    breakpoints = [
        part.path
        for part in request.prompt
        if any(part.begin < end <= part.end for end in request.breakpoints)
    ]
    attributes["cache_control"] = len(request.breakpoints)
    attributes["cache_control.at"] = ", ".join(breakpoints[-BREAKPOINTS_MAX:])


def read_response(body: bytes | bytearray, provider: str | None) -> Response | None:
    """Parse a model response, which may be streamed, truncated or an error. None: unknown."""
    if not body or len(body) > TEXT_MAX:
        return None
    text = bytes(body)
    return parse_response(drop_deltas(text) if b"data:" in text[:4096] else text, provider)


def response_attributes(response: Response) -> Attributes:
    """Return the attributes of a model response."""
    attributes: Attributes = {}
    if response.model:
        attributes["response.model"] = response.model
    if response.finish_reason:
        attributes["finish_reason"] = response.finish_reason
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
        count = getattr(response.usage, name)
        if count is not None:
            attributes[name] = count
    _add_tool_calls(attributes, response)
    if response.error:
        attributes["error.message"] = response.error
    return attributes


def _add_tool_calls(attributes: Attributes, response: Response) -> None:
    if not response.calls:
        return
    attributes["tool_calls"] = len(response.calls)
    for number, call in enumerate(response.calls[:TOOL_CALLS_MAX]):
        attributes[f"tool_call.{number}.name"] = call.name
        if call.id:
            attributes[f"tool_call.{number}.id"] = call.id


def other_attributes(
    span_type: str, request: bytes | bytearray, response: bytes | bytearray
) -> Attributes:
    """Return the attributes of a call without messages: embeddings, images, audio, moderation."""
    attributes: Attributes = {}
    body = bytes(request)
    if 0 < len(body) <= TEXT_MAX:
        attributes.update(read_options(body))
    attributes.update(read_model_io(span_type, body, bytes(response)))
    return attributes


def timing_attributes(plain: Decoded, buffer: ByteBuffer, began_ns: int) -> Attributes:
    """Return `first_token_ns` and `thinking_ns` of a streamed response."""
    first = find_first(plain.data)
    if first is None:
        return {}

    def time_of(offset: int) -> int | None:
        return buffer.time_of(plain.coded_at(offset) if plain.steps else offset)

    token_ns = time_of(first.token)
    if token_ns is None:
        return {}
    attributes: Attributes = {"first_token_ns": token_ns - began_ns}
    if first.thought and first.answer is not None:
        answer_ns = time_of(first.answer)
        if answer_ns is not None:
            attributes["thinking_ns"] = answer_ns - token_ns
    return attributes
