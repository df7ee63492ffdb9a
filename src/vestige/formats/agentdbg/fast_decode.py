"""A call exactly as AgentDbg writes it: decoded in one step, with each field of its payload in its place.

    call = decode_call(line)        # None: anything else, and the careful way has to be taken (formats/agentdbg/parse_event.py)

Nearly all lines of a long run are such calls. What is written here decides nothing that the careful
way would decide otherwise: whatever is missing, odd, or more than expected, is not a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec

Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
NULL = msgspec.Raw(b"null")


class NoMeta(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """A `meta` with nothing in it."""


class Usage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    prompt_tokens: Tokens
    completion_tokens: Tokens
    total_tokens: Tokens


class LlmPayload(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    prompt: msgspec.Raw = NULL
    response: msgspec.Raw = NULL
    model: str | None = None
    provider: str | None = None
    stop_reason: str | None = None
    temperature: int | float | None = None
    usage: Usage | None = None
    status: str | None = None
    error: msgspec.Raw = NULL


class ToolPayload(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    args: msgspec.Raw = NULL
    result: msgspec.Raw = NULL
    tool_name: str | None = None
    status: str | None = None
    error: msgspec.Raw = NULL


class _Call(msgspec.Struct, tag_field="event_type", gc=False):
    """What both have; as `Line` has it, and of the same types."""

    event_id: str | None = None
    run_id: str | None = None
    parent_id: str | None = None
    ts: str | None = None
    duration_ms: int | None = None
    name: str = ""
    spec_version: str | None = None
    meta: NoMeta = NoMeta()


class LlmCall(_Call, tag="LLM_CALL", gc=False):
    event_type: ClassVar[str] = "LLM_CALL"
    payload: LlmPayload = msgspec.field(default_factory=LlmPayload)


class ToolCall(_Call, tag="TOOL_CALL", gc=False):
    event_type: ClassVar[str] = "TOOL_CALL"
    payload: ToolPayload = msgspec.field(default_factory=ToolPayload)


Call = LlmCall | ToolCall
_decode: Callable[[bytes], Call] = msgspec.json.Decoder(Call).decode


def decode_call(line: bytes) -> Call | None:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
