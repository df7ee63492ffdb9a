"""Tool calls of MCP over HTTP: JSON-RPC requests with the method `tools/call`."""

from __future__ import annotations

from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import MIB
from vestige.providers.json_access import as_dict, as_str, dicts, find_str

BODY_MAX = 4 * MIB
"""A longer body is not decoded."""

_MARKER = b'"tools/call"'
_TEXT_MAX = 500


def find_tool(body: bytes) -> str | None:
    """Return the tool that a request calls. None: it is not a tool call."""
    if _MARKER not in body or len(body) > BODY_MAX:
        return None
    message = as_dict(_decode(body))
    if message.get("method") != "tools/call" or "jsonrpc" not in message:
        return None
    return find_str(as_dict(message.get("params")).get("name"))


def find_error(body: bytes) -> str | None:
    """Return the error of a response, JSON or an event stream. None: the tool did not fail."""
    if len(body) > BODY_MAX:
        return None
    messages = [_decode(body)]
    if body.lstrip().startswith((b"event:", b"data:", b"id:")):
        messages = [_decode(line[5:]) for line in body.splitlines() if line.startswith(b"data:")]
    for message in map(as_dict, messages):
        error = as_dict(message.get("error"))
        if error:
            return as_str(error.get("message"))[:_TEXT_MAX] or "JSON-RPC error"
        result = as_dict(message.get("result"))
        if result.get("isError") is True:
            texts = [as_str(block.get("text")) for block in dicts(result.get("content"))]
            return "\n".join(texts)[:_TEXT_MAX] or "the tool failed"
    return None


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None
