"""Payloads of events, as in run-event-payloads.schema, from spans, log records and bodies.

    payloads = EventPayloads(source, root_id, machine)
    payloads.started(span)                # of node.started
    payloads.returned(span)               # of agent.toolReturned

Elsewhere: formats/openwop/from_records.py chooses and orders the events;
formats/openwop/redaction_modes.py removes what must not be exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from vestige.errors import NotFoundError, StoreError
from vestige.formats.openwop.constants import INTERNAL, NODE_ID
from vestige.formats.openwop.cost_metrics import cost_of, model_of, usage_of
from vestige.formats.openwop.host_redaction import HostDetails, is_private_key
from vestige.formats.openwop.redaction_modes import DEPTH_MAX
from vestige.formats.protocol import RunToWrite
from vestige.limits import ATTRIBUTE_VALUE_MAX, STACK_MAX
from vestige.record.coercion import text_of_bytes, truncate
from vestige.record.run import BodyRef, LogInfo, SpanInfo
from vestige.record.types import LEVELS, Attributes

MISSING: Final = "(gone: no longer kept)"
_CODES: Final = {"interrupted": "interrupted", "timeout": "timeout", "cancelled": "cancelled"}
_REPORTED_KEYS: Final = frozenset(
    (
        "error.type",
        "error.code",
        "error.message",
        "error.stack",
        "tool_call_id",
        "tool_name",
        "event_id",
        "attempt",
        "cost_usd",
        NODE_ID,
    )
)
"""Attributes that have a field of their own."""
_decode = msgspec.json.Decoder().decode


class EventPayloads:
    """Payloads of one run's events."""

    def __init__(
        self,
        source: RunToWrite,
        run_span: str,
        machine: HostDetails,
        node_ids: Mapping[str, str] | None = None,
    ) -> None:
        """`node_ids`: span id to the node id that the program gave it."""
        self._source = source
        self._node_ids = node_ids or {}
        self._run_span = run_span
        self._machine = machine

    def node_id(self, span_id: str) -> str:
        return self._node_ids.get(span_id, span_id)

    # --- nodes ------------------------------------------------------------------------------

    def started(self, span: SpanInfo) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "nodeId": self.node_id(span.id),
            "typeId": span.type or "step",
            "name": span.name,
            "component": span.component,
        }
        if span.parent_id is not None and span.parent_id != self._run_span:
            payload["parentNodeId"] = self.node_id(span.parent_id)
        attempt = span.attributes.get("attempt")
        if type(attempt) is int and attempt > 0:
            payload["attempt"] = attempt - 1  # there the first is number 0
        if _is_about_machine(span):
            payload["inputs"] = INTERNAL
        elif span.type != "tool":
            self._put(payload, "inputs", span.input)
        return payload

    def completed(self, span: SpanInfo) -> dict[str, Any]:
        payload: dict[str, Any] = {"nodeId": self.node_id(span.id), **_took(span)}
        if span.type != "tool" and (outputs := self.object(span.output)) is not None:
            payload["outputs"] = outputs
        return payload | self._facts(span)

    def failed(self, span: SpanInfo) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "nodeId": self.node_id(span.id),
            "error": error_of(span),
            **_took(span),
        }
        self._put(payload, "outputs", span.output)
        return payload | self._facts(span)

    def cancelled(self, span: SpanInfo) -> dict[str, Any]:
        # An error's message under a name that errors do not have.
        reason = self._machine.error(error_of(span)["message"])
        payload: dict[str, Any] = {"nodeId": self.node_id(span.id), "reason": reason}
        return payload | _took(span) | self._facts(span)

    def _facts(self, span: SpanInfo) -> dict[str, Any]:
        facts = {} if span.type == "process" else public(span.attributes)
        return {"attributes": facts} if facts else {}

    # --- calls ------------------------------------------------------------------------------

    def called(self, span: SpanInfo) -> dict[str, Any]:
        payload = _call(span)
        self._put(payload, "inputs", span.input)
        return payload

    def returned(self, span: SpanInfo) -> dict[str, Any]:
        payload = {**_call(span), "status": "ok" if span.status == "ok" else "error", **_took(span)}
        if span.status == "ok":
            self._put(payload, "outcome", span.output)
        else:
            payload["error"] = error_of(span)
        return payload

    def usage(self, span: SpanInfo) -> dict[str, Any]:
        usage = usage_of(span)
        assert usage is not None
        model, provider = model_of(span)
        read, written = usage.input_tokens or 0, usage.output_tokens or 0
        payload: dict[str, Any] = {
            "provider": provider,
            "model": model,
            "inputTokens": read,
            "outputTokens": written,
            "totalTokens": read + written,
            "nodeId": self.node_id(span.id),
        }
        cached = {
            "cacheReadTokens": usage.cache_read_tokens,
            "cacheWriteTokens": usage.cache_write_tokens,
        }
        payload |= {key: count for key, count in cached.items() if count is not None}
        cost = cost_of(span, usage, self._source.prices)
        return payload if cost is None else {**payload, "costEstimateUsd": cost}

    def line(self, log: LogInfo) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "level": log.level if log.level in LEVELS else "info",
            "message": log.message,
        }
        if log.span_id is not None and log.span_id != self._run_span:
            payload["nodeId"] = self.node_id(log.span_id)
        fields: dict[str, Any] = {"component": log.component, **public(log.attributes)}
        for key, field in (("error.type", "type"), ("error.message", "message")):
            if key in log.attributes:
                fields.setdefault("error", {})[field] = log.attributes[key]
        self._put(fields, "body", log.body)
        return {**payload, "fields": fields}

    # --- bodies -----------------------------------------------------------------------------

    def value(self, ref: BodyRef | None) -> Any:
        """Return a body as JSON if it is an object or array, else as text; None without a body."""
        if ref is None:
            return None
        try:
            data = self._source.body(ref)
        except (NotFoundError, StoreError):  # retention took it, or it is damaged
            data = None
        return MISSING if data is None else value_of(data)

    def object(self, ref: BodyRef | None) -> dict[str, Any] | None:
        value = self.value(ref)
        return value if value is None or isinstance(value, dict) else {"value": value}

    def _put(self, payload: dict[str, Any], key: str, ref: BodyRef | None) -> None:
        if ref is not None:
            payload[key] = self.value(ref)


