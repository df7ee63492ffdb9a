"""OpenTelemetry: spans of the process become spans here, without an exporter or a server.

A span processor joins every TracerProvider of the SDK that the program creates. While the program
has set no provider, spans of the API are recorded by a tracer of our own. Its spans have no
context of their own, so nothing is propagated, and the program can still set a provider.

Types, names and contents are mapped as in formats/otlp. Model calls are not spans of their own: the
wire records them inside the span that makes them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from vestige.emit.model_call_counts import count_calls
from vestige.formats.otlp.constants import TRACE_ID
from vestige.formats.otlp.parse_span import Event, OtelSpan
from vestige.formats.otlp.span_content import extract_content
from vestige.formats.otlp.span_types import LLM, STEP, get_span_type, rename_attributes
from vestige.integrations.failure_counts import guarded
from vestige.integrations.frameworks import otlp_exporters
from vestige.integrations.frameworks.span_tracker import SpanTracker

_NAMES = (
    ("invoke_agent ", "agent"),
    ("agent_run ", "agent"),
    ("execute_tool ", "tool"),
    ("chat", LLM),
    ("call_llm", LLM),
    ("generate_content", LLM),
)
"""Beginnings of the names of spans that get their attributes after their start."""
_PREFIX = re.compile(r"^(?:invoke_agent|agent_run|execute_tool|running tool:?)\s+")
_IGNORED_SCOPES = re.compile(
    r"crewai\b|autogen SingleThreadedAgentRuntime|mcp-python-sdk"
    r"|opentelemetry\.instrumentation\.(?:httpx|requests|urllib|urllib3|aiohttp_client)"
    r"|(?:openinference|opentelemetry)\.instrumentation\."
    r"(?:langchain|openai_agents|crewai|smolagents|llama_?index|dspy|mcp)"
)
"""Scopes of HTTP clients, and of frameworks that have an integration of their own."""
_IGNORED_OPERATIONS = frozenset(["create_agent"])
_PLUMBING = re.compile(r"(?:edge_group\.process|message\.send|workflow\.build)\b")
"""Names of spans that only connect others, as workflows of Microsoft Agent Framework have them."""
_RECORDED = frozenset([("autogen-core", "tool"), ("agent_framework", "tool")])
"""Scopes and types of spans that an integration of its own records, with arguments."""
_EXTRA_INPUTS = ("gcp.vertex.agent.tool_call_args", "gcp.vertex.agent.data")
_EXTRA_OUTPUTS = ("gcp.vertex.agent.tool_response",)

spans = SpanTracker("opentelemetry")
_results: dict[Any, Any] = {}
"""The outputs of open agents whose spans do not have them, by key."""


def install(module: ModuleType) -> None:
    """Record the spans of the API while no provider is set. `module` is opentelemetry.trace."""
    tracer_class = _get_tracer_class(module)
    original = module.ProxyTracer._tracer.fget

    def find_tracer(self: Any) -> Any:
        found = original(self)
        if found is not self._noop_tracer:
            return found
        own = self.__dict__.get("_vestige_tracer")
        if own is None:
            own = self._vestige_tracer = tracer_class(self._instrumenting_module_name)
        return own

    module.ProxyTracer._tracer = property(find_tracer)


def make_private_provider() -> Any:
    """Return a provider whose spans are recorded here only, not exported by the program's own."""
    module = import_module("opentelemetry.trace")
    tracer_class = _get_tracer_class(module)

    class Provider(module.TracerProvider):  # type: ignore[misc, name-defined]
        def get_tracer(self, instrumenting_module_name: str, *_: Any, **__: Any) -> Any:
            return tracer_class(instrumenting_module_name, is_private=True)

    return Provider()


def install_sdk(module: ModuleType) -> None:
    """Add the processor to each provider of the SDK. `module` is opentelemetry.sdk.trace."""
    processor = type("VestigeSpanProcessor", (_Processor, module.SpanProcessor), {})()
    original = module.TracerProvider.__init__

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.add_span_processor(processor)

    initialize.__wrapped__ = original  # type: ignore[attr-defined]  # for inspect.signature
    module.TracerProvider.__init__ = initialize


def find_current_key() -> Any:
    """Return the key of the current span in `spans`: an object of ours, or an id of the SDK."""
    return key_of(import_module("opentelemetry.trace").get_current_span())


def key_of(span: Any) -> Any:
    return getattr(span, "key", None) or span.get_span_context().span_id


def add_agent_task(task: Any) -> Any:
    """Add the input of the current span, if it is an agent's. Return its key, or None.

    For frameworks whose spans have no contents.
    """
    key = find_current_key()
    span = spans.get(key)
    if span is None or span.type != "agent":
        return None
    spans.complete(key, body=task)
    return key


def add_agent_result(key: Any, result: Any) -> None:
    """Keep the output of an agent until its span ends."""
    if key in spans and result is not None:
        _results[key] = result


