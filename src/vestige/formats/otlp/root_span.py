"""Which span of a trace is the run.

A trace is a run. Its first span without a parent is the run itself, if it is work that holds other
work. A model's or a tool's call that nothing is around gets a run around it. A trace whose first
span never came (it belongs to another program, which sends elsewhere) gets a run beside it, so that
it has a name and an end.

    shape = Shape()
    shape.add(span)                     # each, in any order
    shape.root(whole=True)              # whole: there will be no others
"""

from __future__ import annotations

from typing import Final

import msgspec

from vestige.formats.otlp.any_value import Object
from vestige.formats.otlp.constants import FORMAT, made_id_of, run_of
from vestige.formats.otlp.parse_span import OtelSpan
from vestige.formats.otlp.span_types import STEP, component_of, conversation_of, is_log, type_of

_ENTRIES: Final = ("SERVER", "CONSUMER")
"""Kinds of spans with which a program's part of a trace begins."""


class Top(msgspec.Struct, gc=False):
    """What is remembered of a span that may be the run, or give it its name."""

    id: str
    start_ns: int
    end_ns: int
    name: str
    component: str
    failed: bool
    resource: Object


class Root(msgspec.Struct, gc=False):
    """The run of a trace."""

    id: str
    top: Top
    made: bool
    """It is no span of the trace."""
    around: bool
    """Made, and spans without a parent are inside it."""
    conversation: str | None


class Shape:
    """What the spans of one trace, or of the part of it that came, tell of its run."""

    def __init__(self) -> None:
        self._first: Top | None = None
        self._begun: Top | None = None
        self._around = False
        self._any: Top | None = None
        self._conversation: str | None = None
        self._own_conversation: str | None = None

    def add(self, span: OtelSpan) -> None:
        self._conversation = self._conversation or conversation_of(span)
        if is_log(span):
            return
        if not span.parent_id:
            if type_of(span) == STEP:
                if self._first is None or span.start_ns < self._first.start_ns:
                    self._first = _top(span)
                    self._own_conversation = conversation_of(span)
            else:
                self._begun, self._around = _joined(self._begun, span), True
        elif span.remote or span.kind in _ENTRIES:
            self._begun = _joined(self._begun, span)
        elif self._first is None and self._begun is None:
            self._any = _joined(self._any, span)

    def root(self, trace_id: str, *, whole: bool) -> Root | None:
        """None: it is yet to come."""
        conversation = self._own_conversation or self._conversation
        if self._first is not None:
            return Root(self._first.id, self._first, False, False, conversation)
        top = self._begun or (self._any if whole else None)
        if top is None:
            return None
        return Root(made_id_of(run_of(trace_id)), top, True, self._around, conversation)


def _top(span: OtelSpan) -> Top:
    component = component_of(span.resource, span.scope, FORMAT)
    failed = span.code == "ERROR"
    return Top(span.id, span.start_ns, span.end_ns, span.name, component, failed, span.resource)


def _earlier(known: Top | None, span: OtelSpan) -> Top:
    return _top(span) if known is None or span.start_ns < known.start_ns else known


def _joined(known: Top | None, span: OtelSpan) -> Top:
    """From the first one's start to the last one's end."""
    top = _earlier(known, span)
    if known is not None:
        top.end_ns = max(known.end_ns, span.end_ns)
        top.failed = known.failed or span.code == "ERROR"
    return top
