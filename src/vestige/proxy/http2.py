"""Read the bytes of an HTTP/2 connection that pass through, and record its calls."""

from __future__ import annotations

from typing import Any

from hpack import Decoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PushPromiseFrame,
    RstStreamFrame,
)

from vestige.limits import MIB
from vestige.proxy.calls import Call, Calls

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_TABLE_MAX = 16 * MIB
_HEADERS_MAX = 256 * 1024
_STREAMS_MAX = 1000


class _Side:
    """The frames that one side sends."""

    def __init__(self, skip: int) -> None:
        self._buffer = bytearray()
        self._skip = skip
        self._block = bytearray()
        self._opened: Any = None
        self._decoder = Decoder(max_header_list_size=_HEADERS_MAX)
        self._decoder.max_allowed_table_size = _TABLE_MAX

    def read(self, data: bytes) -> Any:
        """Yield (frame, headers); headers are None unless the frame completes a block."""
        self._buffer += data
        if self._skip:
            if len(self._buffer) < self._skip:
                return
            del self._buffer[: self._skip]
            self._skip = 0
        while len(self._buffer) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(bytes(self._buffer[:9])))
            if len(self._buffer) < 9 + length:
                return
            frame.parse_body(memoryview(bytes(self._buffer[9 : 9 + length])))
            del self._buffer[: 9 + length]
            if isinstance(frame, (HeadersFrame, ContinuationFrame, PushPromiseFrame)):
                self._block += frame.data
                if not isinstance(frame, ContinuationFrame):
                    self._opened = frame
                if len(self._block) > _HEADERS_MAX:
                    raise ValueError("headers over the bound")
                if "END_HEADERS" in frame.flags:
                    headers = self._decoder.decode(bytes(self._block))
                    self._block.clear()
                    yield self._opened, [(str(name), str(value)) for name, value in headers]
            else:
                yield frame, None


class Http2Observer:
    """Observes one connection with many streams."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._client, self._server = _Side(len(_PREFACE)), _Side(0)
        self._open: dict[int, Call] = {}

    def sent(self, data: bytes) -> None:
        for frame, headers in self._client.read(data):
            call = self._open.get(frame.stream_id)
            if isinstance(frame, HeadersFrame) and call is None and headers is not None:
                if len(self._open) >= _STREAMS_MAX:
                    raise ValueError("streams over the bound")
                fields = dict(headers)
                call = self._open[frame.stream_id] = self._calls.start(
                    fields.get(":method", ""), fields.get(":path", "/"), _plain(headers)
                )
            elif isinstance(frame, DataFrame) and call is not None:
                call.sending(bytes(frame.data))
            elif isinstance(frame, RstStreamFrame) and call is not None:
                self._end(frame.stream_id).closed(None)
                continue
            if call is not None and "END_STREAM" in frame.flags:
                call.sent()

    def received(self, data: bytes) -> None:
        for frame, headers in self._server.read(data):
            call = self._open.get(frame.stream_id)
            if call is None or isinstance(frame, GoAwayFrame):
                continue
            if isinstance(frame, HeadersFrame) and headers is not None:
                status = dict(headers).get(":status", "")
                if status.isdecimal() and int(status) >= 200:
                    call.answered(int(status), _plain(headers), "HTTP/2")
            elif isinstance(frame, DataFrame):
                call.received(bytes(frame.data))
            elif isinstance(frame, RstStreamFrame):
                error = ConnectionResetError(f"HTTP/2 stream reset, code {frame.error_code}")
                self._end(frame.stream_id).closed(error)
                continue
            if "END_STREAM" in frame.flags:
                self._end(frame.stream_id).finished()

    def _end(self, stream: int) -> Call:
        return self._open.pop(stream)

    def ended(self, error: Exception | None = None) -> None:
        for call in self._open.values():
            call.closed(error)
        self._open.clear()


def _plain(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for pair in headers if not pair[0].startswith(":")]
