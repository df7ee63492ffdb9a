"""What a call's bytes tell, as attributes: model, options, usage, tool calls, cache markers, times.

Read when the call is over, from the bodies as they are kept. What cannot be read is left out: the bytes are
there, and a check can look again.
"""

from __future__ import annotations

import re
from typing import Any

from vestige.providers.models import Request, Response
from vestige.providers.parsing import TEXT_MAX, parse_request, parse_response
from vestige.providers.prompt_cache import fingerprint
from vestige.providers.request_options import read_options
from vestige.providers.stream_timing import drop_deltas, find_first
from vestige.wire.byte_buffer import ByteBuffer
from vestige.wire.content_encoding import Decoded

Told = dict[str, Any]

CALLS_TOLD_MAX = 16
"""Tool calls named one by one; the rest are counted, and stand in the body."""

MARKS_TOLD_MAX = 8

_MODEL = re.compile(rb'"model"\s*:\s*"((?:[^"\\]|\\.){1,200})"')
_EDGE = 2048


def glimpse_model(body: bytes) -> str | None:
    """The model, from the ends of the body: for the record of a call that may never come back.
    Inside a string the quotes would be escaped, so a match is a member of some object."""
    found = _MODEL.search(body, 0, _EDGE) or _MODEL.search(body, max(0, len(body) - _EDGE))
    return None if found is None else found[1].decode(errors="replace")


def request_attributes(body: bytes | bytearray, provider: str | None) -> Told:
    """Of a model call's request."""
    told: Told = {}
    if not body or len(body) > TEXT_MAX:
        return told
    text = bytes(body)
    told.update(read_options(text))
    request = parse_request(text, provider)
    if request is None:
        return told
    if request.model:
        told["model"] = request.model
    told["request.messages"] = len(request.messages)
    if request.tools:
        told["request.tools"] = len(request.tools)
    if request.max_output_tokens is not None:
        told["max_tokens"] = request.max_output_tokens
    _tell_cache(told, request, text)
    return told


def _tell_cache(told: Told, request: Request, body: bytes) -> None:
    if request.prompt or request.prefix_end:
        told["prefix.fingerprint"] = fingerprint(request, body)
    if b'"cache_control"' not in body:
        return
    marks = [
        part.path
        for part in request.prompt
        if any(part.begin < end <= part.end for end in request.breakpoints)
    ]
    told["cache_control"] = len(request.breakpoints)
    told["cache_control.at"] = ", ".join(marks[-MARKS_TOLD_MAX:])


def read_response(body: bytes | bytearray, provider: str | None) -> Response | None:
    """A model call's answer, whole, streamed, cut or refused; None where it is none that we know."""
    if not body or len(body) > TEXT_MAX:
        return None
    text = bytes(body)
    return parse_response(drop_deltas(text) if b"data:" in text[:4096] else text, provider)


def response_attributes(response: Response) -> Told:
    """Of a model call's answer."""
    told: Told = {}
    if response.model:
        told["response.model"] = response.model
    if response.finish_reason:
        told["finish_reason"] = response.finish_reason
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
        count = getattr(response.usage, name)
        if count is not None:
            told[name] = count
    _tell_calls(told, response)
    if response.error:
        told["error.message"] = response.error
    return told


def _tell_calls(told: Told, response: Response) -> None:
    if not response.calls:
        return
    told["tool_calls"] = len(response.calls)
    for number, call in enumerate(response.calls[:CALLS_TOLD_MAX]):
        told[f"tool_call.{number}.name"] = call.name
        if call.id:
            told[f"tool_call.{number}.id"] = call.id


def timing_attributes(plain: Decoded, tape: ByteBuffer, began_ns: int) -> Told:
    """When a streamed answer began: `first_token_ns`, and for how long it thought: `thinking_ns`."""
    first = find_first(plain.data)
    if first is None:
        return {}

    def time_of(offset: int) -> int | None:
        return tape.time_of(plain.coded_at(offset) if plain.steps else offset)

    token_ns = time_of(first.token)
    if token_ns is None:
        return {}
    told: Told = {"first_token_ns": token_ns - began_ns}
    if first.thought and first.answer is not None:
        answer_ns = time_of(first.answer)
        if answer_ns is not None:
            told["thinking_ns"] = answer_ns - token_ns
    return told
