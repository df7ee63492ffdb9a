"""Record what a program that is not Python prints, in the process of the proxy.

Each stream has a thread that relays its bytes, or reads along in its file, and hands copies to the
recording thread (proxy/program_streams.py opens them).
"""

from __future__ import annotations

import codecs
import os
import select
import threading
from typing import Any

from vestige._runtime.clock import SYSTEM
from vestige.emit.hooks.print_cleanup import PrintAllowance, to_plain_text
from vestige.limits import PRINT_MAX, PRINTS_PER_S, PROXY_PENDING_MAX
from vestige.proxy.program_streams import Stream, parse_stream
from vestige.proxy.recording_thread import RecordingThread
from vestige.record.coercion import clean_message
from vestige.record.types import VERSION, Log
from vestige.wire.outgoing_request import SpanContext

_CHUNK = 64 * 1024
_POLL_S = 0.1


class OutputReader:
    """Reads one stream in a thread of its own, and relays it. The bytes pass in any case."""

    def __init__(self, stream: Stream, lines: PrintedLines, recording: RecordingThread) -> None:
        self._stream, self._lines, self._recording = stream, lines, recording
        self._ended = threading.Event()
        self._is_recorded = True
        read = self._follow if stream.target < 0 else self._relay
        self._thread = threading.Thread(target=read, name=f"vestige-{stream.name}", daemon=True)
        self._thread.start()

    def _relay(self) -> None:
        source, target = self._stream[1:]
        try:
            while data := os.read(source, _CHUNK):
                _write_all(target, data)
                self._record(data)
        except OSError:
            pass  # Nobody reads the output any more: the program gets SIGPIPE, as without us.
        finally:
            os.close(source)
            os.close(target)

    def _follow(self) -> None:
        source = self._stream.source
        is_last = False
        while not is_last:
            is_last = self._ended.wait(_POLL_S)
            while data := os.read(source, _CHUNK):
                self._record(data)
        os.close(source)

    def _record(self, data: bytes) -> None:
        recording = self._recording
        if not self._is_recorded:
            return
        if recording.pending_bytes + len(data) > PROXY_PENDING_MAX:
            self._is_recorded = False
            return

        def add() -> None:
            recording.pending_bytes -= len(data)
            self._lines.add(data)

        recording.pending_bytes += len(data)
        recording.put(add)

    def end(self, seconds: float) -> bool:
        """Record the rest, after the program has ended. Return whether all has been relayed.

        Children that the program has left behind may hold a pipe open. It is relayed, unrecorded.
        """
        self._ended.set()
        self._thread.join(seconds)
        self._is_recorded = False
        self._recording.put(self._lines.finish)
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until everybody has closed the pipe."""
        self._thread.join()


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # Another program has made the pipe non-blocking.
            select.select([], [target], [])


class PrintedLines:
    """The lines of one stream, as log records of the run."""

    def __init__(self, name: str, context: SpanContext) -> None:
        self._name, self._context = name, context
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self._size = 0
        self._allowance = PrintAllowance(SYSTEM.monotonic_ns)
        self._is_binary = False

    def add(self, data: bytes) -> None:
        if self._is_binary:
            return
        if b"\0" in data:
            self._is_binary = True
            self._log("info", f"{self._name} is binary, and is not recorded from here on", {})
            return
        if self._allowance.is_spent:
            self._skip(data.count(b"\n"))
            return
        *lines, rest = self._decoder.decode(data).split("\n")
        for at, line in enumerate(lines):
            if self._allowance.is_spent:
                self._skip(len(lines) - at)
                return
            self._extend(line)
            self._end_line()
        self._extend(rest)

    def _skip(self, count: int) -> None:
        """Count lines that are printed faster than they may be recorded."""
        self._parts, self._size = [], 0
        self._decoder.reset()
        self._allowance.count_skipped(count)

    def finish(self) -> None:
        """Record a last line without an end, and the number of lines that were left out."""
        if self._size:
            self._end_line()
        left_out = self._allowance.pop_left_out()
        if left_out:
            message = f"{left_out} lines left out: more than {PRINTS_PER_S} a second"
            self._log("warn", message, {"left_out": left_out})

    def _extend(self, text: str) -> None:
        room = PRINT_MAX - self._size
        if room > 0:
            self._parts.append(text[:room])
        self._size += len(text)

    def _end_line(self) -> None:
        size, text = self._size, to_plain_text("".join(self._parts))
        self._parts, self._size = [], 0
        if not text.strip() or not self._allowance.take():
            return
        attributes: dict[str, Any] = {"printed_chars": size} if size > PRINT_MAX else {}
        left_out = self._allowance.pop_left_out()
        if left_out:
            attributes["left_out"] = left_out
        self._log("info", text, attributes)

    def _log(self, level: str, message: str, attributes: dict[str, Any]) -> None:
        emitter = self._context.emitter
        emitter.send(
            Log(
                VERSION,
                emitter.writer,
                next(emitter.seq),
                emitter.now_ns(),
                self._context.run_id,
                self._name,
                level,
                clean_message(message),
                self._context.parent_id,
                attributes,
            )
        )


def read_outputs(
    arguments: list[str], context: SpanContext, recording: RecordingThread
) -> list[OutputReader]:
    """Start to read the streams that `vestige run` has opened."""
    streams = [parse_stream(text) for text in arguments]
    return [OutputReader(each, PrintedLines(each.name, context), recording) for each in streams]
