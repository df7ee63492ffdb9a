"""Traces whose first span never came.

A program that sends OpenTelemetry's spans tells of each when it has ended, of the first one last. If
it was killed, that one never comes; after a long silence another stands in for it.
"""

from __future__ import annotations

from vestige.formats.otlp.constants import FORMAT, SYNTHETIC, synthetic_root_id
from vestige.limits import REMOTE_SILENT_S
from vestige.record.external_seq import STAND_IN, seq_of
from vestige.record.types import VERSION, KnownRecord, SpanClose, SpanOpen
from vestige.store.protocol import RootlessTrace, Store


def stamp_rootless(store: Store, now_ns: int) -> int:
    """Give traces whose first span never came a run that was interrupted; how many."""
    before_ns = now_ns - int(REMOTE_SILENT_S * 1e9)
    if not store.find_rootless_traces(before_ns):
        return 0
    with store.transaction():
        headless = store.find_rootless_traces(before_ns)
        for trace in headless:
            store.append(_stand_in(trace), tenant=trace.tenant)
    return len(headless)


def _stand_in(trace: RootlessTrace) -> list[KnownRecord]:
    span_id = synthetic_root_id(trace.run_id)
    component = trace.component or FORMAT
    return [
        SpanOpen(
            VERSION,
            trace.writer,
            seq_of(STAND_IN, 1),
            trace.started_ns,
            trace.run_id,
            span_id,
            component,
            "run",
            trace.name or FORMAT,
            attributes={SYNTHETIC: True},
        ),
        SpanClose(
            VERSION,
            trace.writer,
            seq_of(STAND_IN, 2),
            trace.last_ns,
            trace.run_id,
            span_id,
            "interrupted",
            max(0, trace.last_ns - trace.started_ns),
            {"error.message": "its first span never came (was its program killed?)"},
        ),
    ]
