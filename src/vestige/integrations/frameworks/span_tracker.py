"""Spans of a framework, opened and ended by its callbacks.

    tracker = SpanTracker("langchain")
    tracker.start(run_id, "search", "tool", parent=parent_run_id, body=arguments)
    tracker.end(run_id, body=result)

A framework names its work by ids of its own. Its callbacks may run in any thread or task, and in
any order. While a span is open it is the ambient span of the context that started it, so that the
HTTP calls of its work are recorded inside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from vestige.emit import context, replayed_tools
from vestige.emit.finished_span import record_finished
from vestige.emit.model_call_counts import count_calls
from vestige.emit.no_op import NULL_SPAN
from vestige.emit.span import OpeningDetails, Span
from vestige.emit.tools import describe_request, open_tool
from vestige.limits import FRAMEWORK_SPANS_MAX

COMPONENT = "agent"
_ANCESTORS_MAX = 50
_HANDOFF_PREFIXES = ("transfer_to_", "handoff_to_")
"""Beginnings of the names of tools by which frameworks pass the conversation to another agent."""


class _ModelCall(NamedTuple):
    """A model call of the framework, and the calls that its parent contained before."""

    parent: Span
    count_before: int
    started_ns: int
    request: Callable[[], Any]
    """Return the request. Only a call that the wire has not recorded needs it."""


class SpanTracker:
    """The open spans of one framework, by the framework's ids."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self._open: dict[Hashable, Span] = {}
        self._without_input: set[str] = set()
        """Ids of the spans whose input was not known at their start."""
        self._skipped: dict[Hashable, Span] = {}
        self._models: dict[Hashable, _ModelCall] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._open

    def get(self, key: Hashable) -> Span | None:
        return self._open.get(key)

    def start(
        self,
        key: Hashable,
        name: str,
        type: str = "step",
        *,
        parent: Hashable = None,
        body: Any = None,
        attributes: Mapping[str, Any] | None = None,
        call_id: str | None = None,
        ambient: bool = True,
        framework: str | None = None,
    ) -> Span | None:
        """Open a span inside the span of `parent`, or inside the ambient one.

        With `ambient=False` it does not become the ambient span: its work runs elsewhere.
        `framework` replaces the name of the tracker's.
        """
        outer = self._find_parent(parent)
        span = self.open(name, type, body, call_id, attributes, outer, framework)
        if span is None:
            return None
        if body is None:
            self._without_input.add(span.id)
        self._open[key] = span
        if len(self._open) > FRAMEWORK_SPANS_MAX:
            self._forget(self._open.pop(next(iter(self._open))))
        if ambient:
            context.enter(span)
        return span

    def open(
        self,
        name: str,
        type: str = "step",
        body: Any = None,
        call_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        outer: Span | None = None,
        framework: str | None = None,
    ) -> Span | None:
        """Open a span that its caller enters and ends. None: this run is not recorded."""
        outer = outer or context.current()
        if outer is not None and outer.muted:
            return None
        framework = framework or self.framework
        details = dict(attributes or {})
        if type == "tool" and name.startswith(_HANDOFF_PREFIXES):
            type = "handoff"  # noqa: A001
        if type in ("tool", "handoff"):
            span = open_tool(outer, name, body, call_id, type=type)
            if details and not span.muted:
                span.set_attributes(details)
        else:
            if outer is None or _FRAMEWORK_OF.get(outer.id) != framework:
                details["framework"] = framework
            opener = outer if outer is not None else context.default().logger(COMPONENT)
            span = opener.span(name, type, details, body)
        if span.muted:
            return None
        _FRAMEWORK_OF[span.id] = framework
        if len(_FRAMEWORK_OF) > FRAMEWORK_SPANS_MAX:
            _FRAMEWORK_OF.pop(next(iter(list(_FRAMEWORK_OF))), None)
        return span

    def skip(self, key: Hashable, parent: Hashable) -> None:
        """Let the children of `key` belong to `parent`: it is not recorded itself."""
        span = self._open.get(parent) or self._skipped.get(parent)
        if span is not None:
            self._skipped[key] = span
            if len(self._skipped) > FRAMEWORK_SPANS_MAX:
                self._skipped.pop(next(iter(self._skipped)))

    def replace(self, key: Hashable, parent: Hashable, type: str) -> None:
        """Let the children of `key` belong to the ambient span, if that records the same work."""
        self.skip(key, parent)
        ambient = context.current()
        if ambient is not None and ambient.type == type:
            self._skipped[key] = ambient

    def complete(
        self,
        key: Hashable,
        *,
        name: str | None = None,
        type: str | None = None,
        body: Any = None,
        call_id: str | None = None,
    ) -> None:
        """Add what was not known at the start: the name, the type, the input."""
        span = self._open.get(key)
        if span is None:
            return
        if span.id not in self._without_input:
            body = None
        if type == "tool" and (name or span.name).startswith(_HANDOFF_PREFIXES):
            type = "handoff"  # noqa: A001
        if body is None and (name or span.name) == span.name and (type or span.type) == span.type:
            return
        details = OpeningDetails()
        if (type or span.type) in ("tool", "handoff"):
            details = describe_request(span.run_id, name or span.name, body, call_id)
        span.reopen(details, name=name, type=type, body=body)
        replayed_tools.note(span, span.name, body, call_id)
        if body is not None:
            self._without_input.discard(span.id)

    def end(
        self,
        key: Hashable,
        *,
        body: Any = None,
        error: Any = None,
        attributes: Mapping[str, Any] | None = None,
        status: str | None = None,
    ) -> None:
        """End the span, as failed if `error` is an exception or a text."""
        self._skipped.pop(key, None)
        span = self._open.pop(key, None)
        if span is None:
            return
        if error is not None and status is None and not isinstance(error, BaseException):
            status = "error"
        if span.type == "tool" and replayed_tools.reads_like_json(body):
            attributes = {**(attributes or {}), replayed_tools.TEXT_RESULT: True}
        span.end(error, attributes, body, status=status)
        self._forget(span)

    def enter(self, key: Hashable) -> None:
        """Make the span the ambient one of this context, which has not started it."""
        span = self._open.get(key)
        if span is not None:
            context.enter(span)

    def leave(self, key: Hashable) -> None:
        """Let the span go on without being the ambient one."""
        span = self._open.get(key)
        if span is not None:
            context.leave_span(span)

    def _forget(self, span: Span) -> None:
        context.leave_span(span)
        self._without_input.discard(span.id)

    # --- model calls ------------------------------------------------------------------------------

    def start_model(
        self,
        key: Hashable,
        parent: Hashable = None,
        request: Callable[[], Any] = lambda: None,
    ) -> None:
        """Note that the framework calls a model. The wire usually records the call itself."""
        outer = self._find_parent(parent) or _process_span()
        if outer is not None and not outer.muted:
            now_ns = outer._emitter.monotonic_ns()
            self._models[key] = _ModelCall(outer, count_calls(outer.id), now_ns, request)
            if len(self._models) > FRAMEWORK_SPANS_MAX:
                self._models.pop(next(iter(self._models)))

    def end_model(
        self,
        key: Hashable,
        name: str,
        *,
        response: Any = None,
        attributes: Mapping[str, Any] | None = None,
        error: Any = None,
    ) -> None:
        """Record a model call that the wire has not recorded."""
        call = self._models.pop(key, None)
        if call is None or count_calls(call.parent.id) != call.count_before:
            return
        emitter = call.parent._emitter
        facts = {key: value for key, value in (attributes or {}).items() if value is not None}
        failure = {} if error is None else {"error.message": str(error)}
        record_finished(
            call.parent,
            name,
            "llm",
            emitter.attributes({"framework": self.framework, **facts}),
            call.request(),
            emitter.attributes(failure),
            response,
            "ok" if error is None else "error",
            emitter.monotonic_ns() - call.started_ns,
        )

    # --- parents ----------------------------------------------------------------------------------

    def _find_parent(self, key: Hashable) -> Span | None:
        """Return the span of `key`, or the ambient span if `key` is unknown.

        A span of the program's own inside it is nearer than the framework knows.
        """
        known = self._open.get(key) or self._skipped.get(key)
        ambient = context.current()
        if known is None or known.ended:
            return ambient
        if ambient is None or _FRAMEWORK_OF.get(ambient.id) == _FRAMEWORK_OF.get(known.id):
            return known
        return ambient if _is_inside(ambient, known) else known


_FRAMEWORK_OF: dict[str, str] = {}
"""The framework of the newest spans, to name it only on the outermost ones."""


def _is_inside(span: Span, outer: Span) -> bool:
    found: Span | None = span
    for _ in range(_ANCESTORS_MAX):
        if found is None or found is outer:
            break
        found = found._emitter.open_spans.get(found.parent_id or "")
    return found is outer


def _process_span() -> Span | None:
    """Return the span of this process, for work outside of any other."""
    writer = getattr(context.default(), "_writer", None)
    span: Span | None = getattr(writer, "process_span", None)
    return NULL_SPAN if span is None else span
