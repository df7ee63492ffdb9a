"""Extract the input and output of a span, from the attributes and events of any convention.

    content = extract_content(attributes, events, "llm", model)
    content.input, content.output       # text, or None
    content.used                        # attributes that the input and output already contain

Input and output of a model call become a chat completions request and response, so that queries
and checks can parse them. If a span contains the original request (OpenInference's `input.value`),
it is used unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.formats.otlp import chat_messages
from vestige.formats.otlp.any_value import Object, as_objects, decode_json_text
from vestige.formats.otlp.parse_span import Event
from vestige.formats.otlp.span_types import LLM
from vestige.providers.parsing import parse_request, parse_response
from vestige.record.coercion import clean_text, text_of_bytes

_INPUT_KEYS: Final = (
    "input.value",
    "gen_ai.tool.call.arguments",
    "tool_arguments",
    "traceloop.entity.input",
    "tool.parameters",
)
_OUTPUT_KEYS: Final = (
    "output.value",
    "gen_ai.tool.call.result",
    "tool_response",
    "traceloop.entity.output",
    "final_result",
)
_MESSAGE_KEYS: Final = ("gen_ai.input.messages", "pydantic_ai.all_messages", "all_messages_events")
_INPUT_PREFIXES: Final = ("llm.input_messages.", "gen_ai.prompt.", "llm.prompts.")
_OUTPUT_PREFIXES: Final = ("llm.output_messages.", "gen_ai.completion.")
_REQUEST_KEYS: Final = ("gen_ai.system_instructions", "gen_ai.tool.definitions", "input.mime_type")
_TOOL_PREFIXES: Final = ("llm.tools.", "llm.request.functions.")
_OUTPUT_DOCUMENTS: Final = ("retrieval.documents.", "reranker.output_documents.")
_INPUT_DOCUMENTS: Final = "reranker.input_documents."


class Content(msgspec.Struct):
    input: str | None = None
    output: str | None = None
    used: set[str] = msgspec.field(default_factory=set)
    model: str | None = None
    """Model of the request, for a call whose attributes do not name one."""
    events: set[int] = msgspec.field(default_factory=set)
    """Indexes of the events that the input and output already contain."""


def extract_content(
    attributes: Object, events: list[Event], type_: str, model: str | None
) -> Content:
    content = Content()
    if type_ == LLM:
        messages = _messages_from_events(attributes, events, content)
        content.input = _build_request(attributes, messages.input, model)
        if model is None and content.input is not None:
            request = parse_request(content.input)
            content.model = request.model if request is not None else None
        content.output = _build_response(attributes, messages.output, model)
    else:
        content.input = (
            _first_text(attributes, _INPUT_KEYS)
            or _document_list(attributes, _INPUT_DOCUMENTS)
            or _first_text(attributes, _MESSAGE_KEYS)
            or _event_text(events, "message", content)
        )
        content.output = (
            _first_text(attributes, _OUTPUT_KEYS)
            or _output_documents(attributes)
            or _first_text(attributes, ("gen_ai.output.messages",))
            or _event_text(events, "choice", content)
        )
    exact = (
        (*_MESSAGE_KEYS, *_INPUT_KEYS, *_REQUEST_KEYS),
        ("gen_ai.output.messages", "output.mime_type", *_OUTPUT_KEYS),
    )
    prefixes = (
        (*_INPUT_PREFIXES, *_TOOL_PREFIXES, _INPUT_DOCUMENTS),
        (*_OUTPUT_PREFIXES, *_OUTPUT_DOCUMENTS),
    )
    for side, body in enumerate((content.input, content.output)):
        if body is not None:
            content.used.update(key for key in exact[side] if key in attributes)
            content.used.update(key for key in attributes if key.startswith(prefixes[side]))
    return content


# --- model calls ----------------------------------------------------------------------------------


def _build_request(attributes: Object, from_events: list[Object], model: str | None) -> str | None:
    original = _to_text(attributes.get("input.value"))
    if original is not None and parse_request(original) is not None:
        return original
    messages = _find_messages(attributes, "gen_ai.input.messages", _INPUT_PREFIXES) or from_events
    if not messages:
        return original or _first_text(attributes, _INPUT_KEYS)
    instructions = decode_json_text(attributes.get("gen_ai.system_instructions"))
    if system := chat_messages.join_part_texts(instructions):
        messages = [{"role": "system", "content": system}, *messages]
    definitions = decode_json_text(attributes.get("gen_ai.tool.definitions"))
    tools = chat_messages.parse_tools(attributes, definitions)
    for message in messages:
        message.pop("finish_reason", None)  # set on assistant messages of earlier responses
    request: Object = {"model": model} if model else {}
    request["messages"] = messages
    return _to_json(request | ({"tools": tools} if tools else {}))


def _build_response(attributes: Object, from_events: list[Object], model: str | None) -> str | None:
    original = _to_text(attributes.get("output.value"))
    if original is not None and parse_response(original) is not None:
        return original
    messages = _find_messages(attributes, "gen_ai.output.messages", _OUTPUT_PREFIXES) or from_events
    if not messages:
        return original or _first_text(attributes, _OUTPUT_KEYS)
    choices = []
    for index, message in enumerate(messages):
        reason = chat_messages.normalize_finish_reason(message.pop("finish_reason", None))
        choices.append({"index": index, "message": message, "finish_reason": reason})
    return _to_json(({"model": model} if model else {}) | {"choices": choices})


def _find_messages(attributes: Object, key: str, prefixes: tuple[str, ...]) -> list[Object]:
    items = decode_json_text(attributes.get(key))
    if isinstance(items, list):
        return [
            message for item in as_objects(items) for message in chat_messages.parse_message(item)
        ]
    for prefix in prefixes:
        messages = chat_messages.parse_flat_messages(attributes, prefix)
        if messages:
            return messages
    return []


def _messages_from_events(
    attributes: Object, events: list[Event], content: Content
) -> chat_messages.ChatMessages:
    """Collect messages from the span's events and from Logfire's attribute `events`."""
    messages = chat_messages.ChatMessages()
    for index, event in enumerate(events):
        if messages.add_event(event.name, event.attributes):
            content.events.add(index)
    items = decode_json_text(attributes.get("events"))
    if isinstance(items, list) and any("event.name" in item for item in as_objects(items)):
        content.used.add("events")
        for item in as_objects(items):
            messages.add_event(str(item.get("event.name")), item)
    return messages


# --- other spans ----------------------------------------------------------------------------------


def _first_text(attributes: Object, keys: Iterable[str]) -> str | None:
    for key in keys:
        text = _to_text(attributes.get(key))
        if text is not None:
            return text
    return None


def _event_text(events: list[Event], ending: str, content: Content) -> str | None:
    """Return the content of the last event of a kind, as Strands writes it for tools and agents."""
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.name.startswith("gen_ai.") and event.name.endswith(ending):
            text = _first_text(event.attributes, ("content", "message"))
            if text is not None:
                content.events.add(index)
            return text
    return None


def _output_documents(attributes: Object) -> str | None:
    for prefix in _OUTPUT_DOCUMENTS:
        documents = _document_list(attributes, prefix)
        if documents is not None:
            return documents
    return None


def _document_list(attributes: Object, prefix: str) -> str | None:
    items = chat_messages.unflatten(attributes, prefix)
    return _to_json([item.get("document", item) for item in items]) if items else None


def _to_text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return clean_text(value)
    return text_of_bytes(value) if isinstance(value, bytes) else _to_json(value)


def _to_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, TypeError, RecursionError):
        from vestige.record.json_render import json_text  # lone surrogates, huge numbers

        return clean_text(json_text(value, 1 << 20))
