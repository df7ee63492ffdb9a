"""Strict parsing of OpenWOP requests. UsageError contains what was expected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from vestige._runtime.clock import Clock
from vestige.errors import UsageError
from vestige.formats.openwop import value_types
from vestige.formats.openwop.note_mapping import render_text
from vestige.formats.protocol import derived_uuid
from vestige.limits import OPENWOP_POLL_S
from vestige.record.note import Note
from vestige.server.openwop.demo_workflows import WorkflowRequest

_NUMBER: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_POWER: Final = re.compile(r"(\d{1,9})[eE]\+?(\d{1,2})", re.ASCII)
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_MAX_EVENTS: Final = ("maxEvents", "host.vestige.maxEvents")


def parse_run_id(text: str) -> str:
    """Parse a run id in a path. An impossible id becomes `-`, which matches no run."""
    return text.lower() if len(text) <= 128 else "-"


def parse_integer(text: str | None, name: str, default: int, least: int = 0) -> int:
    """Parse an integer: digits, or a power such as `1e9`."""
    if text is None:
        return default
    power = _POWER.fullmatch(text)
    if power:
        return int(f"{power[1]}{'0' * int(power[2])}")
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise UsageError(
            f"{name}: {text[:40]!r} is invalid (expected an integer, {least} or more)."
        )
    return int(text)


def parse_max_events(query: Mapping[str, str]) -> int | None:
    """Return the lower of both limits in the query. None: no limit."""
    limits = [parse_integer(query[name], name, 0) for name in _MAX_EVENTS if name in query]
    return min(limits, default=None)


def parse_timeout(text: str | None) -> float:
    """Parse the seconds to wait, limited to OPENWOP_POLL_S."""
    return min(float(parse_integer(text, "timeout", 0)), OPENWOP_POLL_S)


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise UsageError("body: JSON nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeError):
        raise UsageError("body: not JSON (expected an object).") from None
    if not isinstance(value, dict):
        raise UsageError("body: not an object.")
    return value


def _check_keys(value: dict[str, Any], prefix: str, known: tuple[str, ...]) -> None:
    for key in value.keys() - set(known):
        raise UsageError(f"{prefix}{key[:40]}: unknown (expected {', '.join(known)}).")


def parse_note(
    body: bytes, run_id: str, author: str, idempotency: str | None, clock: Clock
) -> Note:
    """Parse an annotation-create into a note. The same idempotency key gives the same note id."""
    annotation = _parse_object(body)
    _check_keys(annotation, "", ("target", "signal", "note"))
    if not value_types.is_signal(annotation.get("signal")):
        raise UsageError("signal: invalid (expected a kind, and the field that it needs).")
    target, text = annotation.get("target", {}), annotation.get("note")
    if not isinstance(target, dict):
        raise UsageError("target: not an object.")
    _check_keys(target, "target.", ("eventId", "nodeId"))
    for key, value in target.items():
        if not value_types.is_id(value):
            raise UsageError(f"target.{key}: invalid (expected 1 to 128 characters).")
    if text is not None and not isinstance(text, str):
        raise UsageError("note: not a string.")
    same_id = derived_uuid("annotation", run_id, author, idempotency) if idempotency else None
    return Note(
        id=same_id or clock.run_id(),
        run_id=run_id,
        text=render_text(annotation["signal"], text),
        created_ns=clock.now_ns(),
        span_id=target.get("nodeId"),
        event_id=target.get("eventId"),
        author=author,
    )


def parse_workflow(body: bytes, traceparent: str | None) -> WorkflowRequest:
    request = _parse_object(body)
    name, inputs = request.get("workflowId"), request.get("inputs")
    if not isinstance(name, str) or not name:
        raise UsageError("workflowId: missing (expected a string).")
    if inputs is not None and not isinstance(inputs, dict):
        raise UsageError("inputs: not an object.")
    return WorkflowRequest(name, inputs or {}, traceparent)


def parse_traceparent(text: str | None) -> str | None:
    """Return a valid W3C traceparent. None: missing or invalid, and the run gets its own trace."""
    found = _TRACE.fullmatch(text.strip()) if text else None
    if (
        found is None
        or found[0].startswith("ff")
        or not found[1].strip("0")
        or not found[2].strip("0")
    ):
        return None
    return found[0]


def render_traceparent(parent: str | None, span_id: str, run_id: str) -> str:
    """Render the response's traceparent: the caller's trace, or the run's own."""
    trace = parent.split("-")[1] if parent is not None else run_id.replace("-", "")
    return f"00-{trace}-{span_id}-01"
