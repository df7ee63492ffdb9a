"""Find the span of a trace that is the run.

A trace is a run. Its earliest span without a parent is the run span, if it is a step. A model or
tool call without a parent gets a synthetic run span as its parent. A trace whose root span belongs
to another program gets a synthetic run span beside its spans, so that it has a name and an end.

    finder = RootFinder()
    finder.add(span)                             # each span, in any order
    finder.root(trace_id, complete=True)         # complete: no more spans will arrive
"""

from __future__ import annotations

from typing import Final

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.formats.otlp.any_value import Object
from vestige.formats.otlp.constants import FORMAT, external_run_id, synthetic_root_id
from vestige.formats.otlp.parse_span import OtelSpan
from vestige.formats.otlp.span_types import (
    AGENT,
    STEP,
    find_conversation_id,
    get_component,
    get_span_type,
    is_log_span,
)

_ENTRIES: Final = ("SERVER", "CONSUMER")
"""Kinds of spans with which a service enters a trace."""


class RootCandidate(msgspec.Struct, gc=False):
    """Facts of a span that may be the run, or may name a synthetic run."""

    id: str
    start_ns: int
    end_ns: int
    name: str
    component: str
    failed: bool
    resource: Object


class Root(msgspec.Struct, gc=False):
    """The run span of a trace."""

    id: str
    candidate: RootCandidate
    synthetic: bool
    """It does not correspond to a span of the trace."""
    adopts: bool
    """Spans without a parent become its children."""
    conversation: str | None


class RootFinder:
    """Finds the run span among the spans of a trace that have arrived."""

    def __init__(self) -> None:
        self._root: RootCandidate | None = None
        self._entry: RootCandidate | None = None
        self._adopts = False
        self._other: RootCandidate | None = None
        self._conversation: str | None = None
        self._root_conversation: str | None = None

    def add(self, span: OtelSpan) -> None:
        self._conversation = self._conversation or find_conversation_id(span)
        if is_log_span(span):
            return
        if not span.parent_id:
            if get_span_type(span) in (STEP, AGENT):
                if self._root is None or span.start_ns < self._root.start_ns:
                    self._root = _to_candidate(span)
                    self._root_conversation = find_conversation_id(span)
            else:
                self._entry, self._adopts = _merge(self._entry, span), True
        elif span.remote or span.kind in _ENTRIES:
            self._entry = _merge(self._entry, span)
        elif self._root is None and self._entry is None:
            self._other = _merge(self._other, span)

    def root(self, trace_id: str, *, complete: bool) -> Root | None:
        """Return the run span, or None if it may still arrive."""
        conversation = self._root_conversation or self._conversation
        if self._root is not None:
            return Root(self._root.id, self._root, False, False, conversation)
        candidate = self._entry or (self._other if complete else None)
        if candidate is None:
            return None
        root_id = synthetic_root_id(external_run_id(trace_id))
        return Root(root_id, candidate, True, self._adopts, conversation)


def _to_candidate(span: OtelSpan) -> RootCandidate:
    component = get_component(span.resource, span.scope, FORMAT)
    failed = span.code == "ERROR"
    return RootCandidate(
        span.id, span.start_ns, span.end_ns, span.name, component, failed, span.resource
    )


def _merge(known: RootCandidate | None, span: OtelSpan) -> RootCandidate:
    """Return the earlier candidate, extended to the latest end."""
    if known is None:
        return _to_candidate(span)
    merged = _to_candidate(span) if span.start_ns < known.start_ns else known
    merged.end_ns = max(known.end_ns, span.end_ns)
    merged.failed = known.failed or span.code == "ERROR"
    return merged
