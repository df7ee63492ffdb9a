"""SuiteRecorder: write the bundle of a test suite while it runs.

    with SuiteRecorder("tests/artifacts", "checkout") as suite:
        with suite.case("pays by card") as case:
            case.check(total == 3, "three items in the basket")
            case.attach("server.log")
    suite.path                              # tests/artifacts/checkout/20260210_170000

Every event is on disk when the call returns. `case_start` is written before the case runs, so a
killed suite shows which case was running, and `vestige store recover` makes a valid bundle of it.
At the end the bundle is validated; a broken rule raises InvalidSuiteError.

Elsewhere: the pytest plugin (pytest_plugin/plugin.py) uses this class.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from vestige._runtime.clock import SYSTEM, Clock
from vestige._runtime.gc_pause import pause_gc
from vestige.artifacts.environment_variables import redacted, replayed
from vestige.artifacts.finalize import failed_cases, finish
from vestige.artifacts.git import read_git
from vestige.artifacts.merge_traces import WORKER_PREFIX, Merged, rebuild_trace, worker_files
from vestige.artifacts.replay_command import Replay
from vestige.artifacts.suite_start_facts import Start, describe_runner, write_start
from vestige.artifacts.suite_trace_writer import TraceWriter, json_of
from vestige.artifacts.text_sanitizer import TextSanitizer, file_key, file_name
from vestige.errors import InvalidSuiteError, UsageError
from vestige.formats.artifacts import constants
from vestige.formats.artifacts.file_structs import Counts
from vestige.formats.artifacts.write import read_cases

if TYPE_CHECKING:
    from vestige.artifacts.attachments import Attachments
    from vestige.formats.artifacts.trace_events import CaseResult

Status = Literal["pass", "fail", "skip", "unknown"]
_FOLDERS_TRIED = 1000
"""A suite that starts many times a second takes the next second that is free."""


class Case:
    """A case that is running. Made by `case` of a suite; a context manager."""

    __slots__ = (
        "_attachments",
        "_begun_ns",
        "_ended",
        "_failed",
        "_failures",
        "_json",
        "_passed",
        "_skipped",
        "_suite",
        "assertions",
        "duration_ms",
        "name",
        "outcome",
    )

    def __init__(
        self,
        suite: SuiteWriter,
        name: str,
        name_json: bytes,
        attempt: int = 1,
        span_id: str = "",
        first: bytes = b"",
    ) -> None:
        """`name`: cleaned by `texts`; `name_json`: the same as JSON. `attempt`: above 1, it is the
        same case once more. `span_id`: of the span that records it. `first`: lines about the case
        before it."""
        self._suite = suite
        self.name = name
        self.assertions = self._passed = self._failed = self._skipped = 0
        # No lists before there is something in them: suites have thousands of cases, and all are
        # kept.
        self._failures: list[str] | None = None
        self._attachments: list[str] | None = None
        self.outcome: Status = "unknown"
        self.duration_ms = 0
        self._ended = False
        self._json = name_json
        trace = suite.trace
        if attempt == 1:
            trace.total += 1
        more = b',"span_id":%b' % json_of(span_id) if span_id else b""
        if attempt > 1:
            more += b',"attempt":%d' % attempt
        suite.running_cases.append(self)
        self._begun_ns = now_ns = trace.watch.now_ns()
        trace.write(first + trace.case_line(b'"case_start"', name_json, now_ns, more=more))

    @property
    def failures(self) -> list[str]:
        """Return the messages of the failed checks."""
        return self._failures or []

    @property
    def attachments(self) -> list[str]:
        """Return the paths of the attachments in the bundle."""
        return self._attachments or []

    @attachments.setter
    def attachments(self, paths: list[str]) -> None:
        self._attachments = paths

    # --- events -----------------------------------------------------------------------------

    def check(self, condition: object, message: object = "") -> bool:
        """Record an assertion, and return whether it holds."""
        is_true = bool(condition)
        (self.passed if is_true else self.failed)(message)
        return is_true

    def passed(self, message: object = "", *, at_ns: int | None = None) -> None:
        """Record a passed assertion. `at_ns` is its monotonic time; default: now."""
        self._passed += 1
        self._suite.trace.passed += 1
        self._assert(b'"assert_pass"', self._clean(message) if message else "", at_ns)

    def failed(self, message: object = "") -> None:
        """Record a failed assertion."""
        self._failed += 1
        self._suite.trace.failed += 1
        text = self._clean(message)
        self._failures = self._failures or []
        self._failures.append(text)
        self._assert(b'"assert_fail"', text)

    def skipped(self, reason: object = "") -> None:
        """Record that a part of the case was skipped."""
        self._skipped += 1
        self._suite.trace.skipped += 1
        self._assert(b'"assert_skip"', self._clean(reason))

    def note(self, message: object, kind: str = "log") -> None:
        """Record a line about the case, of a kind that readers may ignore."""
        self._suite.trace.event(kind, self.name, self._clean(message))

    def _clean(self, message: object) -> str:
        return self._suite.texts.message(message) if message else ""

    def _assert(self, kind: bytes, text: str, at_ns: int | None = None) -> None:
        self.assertions = number = self.assertions + 1
        trace = self._suite.trace
        at_ns = trace.watch.now_ns() if at_ns is None else at_ns
        more = b',"assertion_id":"a%d"' % number
        trace.write(trace.case_line(kind, self._json, at_ns, self._begun_ns, json_of(text), more))

    # --- its files --------------------------------------------------------------------------

    def attach(
        self, path: str | os.PathLike[str], name: str | None = None, *, exact: bool = False
    ) -> str:
        """Copy a file into the bundle, and return its path there.

        Text is redacted unless it is `exact`.
        """
        return self._record_attachment(
            self._suite.attachments.copy(self._folder(), Path(path), name, exact=exact)
        )

    def write(self, name: str, content: str | bytes, *, exact: bool = False) -> str:
        """Write a file into the bundle, and return its path there.

        `*.log` is a log, `*.png` a screenshot.
        """
        return self._record_attachment(
            self._suite.attachments.write(self._folder(), name, content, exact=exact)
        )

    def screenshot(self, path: str | os.PathLike[str], name: str | None = None) -> str:
        """Copy a picture into the bundle, and return its path there."""
        if not constants.is_screenshot(name or str(path)):
            raise UsageError(
                f"{name or path}: no name of a screenshot (expected .png, .jpg, .webp, .gif or "
                f".bmp)."
            )
        return self.attach(path, name, exact=True)

    def _folder(self) -> str:
        return f"cases/{file_key(self.name)}"

    def _record_attachment(self, path: str) -> str:
        self._attachments = self._attachments or []
        self._attachments.append(path)
        self._suite.trace.event("attachment", self.name, path=path)
        return path

    # --- its end ----------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """Return the status according to the assertions so far."""
        if self._failed:
            return "fail"
        return "skip" if self._skipped and not self._passed else "pass"

    def end(self, status: Status | None = None, message: object = "") -> None:
        """End the case. The assertions decide its status, unless one is passed."""
        if not self._ended:
            trace = self._suite.trace
            trace.write(self.lines_of_end(trace.watch.now_ns(), status, message))

    def lines_of_end(
        self,
        at_ns: int,
        status: Status | None = None,
        message: object = "",
        passed_ns: int | None = None,
    ) -> bytes:
        """Return the lines that record the end of the case, at a monotonic time.
        `passed_ns`: when it passed, if that is all that happened and is not written yet."""
        self._ended = True
        self.duration_ms = (at_ns - self._begun_ns) // 1_000_000
        trace = self._suite.trace
        if passed_ns is not None:
            self.outcome = "pass"
            self.assertions = self._passed = 1
            trace.passed += 1
            return trace.pass_and_end(self._json, self._begun_ns, passed_ns, at_ns)
        self.outcome = status = status or self.status
        text = self._clean(message) if message else ""
        more = b',"status":%b' % json_of(status)
        return trace.case_line(
            b'"case_end"', self._json, at_ns, self._begun_ns, json_of(text), more
        )

    @property
    def ended(self) -> bool:
        return self._ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self.failed(f"{type(error).__name__}: {error}")
        elif error is not None:
            self.end("unknown", f"interrupted by {type(error).__name__}")
        self.end()


class SuiteWriter:
    """The cases of one process, in a folder that another process finishes."""

    def __init__(
        self,
        folder: Path,
        suite: str,
        timestamp: str,
        *,
        trace: str = constants.TRACE,
        texts: TextSanitizer | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.path = folder
        self.suite = suite
        self.timestamp = timestamp
        self.texts = texts or TextSanitizer(os.environ)
        self.trace = TraceWriter(folder / trace, suite, timestamp, clock)
        self.running_cases: list[Case] = []
        """The cases of this process, in the order in which they began."""
        self._fixtures: dict[str, None] = {}
        self._notes: list[str] = []

    @classmethod
    def worker(cls, folder: Path, suite: str, timestamp: str, worker: str) -> SuiteWriter:
        """Open the part of a worker process, which the suite's own process merges at the end."""
        name = f"trace/{WORKER_PREFIX}{file_name(worker)}.jsonl"
        return cls(folder, suite, timestamp, trace=name)

    @cached_property
    def attachments(self) -> Attachments:
        from vestige.artifacts.attachments import Attachments  # many suites have none

        return Attachments(self.path, self.texts)

    def case(self, name: object) -> Case:
        """Start a case. Its start is on disk when this returns."""
        text = self.texts.message(name)
        return Case(self, text, json_of(text))

    def fixture(self, fixture_id: object) -> None:
        """Record a fixture that the suite uses."""
        text = self.texts.message(fixture_id)
        if text not in self._fixtures:
            self._fixtures[text] = None
            self.trace.event("fixture", message=text)

    def note(self, message: object) -> None:
        """Add a line to the transcript."""
        text = self.texts.message(message)
        self._notes.append(text)
        self.trace.event("note", message=text)

    def attach(
        self, path: str | os.PathLike[str], name: str | None = None, *, exact: bool = False
    ) -> str:
        """Copy a file of the suite into the bundle. Return its path there."""
        return self._record_attachment(
            self.attachments.copy("files", Path(path), name, exact=exact)
        )

    def write(self, name: str, content: str | bytes, *, exact: bool = False) -> str:
        """Write a file of the suite into the bundle. Return its path there."""
        return self._record_attachment(self.attachments.write("files", name, content, exact=exact))

    def log(self, name: str, content: str | bytes) -> str:
        """Write a log of the suite into the bundle. Return its path there."""
        name = name if constants.is_log(name) else f"{name}.log"
        return self._record_attachment(self.attachments.write("logs", name, content))

    def _record_attachment(self, path: str) -> str:
        self.trace.event("attachment", path=path)
        return path

    def close(self) -> None:
        """Close the files of this process, which records nothing more."""
        self.trace.close()


