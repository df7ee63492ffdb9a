"""`record_llm_call`, `record_tool_call`, `record_state`: record an event that just happened.

Each event is a span that opens and closes at once, marked as an instant, because its duration is
unknown. Text is stored as text and an object as JSON; where the body does not show which of the
two was passed, an attribute does (formats/agentdbg/constants.py).

Only guardrails raise into the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vestige.agentdbg import run_lifecycle
from vestige.agentdbg.settings import warn_once
from vestige.emit.emitter import NO_ATTRIBUTES
from vestige.emit.exception_attributes import error_attributes
from vestige.emit.finished_span import record_finished
from vestige.emit.span import Span
from vestige.formats.agentdbg.constants import DETAILS, INSTANT, JSON, META, PAYLOAD, PLAIN
from vestige.limits import LINE_MAX
from vestige.record.coercion import clean_name, flat, safe_str
from vestige.record.json_render import has_fields, is_container, json_text
from vestige.record.types import Attributes

_FAILED = frozenset(("error", "cancelled", "timeout", "interrupted"))
_LOOKS_LIKE_JSON = frozenset("{[ \t\r\n")
_SAYS_ITSELF = frozenset((dict, list, type(None)))
"""Bodies of these are JSON, or nothing, without a word about it."""
_USAGE = (
    ("input_tokens", "prompt_tokens"),
    ("output_tokens", "completion_tokens"),
    ("total_tokens", "total_tokens"),
)
_USAGE_NAMES = frozenset(theirs for _, theirs in _USAGE)
_ATTRIBUTE_MAX = LINE_MAX // 16
"""Characters of a caller's `meta`: a line with it must still be one."""


def record_llm_call(
    model: str,
    prompt: Any = None,
    response: Any = None,
    usage: Any = None,
    meta: dict[str, Any] | None = None,
    provider: str = "unknown",
    temperature: Any = None,
    stop_reason: str | None = None,
    status: str = "ok",
    error: str | BaseException | dict[str, Any] | None = None,
) -> None:
    """Record one model call."""
    try:
        parent = run_lifecycle.parent_span()
        if parent is None:
            return
        name = model if type(model) is str else safe_str(model)
        attributes: Attributes = {INSTANT: True, "model": name}
        attributes["provider"] = provider if type(provider) is str else flat(provider)
        if temperature is not None:
            attributes["temperature"] = flat(temperature)
        if stop_reason is not None:
            attributes["finish_reason"] = flat(stop_reason)
        if usage is not None:
            _add_usage(attributes, usage)
        if type(prompt) not in _SAYS_ITSELF:
            _add_form(attributes, "prompt", prompt)
        if type(response) not in _SAYS_ITSELF:
            _add_form(attributes, "response", response)
        _record_instant(parent, name, "llm", attributes, prompt, response, meta, status, error)
    except Exception as failure:  # noqa: BLE001  # the program goes on, whatever it passed
        _failed("record_llm_call", failure)


def record_tool_call(
    name: str,
    args: Any = None,
    result: Any = None,
    meta: dict[str, Any] | None = None,
    status: str = "ok",
    error: str | BaseException | dict[str, Any] | None = None,
) -> None:
    """Record one tool call."""
    try:
        parent = run_lifecycle.parent_span()
        if parent is None:
            return
        if type(name) is not str:
            name = safe_str(name)
        attributes: Attributes = {INSTANT: True, "tool_name": name}
        if type(args) not in _SAYS_ITSELF:
            _add_form(attributes, "args", args)
        if type(result) not in _SAYS_ITSELF:
            _add_form(attributes, "result", result)
        _record_instant(parent, name, "tool", attributes, args, result, meta, status, error)
    except Exception as failure:  # noqa: BLE001  # recording never raises
        _failed("record_tool_call", failure)


def record_state(state: Any = None, meta: dict[str, Any] | None = None, diff: Any = None) -> None:
    """Record the state of the agent, and optionally its difference to the previous one."""
    try:
        parent = run_lifecycle.parent_span()
        if parent is None:
            return
        attributes: Attributes = {INSTANT: True}
        if state is None and diff is not None:
            state = _NOTHING  # else the difference would stand where the state does
        if type(state) not in _SAYS_ITSELF:
            _add_form(attributes, "state", state)
        if type(diff) not in _SAYS_ITSELF:
            _add_form(attributes, "diff", diff)
        _record_instant(parent, "state", "state", attributes, state, diff, meta, "ok", None)
    except Exception as failure:  # noqa: BLE001  # recording never raises
        _failed("record_state", failure)


