"""The recorder: identity, redaction, listeners, and forked or spawned processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import vestige
from support.programs import WAIT_S, ReadRuns, RunProgram, load
from vestige.errors import UsageError
from vestige.home import Home
from vestige.journal.backlog import Loss
from vestige.journal.writer import JournalWriter
from vestige.limits import (
    ATTRIBUTE_VALUE_MAX,
    BODY_CHUNK,
    BODY_INLINE_MAX,
    MESSAGE_MAX,
    NAME_MAX,
    STACK_MAX,
)
from vestige.record.codec import encode, parse_lines
from vestige.record.redaction.masking import MARK
from vestige.record.run import Run
from vestige.record.types import AnyRecord, KnownRecord, Log, SpanClose, SpanOpen
from vestige.testing import FakeRecorder

SECRET = "sk-ant-api03-" + "a1B2c3D4e5F6g7H8" * 4


def records(home: Home) -> list[AnyRecord]:
    return parse_lines(b"".join(path.read_bytes() for _, _, path in home.journal_files()))[0]


def named(runs: list[Run], name: str) -> Run:
    (found,) = [run for run in runs if run.info.name == name]
    return found


# --- identity ---------------------------------------------------------------------------------


def test_the_component_is_the_handle_s_and_cannot_be_spoofed() -> None:
    """No attribute, extra or child changes who is speaking."""
    recorder = FakeRecorder()
    log = recorder.logger("billing")

    log.info("m", component="vestige")
    log.child(component="vestige").span("s", attributes={"component": "vestige"})

    assert recorder.logs[0].component == "billing"
    assert recorder.spans[0].component == "billing"


@pytest.mark.slow
def test_a_fake_clock_makes_every_byte_the_same() -> None:
    """Clock and ids are injected: two runs of one program write one text."""

    def program() -> list[bytes]:
        recorder = FakeRecorder()
        with recorder.run("r", "c-1") as run, run.child("s", type="tool", body="in") as span:
            span.log.warn("careful", n=1)
            span.end(body="out")
        return recorder.journal.lines[2:]

    first = program()

    assert first == program()
    assert b'"time_ns":1700000000003000000' in first[0]


def test_records_are_numbered_without_a_gap_in_the_order_written(home: Home) -> None:
    """Identity is (writer, seq)."""
    with vestige.Recorder(home) as recorder, recorder.run("r") as run:
        for _ in range(20):
            run.log.info("x")

    found = records(home)
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    assert {record.writer for record in found} == {recorder.writer}


def test_two_recorders_on_one_home_are_one_writer(home: Home) -> None:
    """One journal, one order, one process span; the last one out closes it."""
    first, second = vestige.Recorder(home), vestige.Recorder(str(home.root))
    with first.run("one"), second.run("two"):
        pass
    first.close()
    second.logger("c").info("still here")
    second.close()

    found = records(home)
    assert first.writer == second.writer
    assert len(home.journal_files()) == 1
    assert len([record for record in found if getattr(record, "type", "") == "process"]) == 1
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    assert any(isinstance(record, Log) and record.message == "still here" for record in found)


@pytest.mark.slow
def test_recorders_that_come_and_go_in_many_threads_lose_nothing(home: Home) -> None:
    """One process span for each journal, all closed, and in the end nothing of ours is left."""
    start = threading.Thread.start

    def work(thread: int) -> None:
        for number in range(20):
            with vestige.Recorder(home) as recorder:
                recorder.run(f"run {thread} {number}").end()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = records(home)
    opened = [record for record in found if isinstance(record, SpanOpen)]
    processes = [record.span_id for record in opened if record.type == "process"]
    closed = {record.span_id for record in found if isinstance(record, SpanClose)}
    assert len({record.name for record in opened if record.name.startswith("run ")}) == 120
    assert len(processes) == len({record.writer for record in found})
    assert set(processes) <= closed
    assert threading.Thread.start is start


@pytest.mark.slow
def test_recorders_of_two_homes_are_two_writers(tmp_path: Path) -> None:
    """They do not hear each other."""
    a, b = vestige.Recorder(tmp_path / "a"), vestige.Recorder(tmp_path / "b")
    a.run("only in a").end()

    assert a.writer != b.writer
    assert not any(getattr(record, "name", "") == "only in a" for record in records(b.home))


def test_a_fake_recorder_beside_a_real_one_does_not_close_it(home: Home) -> None:
    """Even with the same home."""
    real = vestige.Recorder(home)
    FakeRecorder(home).close()

    assert vestige.Recorder(home).writer == real.writer


# --- secrets and taps -------------------------------------------------------------------------


def test_a_registered_secret_is_masked_wherever_it_appears(home: Home) -> None:
    """Secrets are masked in attributes, keys, messages, names, bodies and errors."""
    recorder, other = vestige.Recorder(home), vestige.Recorder(home)
    secret = "correct horse battery staple"

    assert recorder.secret(secret) == secret
    with other.run(
        f"run {secret}", secret, {secret: 1, "x": [secret]}, body=f"body {secret}"
    ) as run:
        run.log.error(f"said {secret}", error=ValueError(secret))
        run.child("long", body="x" * 300_000 + secret).end(body=secret.encode() + b"\xff")
    other.close()
    recorder.close()

    files = [path for path in home.root.rglob("*") if path.is_file()]
    assert len(files) >= 2
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_known_shapes_of_secrets_are_masked_without_being_told() -> None:
    """And counters such as prompt_tokens survive."""
    recorder = FakeRecorder()

    recorder.run(
        "r", attributes={"prompt_tokens": 7, "note": f"key {SECRET}", "api_key": "hunter2abc"}
    )

    (opened,) = recorder.spans
    assert opened.attributes["prompt_tokens"] == 7
    assert SECRET not in str(opened)
    assert "hunter2abc" not in str(opened)
    assert opened.redacted


def test_lines_that_are_ready_are_written_and_told(tmp_path: Path) -> None:
    """Records of a suite pass unchanged, and listeners get them."""
    heard: list[KnownRecord] = []
    recorder = vestige.Recorder(tmp_path / "home", sinks=[heard.append])
    records = (
        SpanOpen(1, "w", 1, 2, "r", "s", "pytest", "test", "one"),
        SpanClose(1, "w", 2, 3, "r", "s", "ok", 1),
    )
    heard.clear()
    recorder.send_lines(encode(records))
    recorder.close()
    (journal,) = (tmp_path / "home/journal").glob("*.ndjson")

    assert heard[:2] == list(records)
    assert encode(records) in journal.read_bytes()


def test_a_listener_hears_everything_after_redaction(home: Home) -> None:
    """`on_any` and sinks receive what is written, not what was said."""
    heard: list[KnownRecord] = []
    sunk: list[KnownRecord] = []
    recorder = vestige.Recorder(home, sinks=[sunk.append])
    recorder.on_any(heard.append)

    with recorder.run("r", attributes={"note": SECRET}) as run:
        run.log.info("m")

    assert [type(record).__name__ for record in heard] == ["SpanOpen", "Log", "SpanClose"]
    assert heard == sunk[-3:]
    assert SECRET not in str(heard)
    assert records(home)[-3:] == heard


def test_a_second_listener_is_refused(home: Home) -> None:
    """There is one tap."""
    recorder = vestige.Recorder(home)
    recorder.on_any(lambda record: None)

    with pytest.raises(UsageError, match="listener is already set"):
        recorder.on_any(lambda record: None)


def test_what_a_listener_raises_is_swallowed_and_counted(home: Home) -> None:
    """It only observes."""
    recorder = vestige.Recorder(home)

    def broken(record: KnownRecord) -> None:
        raise ZeroDivisionError

    recorder.on_any(broken)
    with recorder.run("r") as run:
        run.log.info("m")

    assert recorder.faults == {"listener raised ZeroDivisionError": 3}
    assert isinstance(records(home)[-1], vestige.record.types.SpanClose)


def test_a_listener_that_records_does_not_loop_for_ever(home: Home) -> None:
    """A tap that logs about what it hears hears itself; the program goes on."""
    recorder = vestige.Recorder(home)
    log = recorder.logger("tap")
    recorder.on_any(lambda record: log.info("heard") if isinstance(record, SpanOpen) else None)

    recorder.run("r").end()

    assert [record.message for record in records(home) if isinstance(record, Log)] == ["heard"]


def test_listeners_that_record_everything_they_hear_do_not_stop_the_program(home: Home) -> None:
    """Two lines for each line heard would be two for each of those, without an end."""
    with vestige.Recorder(home) as recorder:
        log = recorder.logger("tap")

        def tap(record: KnownRecord) -> None:
            log.info("heard")
            log.info("heard")

        recorder.on_any(tap)
        recorder.logger("c").info("said")

    heard = [record for record in records(home) if isinstance(record, Log)]
    assert 3 <= len(heard) <= 20


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variable", ["VESTIGE_LEVEL", "VESTIGE_SAMPLE", "VESTIGE_FSYNC", "VESTIGE_LAST_WORDS"]
)
def test_a_bad_setting_is_told_once_and_recording_goes_on(
    run_program: RunProgram, read_runs: ReadRuns, variable: str
) -> None:
    """A typo must not stop an agent."""
    done = run_program(
        "import vestige\nwith vestige.Recorder().run('r'): print('result')",
        env={variable: "nonsense"},
    )

    assert (done.returncode, done.stdout) == (0, "result\n")
    assert done.stderr.count(variable) == 1
    assert named(read_runs(), "r").info.outcome == "ok"


def test_an_argument_wins_over_a_setting(home: Home) -> None:
    """Explicit beats ambient."""
    os.environ["VESTIGE_LEVEL"] = "error"
    recorder = vestige.Recorder(home, level="debug")

    recorder.logger("c").debug("heard")

    assert any(isinstance(record, Log) for record in records(home))


@pytest.mark.parametrize("bad", [{"level": "loud"}, {"sample": 2.0}, {"fsync": "often"}], ids=str)
def test_a_bad_argument_is_the_programmer_s_and_is_raised(home: Home, bad: dict[str, Any]) -> None:
    """At once, where it was written."""
    with pytest.raises(UsageError, match=next(iter(bad))):
        vestige.Recorder(home, **bad)


# --- processes --------------------------------------------------------------------------------


def processes(run: Run) -> list[Any]:
    return [span for span in run.spans if span.type == "process"]


def test_the_process_says_what_it_is(run_program: RunProgram, read_runs: ReadRuns) -> None:
    """argv redacted, cwd, interpreter, platform; the run is linked to it."""
    run_program(
        "import vestige\nvestige.Recorder().run('r').end()",
        "--api-key",
        SECRET,
        "--api-key=" + SECRET,
    )

    runs = read_runs()
    (process,) = processes(named(runs, "program.py"))
    assert process.attributes["python"] == sys.version.split()[0]
    assert "program.py" in process.attributes["argv"]
    assert SECRET not in process.attributes["argv"]
    assert [link.target_span for link in named(runs, "r").links] == [process.id]


FORK = """
import os, sys, vestige
recorder = vestige.Recorder()
with recorder.run("parent") as run:
    with run.child("forks") as span:
        pid = os.fork()
        if pid == 0:
            with span.child("in the child"):
                pass
            recorder.run("run of the child").end()
        else:
            os.waitpid(pid, 0)
    run.log.info("after")
