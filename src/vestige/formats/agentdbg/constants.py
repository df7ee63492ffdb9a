"""Attributes for data of the format that records have no field for, and derived ids.

Both directions use them."""

from __future__ import annotations

from typing import Final

from vestige.formats.protocol import derived_span_id, derived_uuid

FORMAT: Final = "agentdbg"

EVENT_ID: Final = "event_id"
"""The verbatim id of an imported event."""
END_EVENT_ID: Final = "end_event_id"
"""The id of the RUN_END of an imported run."""
META: Final = "agentdbg.meta"
"""JSON object: the caller's `meta`."""
PAYLOAD: Final = "agentdbg.payload"
"""JSON object: fields of the payload that the format's text does not name (or oddly typed ones)."""
PLAIN: Final = "agentdbg.plain"
"""Comma-separated payload fields whose body is a string that looks like JSON."""
JSON: Final = "agentdbg.json"
"""Comma-separated payload fields whose body is JSON but not an object or array."""
INSTANT: Final = "agentdbg.instant"
"""True: recorded after the fact, so that its duration is not known."""
LOOP_PATTERN: Final = "loop.pattern"
LOOP_REPETITIONS: Final = "loop.repetitions"
LOOP_WINDOW: Final = "loop.window_size"
LOOP_EVIDENCE: Final = "loop.evidence"
"""JSON array of span ids of this run, or event ids."""
START_TS: Final = "agentdbg.start_ts"
"""The `ts` of the RUN_START of an imported run, if run.json has another start."""
RUN_TIMES: Final = "agentdbg.run_times"
"""JSON object: times of an imported run's run.json that its events do not give."""
GUARDRAILS: Final = {
    "error.guardrail": "guardrail",
    "error.threshold": "threshold",
    "error.actual": "actual",
}
"""Attributes of an error that a guardrail raised, and their fields in an ERROR's payload."""
DETAILS: Final = "error.details"
"""JSON value with the fields of an error besides type, message and stack."""


def root_span_id(run_id: str) -> str:
    """Return the id of the root span of an imported run."""
    return derived_span_id(FORMAT, run_id, "RUN")


def span_event_id(run_id: str, span_id: str) -> str:
    """Return the id of a span's own event, which is known before the event exists."""
    return derived_uuid(FORMAT, run_id, span_id)
