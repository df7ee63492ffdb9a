"""The end of a test may be written with the beginning of the next: but nothing of the user's runs
in between without it.

Each session here dies by `os._exit`, at a point where code of the user's runs: what was over by
then is on disk.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.pytest_suites import assert_valid, make_project, only_bundle, run_pytest, statuses
from vestige.record.codec import parse_line, render_line
from vestige.record.types import SpanOpen

_MANY = """
    import os, pytest

    @pytest.mark.parametrize("number", range(5))
    def test_number(number):
        {body}
"""


def run_alone(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Without the plugin that runs tests again: where it is, nothing is held."""
    return run_pytest(project, "-p", "no:rerunfailures", *arguments)


_DIES_IN_A_TEST = "os._exit(7) if number == 3 else None"
_FAILS = "assert number != 2"
_PLAIN = "pass"

_WRAPPER = """
    import os, pytest

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(item, nextitem):
        result = yield
        if "[2]" in item.nodeid:
            os._exit(7)
        return result
"""

_AT_THE_END = """
    import os

    def pytest_sessionfinish():
        os._exit(7)
"""

_AFTER_THE_LOOP = """
    import os, pytest

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(session):
        try:
            return (yield)
        finally:
            os._exit(7)
"""

_OWN_LOOP = """
    import os, pytest

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(session):
        for index, item in enumerate(session.items):
            following = session.items[index + 1] if index + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if index == 2:
                os._exit(7)
        return True
"""

_INTERRUPTED = """
    import os, pytest

    def pytest_keyboard_interrupt():
        os._exit(7)
"""

_LATE = """
    import os, pytest

    class Late:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_protocol(self, item, nextitem):
            result = yield
            if "[2]" in item.nodeid:
                os._exit(7)
            return result

    @pytest.fixture(autouse=True)
    def late(request):
        if not request.config.pluginmanager.has_plugin("late"):
            request.config.pluginmanager.register(Late(), "late")
"""


@pytest.mark.parametrize(
    ("body", "conftest", "options", "over"),
    [
        pytest.param(_DIES_IN_A_TEST, "", (), 3, id="in a test"),
        # Its wrapper is inside of ours: the test was not over.
        pytest.param(_PLAIN, _WRAPPER, (), 2, id="in a wrapper"),
        pytest.param(_PLAIN, _LATE, (), 3, id="in a wrapper that came late"),
        pytest.param(_PLAIN, _OWN_LOOP, (), 3, id="in a loop of another library"),
        pytest.param(_PLAIN, _AT_THE_END, (), 5, id="at the end"),
        pytest.param(_FAILS, _AT_THE_END, ("-x",), 3, id="at the end, stopped early"),
        pytest.param(_FAILS, _AFTER_THE_LOOP, ("-x",), 3, id="after the loop, stopped early"),
        pytest.param(
            _FAILS, _AFTER_THE_LOOP, ("--maxfail=1",), 3, id="after the loop, one may fail"
        ),
        pytest.param("pytest.exit('no') if number == 3 else None", _AT_THE_END, (), 4, id="left"),
        pytest.param(
            "exec('raise KeyboardInterrupt') if number == 3 else None",
            _INTERRUPTED,
            (),
            4,
            id="Ctrl-C",
        ),
    ],
)
def test_what_was_over_is_on_disk_when_a_session_dies(
    tmp_path: Path, body: str, conftest: str, options: tuple[str, ...], over: int
) -> None:
    """In the trace and in the journal: every test that was over has its end, and no other has
    one.
    """
    project = make_project(tmp_path / "shop", _MANY.replace("{body}", body))
    (project / "conftest.py").write_text(_dedent(conftest), encoding="utf-8")
    run_alone(project, "-p", "no:faulthandler", "--vestige-bundle", "art", *options)
    ended = [
        event["case"]
        for event in _events(only_bundle(project / "art"))
        if event["kind"] == "case_end"
    ]

    assert ended == [f"test_it.py::test_number[{number}]" for number in range(over)]
    assert _closed(tmp_path / "home") == ended


_DIES = "os._exit(7) if number == 2 else None"