print("end", flush=True)
"""


def test_a_forked_child_is_a_writer_of_its_own_inside_the_span_that_forked(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """It leaves its parent's `with` blocks without closing its parent's spans."""
    done = run_program(FORK)

    runs = read_runs()
    run = named(runs, "parent")
    by_name = {span.name: span for span in run.spans}
    (child,) = processes(run)
    assert done.stdout == "end\nend\n"
    assert child.parent_id == by_name["forks"].id
    assert by_name["in the child"].writer == child.writer != by_name["forks"].writer
    assert [link.reason for link in run.links if link.span_id == child.id] == ["forked from"]
    assert {span.status for span in run.spans} == {"ok"}
    assert len(named(runs, "run of the child").links) == 2
    assert run.info.span_count == 4


def test_a_child_that_only_becomes_another_program_is_no_crash(home: Home) -> None:
    """`preexec_fn` runs Python between fork and exec: what it records is kept, and its process, of
    which nothing is left then, is not said to have ended."""
    with vestige.Recorder(home) as recorder, recorder.run("agent") as run:
        command = [sys.executable, "-c", "pass"]
        subprocess.run(command, preexec_fn=lambda: run.log.info("in between"), check=True)
        subprocess.run(command, preexec_fn=lambda: None, check=True)
        with pytest.raises(FileNotFoundError):
            subprocess.run(["/nowhere"], preexec_fn=lambda: None, check=False)
    with vestige.open(home.root) as debugger:
        found = debugger.store.load_run(run.run_id)

    assert [(span.type, span.status) for span in found.spans] == [("run", "ok")]
    assert [log.message for log in found.logs] == ["in between"]
    assert found.info.outcome == "ok"


def test_a_child_that_is_forked_while_another_thread_holds_a_lock_does_not_hang(
    run_program: RunProgram,
) -> None:
    """Of a secret that is being learned, of a recorder that is being made: nobody lets go there."""
    done = run_program(
        """
        import os, signal, threading, vestige
        from vestige import process_recorder as module
        from vestige.emit.hooks import thread_context as threads
        recorder = vestige.Recorder()
        held, over = threading.Event(), threading.Event()
        def hold():
            with recorder.redactor._learning, module._default_lock, threads._lock:
                held.set()
                over.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if not child:
            signal.alarm(10)
            recorder.secret("correct-horse-battery")
            with vestige.traced_run("in the child"):
                pass
            recorder.close()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        over.set()
        """
    )

    assert done.stdout == "0\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing_close_their_process_span(
    run_program: RunProgram, read_runs: ReadRuns, method: str
) -> None:
    """They leave by os._exit, past atexit; and they are linked to the run."""
    done = run_program(
        f"""
        import multiprocessing, vestige
        def work(n):
            with vestige.default_recorder().logger("worker").span("work"):
                pass
        if __name__ == "__main__":
            recorder = vestige.default_recorder()
            with recorder.run("parent") as run:
                child = multiprocessing.get_context("{method}").Process(target=work, args=(1,))
                child.start(); child.join()
                print(child.exitcode)
        """
    )

    run = named(read_runs(), "parent")
    (child,) = processes(run)
    (work,) = [span for span in run.spans if span.name == "work"]
    assert done.stdout == "0\n"
    assert done.stderr == ""
    assert child.status == "ok"
    assert work.writer == child.writer
    assert [link.target_span for link in run.links if link.span_id == child.id] == [run.spans[0].id]


def test_a_process_pool_is_linked_too(run_program: RunProgram, read_runs: ReadRuns) -> None:
    """Its workers are children like any other, and give the same results."""
    done = run_program(
        """
        from concurrent.futures import ProcessPoolExecutor
        import multiprocessing, vestige
        @vestige.trace
        def square(n):
            return n * n
        if __name__ == "__main__":
            fork = multiprocessing.get_context("fork")
            with vestige.traced_run("parent"), ProcessPoolExecutor(2, mp_context=fork) as pool:
                print(list(pool.map(square, range(4))))
        """
    )

    run = named(read_runs(), "parent")
    assert done.stdout == "[0, 1, 4, 9]\n"
    assert {span.status for span in processes(run)} == {"ok"}
    assert len([span for span in run.spans if span.name == "square"]) == 4


def test_a_subprocess_is_linked_to_the_run_that_started_it(
    run_program: RunProgram, read_runs: ReadRuns
) -> None:
    """By the environment; `child_environment` names the very span."""
    run_program(
        """
        import subprocess, sys, vestige
        source = "import vestige; vestige.Recorder().logger('c').info('hello')"
        child = [sys.executable, "-c", source]
        recorder = vestige.Recorder()
        with recorder.run("parent") as run:
            subprocess.run(child)
            with run.child("exact"):
                subprocess.run(child, env=vestige.child_environment())
        """
    )

    run = named(read_runs(), "parent")
    exact = next(span for span in run.spans if span.name == "exact")
    assert [span.parent_id for span in processes(run)] == [run.spans[0].id, exact.id]
    assert [line.message for line in run.logs] == ["hello", "hello"]


def test_what_was_published_for_children_is_taken_back(home: Home) -> None:
    """A closed recorder leaves the environment as it was."""
    os.environ["VESTIGE_PARENT"] = "run-1/span-1"
    recorder = vestige.Recorder(home)
    run = recorder.run("r")

    assert os.environ["VESTIGE_PARENT"] == f"{run.run_id}/{run.id}"
    run.end()
    recorder.close()
    assert os.environ["VESTIGE_PARENT"] == "run-1/span-1"


@pytest.mark.slow
def test_a_collector_beside_the_program_takes_its_records_in(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`collect=True`: spawned first, drained last."""
    from vestige.store.protocol import RunFilter
    from vestige.store.sqlite.sqlite_store import SqliteStore

    # A slow machine gets the time that it needs: a busy program would not wait so long.
    monkeypatch.setattr("vestige.collector_process.CollectorProcess.drain.__defaults__", (WAIT_S,))
    recorder = vestige.Recorder(home, collect=True)
    pid = recorder._collector.pid
    recorder.run("r").end()
    recorder.close()

    with SqliteStore.open(home.store, readonly=True) as store:
        assert "r" in [info.name for info in store.list_runs(RunFilter())]
    assert subprocess.run(["kill", "-0", str(pid)], capture_output=True).returncode != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming a user without a name takes root")
