"""Build an event's payload and `meta` from a span's attributes and bodies.

    payloads = EventPayloads(run_id)
    payloads.tool(opened, closed, attributes)      # the payload of a TOOL_CALL

Every text goes through the shaper, which masks and cuts as the settings say. Attributes that the
format has a field for are in the payload; the others are in `meta`, under our own key.

Elsewhere: which event, when, and inside of which, formats/agentdbg/from_records.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from vestige.formats.agentdbg.constants import (
    DETAILS,
    END_EVENT_ID,
    EVENT_ID,
    GUARDRAILS,
    INSTANT,
    JSON,
    LOOP_EVIDENCE,
    LOOP_PATTERN,
    LOOP_REPETITIONS,
    LOOP_WINDOW,
    META,
    PAYLOAD,
    PLAIN,
    RUN_TIMES,
    START_TS,
    span_event_id,
)
from vestige.formats.agentdbg.event_values import Shaper
from vestige.formats.agentdbg.file_structs import META_KEY
from vestige.record.coercion import text_of_bytes
from vestige.record.types import Attributes, Log, SpanClose, SpanOpen

OWN_KNOWN: Final = frozenset(
    (
        EVENT_ID,
        END_EVENT_ID,
        META,
        PAYLOAD,
        PLAIN,
        JSON,
        INSTANT,
        LOOP_PATTERN,
        LOOP_REPETITIONS,
        LOOP_WINDOW,
        LOOP_EVIDENCE,
        DETAILS,
        START_TS,
        RUN_TIMES,
        *GUARDRAILS,
        "error.message",
        "error.stack",
    )
)
LLM_KNOWN: Final = OWN_KNOWN | {
    "model",
    "provider",
    "temperature",
    "finish_reason",
    "stop_reason",
    "input_tokens",
    "output_tokens",
    "total_tokens",
}
TOOL_KNOWN: Final = OWN_KNOWN | {"tool_name"}
FAILED_RUN_KNOWN: Final = OWN_KNOWN | {"python", "platform", "cwd", "argv"}
RUN_KNOWN: Final = FAILED_RUN_KNOWN | {"error.type"}

ReadSpilled = Callable[[SpanOpen | SpanClose | Log], bytes | None]
"""The bytes of a body that is not in its record."""


class EventPayloads:
    """Payloads and `meta` of the events of one run."""

    def __init__(
        self, run_id: str, shaper: Shaper | None = None, read_spilled: ReadSpilled | None = None
    ) -> None:
        self._run_id = run_id
        self._shaper = shaper or Shaper()
        self.string = self._shaper.string
        self._read_spilled = read_spilled

    def run_start(self, record: SpanOpen, process: Mapping[str, Any]) -> dict[str, Any]:
        attributes = {**process, **record.attributes}
        return {
            "run_name": self.string(record.name),
            "python_version": self.string(attributes.get("python")),
            "platform": self.string(attributes.get("platform")),
            "cwd": self.string(attributes.get("cwd")),
            "argv": self._argv(attributes.get("argv")),
        }

    def llm(self, opened: SpanOpen, record: SpanClose, attributes: Attributes) -> dict[str, Any]:
        get = attributes.get
        ok = record.status == "ok"
        return {
            "model": self.string(get("model", opened.name)),
            "prompt": self._body(opened, "prompt", attributes),
            "response": self._body(record, "response", attributes),
            "usage": _usage(attributes),
            "provider": self.string(get("provider", "unknown")),
            "temperature": get("temperature"),
            "stop_reason": self._shaper.value(get("finish_reason", get("stop_reason"))),
            "status": "ok" if ok else "error",
            "error": None if ok else self.error(attributes, record.status),
        }

    def tool(self, opened: SpanOpen, record: SpanClose, attributes: Attributes) -> dict[str, Any]:
        ok = record.status == "ok"
        return {
            "tool_name": self.string(attributes.get("tool_name", opened.name)),
            "args": self._body(opened, "args", attributes),
            "result": self._body(record, "result", attributes),
            "status": "ok" if ok else "error",
            "error": None if ok else self.error(attributes, record.status),
        }

    def state(self, opened: SpanOpen, record: SpanClose, attributes: Attributes) -> dict[str, Any]:
        """Return the state: the input of the span, or its output without an input."""
        first = self._body(opened, "state", attributes)
        if opened.body is None and opened.body_info is None:
            return {"state": self._body(record, "state", attributes), "diff": None}
        return {"state": first, "diff": self._body(record, "diff", attributes)}

    def loop(self, attributes: Attributes) -> dict[str, Any]:
        evidence = _json(attributes.get(LOOP_EVIDENCE))
        return {
            "pattern": self.string(attributes[LOOP_PATTERN]),
            "repetitions": _count(attributes.get(LOOP_REPETITIONS)),
            "window_size": _count(attributes.get(LOOP_WINDOW)),
            "evidence_event_ids": [
                span_event_id(self._run_id, each) if len(each) == 16 else each
                for each in (evidence if isinstance(evidence, list) else [])
                if isinstance(each, str)
            ],
        }

    def error(self, attributes: Attributes, status: str, default: str = "") -> dict[str, Any]:
        get = attributes.get
        kind = get("error.type")
        details = get(DETAILS)
        stack = get("error.stack")
        message = get("error.message")
        guardrail = {
            field: attributes[key] for key, field in GUARDRAILS.items() if key in attributes
        }
        return {
            "error_type": _class_name(kind) if kind else _FAILED.get(status, "Error"),
            "message": self.string(default or status if message is None else message),
            "stack": self.string(stack) if isinstance(stack, str) else None,
            "details": self._shaper.value(_json(details)),
            **guardrail,
        }

    def more(self, attributes: Attributes) -> dict[str, Any]:
        """Return the fields of an imported payload that have no other place."""
        return self._object(attributes[PAYLOAD]) if PAYLOAD in attributes else {}

    def meta(
        self,
        record: SpanOpen | Log,
        attributes: Attributes,
        known: frozenset[str],
        status: str = "ok",
    ) -> dict[str, Any]:
        """Return the caller's `meta`, with the remaining attributes under our key."""
        meta = self._object(attributes[META]) if META in attributes else {}
        ours: dict[str, Any] = {"component": record.component}
        if record.span_id is not None:
            ours["span_id"] = record.span_id
        if isinstance(record, SpanOpen) and record.type not in _SAME_TYPE:
            ours["type"] = record.type
        if status not in PLAIN_STATUS:
            ours["status"] = status
        if not known.issuperset(attributes):
            more = {key: value for key, value in attributes.items() if key not in known}
            ours["attributes"] = self._shaper.value(more)
        meta[META_KEY] = ours
        return meta

    def _body(self, record: SpanOpen | SpanClose, field: str, attributes: Attributes) -> Any:
        info = record.body_info
        text = record.body
        if info is not None and (info.spilled_bytes is not None or info.encoding == "base64"):
            if info.spilled_bytes is not None:
                data = self._read_spilled(record) if self._read_spilled is not None else None
                text = text if data is None else text_of_bytes(data)
            elif text is not None:
                text = f"base64:{text}"
        if text is None:
            return None
        if PLAIN not in attributes and JSON not in attributes:
            return self._shaper.body(text)
        plain, json = attributes.get(PLAIN), attributes.get(JSON)
        return self._shaper.body(
            text,
            plain=isinstance(plain, str) and field in plain.split(","),
            json=isinstance(json, str) and field in json.split(","),
        )

    def _object(self, text: Any) -> dict[str, Any]:
        value = _json(text)
        return self._shaper.value(value) if isinstance(value, dict) else {}

    def _argv(self, text: Any) -> list[str]:
        words = _json(text)
        return [self.string(word) for word in words] if isinstance(words, list) else []


PLAIN_STATUS = frozenset(("ok", "error"))
_SAME_TYPE = frozenset(("run", "llm", "tool", "state"))
_FAILED = {"interrupted": "Interrupted", "cancelled": "Cancelled", "timeout": "TimeoutError"}
_decode = msgspec.json.Decoder().decode


def status_of(status: str) -> Any:
    return "ok" if status == "ok" else "error"


def _class_name(kind: Any) -> str:
    """Return the class name alone, as the format requires. The qualified name is in `meta`."""
    return str(kind).rpartition(".")[2] or str(kind)


def _usage(attributes: Attributes) -> dict[str, int | None] | None:
    get = attributes.get
    read, written, total = get("input_tokens"), get("output_tokens"), get("total_tokens")
    if not (type(read) is type(written) is type(total) is int):
        read, written, total = _number(read), _number(written), _number(total)
    if read is None and written is None and total is None:
        return None
    if total is None and read is not None and written is not None:
        total = read + written
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": total}


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


def _count(value: Any) -> int:
    return value if type(value) is int else 0


def _json(text: Any) -> Any:
    """Return the JSON value of an attribute, or the text itself if it is not JSON."""
    if not isinstance(text, str):
        return text
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