# --- parts ---------------------------------------------------------------------------------------


class _Nothing:
    """A state that is known to be nothing."""

    def __str__(self) -> str:
        return "null"


_NOTHING = _Nothing()


def _record_instant(
    parent: Span,
    name: str,
    type: str,
    attributes: Attributes,
    body: Any,
    end_body: Any,
    meta: Any,
    status: Any,
    error: Any,
) -> None:
    if meta is not None and meta != {}:
        attributes[META] = _meta_text(meta)
    how = "ok" if error is None else "error"
    if isinstance(status, str) and status in _FAILED:
        how = status
    end_attributes = NO_ATTRIBUTES if error is None else _error(error)
    record_finished(parent, name, type, attributes, body, end_attributes, end_body, how)


def _add_form(attributes: Attributes, field: str, body: Any) -> None:
    """Add an attribute if the text of a body is ambiguous: a string like JSON, a number."""
    kind = type(body)
    if kind is str:
        if body[:1] in _LOOKS_LIKE_JSON:
            _add(attributes, PLAIN, field)
    elif kind is int or kind is float or kind is bool or kind is _Nothing:
        _add(attributes, JSON, field)
    elif not (is_container(body) or has_fields(body)):
        _add(attributes, PLAIN, field)


def _add(attributes: Attributes, key: str, field: str) -> None:
    known = attributes.get(key)
    attributes[key] = field if known is None else f"{known},{field}"


def _add_usage(attributes: Attributes, usage: Any) -> None:
    """Return counts as attributes. Other values stay with the event unchanged."""
    counts = usage if type(usage) is dict or isinstance(usage, Mapping) else _fields(usage)
    odd = False
    for ours, theirs in _USAGE:
        value = _to_int(counts[theirs] if theirs in counts else counts.get(ours))
        if type(value) is int:
            attributes[ours] = value
        elif value is not None:
            attributes[ours] = flat(value)
            odd = True
    if odd or not _USAGE_NAMES.issuperset(counts):
        usage_values = {
            theirs: _to_int(counts.get(theirs, counts.get(ours))) for ours, theirs in _USAGE
        }
        known = {ours for ours, _ in _USAGE} | _USAGE_NAMES
        usage_values.update({key: value for key, value in counts.items() if key not in known})
        attributes[PAYLOAD] = json_text({"usage": usage_values}, _ATTRIBUTE_MAX)


def _to_int(value: Any) -> Any:
    """A count that came as 10.0 is 10."""
    return int(value) if type(value) is float and value.is_integer() else value


def _fields(usage: Any) -> dict[str, Any]:
    """Return the counts of an object, as SDKs return them."""
    found = {name: getattr(usage, name, None) for pair in _USAGE for name in pair}
    return {name: value for name, value in found.items() if value is not None}


def _meta_text(meta: Any) -> str:
    text = json_text(meta if isinstance(meta, Mapping) else {"value": meta}, _ATTRIBUTE_MAX)
    if len(text) > _ATTRIBUTE_MAX:  # cut, so no JSON any more
        return json_text({"value": text})
    return text


def _error(error: Any) -> Attributes:
    if isinstance(error, BaseException):
        return error_attributes(error)
    if not isinstance(error, Mapping):
        return {"error.type": "Error", "error.message": safe_str(error)}
    rest = dict(error)
    kind = rest.pop("error_type", None) or rest.pop("type", None) or "Error"
    attributes: Attributes = {
        "error.type": clean_name(kind),
        "error.message": safe_str(rest.pop("message", "")),
    }
    stack = rest.pop("stack", None)
    if stack is not None:
        attributes["error.stack"] = safe_str(stack)
    details = rest.pop("details", None)
    if rest:
        details = {**rest, "details": details} if details is not None else rest
    if details is not None:
        attributes[DETAILS] = json_text(details, _ATTRIBUTE_MAX)
    return attributes


def _failed(what: str, failure: Exception) -> None:
    warn_once(f"{what}: {type(failure).__name__} while recording. The program goes on without.")
