"""Parse requests and responses of any model provider.

    request = parse_request(body)                  # None: not a model request that we know
    response = parse_response(text, "anthropic")   # JSON, an error body, or the text of a stream

The provider is recognized by the shape of the JSON, not by its name: an OpenAI-compatible server
may serve Claude, and a proxy may have any name. A hint is one sign among others.

Each provider has a module in providers/apis; the results are in providers/chat_types.py.
"""

from __future__ import annotations

from typing import Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re
from vestige.limits import MIB
from vestige.providers.apis import (
    anthropic,
    bedrock,
    cohere,
    gemini,
    ollama,
    openai,
    openai_responses,
    text_generation,
)
from vestige.providers.chat_types import Request, Response
from vestige.providers.json_access import as_dict, as_list, as_str, dicts

TEXT_MAX = 16 * MIB
"""Longer texts are not parsed: decoded, they would take a multiple of their size."""

CONTAINERS_MAX = 1_000_000
"""Texts with more brackets are not parsed: `[[],[],…` takes thirty times its size."""

DEPTH_MAX = 200

REPAIRED_MAX = 4 * MIB
"""Longer texts are not repaired, because each escape is checked."""

Reader = Any
"""A module of `providers/apis/`."""

_HINTS: tuple[tuple[str, Reader], ...] = (
    ("anthropic", anthropic),
    ("claude", anthropic),
    ("gemini", gemini),
    ("google", gemini),
    ("vertex", gemini),
    ("responses", openai_responses),
    ("bedrock", bedrock),
    ("cohere", cohere),
    ("openai", openai),
    ("azure", openai),
)

_ANTHROPIC_KEYS = frozenset({"system", "anthropic_version", "anthropic_beta", "stop_sequences"})
_ANTHROPIC_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "image"})
_OPENAI_KEYS = frozenset(
    (
        "functions",
        "function_call",
        "stream_options",
        "max_completion_tokens",
        "response_format",
        "logprobs",
        "seed",
        "n",
        "frequency_penalty",
        "presence_penalty",
        "parallel_tool_calls",
        "reasoning_effort",
        "stop",
        "user",
    )
)
_OPENAI_ROLES = frozenset({"system", "developer", "tool", "function"})
_OPENAI_BLOCKS = frozenset({"image_url", "input_audio", "refusal", "file"})

_OTHER_INPUTS = frozenset({"encoding_format", "dimensions", "voice", "response_format"})
"""Embeddings, moderation and speech have an `input` too."""
_OTHER_MODELS = re.compile(r"embed|moderation|tts|rerank|whisper|bge-|voyage", re.IGNORECASE)

_LINE_END = re.compile(r"\r\n|\n|\r")


def parse_request(text: str | bytes, hint: str | None = None) -> Request | None:
    """Return the request, or None if this is not one, or is too large or too deep."""
    body = _encode(text)
    data = _decode(body) if body is not None else None
    if body is None or not isinstance(data, dict):
        return None
    reader = _find_request_reader(data, _find_hint(hint))
    request: Request | None = reader.read_request(body, data) if reader else None
    return request


def parse_response(text: str | bytes, hint: str | None = None) -> Response | None:
    """Return a complete or streamed response (even if truncated) or an error, else None."""
    body = _encode(text)
    if body is None:
        return None
    hinted = _find_hint(hint)
    data = _decode(body)
    if isinstance(data, dict):
        reader = _find_response_reader(data, hinted)
        return _read(reader.read_response, data) if reader else None
    stream = dicts(data) if data is not None else _parse_events(body) or _parse_lines(body)
    for event in stream:
        reader = _find_response_reader(event, hinted)
        if reader:
            return _read(reader.read_stream, stream)
    return None


def _read(read: Any, data: object) -> Response:
    response: Response = read(data)
    return response


def _encode(text: str | bytes) -> bytes | None:
    if len(text) > TEXT_MAX:
        return None
    try:
        body = text.encode() if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError:  # lone surrogates
        return None
    return body if len(body) <= TEXT_MAX and _brackets(body) <= CONTAINERS_MAX else None


def _decode(body: bytes | str) -> Any:
    try:
        data = msgspec.json.decode(body)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, too deep
        data = _decode_repaired(body.encode() if isinstance(body, str) else body)
    return data if _brackets(body) <= DEPTH_MAX or _is_shallow(data) else None


def _decode_repaired(body: bytes) -> Any:
    """Decode JSON that SDKs accept and our decoder does not.

    That is half a character (a server split an emoji), which becomes U+FFFD, and NaN or Infinity
    (log probabilities), which become null."""
    if len(body) > REPAIRED_MAX or not body[:64].lstrip().startswith((b"{", b"[")):
        return None
    if not _ODD.search(body):
        return None
    try:
        return msgspec.json.decode(_NUMBER_OR_STRING.sub(_repair, body))
    except (ValueError, RecursionError):
        return None


def _repair(found: re.Match[bytes]) -> bytes:
    text = found[0]
    if not text.startswith(b'"'):
        return b"null"
    return (
        _ESCAPE.sub(lambda e: b"\\ufffd" if e["half"] else e[0], text) if b"\\u" in text else text
    )


_ODD = re.compile(rb"\\u[dD][89a-fA-F]|NaN|Infinity")
_NUMBER_OR_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|NaN|-?Infinity', re.DOTALL)
"""A string without an end extends to the end of the text: otherwise each quote would be tried."""
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


def _brackets(text: bytes | str) -> int:
    if isinstance(text, str):
        return text.count("{") + text.count("[")
    return text.count(b"{") + text.count(b"[")


