"""Create root spans for traces whose root span never arrived.

OpenTelemetry exports a span when it has ended, so the root span comes last. If the program was
killed, it never arrives. After a long silence a placeholder replaces it.
"""

from __future__ import annotations

from vestige.formats.otlp.constants import FORMAT, SYNTHETIC, synthetic_root_id
from vestige.limits import REMOTE_SILENT_S
from vestige.record.otlp_sequence_numbers import PLACEHOLDER, external_seq
from vestige.record.types import VERSION, KnownRecord, SpanClose, SpanOpen
from vestige.store.protocol import RootlessTrace, Store


def stamp_rootless(store: Store, now_ns: int) -> int:
    """Add an interrupted root span to rootless traces, and return their number."""
    before_ns = now_ns - int(REMOTE_SILENT_S * 1e9)
    if not store.find_rootless_traces(before_ns):
        return 0
    with store.transaction():
        traces = store.find_rootless_traces(before_ns)
        for trace in traces:
            store.append(_placeholder(trace), tenant=trace.tenant)
    return len(traces)


def _placeholder(trace: RootlessTrace) -> list[KnownRecord]:
    span_id = synthetic_root_id(trace.run_id)
    component = trace.component or FORMAT
    return [
        SpanOpen(
            VERSION,
            trace.writer,
            external_seq(PLACEHOLDER, 1),
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
            external_seq(PLACEHOLDER, 2),
            trace.last_ns,
            trace.run_id,
            span_id,
            "interrupted",
            max(0, trace.last_ns - trace.started_ns),
            {"error.message": "its first span never came (was its program killed?)"},
        ),
    ]
