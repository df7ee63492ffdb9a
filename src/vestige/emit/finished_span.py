"""Record a span that is finished already: its start and its end in one write.

For work whose start was not recorded. Readers see an ordinary span.
"""

from __future__ import annotations

from typing import Any

from vestige.emit import requested_tool_calls
from vestige.emit.emitter import NO_ATTRIBUTES
from vestige.emit.span import Span
from vestige.limits import BODY_INLINE_MAX
from vestige.record.types import VERSION, Attributes, SpanClose, SpanOpen


def record_finished(
    parent: Span,
    name: str,
    type: str,
    attributes: Attributes,
    body: Any = None,
    end_attributes: Attributes = NO_ATTRIBUTES,
    end_body: Any = None,
    status: str = "ok",
    duration_ns: int = 0,
) -> None:
    """Record a span that ends now inside `parent`.

    `name`, `type` and `status` are `str`, and attributes are flat (record/coercion.py). Bodies may
    be any value.
    """
    if parent.muted:
        return
    if type == "tool":
        requested_tool_calls.note_tool(parent.run_id, name)
    emitter = parent._emitter
    writer, run_id, span_id = emitter.writer, parent.run_id, emitter.span_id()
    seq, end_seq = next(emitter.seq), next(emitter.seq)
    info = end_info = None
    if body is not None and (body.__class__ is not str or len(body) > BODY_INLINE_MAX):
        body, info = emitter.prepare_body(body, seq)
    if end_body is not None and (end_body.__class__ is not str or len(end_body) > BODY_INLINE_MAX):
        end_body, end_info = emitter.prepare_body(end_body, end_seq)
    now_ns = emitter.now_ns()
    emitter.send_both(
        SpanOpen(
            VERSION,
            writer,
            seq,
            now_ns - duration_ns,
            run_id,
            span_id,
            parent.component,
            type,
            name,
            parent.id,
            None,
            attributes,
            None,
            body,
            info,
        ),
        SpanClose(
            VERSION,
            writer,
            end_seq,
            now_ns,
            run_id,
            span_id,
            status,
            duration_ns,
            end_attributes,
            end_body,
            end_info,
        ),
    )