class _Processor:
    """The methods of a span processor."""

    @guarded
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        parent = None if span.parent is None else span.parent.span_id
        is_first = span.parent is None or span.parent.is_remote
        trace_id = format(span.context.trace_id, "032x") if is_first else None
        key, scope = span.context.span_id, _scope_of(span)
        _start(key, parent, span.name, scope, span.attributes, span.kind, trace_id)

    @guarded
    def on_end(self, span: Any) -> None:
        events = [
            Event(event.timestamp, event.name, dict(event.attributes or {}))
            for event in span.events
        ]
        _end(span.context.span_id, span.name, span.attributes, events, span.kind, span.status)
        otlp_exporters.mark_recorded(span)

    def shutdown(self) -> None:
        """Do nothing: records are written at once."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


def _scope_of(span: Any) -> str:
    scope = getattr(span, "instrumentation_scope", None)
    return str(getattr(scope, "name", "") or "")


# --- spans of the API, while the program has no provider ------------------------------------------


@functools.cache
def _get_tracer_class(module: ModuleType) -> Any:
    """Return our tracer as a subclass of the API's."""
    span_class = _make_span_class(module)

    class Tracer(module.Tracer):  # type: ignore[misc, name-defined]  # known at run time only
        def __init__(self, scope: str, is_private: bool = False) -> None:
            self._scope = scope
            self._is_private = is_private

        def start_span(
            self,
            name: str,
            context: Any = None,
            kind: Any = None,
            attributes: Any = None,
            *_: Any,
            **__: Any,
        ) -> Any:
            outer = module.get_current_span(context)
            is_other = not isinstance(outer, span_class) and outer.get_span_context().is_valid
            if is_other and not self._is_private:
                return outer  # a span of a remote caller, as without a tracer
            parent = getattr(outer, "key", None)
            span = span_class(name, parent, self._scope, attributes, kind)
            # Spans of the program's own tracer inside keep their parent.
            span.outer_context = outer.get_span_context()
            return span

        @contextmanager
        def start_as_current_span(
            self,
            name: str,
            context: Any = None,
            kind: Any = None,
            attributes: Any = None,
            links: Any = None,
            start_time: Any = None,
            record_exception: bool = True,
            set_status_on_exception: bool = True,
            end_on_exit: bool = True,
        ) -> Iterator[Any]:
            span = self.start_span(name, context, kind, attributes)
            with module.use_span(
                span,
                end_on_exit=end_on_exit,
                record_exception=record_exception,
                set_status_on_exception=set_status_on_exception,
            ):
                yield span

    return Tracer


def _make_span_class(module: ModuleType) -> type:
    class Span(module.Span):  # type: ignore[misc, name-defined]
        def __init__(self, name: str, parent: Any, scope: str, attributes: Any, kind: Any) -> None:
            self.key = object()
            self._name, self._kind, self._status = name, kind, None
            self._attributes: dict[str, Any] = dict(attributes or {})
            self._events: list[Event] = []
            self._ended = False
            self.outer_context = module.INVALID_SPAN_CONTEXT
            guarded(_start)(self.key, parent, name, scope, self._attributes, kind)

        def get_span_context(self) -> Any:
            return self.outer_context

        def is_recording(self) -> bool:
            return not self._ended

        def set_attributes(self, attributes: Mapping[str, Any]) -> None:
            self._attributes.update(attributes)
            guarded(_update)(self.key, self._name, self._attributes)

        def set_attribute(self, key: str, value: Any) -> None:
            self.set_attributes({key: value})

        def add_event(self, name: str, attributes: Any = None, timestamp: Any = None) -> None:
            self._events.append(Event(0, name, dict(attributes or {})))

        def add_link(self, context: Any, attributes: Any = None) -> None:
            """Do nothing: spans of other traces are not recorded here."""

        def update_name(self, name: str) -> None:
            self._name = name

        def set_status(self, status: Any, description: Any = None) -> None:
            if not hasattr(status, "status_code"):
                status = module.Status(status, description)
            self._status = status

        def record_exception(
            self,
            exception: BaseException,
            attributes: Any = None,
            timestamp: Any = None,
            escaped: bool = False,
        ) -> None:
            self._events.append(Event(0, "exception", {"exception": exception}))

        def end(self, end_time: Any = None) -> None:
            if not self._ended:
                self._ended = True
                args = (self._name, self._attributes, self._events, self._kind, self._status)
                guarded(_end)(self.key, *args)

    return Span


# --- both -----------------------------------------------------------------------------------------


