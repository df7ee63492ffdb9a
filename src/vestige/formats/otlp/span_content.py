"""What went into a span and what came out, from wherever the conventions keep it.

    content = content_of(attributes, events, "llm")
    content.input, content.output       # text, or None
    content.used                        # the keys that need not stand among the attributes as well

What a model was asked and what it answered are put together as a chat completions request and
answer, whichever way they came, so that every question about prompts and answers can be asked of
them. Where a span holds the very request (OpenInference's `input.value`), that is kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from vestige.formats.otlp import chat_messages
from vestige.formats.otlp.any_value import Object, decoded, objects_of
from vestige.formats.otlp.parse_span import Event
from vestige.formats.otlp.span_types import LLM
from vestige.providers.parsing import parse_request, parse_response
from vestige.record.coercion import clean_text, text_of_bytes

_IN: Final = (
    "input.value",
    "gen_ai.tool.call.arguments",
    "tool_arguments",
    "traceloop.entity.input",
    "tool.parameters",
)
_OUT: Final = (
    "output.value",
    "gen_ai.tool.call.result",
    "tool_response",
    "traceloop.entity.output",
    "final_result",
)
_MESSAGES_IN: Final = ("gen_ai.input.messages", "pydantic_ai.all_messages", "all_messages_events")
_PREFIXES_IN: Final = ("llm.input_messages.", "gen_ai.prompt.", "llm.prompts.")
_PREFIXES_OUT: Final = ("llm.output_messages.", "gen_ai.completion.")
_ASIDE_IN: Final = ("gen_ai.system_instructions", "gen_ai.tool.definitions", "input.mime_type")
_PREFIXES_ASIDE: Final = ("llm.tools.", "llm.request.functions.")
_DOCUMENTS: Final = ("retrieval.documents.", "reranker.output_documents.")
_DOCUMENTS_IN: Final = "reranker.input_documents."


class Content(msgspec.Struct):
    input: str | None = None
    output: str | None = None
    used: set[str] = msgspec.field(default_factory=set)
    model: str | None = None
    """That the request names: an answer that never came names none."""
    events: set[int] = msgspec.field(default_factory=set)
    """Places of the events that are part of it."""


def content_of(attributes: Object, events: list[Event], type_: str, model: str | None) -> Content:
    content = Content()
    if type_ == LLM:
        told = _from_events(attributes, events, content)
        content.input = _request(attributes, told, model)
        if model is None and content.input is not None:
            request = parse_request(content.input)
            content.model = request.model if request is not None else None
        content.output = _answer(attributes, told, model)
    else:
        content.input = (
            _first(attributes, _IN)
            or _listed(attributes, _DOCUMENTS_IN)
            or _first(attributes, _MESSAGES_IN)
        )
        content.output = (
            _first(attributes, _OUT)
            or _documents(attributes)
            or _first(attributes, ("gen_ai.output.messages",))
        )
    exact = (*_MESSAGES_IN, *_IN, *_ASIDE_IN), ("gen_ai.output.messages", "output.mime_type", *_OUT)
    begins = (*_PREFIXES_IN, *_PREFIXES_ASIDE, _DOCUMENTS_IN), (*_PREFIXES_OUT, *_DOCUMENTS)
    for side, body in enumerate((content.input, content.output)):
        if body is not None:
            content.used.update(key for key in exact[side] if key in attributes)
            content.used.update(key for key in attributes if key.startswith(begins[side]))
    return content


# --- models ---------------------------------------------------------------------------------------


def _request(attributes: Object, told: chat_messages.ChatMessages, model: str | None) -> str | None:
    given = _text(attributes.get("input.value"))
    if given is not None and parse_request(given) is not None:
        return given
    messages = _found_messages(attributes, "gen_ai.input.messages", _PREFIXES_IN) or told.asked
    if not messages:
        return given or _first(attributes, _IN)
    system = chat_messages.parts_text(decoded(attributes.get("gen_ai.system_instructions")))
    if system:
        messages = [{"role": "system", "content": system}, *messages]
    tools = chat_messages.tools_of(attributes, decoded(attributes.get("gen_ai.tool.definitions")))
    for message in messages:
        message.pop("finish_reason", None)  # of an answer that was given before
    request: Object = {"model": model} if model else {}
    request["messages"] = messages
    return _json(request | ({"tools": tools} if tools else {}))


def _answer(attributes: Object, told: chat_messages.ChatMessages, model: str | None) -> str | None:
    given = _text(attributes.get("output.value"))
    if given is not None and parse_response(given) is not None:
        return given
    messages = _found_messages(attributes, "gen_ai.output.messages", _PREFIXES_OUT) or told.answered
    if not messages:
        return given or _first(attributes, _OUT)
    choices = []
    for index, message in enumerate(messages):
        reason = message.pop("finish_reason", None)
        choices.append(
            {"index": index, "message": message, "finish_reason": chat_messages.finish(reason)}
        )
    return _json(({"model": model} if model else {}) | {"choices": choices})


def _found_messages(attributes: Object, key: str, prefixes: tuple[str, ...]) -> list[Object]:
    held = decoded(attributes.get(key))
    if isinstance(held, list):
        return [each for message in objects_of(held) for each in chat_messages.from_parts(message)]
    for prefix in prefixes:
        messages = chat_messages.from_keys(attributes, prefix)
        if messages:
            return messages
    return []


def _from_events(
    attributes: Object, events: list[Event], content: Content
) -> chat_messages.ChatMessages:
    """Messages that were told as events: on the span, or as Logfire writes them, in an attribute."""
    told = chat_messages.ChatMessages()
    for place, event in enumerate(events):
        if told.take(event.name, event.attributes):
            content.events.add(place)
    held = decoded(attributes.get("events"))
    if isinstance(held, list) and any("event.name" in each for each in objects_of(held)):
        content.used.add("events")
        for each in objects_of(held):
            told.take(str(each.get("event.name")), each)
    return told


# --- anything else ----------------------------------------------------------------------------------


def _first(attributes: Object, keys: Iterable[str]) -> str | None:
    for key in keys:
        text = _text(attributes.get(key))
        if text is not None:
            return text
    return None


def _documents(attributes: Object) -> str | None:
    for prefix in _DOCUMENTS:
        found = _listed(attributes, prefix)
        if found is not None:
            return found
    return None


def _listed(attributes: Object, prefix: str) -> str | None:
    found = chat_messages.unflattened(attributes, prefix)
    return _json([each.get("document", each) for each in found]) if found else None


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return clean_text(value)
    return text_of_bytes(value) if isinstance(value, bytes) else _json(value)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, TypeError, RecursionError):
        from vestige.record.json_render import json_text  # lone surrogates, huge numbers

        return clean_text(json_text(value, 1 << 20))