@pytest.mark.parametrize(
    ("after", "conftest"),
    [
        pytest.param(
            """
    @pytest.fixture(autouse=True)
    def around(number):
        yield
        {dies}
""",
            "",
            id="a fixture",
        ),
        pytest.param(
            """
    @pytest.fixture(autouse=True)
    def around(request, number):
        request.addfinalizer(lambda: {dies})
""",
            "",
            id="what a fixture asked for",
        ),
        pytest.param(
            """
    def teardown_function(function):
        os._exit(7) if "[2]" in os.environ["PYTEST_CURRENT_TEST"] else None
""",
            "",
            id="teardown_function",
        ),
        pytest.param(
            "",
            """
    import os

    def pytest_runtest_teardown(item):
        os._exit(7) if "[2]" in item.nodeid else None
""",
            id="a hook before it ends",
        ),
        pytest.param(
            "",
            """
    import os

    def pytest_runtest_logfinish(nodeid):
        os._exit(7) if "[2]" in nodeid else None
""",
            id="a hook when it ended",
        ),
        pytest.param(
            "",
            """
    import os, pytest

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(report):
        os._exit(7) if "[2]" in report.nodeid and report.when == "call" else None
""",
            id="a hook that hears of it",
        ),
    ],
)
def test_a_pass_is_on_disk_before_anybody_tears_down(
    tmp_path: Path, after: str, conftest: str
) -> None:
    project = make_project(
        tmp_path / "shop", _MANY.replace("{body}", _PLAIN) + after.replace("{dies}", _DIES)
    )
    (project / "conftest.py").write_text(_dedent(conftest), encoding="utf-8")
    run_alone(project, "-p", "no:faulthandler", "--vestige-bundle", "art")
    kinds = [event["kind"] for event in _events(only_bundle(project / "art"))]

    assert kinds.count("assert_pass") == 3
    assert kinds[-2:] == ["case_start", "assert_pass"]


def test_a_pass_is_on_disk_before_a_module_is_torn_down(tmp_path: Path) -> None:
    project = make_project(
        tmp_path / "shop",
        _MANY.replace("{body}", _PLAIN)
        + """
    def teardown_module():
        os._exit(7)
""",
    )
    (project / "test_more.py").write_text("def test_more(): pass\n", encoding="utf-8")
    run_alone(project, "-p", "no:faulthandler", "--vestige-bundle", "art")
    kinds = [event["kind"] for event in _events(only_bundle(project / "art"))]

    assert kinds.count("assert_pass") == 5
    assert kinds[-1] == "assert_pass"


def test_the_pass_of_a_test_that_leaves_nothing_is_written_with_its_end(tmp_path: Path) -> None:
    """Between them there is nothing but pytest: the lines are one write."""
    project = make_project(
        tmp_path / "shop",
        """
    import pytest
    from vestige._runtime.syscalls import system
    writes = []

    @pytest.mark.parametrize("number", range(5))
    def test_number(number, plain=system.pwrite):
        if number == 0:
            system.pwrite = lambda fd, data, at: writes.append(bytes(data)) or plain(fd, data, at)
        if number == 3:
            system.pwrite = plain
            mine = [data for data in writes if b'"case"' in data]
            assert [data.count(b"\\n") for data in mine] == [3, 3, 3]
""",
    )
    done = run_alone(project, "--vestige-bundle", "art")

    assert done.returncode == 0, done.stdout


def test_what_is_told_late_stands_where_it_belongs(tmp_path: Path) -> None:
    """The pass and end of a test come before all records of the next, with their own times."""
    project = make_project(tmp_path / "shop", _FIXTURES_IN_TURN)
    done = run_alone(project, "--vestige-bundle", "art")
    events = _events(only_bundle(project / "art"))
    times = [event["ts"] for event in events]
    lasted = {
        event["case"].partition("::")[2]: event["elapsed_ms"]
        for event in events
        if event["kind"] == "case_end"
    }

    assert done.returncode == 0, done.stdout
    assert [event["kind"] for event in events] == [
        "suite_start",
        *("case_start", "assert_pass", "case_end"),
        *("fixture", "case_start", "assert_pass", "case_end"),
        *("case_start", "assert_pass", "case_end"),
        "suite_end",
    ]
    assert times == sorted(times)
    assert lasted["test_slow"] >= 50


_FIXTURES_IN_TURN = """
    import pytest, time

    @pytest.fixture
    def basket():
        return []

    def test_plain():
        pass

    def test_slow(basket):
        time.sleep(0.05)  # so long, at least, its end must tell

    def test_last():
        pass
"""


def test_a_test_that_fails_after_it_passed_is_told_as_both(tmp_path: Path) -> None:
    """It had nothing to tear down; but who looks on as Python runs can break anything."""
    project = make_project(tmp_path / "shop", _BREAKS_THE_TEARDOWN)
    done = run_alone(project, "--vestige-bundle", "art")
    bundle = only_bundle(project / "art")
    statuses = [
        (event["kind"], event.get("status"))
        for event in _events(bundle)
        if "broken" in event["case"]
    ]

    assert done.returncode == 1
    assert_valid(bundle)
    assert [kind for kind, _ in statuses if kind != "attachment"] == [
        "case_start",
        "assert_pass",
        "assert_fail",
        "case_end",
    ]
    assert statuses[-1][1] == "fail"


