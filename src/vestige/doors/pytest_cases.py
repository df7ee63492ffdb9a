"""The tests of a session, one after the other: each a case of the suite, and a span of its run.

    tests.begin("test_pay.py::test_card")
    tests.pass_quietly()                # all that there will be to tell of it
    tests.leave()                       # over; told with the beginning of the next
    tests.begin("test_pay.py::test_cash")

What may wait is kept as a moment: the lines about it are made, and written, with those of the next test. Whoever has
more to tell of a test (`more`) finds its pass told before that.

Elsewhere: what may wait, and why, in pytest_loop.py; the session in pytest_plugin.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from vestige.artifacts.suite import Case, Status, SuiteWriter
from vestige.artifacts.trace import json_of
from vestige.doors.pytest_spans import TestSpans


class TestCases:
    """Those of one process."""

    __test__ = False  # pytest looks at classes by their name

    def __init__(self, suite: SuiteWriter, spans: TestSpans | None, where: str = "") -> None:
        """`where`: behind the name of each case."""
        self.running: Case | None = None
        """Of the last test that began, until its end is told."""
        self._suite = suite
        self._spans = spans
        self._where = where
        self._now_ns = suite.trace.watch.now_ns
        self._passed_ns: int | None = None
        """When it did, if that is not told yet."""
        self._left_ns: int | None = None
        """When it was over, if that is not told yet."""

    def expect(self, nodeids: Iterable[str]) -> None:
        """The tests that will come (Texts.expect)."""
        self._suite.texts.expect(nodeid + self._where for nodeid in nodeids)

    def begin(self, nodeid: str, attempt: int = 1) -> Case:
        name = self._suite.texts.message(nodeid + self._where)
        told = json_of(name)
        span_id = self._spans.begin(name, told, attempt) if self._spans is not None else ""
        self.running = case = Case(self._suite, name, told, attempt, span_id)
        return case

    def pass_quietly(self) -> None:
        """It passed, with not a word. For a test of which nothing was told before, and nothing will be."""
        self._passed_ns = self._now_ns()

    def more(self) -> Case | None:
        """Its case, for whoever has something to tell of it."""
        passed_ns, self._passed_ns = self._passed_ns, None
        if passed_ns is not None and self.running is not None:
            self.running.passed(at_ns=passed_ns)
        return self.running

    def leave(self) -> None:
        """It is over: `settle` tells it. For whoever knows that nothing happens before that."""
        self._left_ns = self._now_ns()

    def settle(self, *, hold: bool = False) -> None:
        """Tell the end of the test that was left, if one was. `hold`: the next one begins at once."""
        if self._left_ns is not None:
            self.end(hold=hold)

    def end(self, status: Status | None = None, message: str = "", *, hold: bool = False) -> None:
        """It is over, by its assertions or as is said here. `hold`: as above."""
        now_ns = self._now_ns()
        ended_ns, self._left_ns = self._left_ns or now_ns, None
        passed_ns = self._passed_ns
        case = self.running
        if case is None:
            return
        if passed_ns is not None and status is None:
            self._passed_ns = None
            case.end_passed(passed_ns, ended_ns, hold=hold)
        else:
            self.more()
            case.end(status, message, at_ns=ended_ns, hold=hold)
        self.running = None
        if self._spans is not None:
            self._spans.end(case.outcome, message, hold=hold, ago_ns=now_ns - ended_ns)
