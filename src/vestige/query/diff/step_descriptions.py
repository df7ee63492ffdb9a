"""The content of two aligned steps in few words: `exchange_rate(USD, EUR)`, `0.92` and `10.0`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from vestige.query import formatting
from vestige.query.diff.repeated_changes import input_texts
from vestige.query.diff.word_diff import find_difference
from vestige.query.evidence import Evidence
from vestige.query.trajectory.headline import short_arguments
from vestige.query.views.lines.tool_arguments import describe_arguments
from vestige.record.run import LogInfo, Node, SpanInfo
from vestige.record.types import MODEL_CALL_TYPES

CONTENT_SHOWN: Final = 90
FIELDS_SHOWN: Final = 3
_CONTAINERS: Final = ("run", "agent", "step")
SIZE_MAX: Final = 256 * 1024
"""Longer texts are not parsed for a row."""


def describe_step(node: Node, evidence: Evidence) -> str:
    """Return the name of a step; of a tool with its arguments, of a model call with the model."""
    if isinstance(node, LogInfo):
        return formatting.single_line(f"{node.level}: {node.message}", CONTENT_SHOWN)
    name = formatting.single_line(node.name, 60)
    if node.type == "tool":
        return name + describe_arguments(evidence, node)
    model = node.attributes.get("model")
    return f"{name} [{formatting.single_line(model, 40)}]" if isinstance(model, str) else name


def describe_difference(
    a: SpanInfo, b: SpanInfo, sides: tuple[Evidence, Evidence], rules: tuple[str, ...]
) -> tuple[str, str] | None:
    """Return what differs: the results of two spans, or else their inputs.

    The result of a container, such as an agent, follows from its steps: its input comes first.
    """
    errors = [_error(span) for span in (a, b)]
    order = ("input", "output") if a.type in _CONTAINERS else ("output", "input")
    for which in order:
        a_text, b_text = _read(sides[0], a, which), _read(sides[1], b, which)
        if a_text == b_text:
            continue
        fields = _differing_fields(a_text, b_text)
        if fields is not None:
            shown = fields
        elif not a_text or not b_text:
            shown = (_line(a_text), _line(b_text))
        else:
            first = find_difference(*_differing_texts(a_text, b_text), rules)
            if first is None:
                continue
            shown = (first.a, first.b)
        if which == "input":
            return shown
        return errors[0] or shown[0], errors[1] or shown[1]
    return (errors[0], errors[1]) if errors[0] != errors[1] else None


def describe_result(span: SpanInfo, evidence: Evidence) -> str:
    """Return the error or the result of a span that only one run has; empty if it has neither."""
    return _error(span) or _line(_read(evidence, span, "output"))


def _read(evidence: Evidence, span: SpanInfo, which: str) -> str:
    """Return the text of a body; of a model call, its messages and what it answered."""
    ref = getattr(span, which)
    if ref is None or ref.size_bytes > SIZE_MAX:
        return ""
    if span.type in MODEL_CALL_TYPES:
        if which == "input" and evidence.request(span) is not None:
            return "\n".join(input_texts(evidence, span))
        response = evidence.response(span) if which == "output" else None
        if response is not None and (response.text or response.calls):
            calls = (f"{call.name}({short_arguments(call.arguments)})" for call in response.calls)
            return "\n".join(filter(None, [response.text, *calls]))
    return getattr(evidence, which)(span) or ""


def _error(span: SpanInfo) -> str:
    text = span.attributes.get("error.message")
    return _line(f"✕ {text}") if span.status not in ("ok", None) and text else ""


def _differing_fields(a: str, b: str) -> tuple[str, str] | None:
    """Return the fields of two JSON objects that differ; None if there are no such fields."""
    objects = _decode_objects(a, b)
    if objects is None:
        return None
    left, right = objects
    keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
    small = [key for key in keys if _is_small(left.get(key)) and _is_small(right.get(key))]
    if not small:
        return None
    chosen = small[:FIELDS_SHOWN]
    return _fields(left, chosen), _fields(right, chosen)


def _differing_texts(a: str, b: str) -> tuple[str, str]:
    """Return the first text that differs in two JSON objects, without escapes; else both texts."""
    left, right = _decode_objects(a, b) or ({}, {})
    for key, value in left.items():
        other = right.get(key)
        if isinstance(value, str) and isinstance(other, str) and value != other:
            return value, other
    return a, b


def _decode_objects(a: str, b: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    try:
        left, right = msgspec.json.decode(a), msgspec.json.decode(b)
    except (ValueError, RecursionError):
        return None
    return (left, right) if isinstance(left, dict) and isinstance(right, dict) else None


def _is_small(value: Any) -> bool:
    return value is None or (isinstance(value, (str, int, float, bool)) and len(str(value)) <= 60)


def _fields(values: dict[str, Any], keys: list[str]) -> str:
    parts = [
        f"{key}={formatting.value(values[key], 60)}" if key in values else f"no {key}"
        for key in keys
    ]
    return _line(", ".join(parts))


def _line(text: str) -> str:
    return formatting.single_line(text, CONTENT_SHOWN)
