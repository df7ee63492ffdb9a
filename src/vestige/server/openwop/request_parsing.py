"""What an OpenWOP request may hold: read strictly, refused in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from vestige._runtime.clock import Clock
from vestige.errors import UsageError
from vestige.formats.openwop import value_types
from vestige.formats.openwop.note_mapping import render_text
from vestige.formats.protocol import derived_uuid
from vestige.limits import OPENWOP_POLL_S
from vestige.record.note import Note

_NUMBER: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_POWER: Final = re.compile(r"(\d{1,9})[eE]\+?(\d{1,2})", re.ASCII)
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_MAX_EVENTS: Final = ("maxEvents", "host.vestige.maxEvents")


class NewRun(NamedTuple):
    workflow: str
    inputs: dict[str, Any]


def run_id(text: str) -> str:
    """An id as it stands in a path; what cannot be one is no run."""
    return text.lower() if len(text) <= 128 else "-"


def whole(text: str | None, name: str, default: int, least: int = 0) -> int:
    """A whole number: in digits, or as `1e9`."""
    if text is None:
        return default
    power = _POWER.fullmatch(text)
    if power:
        return int(f"{power[1]}{'0' * int(power[2])}")
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise UsageError(
            f"{name}: {text[:40]!r} does not fit (expected a whole number, {least} or more)."
        )
    return int(text)


def max_events(given: Mapping[str, str]) -> int | None:
    """The lowest of those that are given; None: as many as fit."""
    found = [whole(given[name], name, 0) for name in _MAX_EVENTS if name in given]
    return min(found, default=None)


def seconds(text: str | None) -> float:
    """How long to wait; never longer than is good for us."""
    return min(float(whole(text, "timeout", 0)), OPENWOP_POLL_S)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise UsageError("body: JSON nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeError):
        raise UsageError("body: not JSON (expected an object).") from None
    if not isinstance(value, dict):
        raise UsageError("body: not an object.")
    return value


def _closed(value: dict[str, Any], place: str, known: tuple[str, ...]) -> None:
    for key in value.keys() - set(known):
        raise UsageError(f"{place}{key[:40]}: is not known (expected {', '.join(known)}).")


def note(body: bytes, run_id: str, author: str, idempotency: str | None, clock: Clock) -> Note:
    """An annotation-create as the note that it becomes."""
    given = _object(body)
    _closed(given, "", ("target", "signal", "note"))
    if not value_types.is_signal(given.get("signal")):
        raise UsageError("signal: does not fit (expected a kind, and what that kind needs).")
    target, text = given.get("target", {}), given.get("note")
    if not isinstance(target, dict):
        raise UsageError("target: not an object.")
    _closed(target, "target.", ("eventId", "nodeId"))
    for key, value in target.items():
        if not value_types.is_id(value):
            raise UsageError(f"target.{key}: does not fit (expected 1 to 128 characters).")
    if text is not None and not isinstance(text, str):
        raise UsageError("note: not a text.")
    same = derived_uuid("annotation", run_id, author, idempotency) if idempotency else None
    return Note(
        id=same or clock.run_id(),
        run_id=run_id,
        text=render_text(given["signal"], text),
        created_ns=clock.now_ns(),
        span_id=target.get("nodeId"),
        event_id=target.get("eventId"),
        author=author,
    )


def new_run(body: bytes) -> NewRun:
    given = _object(body)
    workflow, inputs = given.get("workflowId"), given.get("inputs")
    if not isinstance(workflow, str) or not workflow:
        raise UsageError("workflowId: missing (expected a text).")
    if inputs is not None and not isinstance(inputs, dict):
        raise UsageError("inputs: not an object.")
    return NewRun(workflow, inputs or {})


def traceparent(text: str | None) -> str | None:
    """A W3C trace context that can be honoured; anything else starts a trace of its own."""
    found = _TRACE.fullmatch(text.strip()) if text else None
    if (
        found is None
        or found[0].startswith("ff")
        or not found[1].strip("0")
        or not found[2].strip("0")
    ):
        return None
    return found[0]


def render_traceparent(given: str | None, span_id: str, run_id: str) -> str:
    """The trace that an answer belongs to: the caller's, or the run's own."""
    trace = given.split("-")[1] if given is not None else run_id.replace("-", "")
    return f"00-{trace}-{span_id}-01"
