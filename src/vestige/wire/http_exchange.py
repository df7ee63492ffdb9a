"""Recording of one attempt at an HTTP call, from the first byte sent to the last received.

A client's hook calls these methods, in this order:

    sending(chunk)*  sent()  answered(status, headers)  received(chunk)*
    then one of  finished()  failed(error)  closed()

The span opens when the request is known, so that a call in flight is on record. Status and headers
are recorded when they arrive, the rest at the end. The methods never raise: a failure is counted,
and ends the recording of this call.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from vestige.emit import model_call_counts, requested_tool_calls
from vestige.emit.emitter import Emitter
from vestige.emit.exception_attributes import status_of
from vestige.emit.span import Span
from vestige.limits import (
    BODY_CHUNK,
    BODY_INLINE_MAX,
    BODY_MAX,
    PARTIAL_INTERVAL_S,
    PARTIAL_MAX,
    PARTIAL_PAUSE_S,
)
from vestige.providers.chat_types import Request, Response
from vestige.providers.endpoints import Endpoint
from vestige.providers.stream_timing import has_ended, is_event_stream, is_stream
from vestige.record.inline_or_chunked_body import LongBody, decode_chunks
from vestige.wire import aws_event_stream, call_attributes, mcp_calls, untraced_tools
from vestige.wire.byte_buffer import MARKER_MAX, ByteBuffer
from vestige.wire.content_encoding import Decoded, decode, is_coded
from vestige.wire.header_redaction import find_header, masked_headers, masked_url
from vestige.wire.inferred_tools import Conversation
from vestige.wire.outgoing_request import Headers, OutgoingRequest, SpanContext
from vestige.wire.retry_attempts import Attempts

P = ParamSpec("P")

REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "cf-ray")


class CallSpan(Span):
    """A span whose start and end can be set to earlier times."""

    __slots__ = ()

    def end_at(self, ended_ns: int, **how: Any) -> None:
        """End the span at an earlier time: parsing the response is not part of the call."""
        self._opened_ns += self._emitter.monotonic_ns() - ended_ns
        self.end(**how)

    def began_at(self, began_ns: int) -> None:
        self._opened_ns = began_ns


def never_raises(
    method: Callable[Concatenate[Exchange, P], None],
) -> Callable[Concatenate[Exchange, P], None]:
    """Count an exception and end the recording of this call; the program is not affected."""

    @wraps(method)
    def guarded(self: Exchange, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.over:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  # a bug in vestige must not reach the program
            self.give_up(error)

    return guarded


class Exchange:
    """An attempt at a call. Created by `call_selection.begin`."""

    __slots__ = (
        "_attempts",
        "_began_ns",
        "_content_length",
        "_conversation",
        "_decoded",
        "_first_byte_ns",
        "_flush_at_ns",
        "_flushed",
        "_flushing",
        "_parsed",
        "_request_buffer",
        "_response",
        "_response_buffer",
        "_response_coding",
        "_span",
        "_tool",
        "_type",
        "_warm",
        "context",
        "endpoint",
        "over",
        "request",
        "status",
    )

    def __init__(
        self,
        context: SpanContext,
        request: OutgoingRequest,
        endpoint: Endpoint | None,
        attempts: Attempts,
        *,
        warm: bool = False,
    ) -> None:
        self.context = context
        self.request = request
        self.endpoint = endpoint
        self.over = False
        self.status: int | None = None
        self._type = "http" if endpoint is None else endpoint.span_type
        self._tool: str | None = None
        """The tool that an MCP request calls."""
        self._warm = warm
        self._attempts = attempts
        self._span: CallSpan | None = None
        self._conversation: Conversation | None = None
        self._parsed: Request | None = None
        self._response: Response | None = None
        self._request_buffer: ByteBuffer | None = None if request.body is not None else ByteBuffer()
        self._response_buffer = ByteBuffer()
        self._flush_at_ns = 0
        self._flushed = 0
        self._flushing = allocate_lock()
        self._decoded = False
        self._response_coding = ""
        self._content_length: int | None = None
        self._first_byte_ns: int | None = None
        self._began_ns = context.emitter.monotonic_ns()
        if request.body is not None:
            self._open(request.body)

    # --- the request ------------------------------------------------------------------------------

    @never_raises
    def sending(self, chunk: bytes) -> None:
        """Add a chunk of a request body that is streamed."""
        if self._request_buffer is not None and self._span is None:
            self._request_buffer.add(chunk, 0)

    @never_raises
    def sent(self) -> None:
        """Open the span: the request was sent completely."""
        self._ensure_open()

    def _ensure_open(self) -> CallSpan:
        if self._span is None:
            buffer = self._request_buffer
            self._open(bytes(buffer.data) if buffer is not None else b"")
        assert self._span is not None
        return self._span

    def _open(self, body: bytes) -> None:
        request, context = self.request, self.context
        attributes: dict[str, Any] = {
            "method": request.method,
            "url": masked_url(request.url),
            "host": request.host,
        }
        decoded = self._decode_request(body, attributes)
        request.body = decoded
        if request.level:
            attributes["replay.level"] = request.level
        endpoint = self.endpoint
        if endpoint is not None and endpoint.provider:
            attributes["provider"] = endpoint.provider
        if self._type != "http":
            model = (endpoint.model if endpoint else None) or call_attributes.glimpse_model(decoded)
            if model:
                attributes["model"] = model
            if self._warm:
                attributes["warm"] = True
        if self._type == "http":
            self._tool = mcp_calls.find_tool(decoded)
            if self._tool is not None:
                attributes |= {"tool.name": self._tool, "rpc.method": "tools/call"}
        attributes["attempt"] = self._attempts.begin(context.run_id, context.parent_id, request)
        if self._type == "llm":
            self._infer_tools(decoded)
        span = CallSpan(
            context.emitter,
            context.run_id,
            context.parent_id if self._conversation is None else self._conversation.place,
            context.component,
            self._name(),
            self._type if self._tool is None else "tool",
            attributes,
            decoded or None,
        )
        span.began_at(self._began_ns)
        self._span = span
        if self._type != "http":
            model_call_counts.add_call(context.emitter, context.parent_id)

    def _infer_tools(self, body: bytes) -> None:
        """Record the tools whose results the request contains, before the call itself."""
        context, endpoint = self.context, self.endpoint
        provider = endpoint.provider if endpoint is not None else None
        if context.tools is not None:
            self._conversation = context.tools.begin_request(context, body, provider)
        elif requested_tool_calls.has_unrecorded(context.run_id, body):
            self._parsed = call_attributes.read_request(body, provider)
            if self._parsed is not None:
                untraced_tools.record_tools(context, self._parsed, self._began_ns)

    def _name(self) -> str:
        if self._tool is not None:
            return self._tool
        if self._type != "http" and self.endpoint is not None:
            return self.endpoint.api
        return f"{self.request.method} {self.request.host}{self.request.path}"

    def _decode_request(self, body: bytes, attributes: dict[str, Any]) -> bytes:
        if self._request_buffer is not None:
            attributes["request.streamed"] = True
            if self._request_buffer.truncated:
                attributes["request.bytes"] = self._request_buffer.total
        coding = find_header(self.request.headers, "content-encoding") or ""
        if not body or not is_coded(coding):
            return body
        attributes["request.encoding"] = coding
        if self.request.plain:
            return body
        attributes["request.wire_bytes"] = len(body)
        plain = decode(body, coding, BODY_MAX)
        if plain is None or not plain.complete:
            attributes["request.undecoded"] = True
            return body
        return bytes(plain.data)

    # --- the response -----------------------------------------------------------------------------

    @never_raises
    def answered(
        self, status: int, headers: Headers, *, decoded: bool = False, version: str | None = None
    ) -> None:
        """Record status and headers. `decoded`: the chunks that follow are decoded already."""
        span = self._ensure_open()
        self.status = status
        self._first_byte_ns = self.context.emitter.monotonic_ns() - self._began_ns
        self._response_coding = find_header(headers, "content-encoding") or ""
        if self._type == "llm" and aws_event_stream.CONTENT_TYPE in (
            find_header(headers, "content-type") or ""
        ):
            framed = (aws_event_stream.CODING, self._response_coding)
            self._response_coding = ", ".join(filter(None, framed))
        self._decoded = decoded
        length = find_header(headers, "content-length")
        if length is not None and length.isdecimal():
            self._content_length = int(length)
        # Headers are a record of their own: names of secret headers make the redactor scan a
        # record thoroughly, which would be slow for a body in the same record.
        attributes: dict[str, Any] = {
            "status_code": status,
            "first_byte_ns": self._first_byte_ns,
            "request.headers": masked_headers(self.request.headers),
            "response.headers": masked_headers(headers),
        }
        if version:
            attributes["http_version"] = version
        request_id = next(filter(None, (find_header(headers, name) for name in REQUEST_IDS)), None)
        if request_id:
            attributes["request_id"] = request_id
        span.set_attributes(attributes)
        self.context.emitter.unfinished.add(self)

    @never_raises
    def received(self, chunk: bytes) -> None:
        """Add a chunk of the response body, as the program receives it."""
        now_ns = self.context.emitter.monotonic_ns()
        self._response_buffer.add(chunk, now_ns)
        if now_ns >= self._flush_at_ns:
            self._flush(now_ns)

    @never_raises
    def flush(self) -> None:
        """Store the partial response. Called about once a second by a background thread."""
        now_ns = self.context.emitter.monotonic_ns()
        if now_ns >= self._flush_at_ns:
            self._flush(now_ns)

    def _flush(self, now_ns: int) -> None:
        """Store the complete events of a streamed response, and set the time of the next save."""
        first = not self._flush_at_ns
        self._flush_at_ns = now_ns + int(PARTIAL_INTERVAL_S * 1e9)
        buffer, span, emitter = self._response_buffer, self._span, self.context.emitter
        if first or span is None or span._writer != emitter.writer:
            return
        if self.over or buffer.total in (self._flushed, 0) or len(buffer.data) > PARTIAL_MAX:
            return
        if not self._flushing.acquire(blocking=False):
            return  # another thread is flushing
        is_first_save = not self._flushed
        try:
            self._flushed = buffer.total
            body = self._plain().data
            if self._type == "llm" and is_stream(body):
                emitter.keep_partial(span.id, body[: _end_of_events(body)])
        except Exception as error:  # noqa: BLE001  # e.g. a full disk: the call is still recorded
            fault(emitter, error)
        finally:
            self._flushing.release()
        if self.over:
            self._drop_partial()
        spent_ns = emitter.monotonic_ns() - now_ns
        # The first save of a process loads modules and patterns, so its time says little.
        self._flush_at_ns = now_ns + pause_between_saves(0 if is_first_save else spent_ns)

    # --- the end ----------------------------------------------------------------------------------

    @never_raises
    def finished(self) -> None:
        """End the call: the complete body was read."""
        self._end(None, None)

    @never_raises
    def failed(self, error: BaseException) -> None:
        """End the call with the client's exception."""
        status = status_of(error)
        if status == "error" and any("Timeout" in cls.__name__ for cls in type(error).__mro__):
            status = "timeout"
        self._end(error, status)

    @never_raises
    def closed(self) -> None:
        """End the call: the program closed or dropped the response, or ends."""
        self._end(None, None if self._is_complete() else "cancelled")

    def give_up(self, error: Exception) -> None:
        """End the recording after an internal error."""
        self.over = True
        self._forget()
        fault(self.context.emitter, error)
        span = self._span
        if span is not None and not span.ended:
            try:
                span.end(status="error", attributes={"wire.fault": type(error).__name__})
            except Exception as second:  # noqa: BLE001  # nothing more to try
                fault(self.context.emitter, second)

    def _is_complete(self) -> bool:
        if self.status is None:
            return False
        if self._content_length is not None and not self._decoded:
            return self._response_buffer.total >= self._content_length
        return has_ended(self._plain().data)

    def _plain(self) -> Decoded:
        """Return the decoded response body."""
        buffer, coding = self._response_buffer, self._response_coding
        if self._decoded or not is_coded(coding):
            return Decoded(buffer.data, True, [])
        plain = decode(buffer.data, coding, BODY_MAX - MARKER_MAX, buffer.ends)
        return plain or Decoded(buffer.data, False, [])

    def _end(self, error: BaseException | None, status: str | None) -> None:
        self.over = True
        ended_ns = self.context.emitter.monotonic_ns()
        span = self._ensure_open()
        plain = self._plain()
        attributes = self._response_attributes(plain)
        if self.status is None:
            attributes["request.headers"] = masked_headers(self.request.headers)
        elif status is not None:
            attributes["response.partial"] = True
            if status == "cancelled" and error is None and "finish_reason" in attributes:
                status = None  # many programs stop reading at the finish reason
        if self.status is not None and self.status >= 400:
            status = status or "error"
            if error is None:
                attributes["error.type"] = f"HTTP {self.status}"
        elif "error.message" in attributes and error is None:
            what = "provider error" if self._tool is None else "tool error"
            status, attributes["error.type"] = status or "error", what
        if status is not None:
            self._attempts.failed(self.context.run_id, self.context.parent_id, self.request)
        span.end_at(
            ended_ns,
            error=error,
            status=status,
            attributes=attributes,
            body=self._body(self._redact(plain.data)),
        )
        tools, conversation, response = self.context.tools, self._conversation, self._response
        if tools is not None and conversation is not None and response is not None:
            tools.end_response(conversation, span, response)
        self._forget()

    def _redact(self, body: bytes | bytearray) -> bytes | bytearray:
        """Redact secrets that are split across the events of a stream.

        JSON lines of other calls than model calls are separate texts, so they are left alone.
        """
        if self._type != "llm" and not is_event_stream(body):
            return body
        return self.context.emitter.redact_stream(body)

    def _forget(self) -> None:
        """Free the bodies: the program may keep the response, which refers to this exchange."""
        self._response_buffer, self._request_buffer = ByteBuffer(), None
        self._parsed = self._response = None
        self.request.body = b""
        self.context.emitter.unfinished.discard(self)
        self._drop_partial()

    def _drop_partial(self) -> None:
        """Delete the partial response without waiting. A flush in progress deletes its own."""
        span, emitter = self._span, self.context.emitter
        if not self._flushed or span is None or span._writer != emitter.writer:
            return
        if self._flushing.acquire(blocking=False):
            try:
                emitter.keep_partial(span.id, None)
            except OSError as error:
                fault(emitter, error)
            finally:
                self._flushing.release()

    def _response_attributes(self, plain: Decoded) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        buffer = self._response_buffer
        if is_coded(self._response_coding) and self.status is not None:
            attributes["response.encoding"] = self._response_coding
            if not self._decoded:
                attributes["response.wire_bytes"] = buffer.total
            if not plain.complete:
                attributes["response.undecoded"] = True
        if buffer.truncated:
            attributes["response.bytes"] = buffer.total
            attributes["response.sha256"] = buffer.sha256
        if self._tool is not None:
            message = mcp_calls.find_error(bytes(plain.data))
            return attributes if message is None else {**attributes, "error.message": message}
        if self._type == "http":
            return attributes
        if self._type != "llm":
            body = self.request.body or b""
            return attributes | call_attributes.other_attributes(self._type, body, plain.data)
        provider = self.endpoint.provider if self.endpoint else None
        body = self.request.body or b""
        request = self._parsed or call_attributes.read_request(body, provider)
        attributes |= call_attributes.request_attributes(body, request)
        response = call_attributes.read_response(plain.data, provider)
        if response is not None:
            attributes |= call_attributes.response_attributes(response)
            self._response = response
            self._remember_tool_calls(response)
        attributes |= call_attributes.timing_attributes(plain, buffer, self._began_ns)
        return attributes

    def _remember_tool_calls(self, response: Response) -> None:
        """Register the tool calls, so that tools that run next are linked to this span."""
        assert self._span is not None
        if not response.calls:
            return
        context = self.context
        ended_ns = 0
        if context.tools is None and untraced_tools.may_infer(context):
            ended_ns = context.emitter.monotonic_ns()
        for call in response.calls:
            requested_tool_calls.remember(
                context.run_id, call.id, call.name, call.arguments, self._span, ended_ns
            )

    def _body(self, body: bytes | bytearray) -> bytes | LongBody | None:
        buffer = self._response_buffer
        if not body:
            return None
        if len(body) <= BODY_INLINE_MAX and not buffer.truncated:
            return bytes(body)
        steps = decode_chunks(_steps(body))
        if not buffer.truncated:
            return LongBody(steps, "surrogateescape")
        marker = f"\n…[cut by vestige: {buffer.total} bytes, sha256 {buffer.sha256}]"
        return LongBody(_then(steps, marker), "surrogateescape", buffer.total, buffer.sha256)


def pause_between_saves(spent_ns: int) -> int:
    """Return the time until a partial response is saved again, after a save of `spent_ns`.

    Saving takes about 1 % of the time, and up to 5 % if it would wait for over a second otherwise.
    """
    longest_ns = max(int(PARTIAL_PAUSE_S * 1e9), 20 * spent_ns)
    return max(int(PARTIAL_INTERVAL_S * 1e9), min(100 * spent_ns, longest_ns))


def _end_of_events(body: bytes | bytearray) -> int:
    """Return the end of the last complete line."""
    return max(body.rfind(b"\n"), body.rfind(b"\r")) + 1


def fault(emitter: Emitter, error: BaseException) -> None:
    """Count an internal error of HTTP capture."""
    emitter.fault(f"wire: {type(error).__name__}")


def _steps(body: bytes | bytearray) -> Iterator[bytes]:
    view = memoryview(body)
    for at in range(0, len(view), BODY_CHUNK):
        yield bytes(view[at : at + BODY_CHUNK])


def _then(texts: Iterator[str], last: str) -> Iterator[str]:
    yield from texts
    yield last
