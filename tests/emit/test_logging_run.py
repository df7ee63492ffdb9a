"""Below `vestige run` a program's log lines are recorded, and nothing of its logging changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.programs import load, run_in
from vestige.home import Home
from vestige.record.run import LogInfo

RUN = (sys.executable, "-m", "vestige", "run", "--", sys.executable)
AGENT = """
    import logging

    before = logging.getLogger().handlers[:]
    logging.basicConfig(level="INFO", format="%(levelname)s %(name)s %(message)s")
    log = logging.getLogger("shop.search")
    log.info("looking for %s", "refunds", extra={"page": 2})
    log.debug("too fine")
    try:
        {}["index"]
    except KeyError:
        log.exception("no index")

    class Odd:
        def __str__(self): raise ValueError("no text")

    logging.raiseExceptions = False
    log.warning("odd %s", Odd())
    quiet = logging.getLogger("quiet")
    quiet.addFilter(lambda record: False)
    quiet.error("filtered")
    alone = logging.getLogger("alone")
    alone.propagate = False
    alone.error("to nobody")
    print(before, logging.getLogger().handlers, logging.Logger.callHandlers.__name__)
"""


def run(home: Home, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vestige", "run", *options, "--", sys.executable]
    return run_in(home, source, command=command)


def logs(home: Home) -> list[LogInfo]:
    others = ("vestige", "stdout", "stderr")
    return [log for run in load(home) for log in run.logs if log.component not in others]


def test_what_a_program_logs_is_recorded_and_said_as_before(home: Home) -> None:
    """The first `basicConfig` works, what no logger lets through is not there, and of each line
    there is its logger, level, fields and traceback."""
    bare = run_in(home, AGENT, env={"VESTIGE_DISABLED": "1"})
    recorded = run_in(home, AGENT, command=RUN)

    assert (recorded.stdout, recorded.stderr) == (bare.stdout, bare.stderr)
    assert "INFO shop.search looking for refunds" in bare.stderr
    assert bare.stdout.startswith("[] [<StreamHandler")
    first, failed, odd, alone = logs(home)
    assert (first.component, first.level, first.message) == (
        "shop.search",
        "info",
        "looking for refunds",
    )
    assert first.attributes["page"] == 2
    assert (failed.level, failed.attributes["error.type"]) == ("error", "KeyError")
    assert odd.message.startswith("odd %s")
    assert (alone.component, alone.message) == ("alone", "to nobody")


def test_a_line_belongs_to_the_span_it_was_logged_in(home: Home) -> None:
    """Also one of a thread that the span's code started."""
    agent = """
        import logging, threading, vestige

        with vestige.traced_run("agent") as run:
            with run.span("search", type="tool"):
                thread = threading.Thread(target=logging.getLogger("shop").warning, args=("slow",))
                thread.start()
                thread.join()
    """
    run(home, agent)

    (line,) = logs(home)
    spans = {span.id: span.name for found in load(home) for span in found.spans}
    assert spans[line.span_id or ""] == "search"


def test_with_a_handler_of_ours_each_line_is_recorded_once(home: Home) -> None:
    agent = """
        import logging, vestige

        logging.getLogger().addHandler(vestige.LoggingHandler())
        logging.getLogger("shop").warning("once")
        vestige.LoggingHandler().handle(logging.makeLogRecord({"name": "remote", "msg": "by hand"}))
    """
    run(home, agent)

    assert [line.message for line in logs(home)] == ["once", "by hand"]


def test_with_a_queue_or_a_buffer_before_our_handler_each_line_is_recorded_once(
    home: Home,
) -> None:
    """It gets a copy, in another thread, or the line itself when others have come since."""
    agent = """
        import logging, logging.handlers, queue, vestige

        lines = queue.Queue()
        logging.getLogger().addHandler(logging.handlers.QueueHandler(lines))
        listener = logging.handlers.QueueListener(lines, vestige.LoggingHandler())
        listener.start()
        buffer = logging.handlers.MemoryHandler(100, target=vestige.LoggingHandler())
        held = logging.getLogger("held")
        held.propagate = False
        held.addHandler(buffer)
        logging.getLogger("queued").warning("one %s", 1)
        held.warning("two")
        held.warning("three")
        buffer.flush()
        listener.stop()
    """
    done = run(home, agent)

    assert (done.returncode, done.stderr) == (0, "")
    assert [line.message for line in logs(home)] == ["one 1", "two", "three"]


