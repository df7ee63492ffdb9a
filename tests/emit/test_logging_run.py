"""Below `vestige run` a program's log lines are recorded, and nothing of its logging changes."""

from __future__ import annotations

import subprocess
import sys

from conftest import load, run_in
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
    return [log for run in load(home) for log in run.logs if log.component != "vestige"]


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

    assert logs(home) == []
