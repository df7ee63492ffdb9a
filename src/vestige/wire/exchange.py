"""Exchange: one attempt at one HTTP call, from its first byte out to its last byte in.

A client's hook tells it what passes, in this order, and never hears back:

    sending(chunk)*  sent()  answered(status, headers)  received(chunk)*
    then one of  finished()  failed(error)  closed()

The span opens when the request is known, so that a call in flight is on record; status and
headers are written when they come; the rest when it is over. Nothing here raises: a failure
is counted, and the exchange is told no more.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from vestige.emit import tool_attribution
from vestige.emit.emitter import Emitter
from vestige.emit.exceptions import status_of
from vestige.emit.span import Span
from vestige.limits import (
    BODY_CHUNK,
    BODY_INLINE_MAX,
    BODY_MAX,
    PARTIAL_INTERVAL_S,
    PARTIAL_MAX,
)
from vestige.providers.endpoints import Endpoint
from vestige.providers.models import Response
from vestige.providers.stream_timing import has_ended, is_event_stream, is_stream
from vestige.record.body_encoding import LongBody, texts_of
from vestige.wire import call_attributes
from vestige.wire.byte_buffer import MARKER_MAX, ByteBuffer
from vestige.wire.content_encoding import Decoded, decode, is_coded
from vestige.wire.headers import find_header, masked_headers, masked_url
from vestige.wire.outgoing_request import Headers, OutgoingRequest, SpanContext
from vestige.wire.retry_attempts import Attempts

P = ParamSpec("P")

REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "cf-ray")


class CallSpan(Span):
    """A span that ended before we had time to read what it carried."""

    __slots__ = ()

    def end_at(self, ended_ns: int, **how: Any) -> None:
        """End it as of then: our own reading is no part of the call."""
        self._opened_ns += self._emitter.monotonic_ns() - ended_ns
        self.end(**how)

    def began_at(self, began_ns: int) -> None:
        self._opened_ns = began_ns


def never_raises(
    method: Callable[Concatenate[Exchange, P], None],
) -> Callable[Concatenate[Exchange, P], None]:
    """A failure of ours is counted and ends the recording of this call; the program goes on."""

    @wraps(method)
    def told_quietly(self: Exchange, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.over:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is ours
            self.give_up(error)

    return told_quietly


class Exchange:
    """One attempt. Made by edge.begin."""

    __slots__ = (
        "_answer",
        "_attempts",
        "_began_ns",
        "_content_length",
        "_decoded",
        "_first_byte_ns",
        "_flush_at_ns",
        "_flushed",
        "_flushing",
        "_question",
        "_response_coding",
        "_span",
        "_type",
        "_warm",
        "ask",
        "endpoint",
        "over",
        "place",
        "status",
    )

    def __init__(
        self,
        place: SpanContext,
        ask: OutgoingRequest,
        endpoint: Endpoint | None,
        attempts: Attempts,
        *,
        warm: bool = False,
    ) -> None:
        self.place = place
        self.ask = ask
        self.endpoint = endpoint
        self.over = False
        self.status: int | None = None
        self._type = "http" if endpoint is None or not endpoint.is_model_call else "llm"
        self._warm = warm
        self._attempts = attempts
        self._span: CallSpan | None = None
        self._question: ByteBuffer | None = None if ask.body is not None else ByteBuffer()
        self._answer = ByteBuffer()
        self._flush_at_ns = 0
        self._flushed = 0
        self._flushing = allocate_lock()
        self._decoded = False
        self._response_coding = ""
        self._content_length: int | None = None
        self._first_byte_ns: int | None = None
        self._began_ns = place.emitter.monotonic_ns()
        if ask.body is not None:
            self._open(ask.body)

    # --- the request ------------------------------------------------------------------------------

    @never_raises
    def sending(self, chunk: bytes) -> None:
        """A piece of a body that was not known before."""
        if self._question is not None and self._span is None:
            self._question.add(chunk, 0)

    @never_raises
    def sent(self) -> None:
        """All of it went out."""
        if self._span is None:
            tape = self._question
            self._open(bytes(tape.kept) if tape is not None else b"")

    def _open(self, body: bytes) -> None:
        ask, place = self.ask, self.place
        attributes: dict[str, Any] = {
            "method": ask.method,
            "url": masked_url(ask.url),
            "host": ask.host,
        }
        kept = self._decode_request(body, attributes)
        ask.body = kept
        endpoint = self.endpoint
        if endpoint is not None and endpoint.provider:
            attributes["provider"] = endpoint.provider
        if self._type == "llm":
            model = (endpoint.model if endpoint else None) or call_attributes.glimpse_model(kept)
            if model:
                attributes["model"] = model
            if self._warm:
                attributes["warm"] = True
        attributes["attempt"] = self._attempts.begin(place.run_id, place.parent_id, ask)
        span = CallSpan(
            place.emitter,
            place.run_id,
            place.parent_id,
            place.component,
            self._name(),
            self._type,
            attributes,
            kept or None,
        )
        span.began_at(self._began_ns)
        self._span = span

    def _name(self) -> str:
        if self._type == "llm" and self.endpoint is not None:
            return self.endpoint.api
        return f"{self.ask.method} {self.ask.host}{self.ask.path}"

    def _decode_request(self, body: bytes, attributes: dict[str, Any]) -> bytes:
        if self._question is not None:
            attributes["request.streamed"] = True
            if self._question.cut:
                attributes["request.bytes"] = self._question.total
        coding = find_header(self.ask.headers, "content-encoding") or ""
        if not body or not is_coded(coding):
            return body
        attributes["request.encoding"] = coding
        if self.ask.plain:
            return body
        attributes["request.wire_bytes"] = len(body)
        plain = decode(body, coding, BODY_MAX)
        if plain is None or not plain.whole:
            attributes["request.undecoded"] = True
            return body
        return bytes(plain.data)

    # --- the response -----------------------------------------------------------------------------

    @never_raises
    def answered(
        self, status: int, headers: Headers, *, decoded: bool = False, version: str | None = None
    ) -> None:
        """Status and headers came. `decoded`: the client will give us bytes without their coding."""
        if self._span is None:
            tape = self._question
            self._open(bytes(tape.kept) if tape is not None else b"")
        assert self._span is not None
        self.status = status
        self._first_byte_ns = self.place.emitter.monotonic_ns() - self._began_ns
        self._response_coding = find_header(headers, "content-encoding") or ""
        self._decoded = decoded
        length = find_header(headers, "content-length")
        if length is not None and length.isdecimal():
            self._content_length = int(length)
        # Headers by themselves: the names of secret ones would have a body beside them looked at
        # closely, which is slow.
        attributes: dict[str, Any] = {
            "status_code": status,
            "first_byte_ns": self._first_byte_ns,
            "request.headers": masked_headers(self.ask.headers),
            "response.headers": masked_headers(headers),
        }
        if version:
            attributes["http_version"] = version
        request_id = next(filter(None, (find_header(headers, name) for name in REQUEST_IDS)), None)
        if request_id:
            attributes["request_id"] = request_id
        self._span.set_attributes(attributes)
        self.place.emitter.unfinished.add(self)

    @never_raises
    def received(self, chunk: bytes) -> None:
        """The next bytes of the body, as they are handed to the program."""
        now_ns = self.place.emitter.monotonic_ns()
        self._answer.add(chunk, now_ns)
        if now_ns >= self._flush_at_ns:
            self._flush(now_ns)

    @never_raises
    def flush(self) -> None:
        """Keep what has arrived: called about once a second, by a thread of ours."""
        now_ns = self.place.emitter.monotonic_ns()
        if now_ns >= self._flush_at_ns:
            self._flush(now_ns)

    def _flush(self, now_ns: int) -> None:
        """Of a streamed answer, what can be written without the beginning of a secret. It takes a
        hundredth of the time at most: a long answer is kept less often."""
        first = not self._flush_at_ns
        self._flush_at_ns = now_ns + int(PARTIAL_INTERVAL_S * 1e9)
        tape, span, emitter = self._answer, self._span, self.place.emitter
        if first or span is None or span._writer != emitter.writer:
            return
        if self.over or tape.total in (self._flushed, 0) or len(tape.kept) > PARTIAL_MAX:
            return
        if not self._flushing.acquire(blocking=False):
            return  # the other thread is at it
        try:
            self._flushed = tape.total
            body = self._plain().data
            if self._type == "llm" and is_stream(body):
                emitter.keep_partial(span.id, body[: _end_of_events(body)])
        except Exception as error:  # noqa: BLE001  # a full disk: the answer itself may still be kept
            fault(emitter, error)
        finally:
            self._flushing.release()
        if self.over:
            self._drop_partial()
        spent_ns = emitter.monotonic_ns() - now_ns
        self._flush_at_ns = max(self._flush_at_ns, now_ns + 100 * spent_ns)

    # --- the end ----------------------------------------------------------------------------------

    @never_raises
    def finished(self) -> None:
        """The whole body was read."""
        self._end(None, None)

    @never_raises
    def failed(self, error: BaseException) -> None:
        """The client gives up on this attempt."""
        status = status_of(error)
        if status == "error" and any("Timeout" in cls.__name__ for cls in type(error).__mro__):
            status = "timeout"
        self._end(error, status)

    @never_raises
    def closed(self) -> None:
        """The program closed the response, dropped it, or is over; perhaps before its end."""
        self._end(None, None if self._is_complete() else "cancelled")

    def give_up(self, error: Exception) -> None:
        """A failure of our own."""
        self.over = True
        self._forget()
        fault(self.place.emitter, error)
        span = self._span
        if span is not None and not span.ended:
            try:
                span.end(status="error", attributes={"wire.fault": type(error).__name__})
            except Exception as second:  # noqa: BLE001  # nothing more to try
                fault(self.place.emitter, second)

    def _is_complete(self) -> bool:
        if self.status is None:
            return False
        if self._content_length is not None and not self._decoded:
            return self._answer.total >= self._content_length
        return has_ended(self._plain().data)

    def _plain(self) -> Decoded:
        """The answer without its coding."""
        tape, coding = self._answer, self._response_coding
        if self._decoded or not is_coded(coding):
            return Decoded(tape.kept, True, [])
        plain = decode(tape.kept, coding, BODY_MAX - MARKER_MAX, tape.ends)
        return plain or Decoded(tape.kept, False, [])

    def _end(self, error: BaseException | None, status: str | None) -> None:
        self.over = True
        ended_ns = self.place.emitter.monotonic_ns()
        if self._span is None:
            tape = self._question
            self._open(bytes(tape.kept) if tape is not None else b"")
        span = self._span
        assert span is not None
        plain = self._plain()
        attributes = self._tell(plain)
        if self.status is None:
            attributes["request.headers"] = masked_headers(self.ask.headers)
        elif status is not None:
            attributes["response.partial"] = True
            if status == "cancelled" and error is None and "finish_reason" in attributes:
                status = None  # many stop reading where the model stops, before the stream's end
        if self.status is not None and self.status >= 400:
            status = status or "error"
            if error is None:
                attributes["error.type"] = f"HTTP {self.status}"
        elif "error.message" in attributes and error is None:
            status, attributes["error.type"] = status or "error", "provider error"
        if status is not None:
            self._attempts.failed(self.place.run_id, self.place.parent_id, self.ask)
        span.end_at(
            ended_ns,
            error=error,
            status=status,
            attributes=attributes,
            body=self._body(self._redact(plain.data)),
        )
        self._forget()

    def _redact(self, body: bytes | bytearray) -> bytes | bytearray:
        """The answer without secrets that it spells in pieces. Other JSON lines than a model's are
        records, each a text of its own."""
        if self._type != "llm" and not is_event_stream(body):
            return body
        return self.place.emitter.redact_stream(body)

    def _forget(self) -> None:
        """A program may keep its responses, and each keeps its exchange: not the bytes once more."""
        self._answer, self._question, self.ask.body = ByteBuffer(), None, b""
        self.place.emitter.unfinished.discard(self)
        self._drop_partial()

    def _drop_partial(self) -> None:
        """The journal has the answer. Never waits: a flush that is under way looks again when it is done."""
        span, emitter = self._span, self.place.emitter
        if not self._flushed or span is None or span._writer != emitter.writer:
            return
        if self._flushing.acquire(blocking=False):
            try:
                emitter.keep_partial(span.id, None)
            except OSError as error:
                fault(emitter, error)
            finally:
                self._flushing.release()

    def _tell(self, plain: Decoded) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        tape = self._answer
        if is_coded(self._response_coding) and self.status is not None:
            attributes["response.encoding"] = self._response_coding
            if not self._decoded:
                attributes["response.wire_bytes"] = tape.total
            if not plain.whole:
                attributes["response.undecoded"] = True
        if tape.cut:
            attributes["response.bytes"] = tape.total
            attributes["response.sha256"] = tape.sha256
        if self._type != "llm":
            return attributes
        provider = self.endpoint.provider if self.endpoint else None
        attributes |= call_attributes.request_attributes(self.ask.body or b"", provider)
        response = call_attributes.read_response(plain.data, provider)
        if response is not None:
            attributes |= call_attributes.response_attributes(response)
            self._remember(response)
        attributes |= call_attributes.timing_attributes(plain, tape, self._began_ns)
        return attributes

    def _remember(self, response: Response) -> None:
        """What the model asked for, so that the tools that run next know who did."""
        assert self._span is not None
        for call in response.calls:
            tool_attribution.remember(
                self.place.run_id, call.id, call.name, call.arguments, self._span
            )

    def _body(self, body: bytes | bytearray) -> bytes | LongBody | None:
        tape = self._answer
        if not body:
            return None
        if len(body) <= BODY_INLINE_MAX and not tape.cut:
            return bytes(body)
        steps = texts_of(_steps(body))
        if not tape.cut:
            return LongBody(steps, "surrogateescape")
        marker = f"\n…[cut by vestige: {tape.total} bytes, sha256 {tape.sha256}]"
        return LongBody(_then(steps, marker), "surrogateescape", tape.total, tape.sha256)


def _end_of_events(body: bytes | bytearray) -> int:
    """Where the last whole event ends."""
    return max(body.rfind(b"\n"), body.rfind(b"\r")) + 1


def fault(emitter: Emitter, error: BaseException) -> None:
    """Count a failure of the wire's own."""
    emitter.fault(f"wire: {type(error).__name__}")


def _steps(body: bytes | bytearray) -> Iterator[bytes]:
    view = memoryview(body)
    for at in range(0, len(view), BODY_CHUNK):
        yield bytes(view[at : at + BODY_CHUNK])


def _then(texts: Iterator[str], last: str) -> Iterator[str]:
    yield from texts
    yield last