def _start(
    key: Any,
    parent: Any,
    name: str,
    scope: str,
    attributes: Mapping[str, Any] | None,
    kind: Any,
    trace_id: str | None = None,
) -> None:
    facts = dict(attributes or {})
    operation = facts.get("gen_ai.operation.name")
    type_ = _type_of(name, facts, kind)
    if (scope, type_) in _RECORDED:
        spans.replace(key, parent, type_)
        return
    is_ignored = operation in _IGNORED_OPERATIONS or _PLUMBING.match(name)
    if is_ignored or type_ == "http" or _IGNORED_SCOPES.match(scope):
        spans.skip(key, parent)
        return
    if type_ == LLM:
        spans.start_model(key, parent)
        spans.skip(key, parent)
        return
    renamed, _ = rename_attributes(facts)
    own = _own_attributes(type_, facts, renamed)
    spans.start(
        key,
        _label(name, type_, facts),
        type_,
        parent=parent,
        body=extract_content(facts, [], type_, None).input,
        attributes=own if trace_id is None else {TRACE_ID: trace_id, **own},
        call_id=renamed.get("tool_call_id"),
        framework=scope or None,
    )


def _update(key: Any, name: str, attributes: Mapping[str, Any]) -> None:
    """Correct the type and the name of a span whose attributes arrive after its start."""
    span = spans.get(key)
    if span is None:
        return
    type_ = _type_of(name, attributes, None)
    if type_ not in (STEP, LLM, "http") and type_ != span.type:
        call_id = rename_attributes(dict(attributes))[0].get("tool_call_id")
        spans.complete(key, name=_label(name, type_, attributes), type=type_, call_id=call_id)


def _end(
    key: Any,
    name: str,
    attributes: Mapping[str, Any] | None,
    events: list[Event],
    kind: Any,
    status: Any,
) -> None:
    facts = dict(attributes or {})
    type_ = _type_of(name, facts, kind)
    renamed, _ = rename_attributes(facts)
    model = renamed.get("model")
    texts = [event for event in events if event.name != "exception"]
    error = _error_of(events, status)
    result = _results.pop(key, None)
    span = spans.get(key)
    if span is None:
        content = extract_content(facts, texts, LLM, model)
        spans.end_model(key, name, response=content.output, attributes=renamed, error=error)
        spans.end(key)
        return
    if type_ == LLM and count_calls(span.id):
        type_ = STEP  # The wire has recorded the call inside.
    content = extract_content(facts, texts, type_, model)
    body_in = content.input or _first(facts, _EXTRA_INPUTS)
    body_out = content.output or _first(facts, _EXTRA_OUTPUTS) or result
    if type_ in ("http", STEP):
        type_ = span.type
    label = _label(name, type_, facts)
    call_id = renamed.get("tool_call_id")
    spans.complete(key, name=label, type=type_, body=body_in, call_id=call_id)
    others = _own_attributes(type_, facts, renamed)
    if type_ != LLM:
        others.pop("input_tokens", None)
        others.pop("output_tokens", None)
    spans.end(key, body=body_out, error=error, attributes=others)


def _type_of(name: str, attributes: Mapping[str, Any], kind: Any) -> str:
    type_ = get_span_type(_to_otel_span(name, attributes, kind))
    if type_ == STEP:
        for prefix, named in _NAMES:
            if name.startswith(prefix):
                return named
    return type_


def _to_otel_span(name: str, attributes: Mapping[str, Any], kind: Any) -> OtelSpan:
    return OtelSpan(
        trace_id="",
        id="",
        parent_id="",
        name=name,
        kind=str(getattr(kind, "name", "") or ""),
        start_ns=0,
        end_ns=0,
        code="",
        message="",
        remote=False,
        trace_state="",
        attributes=dict(attributes),
        events=[],
        links=[],
        dropped=0,
        resource={},
        scope="",
    )


def _label(name: str, type_: str, attributes: Mapping[str, Any]) -> str:
    """Return the name of the agent or tool, or the name of the span."""
    key = {"agent": "gen_ai.agent.name", "tool": "gen_ai.tool.name"}.get(type_, "")
    value = attributes.get(key) or (attributes.get("tool.name") if type_ == "tool" else None)
    return str(value) if value else _PREFIX.sub("", name)


def _own_attributes(
    type_: str, attributes: Mapping[str, Any], renamed: Mapping[str, Any]
) -> dict[str, Any]:
    found = dict(renamed)
    if type_ != LLM:
        for key in ("provider", "model", "finish_reason"):
            found.pop(key, None)  # They are in the model calls inside.
    if type_ == "agent":
        found["agent_name"] = attributes.get("gen_ai.agent.name")
        found["conversation_id"] = attributes.get("gen_ai.conversation.id")
    return {key: value for key, value in found.items() if value is not None}


def _error_of(events: list[Event], status: Any) -> Any:
    """Return the exception or the message of a failed span."""
    if getattr(getattr(status, "status_code", None), "name", "") != "ERROR":
        return None
    for event in reversed(events):
        if event.name == "exception":
            found = event.attributes.get("exception")
            if found is not None:
                return found
            kind, text = (event.attributes.get(f"exception.{part}") for part in ("type", "message"))
            return ": ".join(str(part) for part in (kind, text) if part)
    return getattr(status, "description", None) or "error"


def _first(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((attributes[key] for key in keys if attributes.get(key)), None)
