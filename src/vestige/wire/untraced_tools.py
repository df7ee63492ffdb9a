"""Tool calls of a Python program that no framework and no decorator records.

A model call contains the results of the tools that the call before it requested. For each of them
that has no tool span, one is recorded from the end of that call to the beginning of this one. It
has the attribute `inferred`. Programs that are not Python have wire/inferred_tools.py.

A long result is not stored again as the output of its tool: the request contains it, and views
read it there by the id of the call.
"""

from __future__ import annotations

from vestige.emit import requested_tool_calls
from vestige.emit.emitter import Emitter, PreparedBody
from vestige.emit.requested_tool_calls import RequestedCall
from vestige.emit.tools import REASON
from vestige.limits import BODY_INLINE_MAX
from vestige.providers.chat_types import Request, ToolResult
from vestige.record.types import VERSION, Attributes, Link, SpanClose, SpanOpen
from vestige.wire.outgoing_request import SpanContext

_OWN_TOOLS = frozenset(["agent", "step", "tool", "handoff", "llm", "guardrail", "retriever"])
"""Types of spans around a model call whose author records tools as well."""
_ANCESTORS_MAX = 50
_ERROR_MAX = 2_000
_RESULT_MAX = 400
"""Characters of a result that is stored as the output of its tool as well."""


def may_infer(context: SpanContext) -> bool:
    """Return whether the tools of a model call are not recorded by what is around it."""
    parent_id = context.parent_id
    for _ in range(_ANCESTORS_MAX):
        parent = context.emitter.open_spans.get(parent_id or "")
        if parent is None:
            return True
        if parent.type in _OWN_TOOLS:
            return False
        parent_id = parent.parent_id
    return False


def record_tools(context: SpanContext, request: Request, began_ns: int) -> None:
    """Record the tools whose results a request contains. `began_ns`: when it was sent."""
    for message in request.messages:
        for result in message.results:
            call = requested_tool_calls.take_unrecorded(context.run_id, result.call_id or "")
            if call is not None:
                _record(context, call, result, began_ns)


def _record(context: SpanContext, call: RequestedCall, result: ToolResult, ended_ns: int) -> None:
    emitter = context.emitter
    elapsed_ns = emitter.monotonic_ns() - ended_ns
    duration_ns = max(ended_ns - call.ended_ns, 0)
    closed_ns = emitter.now_ns() - elapsed_ns
    attributes: Attributes = {"tool_name": call.name, "inferred": True}
    if call.tool_call_id is not None:
        attributes["tool_call_id"] = call.tool_call_id
    span_id = emitter.span_id()
    seq, end_seq = next(emitter.seq), next(emitter.seq)
    body, info = _prepare(emitter, call.arguments, seq)
    output: str | None = result.text
    ending: Attributes = {}
    if len(result.text) > _RESULT_MAX:
        output = None
        ending["tool_result.in_next_request"] = True
    if result.is_error:
        ending |= {"error.type": "tool error", "error.message": result.text[:_ERROR_MAX]}
    opened = SpanOpen(
        VERSION,
        emitter.writer,
        seq,
        closed_ns - duration_ns,
        context.run_id,
        span_id,
        context.component,
        "tool",
        call.name,
        call.parent_id,
        None,
        attributes,
        [Link(call.span_id, None, REASON)],
        body,
        info,
    )
    closed = SpanClose(
        VERSION,
        emitter.writer,
        end_seq,
        closed_ns,
        context.run_id,
        span_id,
        "error" if result.is_error else "ok",
        duration_ns,
        ending,
        output,
        None,
    )
    emitter.send_both(opened, closed)


def _prepare(emitter: Emitter, text: str | None, seq: int) -> PreparedBody:
    if text is None or len(text) <= BODY_INLINE_MAX:
        return text, None
    return emitter.prepare_body(text, seq)
