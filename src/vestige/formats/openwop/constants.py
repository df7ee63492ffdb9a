"""Words of OpenWOP v1: statuses, names of events and members, modes of redaction."""

from __future__ import annotations

from typing import Final, Literal

FORMAT: Final = "openwop"
BUNDLE_VERSION: Final = "1.0"
"""The text says "1", its schema wants a dot. Both are read."""
PROTOCOL_VERSION: Final = "1.1"

Mode = Literal["mask", "omit", "hash", "passthrough"]
MODES: Final[tuple[Mode, ...]] = ("mask", "omit", "hash", "passthrough")

REDACTED: Final = "[REDACTED]"
OMITTED: Final = "[OMITTED]"
"""The value of a required field whose real value must not be exported."""
INTERNAL: Final = "[INTERNAL]"
"""Replaces details of the machine: addresses, host names, connection strings."""

TERMINAL: Final = ("run.completed", "run.failed", "run.cancelled")
ENDED: Final = ("completed", "failed", "cancelled")
"""Statuses of a run that has ended."""

STATUS_OF: Final = {
    "running": "running",
    "ok": "completed",
    "unknown": "completed",
    "cancelled": "cancelled",
}
"""Our outcomes; every other one is `failed`, and the error's code says which."""

EVENTS_CUT: Final = "events_truncated_to_size_cap"

NODE_ID: Final = "openwop.node_id"
"""An attribute by which a program names the node that a span is; without it, the span's id does."""

SPAN_KEYS: Final = frozenset(
    f"openwop.{name}"
    for name in (
        "run_id",
        "workflow_id",
        "protocol_version",
        "node_id",
        "node_type",
        "node_attempt",
        "cost.usd",
        "cost.tokens.input",
        "cost.tokens.output",
        "cost.model",
        "cost.provider",
        "cost.duration_ms",
    )
)
"""The attributes that a span goes out with. Each key is listed: a prefix would let anything by."""


def status_of(outcome: str) -> str:
    return STATUS_OF.get(outcome, "failed")
