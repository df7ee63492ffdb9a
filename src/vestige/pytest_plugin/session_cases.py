"""The tests of a session, one after the other: each a case of the suite, and a span of its run.

    tests.begin("test_pay.py::test_card")
    tests.pass_quietly()                # passed, without a message
    tests.leave()                       # over
    tests.begin("test_pay.py::test_cash")

An end that may wait is stored as a time only. Its lines are rendered and written with those of the
next test, or before further records of the same test (`more`).

Elsewhere: pytest_plugin/runner_detection.py decides which ends may wait, and why; the session is in
pytest_plugin/plugin.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from vestige.artifacts.suite_recorder import Case, Status, SuiteWriter
from vestige.artifacts.suite_trace_writer import json_of
from vestige.pytest_plugin.session_spans import TestSpans


class TestCases:
    """Those of one process."""

    __test__ = False  # pytest looks at classes by their name

    def __init__(self, suite: SuiteWriter, spans: TestSpans | None, where: str = "") -> None:
        """`where`: a suffix for the name of each case."""
        self.running: Case | None = None
        """The last test that began, until its end is written."""
        self._suite = suite
        self._spans = spans
        self._where = where
        self._now_ns = suite.trace.watch.now_ns
        self._passed_ns: int | None = None
        """When it did, if that is not written yet."""
        self._left_ns: int | None = None
        """When it was over, if that is not written yet."""

    def expect(self, nodeids: Iterable[str]) -> None:
        """The tests that will come (Texts.expect)."""
        self._suite.texts.expect(nodeid + self._where for nodeid in nodeids)

    def begin(self, nodeid: str, attempt: int = 1) -> Case:
        name = self._suite.texts.message(nodeid + self._where)
        name_json = json_of(name)
        left_ns, left, spans = self._left_ns, self.running, self._spans
        before, span_id = b"", ""
        if left_ns is not None and left is not None:
            before = left.lines_of_end(left_ns, passed_ns=self._passed_ns)
            self._left_ns = self._passed_ns = None
            if spans is not None:
                span_id = spans.turn(left.outcome, name, name_json, self._now_ns() - left_ns)
        elif spans is not None:
            span_id = spans.begin(name, name_json, attempt)
        self.running = case = Case(self._suite, name, name_json, attempt, span_id, before)
        return case

    def pass_quietly(self) -> None:
        """Note a pass without a message, of a test with no other events."""
        self._passed_ns = self._now_ns()

    def more(self) -> Case | None:
        """Return its case, to record more of it."""
        passed_ns, self._passed_ns = self._passed_ns, None
        if passed_ns is not None and self.running is not None:
            self.running.passed(at_ns=passed_ns)
        return self.running

    def leave(self) -> None:
        """End the case just before the next one starts."""
        self._left_ns = self._now_ns()

    def settle(self) -> None:
        """Tell the end of the test that was left, if one was: something else happens after all."""
        if self._left_ns is not None:
            self.end()

    def end(self, status: Status | None = None, message: str = "") -> None:
        """End the case with the given outcome, or that of its assertions."""
        now_ns = self._now_ns()
        ended_ns, self._left_ns = self._left_ns or now_ns, None
        case, self.running = self.more(), None
        if case is None:
            return
        self._suite.trace.write(case.lines_of_end(ended_ns, status, message))
        if self._spans is not None:
            self._spans.end(case.outcome, message, ago_ns=now_ns - ended_ns)
