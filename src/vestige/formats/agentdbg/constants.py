"""Names that both directions share: attributes of our records that carry what the format knows and
they have no other place for, and ids that derive from one another."""

from __future__ import annotations

from typing import Final

from vestige.formats.protocol import derived_span_id, derived_uuid

FORMAT: Final = "agentdbg"

EVENT_ID: Final = "event_id"
"""Of an imported event: its id, verbatim."""
END_EVENT_ID: Final = "end_event_id"
"""Of an imported run: the id of its RUN_END."""
META: Final = "agentdbg.meta"
"""JSON object: the caller's `meta`."""
PAYLOAD: Final = "agentdbg.payload"
"""JSON object: fields of the payload that the format's text does not name (or oddly typed ones)."""
PLAIN: Final = "agentdbg.plain"
"""Names, by comma, of payload fields whose body is a string, though it looks like JSON."""
JSON: Final = "agentdbg.json"
"""Names, by comma, of payload fields whose body is JSON but not an object or array."""
INSTANT: Final = "agentdbg.instant"
"""True: recorded after the fact, so that its duration is not known."""
LOOP_PATTERN: Final = "loop.pattern"
LOOP_REPETITIONS: Final = "loop.repetitions"
LOOP_WINDOW: Final = "loop.window_size"
LOOP_EVIDENCE: Final = "loop.evidence"
"""JSON array of span ids of this run, or event ids."""
START_TS: Final = "agentdbg.start_ts"
"""Of an imported run: the `ts` of its RUN_START, where run.json gives another start."""
RUN_TIMES: Final = "agentdbg.run_times"
"""JSON object: times of an imported run's run.json that its events do not give."""
GUARDRAILS: Final = {
    "error.guardrail": "guardrail",
    "error.threshold": "threshold",
    "error.actual": "actual",
}
"""Attributes of an error that a guardrail raised, and their fields in an ERROR's payload."""
DETAILS: Final = "error.details"
"""JSON value: what an error says beyond its type, message and stack."""


def root_span_id(run_id: str) -> str:
    """The root span of an imported run."""
    return derived_span_id(FORMAT, run_id, "RUN")


def span_event_id(run_id: str, span_id: str) -> str:
    """The id of a span's own event: known before the event is."""
    return derived_uuid(FORMAT, run_id, span_id)