class SuiteRecorder(SuiteWriter):
    """A suite from its start to its valid bundle. A context manager.

    `root`: the folder of bundles; each suite has a folder, each start of it one inside.
    `replay`: how the suite is started; default: as this program was.
    `seed`, `clock_mode`: the settings that made it deterministic. `repro_env`: more variables that
    a replay needs.
    `run_id`: the run that also records the suite. `texts`: an existing sanitizer of names.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        suite: str,
        *,
        replay: Replay | None = None,
        seed: int = 0,
        clock_mode: str = "wall",
        project: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        repro_env: Sequence[str] = (),
        run_id: str | None = None,
        texts: TextSanitizer | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        variables = dict(os.environ if environment is None else environment)
        texts = texts or TextSanitizer(variables)
        name = texts.message(suite)
        if not name:
            raise UsageError("suite: has no name.")
        started_ns = clock.now_ns()
        project = Path(os.getcwd() if project is None else project)
        git = read_git(project, Path(root))
        folder, timestamp = _make_folder(Path(root) / file_name(name), started_ns)
        start = Start(
            suite=name,
            timestamp=timestamp,
            started_ns=started_ns,
            replay=_clean_replay(replay or _this_program(), texts),
            git=git,
            seed=seed,
            clock_mode=clock_mode,
            runner={key: texts.clean(value) for key, value in describe_runner().items()},
            paths={"project_root": texts.clean(project), "artifact_dir": texts.clean(folder)},
            environment=redacted(variables, texts),
            replay_environment=replayed(variables, texts, repro_env),
        )
        write_start(folder, start)
        super().__init__(folder, name, timestamp, texts=texts, clock=clock)
        self.cases: Sequence[CaseResult] = []
        """The status of each case, when the suite has ended."""
        self._finished = False
        more = {"run_id": run_id} if run_id else {}
        self.trace.event("suite_start", tool="vestige", **more)
        self._started = self.trace.last_ts

    @property
    def failed(self) -> list[str]:
        """Return the cases that failed or never ended, once the suite has ended."""
        return failed_cases(self.cases)

    def finish(self, notes: Sequence[str] = ()) -> Path:
        """End the suite: write and validate the bundle. Raises InvalidSuiteError.

        Does nothing in a forked child: the suite of its parent continues."""
        if self._finished or not self.trace.is_own:
            return self.path
        self._finished = True
        with pause_gc():
            self._finish(notes)
        if self.trace.lost:
            raise InvalidSuiteError(
                f"{self.path}: {self.trace.lost} events could not be written "
                f"({self.trace.why_lost}).",
                [],
            )
        return self.path

    def _finish(self, notes: Sequence[str]) -> None:
        messages = [self.texts.message(note) for note in notes]
        trace = self.trace
        now = trace.watch.stamp()
        cases_read: tuple[Sequence[CaseResult], Counts] | None = None
        if worker_files(self.path):
            merged = rebuild_trace(self.path, now)
            messages += [f"{case} did not end" for case in merged.running]
        elif all(case.ended for case in self.running_cases) and not trace.lost:
            # This process wrote the complete trace, so it need not be read.
            trace.event("suite_end")
            merged = Merged(
                self.suite,
                self.timestamp,
                self._started,
                trace.last_ts,
                True,
                list(self._fixtures),
                self._notes,
            )
            cases_read = self.running_cases, trace.counts()
        else:
            trace.event("suite_end")
            merged = Merged()
            cases_read = read_cases(self.path, merged.take)
            if merged.running:
                merged, cases_read = rebuild_trace(self.path, now), None
        try:
            self.cases = finish(self.path, merged, messages, self._known(), cases_read)
        finally:
            merged.release()
        trace.close()

    def _known(self) -> dict[str, tuple[int, str]]:
        """Return files hashed while they were written that have not changed since."""
        found: dict[str, tuple[int, str]] = {}
        if "attachments" not in self.__dict__:
            return found
        for path, (size, mtime_ns, sha256) in self.attachments.known.items():
            with suppress(OSError):
                now = os.stat(self.path / path)
                if (now.st_size, now.st_mtime_ns) == (size, mtime_ns):
                    found[path] = (size, sha256)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.finish()
            return
        try:
            self.finish([f"the suite ended with {type(error).__name__}: {error}"])
        except (InvalidSuiteError, OSError) as failed:
            error.add_note(str(failed))  # the error that ended the suite matters more


def _make_folder(root: Path, started_ns: int) -> tuple[Path, str]:
    """Create a folder named after the current second, or after the next free one."""
    second = started_ns // 1_000_000_000
    for more in range(_FOLDERS_TRIED):
        timestamp = datetime.fromtimestamp(second + more, UTC).strftime("%Y%m%d_%H%M%S")
        folder = root / timestamp
        try:
            (folder / "trace").mkdir(parents=True)
        except FileExistsError:
            continue
        return folder.resolve(), timestamp
    raise UsageError(f"{root}: no free name for a bundle. Remove old ones.")


def _this_program() -> Replay:
    return Replay(argv=[sys.executable, *sys.orig_argv[1:]], cwd=os.getcwd())


def _clean_replay(replay: Replay, texts: TextSanitizer) -> Replay:
    return Replay(
        argv=texts.redactor.argv([texts.clean(word) for word in replay.argv]),
        cwd=texts.clean(replay.cwd),
        tests=[texts.clean(word) for word in replay.tests],
        by_case=replay.by_case,
        prefix=texts.clean(replay.prefix),
    )
