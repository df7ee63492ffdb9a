"""Logs of a capture: all levels, whole, masked, and only those that belong to it."""

from __future__ import annotations

import asyncio
import functools
import io
import json
import logging
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import vestige
from support.programs import RunProgram
from vestige.debug import (
    AgentInfo,
    DebugBundleBuilder,
    LogEntry,
    LogRotationConfig,
    MemoryFilesystem,
    Session,
    archive_filesystem,
    collect_all_logs,
    dump_session,
    spool,
)
from vestige.debug.logging_capture import SHARED
from vestige.home import Home
from vestige.journal.writer import JournalWriter
from vestige.limits import LINE_MAX, MESSAGE_MAX

LOG = logging.getLogger("app.work")
SECRET = "sk-ant-REDACTED"


@pytest.fixture(autouse=True)
def _home(home: Home) -> None:
    """A home of their own for the spools."""


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    """What the program's own handler at the root prints, with levels as a program has them."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)
    LOG.setLevel(logging.NOTSET)
    LOG.propagate = True
    logging.disable(logging.NOTSET)


def builder(**more: Any) -> DebugBundleBuilder:
    return DebugBundleBuilder(session=Session(), agent=AgentInfo("a", "b", "c"), **more)


def entries(made: DebugBundleBuilder) -> list[LogEntry]:
    return list(made.finalize().logs)


def test_every_level_is_captured_and_nothing_more_is_printed(printed: io.StringIO) -> None:
    """The program's handlers see what they saw before; no logger's level is changed."""
    made = builder()
    with made.capture():
        LOG.debug("quiet")
        LOG.info("calm")
        LOG.warning("loud")
        assert logging.getLogger().level == logging.WARNING
        LOG.setLevel(logging.ERROR)
        LOG.warning("hidden by the program itself")
        logging.disable(logging.CRITICAL)
        LOG.critical("disabled")

    assert [entry.message for entry in entries(made)] == [
        "quiet",
        "calm",
        "loud",
        "hidden by the program itself",
        "disabled",
    ]
    assert printed.getvalue() == "loud\n"


def test_a_logger_that_does_not_propagate_is_heard(printed: io.StringIO) -> None:
    """A handler at the root would not see it."""
    LOG.propagate = False
    made = builder()
    with made.capture():
        LOG.info("alone")

    assert [entry.message for entry in entries(made)] == ["alone"]


def test_a_record_that_is_handed_over_still_reaches_the_programs_handlers(
    printed: io.StringIO,
) -> None:
    """`Logger.handle` asks no level (a queue listener's records): that stays so."""
    record = logging.makeLogRecord({"msg": "from a queue", "levelno": 10, "levelname": "DEBUG"})
    made = builder()
    with made.capture():
        LOG.handle(record)

    assert printed.getvalue() == "from a queue\n"
    assert [entry.level for entry in entries(made)] == ["DEBUG"]


def test_logging_is_as_it_was_after_the_capture() -> None:
    """No wrapper stays."""
    before = (logging.Logger.isEnabledFor, logging.Logger.makeRecord, logging.Logger.callHandlers)
    with builder().capture():
        pass

    assert before == (
        logging.Logger.isEnabledFor,
        logging.Logger.makeRecord,
        logging.Logger.callHandlers,
    )


@pytest.fixture
def _logger_class() -> Iterator[None]:
    """`logging.Logger` is restored, whatever wraps it."""
    names = ("isEnabledFor", "makeRecord", "handle", "callHandlers")
    before = {name: getattr(logging.Logger, name) for name in names}
    yield
    for name, method in before.items():
        setattr(logging.Logger, name, method)


def wrap(name: str, *, recorded: bool) -> Any:
    """Put something over a method of all loggers, as other tools do."""
    before = getattr(logging.Logger, name)

    def theirs(*arguments: Any) -> Any:
        return before(*arguments)

    after = functools.update_wrapper(theirs, before) if recorded else theirs
    setattr(logging.Logger, name, after)
    return after


@pytest.mark.usefixtures("_logger_class")
def test_after_another_tool_wrapped_the_loggers_a_later_capture_is_as_the_first(
    printed: io.StringIO,
) -> None:
    """What it keeps of the first capture's does nothing any more: no line twice, none printed."""
    with builder().capture():
        wrap("callHandlers", recorded=False)
        wrap("isEnabledFor", recorded=False)
    made = builder()
    with made.capture():
        LOG.warning("once")
        LOG.debug("quiet")

    assert [entry.message for entry in entries(made)] == ["once", "quiet"]
    assert printed.getvalue() == "once\n"


@pytest.mark.usefixtures("_logger_class")
def test_what_another_tool_put_over_ours_stays_when_the_capture_ends() -> None:
    """Also if it took over our attributes, as `functools.wraps` does."""
    with builder().capture():
        theirs = wrap("callHandlers", recorded=True)

    assert logging.Logger.callHandlers is theirs


def test_a_filter_that_fails_for_a_line_that_only_a_capture_wants_does_not_reach_the_program(
    printed: io.StringIO,
) -> None:
    """Without the capture the program's filter would not have seen the line."""

    def of_a_user(record: logging.LogRecord) -> bool:
        return bool(record.__dict__["user"])

    LOG.addFilter(of_a_user)
    made = builder()
    try:
        with made.capture():
            LOG.debug("quiet")
            with pytest.raises(KeyError):
                LOG.warning("as without a capture")
    finally:
        LOG.removeFilter(of_a_user)

    assert [entry.message for entry in entries(made)] == ["quiet"]


def test_a_higher_level_can_be_asked_for() -> None:
    """`log_level` is the least that is kept."""
    made = builder(log_level=logging.INFO)
    with made.capture():
        LOG.debug("no")
        LOG.info("yes")

    assert [entry.message for entry in entries(made)] == ["yes"]


def test_tracebacks_extra_and_context_are_kept() -> None:
    """What was given with the call, and of an exception its type, message and stack."""
    made = builder()
    with made.capture():
        try:
            raise ValueError("bad value")
        except ValueError:
            LOG.exception("failed", extra={"event": "step.failed", "attempt": 3})
        LOG.info("one", extra={"only": "this"})
        LOG.info("nested", extra={"event": "e", "context": {"args": {"n": [1, 2]}}, "more": None})
    failed, one, nested = entries(made)

    assert (failed.event, failed.level, failed.logger) == ("step.failed", "ERROR", "app.work")
    assert failed.context["attempt"] == 3
    assert failed.context["error.type"] == "ValueError"
    assert 'raise ValueError("bad value")' in failed.context["error.stack"]
    assert dict(one.context) == {"only": "this"}
    assert dict(nested.context) == {"more": None, "args": {"n": [1, 2]}}


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_what_is_not_json_has_a_form_and_no_record_is_lost() -> None:
    """Objects, NaN, bytes, surrogates, cycles, wrong arguments, keys that are reserved."""
    cycle: list[Any] = []
    cycle.append(cycle)
    made = builder()
    with made.capture():
        LOG.info("odd", extra={"context": {"o": object, "nan": float("nan"), "b": b"\xff", 3: 4}})
        LOG.info("lone \ud800 %s", "x", extra={"k": "\udfff"})
        LOG.info("cycle", extra={"c": cycle})
        LOG.info("two %s %s", 1)
        LOG.info(Unprintable())
        LOG.info("reserved", extra={"context": {"event": "mine", "entry.body": 1}})
        LOG.log(25, "level 25")
        LOG.info("huge", extra={"n": 10**30, "long": "y" * 500_000})
        LOG.info("m" * (MESSAGE_MAX + 10))
    found = entries(made)

    assert len(found) == 9
    assert found[0].context["nan"] == "NaN"
    assert found[0].context["3"] == 4
    assert found[1].message == "lone \\ud800 x"
    assert found[1].context["k"] == "\\udfff"
    assert found[2].context["c"] == ["<cycle>"]
    assert found[3].message.startswith("two %s %s")
    assert "unprintable" in found[4].message
    assert dict(found[5].context) == {"event": "mine", "entry.body": 1}
    assert found[6].level == "Level 25"
    assert len(found[7].context["long"]) == 500_000
    assert found[8].message == "m" * (MESSAGE_MAX + 10)


def test_secrets_are_masked_wherever_they_are(home: Home) -> None:
    """In messages, arguments, extra, context and tracebacks: neither spool nor bundle has them."""
    made = builder()
    with made.capture():
        LOG.info("key %s", SECRET)
        LOG.info("extra", extra={"context": {"api_key": "hunter2hunter2", "deep": [{"k": SECRET}]}})
        try:
            raise ValueError(SECRET)
        except ValueError:
            LOG.exception("failed")
        raw = b"".join(path.read_bytes() for path in home.root.rglob("*") if path.is_file())
    path = made.finalize().export(home.root / "out.wink")
    text = json.dumps([entry.message for entry in entries(made)])

    assert SECRET.encode() not in raw
    assert b"hunter2hunter2" not in raw
    assert "…redacted…" in json.loads(text)[0]
    assert path.is_file()


def test_overlapping_captures_do_not_hear_each_other() -> None:
    """Two tasks at once, each with a capture: each has its own lines and no others."""
    made = [builder(), builder()]

    async def work(one: DebugBundleBuilder, name: str) -> None:
        with one.capture():
            for _ in range(3):
                LOG.info(name)
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(work(made[0], "first"), work(made[1], "second"))

    asyncio.run(both())

    assert [entry.message for entry in entries(made[0])] == ["first"] * 3
    assert [entry.message for entry in entries(made[1])] == ["second"] * 3


def in_thread(text: str) -> None:
    thread = threading.Thread(target=LOG.info, args=(text,))
    thread.start()
    thread.join()


def test_a_thread_without_context_belongs_to_the_only_capture_or_to_all() -> None:
    """With one open it is clear; with two it is not, and the entries say so."""
    outer = builder()
    with outer.capture():
        in_thread("clear")
        inner = builder()
        with inner.capture():
            in_thread("unclear")
            LOG.info("nested: both are open here")
    first, second, third = entries(outer)

    assert (first.message, dict(first.context)) == ("clear", {})
    assert (second.message, dict(second.context)) == ("unclear", {SHARED: 2})
    assert third.message.startswith("nested")
    assert [entry.message for entry in entries(inner)] == ["unclear", third.message]


def test_rotation_keeps_the_newest_segments_and_says_what_went(home: Home) -> None:
    """By entries: the newest `keep_rotations` segments stay, the rest is counted."""
    rotation = LogRotationConfig(max_entries=10, max_bytes=10**9, keep_rotations=2)
    made = builder(log_rotation=rotation)
    with made.capture():
        for number in range(95):
            LOG.info("line %d", number)
        files = [path for _, _, path in made._begun().spool.home.journal_files()]
    bundle = made.finalize()
    logs = bundle.manifest.component("logs")

    assert [entry.message for entry in bundle.logs] == [f"line {n}" for n in range(80, 95)]
    assert logs is not None
    assert logs.dropped_entries == 80
    assert (logs.dropped_bytes or 0) > 0
    assert len([path for path in files if path.name.startswith("logs-")]) == 2


def test_rotation_by_bytes() -> None:
    """A segment is full at `max_bytes`, too."""
    rotation = LogRotationConfig(max_entries=10**6, max_bytes=2_000, keep_rotations=1)
    made = builder(log_rotation=rotation)
    with made.capture():
        for number in range(50):
            LOG.info("line %d %s", number, "x" * 100)
    entries_left = entries(made)

    assert 0 < len(entries_left) < 20
    assert entries_left[-1].message.startswith("line 49 ")


@pytest.mark.slow
def test_rotation_counts_long_lines_in_full_and_takes_them_from_the_disk(home: Home) -> None:
    """A prompt of megabytes in a context is not in its line, but it is in the bundle."""
    rotation = LogRotationConfig(max_bytes=1_500_000, keep_rotations=2)
    made = builder(log_rotation=rotation)
    with made.capture():
        for number in range(20):
            LOG.info("call %d", number, extra={"prompt": f"{number} " * 200_000})
        bodies = made._begun().spool.home.bodies
        size = sum(path.stat().st_size for path in bodies.iterdir())
    bundle = made.finalize()
    entries_left = list(bundle.logs)
    logs = bundle.manifest.component("logs")

    assert size < 5_000_000
    assert 2 <= len(entries_left) <= 8
    assert entries_left[-1].context["prompt"].startswith("19 19 ")
    assert logs is not None
    assert logs.dropped_entries == 20 - len(entries_left)
    assert (logs.dropped_bytes or 0) > 4_000_000


def test_a_segment_is_full_when_the_rotation_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when a journal would begin its next file: those are not what is kept and dropped."""
    defaults = JournalWriter.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "rotate_bytes", 2_000)
    monkeypatch.setattr(spool, "JOURNAL_ROTATE_BYTES", 2_000)
    rotation = LogRotationConfig(max_entries=100, keep_rotations=2)
    made = builder(log_rotation=rotation)
    with made.capture():
        for number in range(150):
            LOG.info("line %d", number)

    assert len(entries(made)) == 150


def test_collect_all_logs_writes_json_lines_on_its_own(tmp_path: Path) -> None:
    """The same entries as in a bundle, masked, into one file that grows."""
    path = tmp_path / "deep" / "all.log"
    for _ in range(2):
        with collect_all_logs(path) as yielded:
            LOG.debug("say %s", SECRET, extra={"event": "e", "context": {"n": {"a": 1}}})
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    assert yielded == path
    assert len(lines) == 2
    assert list(lines[0]) == ["timestamp", "level", "logger", "event", "message", "context"]
    assert lines[0]["context"] == {"n": {"a": 1}}
    assert SECRET not in path.read_text(encoding="utf-8")


def test_what_is_written_on_its_own_has_no_registered_secret(home: Home, tmp_path: Path) -> None:
    """Whether it was registered before or meanwhile: one that no rule would know."""
    before, meanwhile = "zebra stripes for ever", "penguins in the desert"
    fs = MemoryFilesystem({"notes": f"{before}, {meanwhile}"})
    session = Session()
    with vestige.Recorder(home) as recorder:
        recorder.secret(before)
        with collect_all_logs(tmp_path / "all.log"):
            recorder.secret(meanwhile)
            LOG.info("%s, %s", before, meanwhile)
        session[str].seed(f"{before}, {meanwhile}")
        dump_session(session, tmp_path / "session.jsonl")
        archive_filesystem(fs, tmp_path / "files.zip")
    with zipfile.ZipFile(tmp_path / "files.zip") as archive:
        written = archive.read("notes")
    written += (tmp_path / "all.log").read_bytes() + (tmp_path / "session.jsonl").read_bytes()

    assert written.count(b"redacted") == 6
    assert before.encode() not in written
    assert meanwhile.encode() not in written


def test_a_signal_handler_may_log_while_a_line_is_written(run_program: RunProgram) -> None:
    """As with logging's own handlers: the thread that is interrupted must not wait for itself."""
    source = """
        import faulthandler, logging, signal, time
        from vestige.debug import collect_all_logs

        faulthandler.dump_traceback_later(20, exit=True)
        log = logging.getLogger("app")
        seen = 0

        def handler(*_):
            global seen
            seen += 1
            log.info("from the handler")

        signal.signal(signal.SIGPROF, handler)
        with collect_all_logs("all.log"):
            signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
            end = time.process_time() + 0.7      # of computing: enough signals to hit any place
            while time.process_time() < end:
                log.info("from the program")
            signal.setitimer(signal.ITIMER_PROF, 0)
        assert seen and "from the handler" in open("all.log").read()
    """
    done = run_program(source)

    assert done.returncode == 0, done.stderr


def test_a_record_that_nobody_would_have_made_raises_nothing(
    printed: io.StringIO, tmp_path: Path
) -> None:
    """`extra` must not overwrite a record's fields, but at this level nobody would have looked."""
    path = tmp_path / "all.log"
    with collect_all_logs(path):
        LOG.debug("hello", extra={"message": "mine"})
        with pytest.raises(KeyError):
            LOG.warning("hello", extra={"message": "mine"})

    assert json.loads(path.read_text(encoding="utf-8"))["message"] == "hello"
    assert printed.getvalue() == ""


@pytest.mark.slow
def test_a_secret_in_a_line_that_is_cut_is_masked_too(home: Home) -> None:
    """An event's or a logger's name of megabytes is shortened, and that of the masked line."""
    made = builder()
    with made.capture():
        LOG.info("one", extra={"event": f"{SECRET} {'e' * LINE_MAX}"})
        logging.getLogger(f"{SECRET} {'n' * LINE_MAX}").info("two")
        (spool,) = home.spool.iterdir()
        written = b"".join(path.read_bytes() for path in spool.rglob("*") if path.is_file())

    assert SECRET.encode() not in written
    found = entries(made)
    assert [entry.message for entry in found] == ["one", "two"]
    assert not any(SECRET in entry.event + entry.logger for entry in found)


def test_two_that_write_the_same_archive_at_once_do_not_mix(tmp_path: Path) -> None:
    """Workers of a test suite, say: the last one has all of it, and none of them fails."""

    class Meanwhile(MemoryFilesystem):
        def open_read(self, path: str) -> BinaryIO:
            archive_filesystem(MemoryFilesystem({"b": b"2" * 100_000}), tmp_path / "files.zip")
            return super().open_read(path)

    made = archive_filesystem(Meanwhile({"a": b"1"}), tmp_path / "files.zip")

    with zipfile.ZipFile(made) as archive:
        assert (archive.testzip(), archive.namelist()) == (None, ["a"])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["files.zip"]
