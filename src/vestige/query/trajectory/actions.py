"""Actions of a step: tool spans, requested calls, code executions, sub-agents.

A wrapper and its inner span (`execute_tool x` and `x`) are one action. A call without a span has
the arguments of the answer; its result comes from a later request.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from vestige.query.evidence import Evidence
from vestige.query.trajectory.message_items import make_item
from vestige.query.trajectory.span_roles import find_call_id, get_tool_name
from vestige.query.trajectory.types import Action, ActionKind, Item, Side
from vestige.record.run import BodyRef, SpanInfo

_PREFIX: Final = re.compile(r"^(?:execute_tool|running tool:?|tool:?|call_tool)\s+", re.IGNORECASE)
_SUFFIX: Final = re.compile(r"(?:\.execution|\.run|\.execute|\.invoke|\.tool)$")
SAME_VALUE_MAX: Final = 1_000_000
"""Characters of a result that is compared as JSON."""
_BOILERPLATE: Final = frozenset(["sanitize_inputs_outputs"])


def base_name(span: SpanInfo) -> str:
    """Return the tool's name without the words of instrumentation."""
    return _SUFFIX.sub("", _PREFIX.sub("", get_tool_name(span)))


def is_same_tool(outer: SpanInfo, inner: SpanInfo) -> bool:
    """Return True if the inner span is the execution that the outer one wraps."""
    outer_id, inner_id = find_call_id(outer), find_call_id(inner)
    if outer_id is not None and inner_id is not None:
        return outer_id == inner_id
    names = {base_name(outer), _SUFFIX.sub("", outer.name)}
    return base_name(inner) in names or _SUFFIX.sub("", inner.name) in names


def make_action(evidence: Evidence, span: SpanInfo, kind: ActionKind, name: str) -> Action:
    """Return the action of a span."""
    arguments = body_item(evidence, span, "input", "assistant")
    if arguments is not None:
        arguments.kind = "tool_call"
        arguments.name = name
        arguments.text = simplify_arguments(arguments.text)
    result = body_item(evidence, span, "output", "tool")
    if result is not None:
        result.kind = "tool_result"
        result.is_error = span.status not in ("ok", None)
    return Action(
        kind=kind,
        name=name,
        arguments=arguments,
        result=result,
        error=error_text(span),
        status=span.status or "open",
        span_id=span.id,
        call_id=find_call_id(span),
        started_ns=span.started_ns,
        duration_ns=span.duration_ns,
        span_ids=[span.id],
        file_diff=str(span.attributes.get("file_diff") or ""),
    )


def merge_inner(action: Action, inner: Action) -> None:
    """Add the facts of the inner span of the same execution."""
    action.span_ids += inner.span_ids
    action.arguments = action.arguments or inner.arguments
    action.result = action.result or inner.result
    action.error = action.error or inner.error
    action.call_id = action.call_id or inner.call_id


def unexecuted_action(item: Item) -> Action:
    """Return the action of a call in an answer that has no span."""
    return Action(
        kind="code" if item.kind == "code" else "tool",
        name="code" if item.kind == "code" else item.name or "tool",
        arguments=item,
        result=None,
        error=None,
        status="unanswered",
        span_id=None,
        call_id=item.call_id,
        started_ns=None,
        duration_ns=None,
    )


def body_item(evidence: Evidence, span: SpanInfo, side: Side, role: str) -> Item | None:
    """Return a body as an item; None if the span has none."""
    ref: BodyRef | None = span.input if side == "input" else span.output
    if ref is None:
        return None
    text = evidence.input(span) if side == "input" else evidence.output(span)
    if text is None:
        item = make_item(role, "other", f"[{ref.cut or 'no longer in the store'}]", span.id, side)
        item.truncated = True
    else:
        item = make_item(role, "text", unquote(text), span.id, side)
    item.size_bytes = ref.size_bytes
    index = span.attributes.get("message_index")
    item.message_index = index if isinstance(index, int) else None
    return item


def unquote(text: str) -> str:
    """Return the value of a JSON string; another text unchanged."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            value = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return text
        return value if isinstance(value, str) else text
    return text


def is_same_value(a: str, b: str) -> bool:
    """Return True if two texts are one JSON value, or one is the other as a JSON string."""
    a, b = unquote(a), unquote(b)
    if a == b:
        return True
    if a[:1] not in ("{", "[") or a[:1] != b[:1] or max(len(a), len(b)) > SAME_VALUE_MAX:
        return False
    try:
        return bool(msgspec.json.decode(a) == msgspec.json.decode(b))
    except (ValueError, RecursionError):
        return False


def simplify_arguments(text: str) -> str:
    """Return `{"args": [], "kwargs": {...}}`, as some instrumentations write it, as its kwargs."""
    if '"kwargs"' not in text or len(text) > 100_000:
        return text
    try:
        value: Any = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict) or not isinstance(value.get("kwargs"), dict):
        return text
    if set(value) - {"args", "kwargs"} - _BOILERPLATE:
        return text
    args = value.get("args") or []
    if not args:
        return msgspec.json.encode(value["kwargs"]).decode()
    shown = args[0] if len(args) == 1 and not value["kwargs"] else {"args": args, **value["kwargs"]}
    return shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()


def error_text(span: SpanInfo) -> str | None:
    """Return `Type: message` of a failed span; None for a span that did not fail."""
    if span.status in ("ok", None):
        return None
    kind, message = (span.attributes.get(f"error.{part}") for part in ("type", "message"))
    text = ": ".join(str(part)[:4_000] for part in (kind, message) if part)
    return text or str(span.status)
