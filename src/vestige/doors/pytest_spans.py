"""A pytest session as a run: a span of type `test` for each test, ambient while it runs.

Off when recording is off (`VESTIGE_DISABLED`, `vestige_record = false`). The tests' own records come through
here too (`vestige.trace` below a test's span), so the recorder knows every secret that the bundle does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from vestige.emit import current
from vestige.emit.logger import Logger
from vestige.emit.null import NULL_SPAN
from vestige.emit.span import Span
from vestige.record.redact import Redactor
from vestige.recorder import Recorder
from vestige.writer import PARENT_VARIABLE

_COMPONENT = "pytest"
_STATUS = {"pass": "ok", "skip": "ok", "fail": "error", "unknown": "interrupted"}


def _recorder(secrets: Iterable[str]) -> Recorder:
    # No last words: pytest has a faulthandler of its own, and the bundle tells how it ended.
    return Recorder(last_words=False, secrets=secrets, quick_start=True)


class TestSpans:
    """The spans of one process's part of a session."""

    __test__ = False  # pytest looks at classes by their name

    def __init__(self, recorder: Recorder, run: Span | None, logger: Logger) -> None:
        self._recorder = recorder
        self._run = run
        self._logger = logger
        self._span: Span | None = None
        self._before = os.environ.get(PARENT_VARIABLE)
        self._message = ""

    @classmethod
    def start_suite(cls, name: str, secrets: Iterable[str]) -> TestSpans | None:
        """The session's own process: its run."""
        recorder = _recorder(secrets)
        if not recorder.enabled:
            return None
        run = recorder.run(name, component=_COMPONENT)
        if run is NULL_SPAN:
            return None
        return cls(recorder, run, run.log)

    @classmethod
    def start_worker(cls, secrets: Iterable[str]) -> TestSpans | None:
        """A worker: its process span stands in the run that its environment names."""
        recorder = _recorder(secrets)
        return cls(recorder, None, recorder.logger(_COMPONENT)) if recorder.enabled else None

    @property
    def run_id(self) -> str:
        return self._run.run_id if self._run is not None else ""

    @property
    def redactor(self) -> Redactor | None:
        return self._recorder.redactor

    def tell_bundle(self, path: str) -> None:
        if self._run is not None:
            self._run.set_attributes(bundle=path)

    def begin(self, name: str, attempt: int) -> str:
        """A test begins; the id of its span."""
        attributes = {"attempt": attempt} if attempt > 1 else None
        self._span = span = self._logger.span(name, "test", attributes)
        span.__enter__()
        # Processes that the test starts are its own, not the session's.
        os.environ[PARENT_VARIABLE] = f"{span.run_id}/{span.id}"
        return span.id

    def failed(self, message: str) -> None:
        self._message = self._message or message

    def end(self, outcome: str, message: str = "") -> None:
        span, self._span = self._span, None
        if span is None:
            return
        told = {"outcome": outcome}
        message = self._message or message
        if message and outcome != "pass":
            told["error.message"] = message
        self._message = ""
        span.end(attributes=told, status=_STATUS[outcome])
        span.__exit__(None, None, None)
        if current.SPAN.get() is span:
            current.SPAN.set(None)

    def end_session(self, failed: bool) -> None:
        # Not after each test: nothing runs between two of them.
        if self._before is None:
            os.environ.pop(PARENT_VARIABLE, None)
        else:
            os.environ[PARENT_VARIABLE] = self._before
        if self._run is not None:
            self._run.end(status="error" if failed else "ok")
        self._recorder.close()