def _is_shallow(data: Any) -> bool:
    """Return whether the depth is at most DEPTH_MAX, because later code may use recursion."""
    level = [data]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return True
    return False


def _parse_events(body: bytes) -> list[dict[str, Any]]:
    """Return the data of server-sent events, without truncated ones and those that are not JSON."""
    if b"data:" not in body:
        return []
    events = []
    lines: list[str] = []
    for line in [*_LINE_END.split(body.decode(errors="replace")), ""]:
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            data = _decode("\n".join(lines))
            lines = []
            if isinstance(data, dict):
                events.append(data)
    return events


def _parse_lines(body: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects of a stream, one per line, without truncated and other lines."""
    if not body.lstrip().startswith(b"{") or b"\n" not in body:
        return []
    lines = (_decode(line) for line in body.split(b"\n") if line.strip())
    return [event for event in lines if isinstance(event, dict)]


def _find_hint(hint: str | None) -> Reader | None:
    words = (hint or "").lower()
    return next((reader for word, reader in _HINTS if word in words), None)


def _find_request_reader(data: dict[str, Any], hinted: Reader | None) -> Reader | None:
    messages = data.get("messages")
    if isinstance(messages, list):
        named = isinstance(data.get("model"), str) and not messages
        if named or any("role" in message for message in dicts(messages)):
            return _find_chat_reader(data, hinted)
        return None
    contents = data.get("contents")
    if contents is not None:
        parts = any("parts" in as_dict(c) for c in [contents, *as_list(contents)])
        return gemini if parts or (hinted is gemini and isinstance(contents, str | list)) else None
    if isinstance(data.get("inputs"), str) and isinstance(data.get("parameters"), dict):
        return text_generation
    return openai_responses if _is_responses(data) else None


def _is_responses(data: dict[str, Any]) -> bool:
    content = data.get("input")
    if _OTHER_INPUTS & data.keys() or _OTHER_MODELS.search(as_str(data.get("model"))):
        return False
    if isinstance(content, list) and content:
        items = dicts(content)
        return len(items) == len(content) and any("type" in i or "role" in i for i in items)
    if not isinstance(data.get("model"), str):
        return False
    return isinstance(content, str | list) or isinstance(data.get("previous_response_id"), str)


def _find_chat_reader(data: dict[str, Any], hinted: Reader | None) -> Reader:
    """Choose between Anthropic and chat completions by the number of signs for each."""
    messages = dicts(data["messages"])
    if "toolConfig" in data or bedrock.has_converse_blocks(messages):
        return bedrock
    if hinted is cohere or any("tool_plan" in message for message in messages):
        return cohere
    tools = dicts(data.get("tools"))
    blocks = {as_str(block.get("type")) for m in messages for block in dicts(m.get("content"))}
    roles = {as_str(message.get("role")) for message in messages}
    for_anthropic = (
        len(_ANTHROPIC_KEYS & data.keys())
        + bool(_ANTHROPIC_BLOCKS & blocks)
        + any("input_schema" in tool for tool in tools)
        + (hinted is anthropic)
    )
    for_openai = (
        len(_OPENAI_KEYS & data.keys())
        + bool(_OPENAI_BLOCKS & blocks)
        + len(_OPENAI_ROLES & roles)
        + any("function" in tool for tool in tools)
        + any("tool_calls" in m or "tool_call_id" in m for m in messages)
        + (hinted is openai)
    )
    if for_anthropic != for_openai:
        return anthropic if for_anthropic > for_openai else openai
    if hinted in (anthropic, openai):
        return hinted
    claude = as_str(data.get("model")).startswith("claude") and "max_tokens" in data
    return anthropic if claude else openai


def _find_response_reader(data: dict[str, Any], hinted: Reader | None) -> Reader | None:
    """Choose the reader of a response, an error body, or one event of a stream."""
    kind = as_str(data.get("type"))
    if isinstance(data.get("choices"), list):
        return openai
    if isinstance(data.get("candidates"), list) or "usageMetadata" in data:
        return gemini
    if "promptFeedback" in data:
        return gemini
    if "generated_text" in data:
        return text_generation
    if bedrock.EVENT_KEYS & data.keys() or bedrock.is_error(data):
        return bedrock
    if isinstance(as_dict(data.get("output")).get("message"), dict):
        return bedrock
    if kind in cohere.EVENTS or (
        isinstance(data.get("message"), dict) and isinstance(data.get("finish_reason"), str)
    ):
        return cohere
    if data.get("object") == "response" or kind.startswith("response."):
        return openai_responses
    if kind in ("message_start", "content_block_start", "content_block_delta", "message_delta"):
        return anthropic
    if kind == "message" and isinstance(data.get("content"), list):
        return anthropic
    if isinstance(data.get("done"), bool) and ("message" in data or "response" in data):
        return ollama
    if isinstance(data.get("output"), list) and "status" in data:
        return openai_responses
    return _find_error_reader(data, hinted)


def _find_error_reader(data: dict[str, Any], hinted: Reader | None) -> Reader | None:
    error = data.get("error")
    if _is_vllm_error(data):
        return openai
    if hinted in (bedrock, cohere) and isinstance(data.get("message"), str):
        return hinted
    if data.get("type") == "error":
        if isinstance(error, dict):
            return hinted or anthropic
        return openai_responses if "message" in data else None
    if isinstance(error, dict):
        if isinstance(error.get("status"), str) and isinstance(error.get("code"), int):
            return gemini
        return (hinted or openai) if "message" in error else None
    return openai if isinstance(error, str) and error and hinted is openai else None


def _is_vllm_error(data: dict[str, Any]) -> bool:
    return data.get("object") == "error" and isinstance(data.get("message"), str)