def test_a_handler_with_a_recorder_in_another_home_still_gets_its_lines(
    home: Home, tmp_path: Path
) -> None:
    """As it does without `vestige run`."""
    agent = """
        import logging, sys, vestige

        with vestige.Recorder(sys.argv[1]) as apart:
            logging.getLogger().addHandler(vestige.LoggingHandler(apart))
            logging.getLogger("shop").warning("to both")
    """
    other = Home(tmp_path / "another")
    command = [sys.executable, "-m", "vestige", "run", "--", sys.executable]
    run_in(home, agent, str(other.root), command=command)

    assert [line.message for line in logs(home)] == ["to both"]
    assert [line.message for line in logs(other)] == ["to both"]


def test_a_thread_that_logs_until_the_very_end_is_no_crash(home: Home) -> None:
    """Goodbye was said by then; nobody waits for such a thread, and it would end without one."""
    agent = """
        import logging, threading

        def work():
            while True:
                logging.getLogger("shop").warning("still here")
                beat.wait(0.0005)

        logging.getLogger("shop").addHandler(logging.NullHandler())
        logging.getLogger("shop").propagate = False
        beat = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        beat.wait(0.05)  # some lines, before the program ends
    """
    done = run(home, agent)

    spans = [span for found in load(home) for span in found.spans]
    assert done.returncode == 0, done.stderr
    assert {span.status for span in spans} == {"ok"}


def test_a_handler_that_fails_fails_as_before(home: Home) -> None:
    agent = """
        import logging

        class Broken(logging.Handler):
            def emit(self, record): raise RuntimeError("disk")

        logging.getLogger().addHandler(Broken())
        try:
            logging.getLogger("shop").error("lost?")
        except RuntimeError as error:
            print("seen", error)
    """
    done = run(home, agent)

    assert done.stdout == "seen disk\n"
    assert [line.message for line in logs(home)] == ["lost?"]


def test_no_logs_leaves_them_out(home: Home) -> None:
    """By the option, and by the setting."""
    agent = "import logging; logging.getLogger('shop').error('unwanted')"
    run(home, agent, "--no-logs")
    (home.root / "config.toml").write_text("logs = false\n")
    run(home, agent)

    assert [log for run in load(home) for log in run.logs if "unwanted" in log.message] == []


LEVELS = """
    import logging

    def set_up(name, *levels):
        log = logging.getLogger(name)
        log.setLevel("DEBUG")
        log.propagate = False
        for level in levels:
            handler = logging.StreamHandler() if level else logging.NullHandler()
            handler.setLevel(level or "NOTSET")
            log.addHandler(handler)
        for level in ("debug", "info", "warning", "error"):
            getattr(log, level)("%s %s", name, level)

    set_up("kernel", "WARNING")
    set_up("strict", "CRITICAL")
    set_up("two", "ERROR", "INFO")
    set_up("library", None)
    set_up("none")
"""


def test_debug_lines_that_the_levels_of_the_handlers_drop_are_not_recorded(home: Home) -> None:
    """Frameworks set their loggers to DEBUG and the level on a handler. Warnings and errors are
    recorded in any case, and all lines of a logger without a handler that prints."""
    bare = run_in(home, LEVELS, env={"VESTIGE_DISABLED": "1"})
    recorded = run_in(home, LEVELS, command=RUN)

    assert recorded.stderr == bare.stderr
    assert [line.message for line in logs(home)] == [
        *("kernel warning", "kernel error", "strict warning", "strict error"),
        *("two info", "two warning", "two error"),
        *("library debug", "library info", "library warning", "library error"),
        *("none debug", "none info", "none warning", "none error"),
    ]


def test_a_level_that_the_user_sets_is_recorded_whatever_the_handlers_drop(home: Home) -> None:
    run_in(home, LEVELS, command=RUN, env={"VESTIGE_LEVEL": "info"})

    messages = [line.message for line in logs(home)]
    assert [text for text in messages if text.startswith("kernel")] == [
        *("kernel info", "kernel warning", "kernel error")
    ]