def test_a_user_without_a_home_directory_is_not_recorded_and_not_disturbed(
    run_program: RunProgram,
) -> None:
    """A container's anonymous user has neither HOME nor a line in passwd."""
    done = run_program("""
        import os, vestige
        vestige.Recorder().close()  # load everything: that user may not read the library
        os.setuid(54321)
        for name in ("HOME", "VESTIGE_HOME"):
            os.environ.pop(name, None)
        print(vestige.trace(lambda: 7)())
    """)

    assert (done.returncode, done.stdout) == (0, "7\n")
    assert "Set VESTIGE_HOME. Not recording." in done.stderr


def test_a_secret_across_two_steps_of_a_long_body_of_bytes_is_masked(home: Home) -> None:
    """Even if the step ends inside one of its characters."""
    secret = "correct-horse-ä-battery"
    before = b"k" * (BODY_CHUNK - len("correct-horse-") - 1)
    with vestige.Recorder(home, secrets=[secret]) as recorder:
        recorder.run("r", body=before + secret.encode() + b"z" * BODY_INLINE_MAX).end()

    (body,) = home.bodies.iterdir()
    assert secret.encode() not in body.read_bytes()
    assert MARK.encode() in body.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "secret", ["correct-horse-battery-staple", SECRET], ids=["registered", "shape"]
)
def test_a_text_is_not_cut_in_the_middle_of_a_secret(home: Home, secret: str) -> None:
    """Half a secret is nothing that could be known any more, and half of it is too much."""
    almost = secret[:-2]

    def ending_at(length: int) -> str:
        return "m" * (length - len(almost) - 1) + " " + secret

    with vestige.Recorder(home, secrets=["correct-horse-battery-staple"]) as recorder:
        log = recorder.logger("c")
        log.info(ending_at(MESSAGE_MAX))
        log.info("nested", value=[ending_at(ATTRIBUTE_VALUE_MAX - 2)])
        log.info("lone", value=ending_at(ATTRIBUTE_VALUE_MAX), other="\ud800")
        log.error("e", error=ValueError(ending_at(4_000)))
        log.error("e", error=ValueError(ending_at(STACK_MAX // 2) + "n" * STACK_MAX))
        recorder.run(ending_at(NAME_MAX).encode()).end()  # type: ignore[arg-type]

    written = b"".join(path.read_bytes() for _, _, path in home.journal_files()).decode()
    assert secret[:14] not in written
    assert "characters]" in written


def test_an_uncut_secret_is_still_masked_where_a_text_is_cut_after_it() -> None:
    """The place of the cut moves only for a secret that lies across it."""
    recorder = FakeRecorder(secrets=["correct-horse-battery-staple"])
    recorder.logger("c").info("correct-horse-battery-staple " + "m" * MESSAGE_MAX)

    (line,) = recorder.logs
    assert line.message.startswith("cor" + MARK + "ple mmm")
    assert line.message.endswith("m…[+29 characters]")


def test_what_was_lost_is_told_whatever_level_is_wanted(home: Home) -> None:
    """Else a full disk would leave no trace in a program that records only errors."""
    with vestige.Recorder(home, level="error") as recorder:
        journal = recorder._writer.journal
        assert isinstance(journal, JournalWriter)
        journal._backlog.losses[Loss("records dropped: No space left on device")] += 3

    gaps = [record for record in records(home) if isinstance(record, Log)]
    assert [gap.attributes["count"] for gap in gaps] == [3]


def test_a_report_goes_on_while_other_threads_count_faults(home: Home) -> None:
    """It is made by the thread that also syncs the journal."""
    with vestige.Recorder(home) as recorder:
        emitter = recorder._emitter
        over = threading.Event()

        def count() -> None:
            number = 0
            while not over.is_set():
                emitter.fault(f"fault {number}")
                number += 1
                if number % 5_000 == 0:
                    emitter.faults.clear()

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        thread = threading.Thread(target=count)
        thread.start()
        try:
            for _ in range(100):
                recorder._writer.self_reporter.report()
        finally:
            over.set()
            thread.join()
            sys.setswitchinterval(interval)
            emitter.faults.clear()

    assert any(isinstance(record, Log) for record in records(home))


@pytest.mark.slow
def test_a_second_home_of_a_process_knows_nothing_of_the_first(tmp_path: Path) -> None:
    with vestige.Recorder(tmp_path / "one") as one, one.run("outer") as outer:
        with vestige.Recorder(tmp_path / "two") as two, two.run("inner"):
            pass
        assert os.environ["VESTIGE_PARENT"] == f"{outer.run_id}/{outer.id}", (
            "processes are still the first's"
        )

    runs = load(Home(tmp_path / "two"))
    assert [run.info.name for run in runs if not run.info.implicit] == ["inner"]
    assert [run.info.outcome for run in runs] == ["ok", "ok"]


@pytest.mark.slow
def test_a_recorder_accepts_the_old_name_of_crash_hooks_and_no_other_name(tmp_path: Path) -> None:
    before = sys.excepthook
    with vestige.Recorder(tmp_path, last_words=False):
        assert sys.excepthook is before
    with pytest.raises(TypeError, match="last_word"):
        vestige.Recorder(tmp_path, last_word=False)
