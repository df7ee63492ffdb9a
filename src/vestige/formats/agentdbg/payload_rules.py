"""Rules for the payload of each event type, from the format's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

from vestige.formats.agentdbg.file_structs import REDACTED, parse_timestamp
from vestige.formats.protocol import is_uuid4
from vestige.record.redaction.masking import MARK, is_secret_key

Found = tuple[str, str, str, bool]
"""Pointer inside the payload, rule, message, is it only a warning?"""

Holds = Callable[[Any], bool]

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def is_int(value: Any) -> TypeGuard[int]:
    return type(value) is int


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_uuid(value: Any) -> bool:
    return isinstance(value, str) and is_uuid4(value)


def is_timestamp(value: Any) -> TypeGuard[str]:
    if not isinstance(value, str) or _TIMESTAMP.fullmatch(value) is None:
        return False
    return parse_timestamp(value) is not None


def or_null(holds: Holds) -> Holds:
    return lambda value: value is None or holds(value)


def _is_value(value: Any) -> bool:
    """`string | object | null`; AgentDbg itself writes lists of messages too."""
    return value is None or isinstance(value, (str, dict, list))


def _is_status(value: Any) -> bool:
    return value in ("ok", "error")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_uuid, value))


_VALUE = (_is_value, "a string, object, array or null")
_STATUS = (_is_status, "ok or error")
_TEXT = (is_text, "a string")
_MAYBE_TEXT = (or_null(is_text), "a string or null")
_ERROR = (or_null(is_object), "an object or null")
_RULES: dict[str, dict[str, tuple[Holds, str]]] = {
    "RUN_START": {
        "run_name": _MAYBE_TEXT,
        "python_version": _TEXT,
        "platform": _TEXT,
        "cwd": _TEXT,
        "argv": (_is_texts, "an array of strings"),
    },
    "RUN_END": {"status": _STATUS, "summary": (is_object, "an object")},
    "LLM_CALL": {
        "model": _TEXT,
        "prompt": _VALUE,
        "response": _VALUE,
        "usage": (or_null(is_object), "an object or null"),
        "provider": _TEXT,
        "temperature": (or_null(is_number), "a number or null"),
        "stop_reason": _MAYBE_TEXT,
        "status": _STATUS,
        "error": _ERROR,
    },
    "TOOL_CALL": {
        "tool_name": _TEXT,
        "args": _VALUE,
        "result": _VALUE,
        "status": _STATUS,
        "error": _ERROR,
    },
    "STATE_UPDATE": {"state": _VALUE},
    "ERROR": {"error_type": _TEXT, "message": _TEXT, "stack": _MAYBE_TEXT},
    "LOOP_WARNING": {
        "pattern": _TEXT,
        "repetitions": (is_count, "a whole number"),
        "window_size": (is_count, "a whole number"),
        "evidence_event_ids": (_is_ids, "an array of event ids"),
    },
}
_USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
_SUMMARY = ("llm_calls", "tool_calls", "errors", "duration_ms")


def check_payload(kind: str, payload: dict[str, Any]) -> Iterator[Found]:
    """Yield the problems of a payload. Additional fields are allowed."""
    for key, (holds, expected) in _RULES.get(kind, {}).items():
        if key not in payload:
            yield f"/{key}", "payload-missing", f"missing (expected {expected}).", False
        elif not holds(payload[key]):
            yield f"/{key}", "payload-type", f"expected {expected}.", False
    if kind in ("LLM_CALL", "TOOL_CALL"):
        yield from _call(payload)
    if kind == "LLM_CALL" and is_object(payload.get("usage")):
        yield from _numbers("/usage", payload["usage"], _USAGE, or_null(is_count))
    elif kind == "RUN_END" and is_object(payload.get("summary")):
        yield from _numbers("/summary", payload["summary"], _SUMMARY, is_count)
    elif kind == "STATE_UPDATE" and not _is_value(payload.get("diff")):
        yield "/diff", "payload-type", "expected a string, object, array or null.", False
    elif kind == "ERROR" and "type" in payload and "error_type" not in payload:
        yield "/type", "error-type", "the class name belongs into error_type.", False
    elif kind == "RUN_START" and _is_texts(payload.get("argv")):
        yield from _argv(payload["argv"])


def _call(payload: dict[str, Any]) -> Iterator[Found]:
    error = payload.get("error")
    if payload.get("status") == "error" and error is None:
        yield "/error", "error-missing", "the call failed, but has no error.", False
    if is_object(error):
        for key in ("error_type", "message"):
            if not is_text(error.get(key)):
                yield f"/error/{key}", "payload-type", "expected a string.", False
        if not or_null(is_text)(error.get("stack")):
            yield "/error/stack", "payload-type", "expected a string or null.", False


def _numbers(
    at: str, value: dict[str, Any], keys: tuple[str, ...], holds: Holds
) -> Iterator[Found]:
    for key in keys:
        if key not in value:
            yield f"{at}/{key}", "payload-missing", "missing.", False
        elif not holds(value[key]):
            yield f"{at}/{key}", "payload-type", "expected a whole number.", False


def _argv(argv: list[str]) -> Iterator[Found]:
    """Values of options that name a secret are redacted before they are written."""
    for number, word in enumerate(argv):
        option, joined, value = word.partition("=")
        if not option.startswith("-") or not is_secret_key(option.strip("-")):
            continue
        if not joined:
            number += 1  # the next word is its value
            value = argv[number] if number < len(argv) else ""
            if value.startswith("-"):
                continue
        if value and REDACTED not in value and MARK not in value:
            yield f"/argv/{number}", "secret-in-clear", f"the value of {option[:50]}.", False
