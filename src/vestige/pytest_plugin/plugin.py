"""The pytest plugin, once it is on: the bundle of a session, written while it runs.

A session is a suite, a test a case, a report an assertion. A single process writes its cases
directly into the trace. Under xdist each worker writes its own trace, and the controller merges
them at the end.

    case_start    before a test runs (pytest_runtest_protocol, logstart of a rerun)
    assert_*      a report: the call, a phase that failed, a subtest
    case_end      when the test is over, reruns one by one

Events are on disk before user code runs again. If only pytest runs between two tests, the end of
the first is written together with the start of the second (pytest_plugin/runner_detection.py).

The session is also a run in the Vestige home, and each test a span of type `test`. That span is
the current one while the test runs, so model calls and log records of tested agents belong to it.

Elsewhere: vestige_pytest.py is loaded in every pytest session. The tests of a session are in
pytest_plugin/session_cases.py, their spans in pytest_plugin/session_spans.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from vestige._runtime.gc_pause import pause_gc
from vestige.artifacts.replay_command import where_of
from vestige.artifacts.suite_recorder import Case, SuiteRecorder, SuiteWriter
from vestige.artifacts.suite_trace_writer import reason
from vestige.artifacts.text_sanitizer import TextSanitizer
from vestige.errors import VestigeError
from vestige.pytest_plugin import report_text, rerun_command, runner_detection
from vestige.pytest_plugin.session_cases import TestCases
from vestige.pytest_plugin.session_spans import TestSpans

_NO_SESSION = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan", "cacheshow")

_LOST = "vestige_lost"
"""Key in an xdist worker's output: how many events it could not write, and why."""


