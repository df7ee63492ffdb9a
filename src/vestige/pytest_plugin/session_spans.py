"""A pytest session as a run: a span of type `test` for each test, ambient while it runs.

Off when recording is off (`VESTIGE_DISABLED`, `vestige_record = false`). The tests' own records
come through here too (`vestige.trace` below a test's span), so the recorder knows every secret that
the bundle does.

Model calls and log records belong to the running test, also those of threads and event loops that
an earlier test or a fixture started: the current span is not a test but `_Now`, which points to
the running test. A test with its own home or a `FakeRecorder` finds the same records there as
without the plugin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import msgspec

from vestige._runtime.clock import SYSTEM
from vestige.emit import context
from vestige.emit.emitter import NO_ATTRIBUTES
from vestige.emit.exception_attributes import error_attributes
from vestige.emit.logger import Logger
from vestige.emit.no_op import NULL_SPAN
from vestige.emit.span import Span
from vestige.process_writer import PARENT_VARIABLE
from vestige.record.line_template import GAP, NUMBER, line_template
from vestige.record.redaction.redactor import Redactor
from vestige.record.types import VERSION, Attributes, SpanClose, SpanOpen
from vestige.recorder import Recorder

_COMPONENT = "pytest"
_TYPE = "test"
FAILED = "TestFailed"
"""The name that readers of bundles and reports use; the message has the exception."""
_encode = msgspec.json.Encoder().encode
_PASSED: Attributes = {"outcome": "pass"}
_PARENT = PARENT_VARIABLE.encode()
_STATUS = {"pass": "ok", "skip": "ok", "fail": "error", "unknown": "interrupted"}


def _recorder(secrets: Iterable[str]) -> Recorder:
    # No last words: pytest has a faulthandler of its own, and the bundle shows how it ended.
    return Recorder(crash_hooks=False, secrets=secrets)


class _Now(Span):
    """The running test, or the span of the session between tests."""

    __slots__ = ()

    def __init__(self, around: Span) -> None:
        self._tokens = []
        self.stand_for(around)

    def stand_for(self, span: Span) -> None:
        self._emitter = span._emitter
        self._writer = span._writer
        self._ended = False
        self._opened_ns = span._opened_ns
        self.component = span.component
        self.id = span.id
        self.name = span.name
        self.parent_id = span.parent_id
        self.run_id = span.run_id
        self.type = span.type

    def end(
        self,
        error: BaseException | None = None,
        attributes: Mapping[str, Any] | None = None,
        body: Any = None,
        *,
        status: str | None = None,
    ) -> None:
        """A test cannot end itself."""
        self._emitter.fault("a test's span ended inside of it")


class TestSpans:
    """The spans of one process's part of a session."""

    __test__ = False  # pytest looks at classes by their name

    def __init__(
        self, recorder: Recorder, run: Span | None, logger: Logger, stop: Callable[[], None]
    ) -> None:
        """`stop`: called when the session is over."""
        self._recorder = recorder
        self._run = run
        self._logger = logger
        self._emitter = recorder._emitter
        self._running = False
        self._inside = False
        """True if tests run; also between two of them."""
        self._writer = ""
        """The emitter of the prepared lines. After a fork they are prepared again."""
        self._opening = self._turning = b""
        self._parent = b""
        around = run or recorder._writer.process_span
        assert around is not None  # of a recorder that is enabled
        self._around = around
        self._now = _Now(around)
        self._ambient: Span = around if around.muted else self._now
        """The root of a run that is not sampled: nothing inside it is recorded."""
        self._entered = context.SPAN.set(self._ambient)
        self._stops = [stop]
        self._before = os.environ.get(PARENT_VARIABLE)
        self._message = ""
        self._stack = self._reason = ""

    @classmethod
    def start_suite(cls, name: str, secrets: Iterable[str]) -> TestSpans | None:
        """The session's own process: its run."""
        stop = SYSTEM.ignore_time_travel()
        recorder = _recorder(secrets)
        run = recorder.run(name, component=_COMPONENT)
        if run is NULL_SPAN:
            stop()
            return None
        return cls(recorder, run, run.log, stop)

    @classmethod
    def start_worker(cls, secrets: Iterable[str]) -> TestSpans | None:
        """A worker: its process span is in the run that its environment names."""
        stop = SYSTEM.ignore_time_travel()
        recorder = _recorder(secrets)
        if not recorder.enabled:
            stop()
            return None
        return cls(recorder, None, recorder.logger(_COMPONENT), stop)

    @property
    def run_id(self) -> str:
        return self._run.run_id if self._run is not None else ""

    @property
    def redactor(self) -> Redactor | None:
        return self._recorder.redactor

    def set_bundle_path(self, path: str) -> None:
        if self._run is not None:
            self._run.set_attributes(bundle=path)

    # --- records of tests -----------------------------------------------------------------------

    def listen(self, *, wire: bool, logs: bool) -> None:
        """Record calls to models and log lines from now on. Further calls do nothing."""
        if wire and self._recorder.wire:
            from vestige.wire.capture import capture_within

            capture = capture_within(self._recorder, self.place)
            if capture is not None:
                self._stops.append(capture.remove)
        if logs and self._recorder.logging:
            from vestige.boot.log_capture import capture_logs

            self._stops.append(capture_logs(self))

    def place(self, ambient: Span | None) -> Span:
        """Return the span of a record: its own one, or, if that is in another home, the test.

        Tests read the records that they write into another home."""
        if ambient is None:
            return self._ambient
        if ambient.muted or ambient._emitter.writer == self._recorder.writer:
            return ambient
        return self._ambient

    def logger(self, component: str) -> Logger:
        """Return the logger for captured log lines (boot/log_capture.py)."""
        return Logger(self._recorder._emitter, component, self.place(context.SPAN.get()))

    # --- a test -----------------------------------------------------------------------------------

    def begin(self, name: str, name_json: bytes, attempt: int) -> str:
        """Begin a test by its redacted name, also as JSON. Return the id of its span."""
        emitter = self._emitter
        if self._around.muted:
            context.SPAN.set(self._ambient)
            return ""
        self._running = True
        if not self._inside or self._writer != emitter.writer:
            self._go_inside()
        line = self._opening if attempt == 1 else self._opened({"attempt": attempt})
        span_id = emitter.span_id()
        name_json = line % (next(emitter.seq), emitter.now_ns(), _encode(span_id), name_json)
        return self._enter(span_id, name, name_json)

    def turn(self, outcome: str, name: str, name_json: bytes, ago_ns: int) -> str:
        """The test that runs was over some time ago, and the next one begins: as `begin`."""
        now, emitter = self._now, self._emitter
        if outcome != "pass" or not self._running or self._writer != emitter.writer:
            self.end(outcome, ago_ns=ago_ns)
            return self.begin(name, name_json, 1)
        at_ns, seq, ended, span_id = emitter.now_ns(), emitter.seq, now.id, emitter.span_id()
        duration_ns = emitter.monotonic_ns() - ago_ns - now._opened_ns
        emitter.open_spans.pop(ended, None)
        return self._enter(
            span_id,
            name,
            self._turning
            % (
                next(seq),
                at_ns - ago_ns,
                _encode(ended),
                duration_ns,
                next(seq),
                at_ns,
                _encode(span_id),
                name_json,
            ),
        )

    def _enter(self, span_id: str, name: str, lines: bytes) -> str:
        """Make the test's span the ambient one, and write its lines."""
        if context.SPAN.get() is not self._ambient:
            context.SPAN.set(self._ambient)  # the previous test may have left its own span
        now, emitter = self._now, self._emitter
        now.id, now.name = span_id, name
        self._recorder.send_lines(lines)
        emitter.open_spans[span_id] = now
        now._opened_ns = emitter.monotonic_ns()
        # Processes that the test starts are its own, not the session's.
        try:
            os.environb[_PARENT] = self._parent + span_id.encode()
        except Exception:  # noqa: BLE001  # a test may have replaced it
            emitter.fault("a test's processes do not know their parent")
        return span_id

    def _go_inside(self) -> None:
        """Prepare the parts that the spans of all tests share."""
        now, around, writer = self._now, self._around, self._emitter.writer
        now.type, now.component = _TYPE, _COMPONENT
        now.run_id, now.parent_id, now._writer = around.run_id, around.id, writer
        self._inside = True
        if self._writer != writer:
            self._writer = writer
            self._parent = f"{now.run_id}/".encode()
            self._opening = self._opened(NO_ATTRIBUTES)
            closed = SpanClose(
                VERSION, writer, NUMBER, NUMBER, now.run_id, GAP, "ok", NUMBER, _PASSED
            )
            self._turning = line_template(_encode(closed)) + self._opening

    def _opened(self, attributes: Attributes) -> bytes:
        now = self._now
        return line_template(
            _encode(
                SpanOpen(
                    VERSION,
                    now._writer,
                    NUMBER,
                    NUMBER,
                    now.run_id,
                    GAP,
                    _COMPONENT,
                    _TYPE,
                    GAP,
                    now.parent_id,
                    None,
                    attributes,
                )
            )
        )

    def skipped(self, reason: str) -> None:
        self._reason = reason

    def failed(self, message: str, stack: str = "") -> None:
        self._message = self._message or message
        self._stack = self._stack or stack

    def failed_with(self, error: BaseException, trace: TracebackType | None) -> None:
        """The exception with which a phase failed, and its traceback from the test's code on; the
        first counts."""
        self._stack = self._stack or str(error_attributes(error, trace)["error.stack"])

    def end(self, outcome: str, message: str = "", *, ago_ns: int = 0) -> None:
        """The test is over, or was some time ago."""
        now, emitter = self._now, self._emitter
        if not self._running or self._writer != emitter.writer:
            return  # or a forked child that came back: not its span to end
        self._running = False
        duration_ns = emitter.monotonic_ns() - ago_ns - now._opened_ns
        emitter.open_spans.pop(now.id, None)
        attributes = emitter.attributes(self._end_attributes(outcome, message))
        emitter.send(
            SpanClose(
                VERSION,
                now._writer,
                next(emitter.seq),
                emitter.now_ns() - ago_ns,
                now.run_id,
                now.id,
                _STATUS[outcome],
                duration_ns,
                attributes,
            )
        )
        self._leave()

    def _leave(self) -> None:
        """Leave the test. Later records are outside of all tests."""
        self._message = self._stack = self._reason = ""
        self._inside = False
        self._now.stand_for(self._around)

    def _end_attributes(self, outcome: str, message: str) -> Attributes:
        attributes: Attributes = {"outcome": outcome}
        message = self._message or message
        if outcome == "skip" and self._reason:
            attributes["message"] = self._reason
        elif message and outcome != "skip":
            attributes["error.message"] = message
        if outcome == "fail":
            attributes["error.type"] = FAILED
            if self._stack:
                attributes["error.stack"] = self._stack
        return attributes

    def end_session(self, failed: bool) -> None:
        while self._stops:
            self._stops.pop()()
        context.leave(self._entered)
        # Not after each test: nothing runs between two of them.
        if self._before is None:
            os.environ.pop(PARENT_VARIABLE, None)
        else:
            os.environ[PARENT_VARIABLE] = self._before
        if self._run is not None:
            self._run.end(status="error" if failed else "ok")
        self._recorder.close()
