"""Read Claude Code's spans by the GenAI conventions, and join its log events to them.

    normalize_span(span)                 # names, usage, arguments and results, in place
    share_tool_status(spans)             # a tool has the status of its execution
    joiner = EventJoiner()               # add_log_record(), add_span(), join()
    joiner.apply(span)                   # adds the bodies that log events contain

Claude Code names spans by their kind (`claude_code.tool`), and its usage does not include the
cache. It sends a call's request and response as log events of the span around the call. They
belong to the call by time, and responses also by request id. Paths (`body_ref`) are never opened.
"""

from __future__ import annotations

from typing import Any, Final

from vestige.formats.otlp.any_value import Object, as_text, parse_int
from vestige.formats.otlp.parse_span import OtelLogRecord, OtelSpan
from vestige.limits import OTLP_PENDING_LOG_BYTES_MAX, OTLP_PENDING_LOGS_MAX
from vestige.providers.truncated_json import close_json
from vestige.record.call_bodies import INPUT, OUTPUT, Call, find_call

_SCOPE: Final = "com.anthropic.claude_code"
_CALL: Final = "claude_code.llm_request"
_TOOL: Final = "claude_code.tool"
_EXECUTION: Final = "claude_code.tool.execution"
_REQUEST: Final = "api_request_body"
_RESPONSE: Final = "api_response_body"
_RESULT: Final = "tool_result"
_EVENTS: Final = frozenset((_REQUEST, _RESPONSE, _RESULT))
_ARGUMENTS: Final = {"full_command": "command", "file_path": "file_path"}
"""Attributes of a tool's span that are arguments, and the names of these arguments."""
_OUTPUTS: Final = ("output", "content", "diff")


def normalize_span(span: OtelSpan) -> None:
    """Rename what has another name in the GenAI conventions. Other programs' spans are kept."""
    if span.name == _CALL:
        _normalize_call(span.attributes)
    elif span.name == _TOOL:
        _normalize_tool(span)
    elif span.name == _EXECUTION:
        span.attributes.pop("gen_ai.tool.call.id", None)  # `tool_use_id` has it too
    else:
        return
    if span.attributes.get("success") is False and span.code != "ERROR":
        span.code, span.message = "ERROR", as_text(span.attributes.get("error"))


def _normalize_call(attributes: Object) -> None:
    attributes.setdefault("gen_ai.operation.name", "chat")
    fresh = parse_int(attributes.get("input_tokens"))
    read = parse_int(attributes.get("cache_read_tokens"))
    written = parse_int(attributes.pop("cache_creation_tokens", None))
    if written is not None:
        attributes["cache_write_tokens"] = written
    if fresh is not None:
        attributes["input_tokens"] = fresh + (read or 0) + (written or 0)


def _normalize_tool(span: OtelSpan) -> None:
    attributes = span.attributes
    name = attributes.get("tool_name")
    if isinstance(name, str) and name:
        span.name = f"execute_tool {name}"
    attributes.setdefault("gen_ai.operation.name", "execute_tool")
    arguments = {
        ours: attributes[theirs] for theirs, ours in _ARGUMENTS.items() if theirs in attributes
    }
    if arguments:
        attributes.setdefault("gen_ai.tool.call.arguments", arguments)
    for index, event in enumerate(span.events):
        result = next((event.attributes[key] for key in _OUTPUTS if key in event.attributes), None)
        if event.name == "tool.output" and result is not None:
            attributes.setdefault("gen_ai.tool.call.result", result)
            del span.events[index]
            break


def share_tool_status(spans: list[OtelSpan]) -> None:
    """Move the status of executions to their tools, if both are in the same request.

    Claude Code sets it at the execution only, and one failure is counted once.
    """
    executions = {span.parent_id: span for span in spans if span.name == _EXECUTION}
    for span in spans if executions else ():
        execution = executions.get(span.id)
        if execution is not None and span.code != "ERROR":
            span.code, span.message = execution.code, execution.message
            execution.code, execution.message = "UNSET", ""


class EventJoiner:
    """Joins the log events and the spans of one trace, after all of them were added."""

    def __init__(self) -> None:
        self._events: list[tuple[int, OtelLogRecord]] = []
        self._bytes = 0
        self._calls: dict[str, list[Call]] = {}
        """Model calls, by the span around them."""
        self._tool_spans: dict[str, str] = {}
        """Spans of tools, by the id of their call."""
        self._found: dict[str, Object] = {}
        """Attributes to add, by span."""
        self.joined: set[int] = set()
        """Numbers of the log records that spans contain now."""

    def add_log_record(self, number: int, log_record: OtelLogRecord) -> None:
        """Keep an event with content. Above the limits, it stays a log record."""
        attributes = log_record.attributes
        if not _is_event(log_record) or len(self._events) >= OTLP_PENDING_LOGS_MAX:
            return
        self._bytes += len(as_text(attributes.get("body"))) + len(
            as_text(attributes.get("tool_input"))
        )
        if self._bytes <= OTLP_PENDING_LOG_BYTES_MAX:
            self._events.append((number, log_record))

    def add_span(self, span: OtelSpan) -> None:
        attributes = span.attributes
        if span.name == _CALL:
            call = Call(span.id, span.start_ns, span.end_ns, as_text(attributes.get("request_id")))
            self._calls.setdefault(span.parent_id, []).append(call)
        elif attributes.get("span.type") == "tool":
            self._tool_spans[as_text(attributes.get("tool_use_id"))] = span.id

    def join(self) -> None:
        for calls in self._calls.values():
            calls.sort(key=lambda call: (call.started_ns, call.id))
        for number, log_record in self._events:
            name = log_record.attributes["event.name"]
            if name == _RESULT:
                self._join_result(log_record.attributes)
            elif self._join_body(name, log_record):
                self.joined.add(number)
        self._events.clear()

    def apply(self, span: OtelSpan) -> None:
        found = self._found.get(span.id)
        if found:
            span.attributes |= found

    def _join_result(self, attributes: Object) -> None:
        """Add the exact arguments. The event itself stays a log record: it says more."""
        span_id = self._tool_spans.get(as_text(attributes.get("tool_use_id")))
        arguments = as_text(attributes.get("tool_input"))
        if span_id and arguments:
            self._found.setdefault(span_id, {})["gen_ai.tool.call.arguments"] = arguments

    def _join_body(self, name: str, log_record: OtelLogRecord) -> bool:
        attributes = log_record.attributes
        body = as_text(attributes.get("body"))
        key = "input.value" if name == _REQUEST else "output.value"
        calls = self._calls.get(log_record.span_id, ())
        call = find_call(calls, log_record.time_ns, as_text(attributes.get("request_id")))
        if not body or call is None or key in self._found.get(call.id, ()):
            return False
        found = self._found.setdefault(call.id, {})
        if str(attributes.get("body_truncated")).lower() == "true":
            body = close_json(body)
            side = "request" if name == _REQUEST else "response"
            found[f"{side}_body_truncated"] = True
            found[f"{side}_body_length"] = parse_int(attributes.get("body_length"))
        found[key] = body
        return True


def _is_event(log_record: OtelLogRecord) -> bool:
    name: Any = log_record.attributes.get("event.name")
    return log_record.scope.startswith(_SCOPE) and isinstance(name, str) and name in _EVENTS


def find_call_body(log_record: OtelLogRecord) -> str | None:
    """Return which body of a model call the event contains: `input`, `output` or none."""
    if not _is_event(log_record) or not isinstance(log_record.attributes.get("body"), str):
        return None
    return {_REQUEST: INPUT, _RESPONSE: OUTPUT}.get(log_record.attributes["event.name"])