class BundlePlugin:
    """Hooks of one session in one process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._shared: dict[str, Any] | None = getattr(config, "workerinput", {}).get("vestige")
        """The facts about the suite that a worker gets from the controller."""
        self._suite: SuiteWriter | None = None
        self._spans: TestSpans | None = None
        self._tests: TestCases | None = None
        self._attempt = 0
        self._alone = False
        """Between two tests there is nothing but pytest, and perhaps wrappers around us."""
        self._may_hold = False
        """Not even wrappers."""
        self._unwatched = False
        """No other plugin has hooks for the end of a test."""
        self._item: pytest.Item | None = None
        self._nextitem: pytest.Item | None = None
        self._reruns: _Reruns | None = None
        self._subtest_failed = False
        self._rerun = ""
        self._fixtures: set[str] = set()
        self._names: object = None
        """The fixtures of the previous test."""
        self._summary = ""
        self._failed = False
        self._problems: list[str] = []

    # --- the session --------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if any(session.config.getoption(name, False) for name in _NO_SESSION):
            return
        try:
            with pause_gc():
                if self._shared is not None:
                    self._start_worker(self._shared)
                else:
                    self._start_suite()
        except (OSError, VestigeError) as error:
            raise pytest.UsageError(f"vestige: {error}") from None

    def _start_suite(self) -> None:
        config = self._config
        option = config.getoption("vestige_bundle")
        ini = cast(str, config.getini("vestige_bundle"))
        root = Path(option) if option else config.rootpath / ini
        name = (
            config.getoption("vestige_suite")
            or config.getini("vestige_suite")
            or config.rootpath.name
        )
        environment = dict(os.environ)  # before the recorder puts its own into it
        texts = TextSanitizer(environment)
        name = str(name or "tests")
        spans = None
        if config.getini("vestige_record"):
            spans = TestSpans.start_suite(name, texts.secrets)
        if spans is not None:
            # First: with its scanner, the exact rules need not be loaded.
            texts.share(spans.redactor)
        suite = SuiteRecorder(
            root,
            name,
            replay=rerun_command.replay_of(config),
            seed=rerun_command.seed_of(config),
            project=config.rootpath,
            environment=environment,
            texts=texts,
            repro_env=cast(list[str], config.getini("vestige_repro_env")),
            run_id=spans.run_id if spans else None,
        )
        if spans is not None:
            spans.set_bundle_path(texts.clean(suite.path))
        self._use(suite, spans)

    def _start_worker(self, shared: dict[str, Any]) -> None:
        folder = Path(shared["folder"])
        if not folder.is_dir():
            return  # a worker on another machine
        worker = self._config.workerinput["workerid"]  # type: ignore[attr-defined]  # xdist's
        suite = SuiteWriter.worker(folder, shared["suite"], shared["timestamp"], worker)
        spans = TestSpans.start_worker(suite.texts.secrets) if shared["record"] else None
        if spans is not None:
            suite.texts.share(spans.redactor)
        # Where every worker runs all of the tests, a case is known by its worker too.
        self._use(suite, spans, where_of(worker) if shared["each"] else "")

    def _use(self, suite: SuiteWriter, spans: TestSpans | None, where: str = "") -> None:
        """Start to record the session, if recording is on."""
        self._suite, self._spans = suite, spans
        self._tests = TestCases(suite, spans, where)
        if spans is not None:
            ini = self._config.getini
            spans.listen(wire=bool(ini("vestige_wire")), logs=bool(ini("vestige_logs")))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """xdist is about to start a worker."""
        suite = self._suite
        if suite is not None:
            node.workerinput["vestige"] = {
                "folder": str(suite.path),
                "suite": suite.suite,
                "timestamp": suite.timestamp,
                "record": self._spans is not None,
                "each": self._is_each(),
            }

    def _is_each(self) -> bool:
        return bool(self._config.getoption("dist", "no") == "each")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Count the events that an ended worker of xdist could not write."""
        lost = getattr(node, "workeroutput", {}).get(_LOST)
        if self._suite is not None and lost:
            self._suite.trace.lost += lost[0]
            self._suite.trace.why_lost = lost[1]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Start the loop. All plugins are loaded, also those of test folders."""
        if self._tests is None:
            return
        if "pyfakefs" in sys.modules:
            # A module that is imported under a fake file system would keep parts of it.
            import vestige.artifacts.attachments  # noqa: F401
        self._tests.expect(item.nodeid for item in session.items)
        self._alone = runner_detection.is_alone(self._config)
        if self._alone:
            self._config.pluginmanager.register(_Ending(self._tests.settle))
        self.pytest_plugin_registered()
        if not runner_detection.runs_once(self._config):
            self._reruns = _Reruns(self)
            self._config.pluginmanager.register(self._reruns)

    def pytest_plugin_registered(self) -> None:
        """Plugins come whenever they want, also while tests run."""
        self._may_hold = self._alone and runner_detection.is_outermost(self._config, self)
        self._unwatched = self._may_hold and runner_detection.is_unwatched(self._config)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """After xdist has stopped its workers, before the terminal's summary."""
        suite, tests = self._suite, self._tests
        if suite is None or tests is None or not suite.trace.is_own:
            return  # a child that a test forked, and that came back from it
        tests.end("unknown", "the session ended")
        if isinstance(suite, SuiteRecorder):
            try:
                suite.finish()
                self._summary = f"bundle: {suite.path}"
                self._failed = bool(suite.failed)
                if self._failed:
                    self._summary += f"\nrun the failures again: vestige bundle repro {suite.path}"
            except VestigeError as error:
                self._problems = [str(error), *getattr(error, "problems", ())[1:]]
            except Exception as error:  # noqa: BLE001  # the disk, or replaced functions
                self._problems = [
                    f"{suite.path}: cannot be finished ({reason(error)}). Fix that, then run: "
                    f"vestige store recover {suite.path}"
                ]
            if self._problems:
                session.exitstatus = max(int(exitstatus), pytest.ExitCode.TESTS_FAILED)
            if "GITHUB_STEP_SUMMARY" in os.environ:
                from vestige.artifacts.github_summary import write_step_summary

                write_step_summary(suite.path, suite.cases)
        elif suite.trace.lost:
            lost = (suite.trace.lost, suite.trace.why_lost)
            self._config.workeroutput[_LOST] = lost  # type: ignore[attr-defined]  # xdist's
        suite.close()
        if self._spans is not None:
            self._spans.end_session(failed=exitstatus != 0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._problems:
            terminalreporter.section("vestige: the bundle is not valid", red=True)
        elif self._summary:
            terminalreporter.section("vestige")
            if self._spans is not None:
                run_id = self._spans.run_id
                if self._failed:
                    self._summary += f"\nwhy they failed: vestige check {run_id}"
                self._summary += f"\nlook into the run: vestige show {run_id}"
        for line in self._problems or self._summary.splitlines():
            terminalreporter.write_line(line)

    # --- a test ---------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        tests = self._tests
        if tests is None:
            return (yield)
        names = getattr(item, "fixturenames", ())
        if names is not self._names:  # else the same function, with other parameters
            self._names = names
            tests.settle()
            self._note_fixtures(item, names)
        self._item, self._nextitem = item, nextitem
        self._begin(item.nodeid)
        if self._reruns is not None:
            self._reruns.fresh = True
        try:
            result = yield
        except BaseException as error:
            tests.end("unknown", f"interrupted by {type(error).__name__}")
            raise
        if self._is_next(nextitem):
            tests.leave()
        else:
            self._end()
        return result

    def _lose(self, error: Exception) -> None:
        """Note a failure of the plugin, for example because a test replaced a function it needs.

        The session continues, and its bundle reports that it is incomplete."""
        assert self._suite is not None
        self._suite.trace.lose(error)

    def _is_next(self, nextitem: pytest.Item | None) -> bool:
        """Return whether the next event is the start of that test."""
        if not self._may_hold or nextitem is None:
            return False
        return not (nextitem.session.shouldfail or nextitem.session.shouldstop)

    def _begin(self, nodeid: str, attempt: int = 1) -> None:
        assert self._tests is not None
        self._attempt = attempt
        self._subtest_failed = False
        self._rerun = ""
        try:
            self._tests.begin(nodeid, attempt)
        except Exception as error:  # noqa: BLE001  # as in _lose
            self._lose(error)

    def _end(self) -> None:
        assert self._tests is not None
        try:
            self._tests.end("fail" if self._rerun else None, self._rerun)
        except Exception as error:  # noqa: BLE001  # as in _lose
            self._lose(error)

    def begin_again(self, nodeid: str) -> None:
        """The same test once more."""
        if self._attempt:
            self._end()
            self._begin(nodeid, self._attempt + 1)

    def end_attempt(self) -> None:
        """An attempt is over, and perhaps the test will run again."""
        if self._rerun:
            self._end()

    def _note_fixtures(self, item: Any, names: Sequence[str]) -> None:
        assert self._suite is not None
        parameters = _parameters(item)
        for name in names:
            if name not in self._fixtures and name not in parameters:
                self._fixtures.add(name)
                self._suite.fixture(name)

    def attach(
        self,
        source: str | bytes | os.PathLike[str],
        name: str | None = None,
        *,
        exact: bool = False,
    ) -> str | None:
        """Attach a file (fixture `vestige_attach`). With a name, text and bytes are the content."""
        case = self._tests.more() if self._tests is not None else None
        if case is None:
            return None
        if isinstance(source, bytes) or (
            isinstance(source, str) and name and not os.path.isfile(source)
        ):
            return case.write(name or "attachment.bin", source, exact=exact)
        try:
            return case.attach(source, name, exact=exact)
        except (VestigeError, OSError) as error:
            # Without a bundle the test would go on, so it does with one. Not a warning: some
            # projects make those errors.
            return case.write("attachment-missing.txt", f"vestige_attach: {error}\n")

    # --- its reports ------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        try:
            if report.outcome != "passed":
                self._take(report)
            elif report.when == "call":
                self._take_pass(report)
        except Exception as error:  # noqa: BLE001  # as in _lose
            self._lose(error)

    def _take(self, report: pytest.TestReport) -> None:
        outcome: str = report.outcome  # plugins have others
        case = self._tests.more() if self._tests is not None else None
        if case is None:
            if str(report.when) == "???":  # xdist: a worker died in the middle of a test
                self._take_crash(report)
            return
        if outcome == "rerun":
            assert self._suite is not None
            self._rerun = self._suite.texts.message(report_text.message_of(report)) or "rerun"
            case.note(self._rerun, "case_rerun")
            self._keep_output(case, report)
            return
        if outcome == "failed":
            subtest = report_text.subtest_of(report)
            own = subtest is None and report.when == "call"
            if own and self._subtest_failed and report_text.is_of_subtests(report):
                self._keep_output(case, report, failure=False)
                return
            self._subtest_failed = subtest is not None or self._subtest_failed
            assert self._suite is not None
            message = self._suite.texts.message(report_text.message_of(report))
            case.failed(f"{subtest}: {message}" if subtest else message)
            self._keep_output(case, report)
            if self._spans is not None:
                self._spans.failed(message)
        elif outcome == "skipped":
            reason = report_text.reason_of(report)
            case.skipped(reason)
            if self._spans is not None:
                self._spans.skipped(reason)

    def _take_pass(self, report: pytest.TestReport) -> None:
        tests = self._tests
        case = tests.running if tests is not None else None
        if tests is None or case is None:
            return
        message = report_text.message_of_pass(report)
        if not (message or case.assertions) and self._is_over(report):
            tests.pass_quietly()
        elif not self._subtest_failed or report_text.subtest_of(report) is not None:
            case.passed(message)
        # else the subtests have reported it

    def _is_over(self, report: pytest.TestReport) -> bool:
        """Return whether the test has no teardown, so that only work of pytest follows it."""
        # A subtest has its own kind of report.
        if not self._unwatched or type(report) is not pytest.TestReport or self._item is None:
            return False
        return runner_detection.leaves_nothing(self._item, self._nextitem)

    def pytest_exception_interact(self, call: Any) -> None:
        """A phase failed with an exception; not one that was expected, and no skip."""
        running = (
            self._tests is not None and self._tests.running is not None
        )  # else it is collected
        if self._spans is not None and running and call.excinfo is not None:
            error = call.excinfo.value
            try:
                self._spans.failed_with(error, report_text.trace_of(error))
            except Exception as own:  # noqa: BLE001  # as in _lose
                self._lose(own)

    def _keep_output(
        self, case: Case, report: pytest.TestReport | pytest.CollectReport, failure: bool = True
    ) -> None:
        for name, content in report_text.files_of(report, failure):
            try:
                case.write(name, content)
            except Exception as error:  # noqa: BLE001  # as in _lose
                case.note(f"{name} could not be written ({reason(error)})")

    def _take_crash(self, report: pytest.TestReport) -> None:
        assert self._suite is not None
        # The worker wrote `case_start` but died before the end of the case.
        message = self._suite.texts.message(str(report.longrepr))
        where = where_of(report.node.gateway.id) if self._is_each() else ""
        trace, case = self._suite.trace, self._suite.texts.message(report.nodeid + where)
        trace.failed += 1
        trace.event("assert_fail", case, message)
        trace.event("case_end", case, status="fail")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected is a case that failed. (Workers leave it to the
        controller.)"""
        if not report.failed or not isinstance(self._suite, SuiteRecorder):
            return
        assert self._tests is not None
        case = self._tests.begin(report.nodeid or "collection")
        message = self._suite.texts.message(f"collection: {report_text.message_of(report)}")
        case.failed(message)
        self._keep_output(case, report)
        if self._spans is not None:
            self._spans.failed(message, report_text.text_of(report))
        self._tests.end()


class _Reruns:
    """Hooks for sessions in which a plugin runs tests, perhaps several times: for each attempt, a
    case."""

    def __init__(self, plugin: BundlePlugin) -> None:
        self._plugin = plugin
        self.fresh = False
        """The case was begun by the protocol, and its logstart has not come yet."""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.fresh:
            self.fresh = False
        else:
            self._plugin.begin_again(nodeid)

    def pytest_runtest_logfinish(self) -> None:
        if not self.fresh:
            self._plugin.end_attempt()


class _Ending:
    """Write the last test before other plugins handle the end of the session."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        self._flush()


def _parameters(item: Any) -> Any:
    """Names that a test gets its parameters by: pytest counts them as fixtures."""
    return getattr(getattr(item, "callspec", None), "params", ())