def value_of(data: bytes) -> Any:
    """Return bytes as a JSON value. Anything but an object or array of limited depth is text."""
    if data[:64].lstrip()[:1] not in (b"{", b"["):
        return text_of_bytes(data)
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text_of_bytes(data)
    if data.count(b"{") + data.count(b"[") > DEPTH_MAX and _is_deep(value, DEPTH_MAX):
        return text_of_bytes(data)
    return value


def _is_deep(value: Any, left: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    if left == 0:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(_is_deep(each, left - 1) for each in inner)


def public(attributes: Attributes) -> dict[str, Any]:
    """Return the attributes without machine details and those reported elsewhere."""
    return {
        key: value
        for key, value in attributes.items()
        if key not in _REPORTED_KEYS and not is_private_key(key)
    }


def error_of(span: SpanInfo) -> dict[str, Any]:
    """Return `{code, message, details?}` of a failed span."""
    status = span.status or "interrupted"
    return error_from(span.attributes, status)


def error_from(attributes: Attributes, status: str, default: str = "") -> dict[str, Any]:
    kind, message = attributes.get("error.type"), attributes.get("error.message")
    stack = attributes.get("error.stack")
    name = str(kind).rpartition(".")[2] if kind else ""
    own = attributes.get("error.code")
    payload: dict[str, Any] = {
        "code": _CODES.get(status) or (own if isinstance(own, str) else "") or name or "error",
        "message": truncate(str(message or ""), ATTRIBUTE_VALUE_MAX)
        or default
        or name
        or f"ended as {status}",
    }
    details: dict[str, Any] = {"type": truncate(str(kind), 500)} if kind else {}
    if isinstance(stack, str) and stack:
        details["stack"] = truncate(stack, STACK_MAX)
    return {**payload, "details": details} if details else payload


def _is_about_machine(span: SpanInfo) -> bool:
    """A file of a test suite's bundle that describes where it ran: its environment and command
    line."""
    path = span.attributes.get("path")
    if span.type != "file" or not isinstance(path, str):
        return False
    return path.startswith(("diagnostics/", "repro.")) or path.endswith((".env", "/env.txt"))


def _took(span: SpanInfo) -> dict[str, int]:
    return {} if span.duration_ns is None else {"durationMs": span.duration_ns // 1_000_000}


def _call(span: SpanInfo) -> dict[str, Any]:
    attributes = span.attributes
    name, call = attributes.get("tool_name"), attributes.get("tool_call_id")
    return {
        "agentId": agent_id(span.component),
        "toolName": (name if isinstance(name, str) and name else span.name) or "tool",
        "callId": call if isinstance(call, str) and call else span.id,
    }


def agent_id(component: str) -> str:
    """Return an agent's name with 3 to 256 characters, as OpenWOP requires."""
    return component if 3 <= len(component) <= 256 else f"agent-{component}"[:256]