_BREAKS_THE_TEARDOWN = """
    import sys

    def test_broken():
        def look_on(frame, event, argument):
            if event == "call" and frame.f_code.co_name == "teardown_exact":
                sys.setprofile(None)
                raise RuntimeError("not torn down")

        sys.setprofile(look_on)

    def test_after():
        pass
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_when_a_test_begins_the_ends_of_those_before_it_are_on_disk(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    project = make_project(tmp_path / "shop", _LOOKS_AT_THE_TRACE)
    done = run_alone(project, "--vestige-bundle", "art", *options)

    assert done.returncode == 0, done.stdout


_LOOKS_AT_THE_TRACE = """
    import glob, os, pytest

    @pytest.mark.parametrize("number", range(5))
    def test_number(number):
        own = "worker-*" if "PYTEST_XDIST_WORKER" in os.environ else "events"
        trace, = glob.glob(f"art/*/*/trace/{own}.jsonl")
        lines = open(trace).read().splitlines()

        assert sum('"case_end"' in line for line in lines) == number
        assert '"case_start"' in lines[-1]
"""


def test_of_a_run_that_is_not_sampled_the_bundle_is_whole(tmp_path: Path) -> None:
    """Its tests have no spans and no records; the suite has its cases all the same."""
    project = make_project(tmp_path / "shop", _RECORDS)
    done = run_pytest(project, "--vestige-bundle", "art", env={"VESTIGE_SAMPLE": "0"})
    bundle = only_bundle(project / "art")

    assert done.returncode == 0, done.stdout
    assert_valid(bundle)
    assert statuses(bundle) == {"test_one": "pass", "test_two": "pass"}
    assert _closed(tmp_path / "home") == []


_RECORDS = """
    import vestige

    def test_one():
        with vestige.current_span().child("inside"):
            pass

    def test_two():
        pass
"""


def test_the_spans_of_tests_are_as_their_records_would_be_written(tmp_path: Path) -> None:
    """Key for key, and byte for byte: names of every kind, reruns, and what is held or not."""
    project = make_project(tmp_path / "shop", _NAMES)
    run_pytest(project, "--vestige-bundle", "art", "-p", "no:rerunfailures")
    run_pytest(project, "--vestige-bundle", "art", "--reruns", "1")
    journals = [path.read_bytes() for path in (tmp_path / "home/journal").glob("*.ndjson")]
    lines = b"".join(journals).splitlines(keepends=True)
    opened = [record for record in map(parse_line, lines) if isinstance(record, SpanOpen)]
    tests = [record for record in opened if record.type == "test"]

    assert [render_line(parse_line(line)) for line in lines] == lines
    assert len(tests) == 11
    assert {record.name.partition("[")[0] for record in tests} == {"test_it.py::test_name"}
    assert sum(record.attributes == {"attempt": 2} for record in tests) == 1


_NAMES = """
    import pytest

    NAMES = ['a "b"', "100 %", "%d %s", "\\u00e9 \\U0001f600", "back\\\\slash"]

    @pytest.mark.parametrize("name", NAMES)
    def test_name(name):
        assert name != "100 %"
"""


def test_a_secret_that_a_test_learns_is_masked_in_the_names_of_those_that_follow(
    tmp_path: Path,
) -> None:
    """Names are asked about when the tests are known: what is learned later counts all the same."""
    project = make_project(tmp_path / "shop", _LEARNS)
    done = run_pytest(project, "--vestige-bundle", "art")
    stored = [
        path.read_text()
        for path in (*only_bundle(project / "art").rglob("*"), *(tmp_path / "home").rglob("*"))
        if path.suffix in (".json", ".jsonl", ".ndjson", ".txt")
    ]

    assert done.returncode == 0, done.stdout
    assert any("test_learns" in text for text in stored)
    assert not any("hunter-of-the-west" in text for text in stored)


_LEARNS = """
    import pytest, vestige

    def test_learns():
        vestige.default_recorder().secret("hunter-of-the-" + "west")

    @pytest.mark.parametrize("name", ["hunter-of-the-" + "west"])
    def test_tells(name):
        pass
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_process_that_a_test_starts_is_told_its_span(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    project = make_project(tmp_path / "shop", _STARTS)
    done = run_pytest(project, "--vestige-bundle", "art", *options)

    assert done.returncode == 0, done.stdout


_STARTS = """
    import os, pytest, subprocess, sys, vestige

    @pytest.mark.parametrize("number", range(3))
    def test_number(number):
        show_parent = "import os; print(os.environ['VESTIGE_PARENT'])"
        span = vestige.current_span()
        for environment in (None, os.environ.copy()):
            command = [sys.executable, "-c", show_parent]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)

            assert done.stdout == f"{span.run_id}/{span.id}\\n"
"""


def _dedent(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


def _events(bundle: Path) -> list[dict[str, str]]:
    lines = [
        line
        for trace in sorted(bundle.glob("trace/*.jsonl"))
        for line in trace.read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]


def _closed(home: Path) -> list[str]:
    """Names of the tests whose span was closed, in their order."""
    names: dict[str, str] = {}
    closed: list[str] = []
    for journal in sorted(home.glob("journal/*.ndjson")):
        for line in journal.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "span-open" and record["type"] == "test":
                names[record["span_id"]] = record["name"]
            elif record["kind"] == "span-close" and record["span_id"] in names:
                closed.append(names[record["span_id"]])
    return closed
