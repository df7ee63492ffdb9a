"""What agents do inside tests: their calls to models and their log lines, in the test that made
them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.programs import load
from support.pytest_suites import (
    bytes_of,
    make_project,
    only_bundle,
    read_events,
    run_pytest,
    vestige,
)
from vestige.home import Home
from vestige.record.run import Run

PROVIDER = """
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_): pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = request["messages"][-1]["content"]
        message = {"role": "assistant", "content": f"heard {question}"}
        usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
        answer = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m-1",
                  "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                  "usage": usage}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def start():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
"""
CONFTEST = """
import queue
import threading

import pytest
import provider

@pytest.fixture(scope="session")
def url(): return provider.start()

@pytest.fixture(scope="session")
def server(url):
    # An agent that lives as long as the session, in a thread that the first test's fixture starts.
    import httpx
    jobs, done = queue.Queue(), queue.Queue()

    def serve():
        for text in iter(jobs.get, None):
            body = {"model": "m-1", "messages": [{"role": "user", "content": text}]}
            done.put(httpx.post(url + "/chat/completions", json=body).status_code)

    threading.Thread(target=serve, daemon=True).start()

    def ask(text):
        jobs.put(text)
        return done.get()

    yield ask
    jobs.put(None)
"""
TESTS = """
    import logging
    import threading
    import pytest
    import vestige
    from vestige.testing import FakeRecorder

    def ask(url, text):
        from openai import OpenAI

        client = OpenAI(base_url=url, api_key="sk-CANARY4567890abcdefghij", max_retries=0)
        message = [{"role": "user", "content": text}]
        answer = client.chat.completions.create(model="m-1", messages=message)
        return answer.choices[0].message.content

    @pytest.fixture
    def warmed(url): ask(url, "fixture")

    def test_plain(url):
        logging.getLogger("shop").warning("line of plain")
        assert ask(url, "plain") == "heard else"

    def test_fixture(warmed): pass

    def test_thread(url):
        thread = threading.Thread(target=ask, args=(url, "thread"))
        thread.start()
        thread.join()

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_served(server, number): assert server(f"served-{number}") == 200

    @pytest.fixture(scope="module")
    def anyio_backend(): return "asyncio"

    @pytest.fixture(scope="module")
    async def client(url):
        # Of the module: the loop's task keeps the context of the first test that came here.
        from openai import AsyncOpenAI

        key = "sk-CANARY4567890abcdefghij"
        async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
            yield client

    @pytest.mark.anyio
    @pytest.mark.parametrize("number", [1, 2])
    async def test_async(client, number):
        message = [{"role": "user", "content": f"async-{number}"}]
        await client.chat.completions.create(model="m-1", messages=message)

    def test_agent(url):
        with vestige.traced_run("agent"):
            logging.getLogger("shop").warning("line of agent")
            ask(url, "agent")

    def test_own_records_stay_its_own(url):
        recorder = FakeRecorder()
        with recorder.run("mine") as run:
            logging.getLogger("shop").warning("line beside mine")
            ask(url, "beside")

        assert [span.name for span in recorder.spans] == ["mine"]
        assert recorder.logs == []
"""


def make_shop(tmp_path: Path, tests: str = TESTS, ini: str = "") -> Path:
    project = make_project(tmp_path / "shop", tests, ini)
    (project / "provider.py").write_text(PROVIDER)
    (project / "conftest.py").write_text(CONFTEST)
    return project


def heard(run: Run) -> dict[str, str]:
    """Model calls, and the name of the span above each."""
    names = {span.id: span.name.rpartition("::")[2] for span in run.spans}
    calls = [span for span in run.spans if span.type == "llm"]
    return {call.id: names[call.parent_id or ""] for call in calls}


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_model_calls_and_log_lines_stand_in_the_test_that_made_them(
    tmp_path: Path, workers: str
) -> None:
    """From fixtures, threads, a thread and an event loop that outlive a test, async tests,
    workers.
    """
    project = make_shop(tmp_path)
    done = run_pytest(project, "-panyio.pytest_plugin", "--vestige-bundle", "art", "-n", workers)
    bundle = only_bundle(project / "art")
    runs = load(Home(tmp_path / "home"))
    suite = next(run for run in runs if run.info.id == read_events(bundle)[0]["run_id"])
    agent = next(run for run in runs if run.info.name == "agent")
    names = {span.id: span.name.rpartition("::")[2] for span in suite.spans}

    assert "1 failed, 9 passed" in done.stdout, done.stdout + done.stderr
    assert sorted(heard(suite).values()) == [
        "test_async[1]",
        "test_async[2]",
        "test_fixture",
        "test_own_records_stay_its_own",
        "test_plain",
        "test_served[1]",
        "test_served[2]",
        "test_served[3]",
        "test_thread",
    ]
    assert [span.name for span in agent.spans] == ["agent", "chat.completions"]
    assert {(log.message, names[log.span_id or ""]) for log in suite.logs} == {
        ("line of plain", "test_plain"),
        ("line beside mine", "test_own_records_stay_its_own"),
    }
    assert [log.message for log in agent.logs] == ["line of agent"]
    assert sum("llm" in (span.type for span in run.spans) for run in runs) == 2
    assert b"CANARY" not in bytes_of(tmp_path / "home")


@pytest.mark.slow
def test_what_tests_of_pytest_asyncio_record_stands_in_them(tmp_path: Path) -> None:
    """In their fixtures and tasks, and in a loop that several of them share."""
    project = make_project(tmp_path / "shop", _ASYNC, "asyncio_mode = auto\n")
    done = run_pytest(project, "-p", "pytest_asyncio.plugin", "--vestige-bundle", "art")
    (suite,) = (run for run in load(Home(tmp_path / "home")) if run.info.name == "shop")
    names = {span.id: span.name.rpartition("::")[2] for span in suite.spans}
    steps = [
        (names[span.parent_id or ""], span.name) for span in suite.spans if span.type == "step"
    ]

    assert done.returncode == 0, done.stdout
    assert steps == [
        ("test_basket", "fill"),
        ("test_basket", "pay"),
        ("test_basket", "empty"),
        ("test_gather[1]", "task 0"),
        ("test_gather[1]", "task 1"),
        ("test_gather[2]", "task 0"),
        ("test_gather[2]", "task 1"),
        ("test_first", "in first"),
        ("test_second", "in second"),
    ]


_ASYNC = """
    import asyncio, pytest, vestige

    @pytest.fixture
    async def basket():
        with vestige.current_span().child("fill"):
            await asyncio.sleep(0)
        yield []
        with vestige.current_span().child("empty"):
            await asyncio.sleep(0)

    async def test_basket(basket):
        with vestige.current_span().child("pay"):
            await asyncio.sleep(0)

    @pytest.mark.parametrize("number", [1, 2])
    async def test_gather(number):
        async def work(task):
            with vestige.current_span().child(f"task {task}"):
                await asyncio.sleep(0)
        await asyncio.gather(work(0), work(1))

    @pytest.mark.asyncio(loop_scope="class")
    class TestOneLoop:
        async def test_first(self):
            with vestige.current_span().child("in first"):
                type(self).task = asyncio.create_task(asyncio.sleep(0.01))

        async def test_second(self):
            with vestige.current_span().child("in second"):
                await self.task
"""


def test_what_is_recorded_already_is_recorded_once(tmp_path: Path) -> None:
    """Below `vestige run`, with a handler and a capture of the program's own, whose choice of hosts
    counts.
    """
    tests = """
        import logging
        import vestige

        logging.getLogger().addHandler(vestige.LoggingHandler())

        def ask(url, text):
            import httpx
            body = {"model": "m-1", "messages": [{"role": "user", "content": text}]}
            httpx.post(url + "/chat/completions", json=body)

        def test_once(url):
            logging.getLogger("shop").warning("said once")
            ask(url, "once")

        def test_not_here(url):
            with vestige.capture_http(hosts=["!127.0.0.1"]):
                ask(url, "never")
    """
    project = make_shop(tmp_path, tests)
    plugin = ("-p", "vestige_pytest", "-p", "no:cacheprovider", "--vestige-bundle", "art")
    alone = run_pytest(project, "--vestige-bundle", "art")
    below = vestige(project, "run", "--", sys.executable, "-m", "pytest", *plugin)
    suites = [run for run in load(Home(tmp_path / "home")) if run.info.name == "shop"]

    assert "2 passed" in alone.stdout, alone.stdout
    assert "2 passed" in below.stdout, below.stdout + below.stderr
    assert [list(heard(run).values()) for run in suites] == [["test_once"], ["test_once"]]
    logged = [[log.message for log in run.logs if log.component == "shop"] for run in suites]
    assert logged == [["said once"], ["said once"]]


@pytest.mark.slow
def test_a_suite_runs_again_with_the_answers_of_its_recording(tmp_path: Path) -> None:
    """`vestige replay`: also those that the runs of agents got which tests started."""
    tests = """
        import os, vestige

        def ask(url, text):
            import httpx
            body = {"model": "m-1", "messages": [{"role": "user", "content": text}]}
            answer = httpx.post((os.environ.get("NOBODY") or url) + "/chat/completions", json=body)
            return answer.json()["choices"][0]["message"]["content"]

        def test_plain(url): assert ask(url, "plain") == "heard plain"

        def test_agent(url):
            with vestige.traced_run("agent"):
                assert ask(url, "agent") == "heard agent"
    """
    project = make_shop(tmp_path, tests)
    run_pytest(project, "--vestige-bundle", "art")
    run_id = read_events(only_bundle(project / "art"))[0]["run_id"]
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
    again = vestige(
        project, "replay", run_id, "--", *command, env={"NOBODY": "http://127.0.0.1:1/v1"}
    )

    assert "2 passed" in again.stdout, again.stdout + again.stderr
    assert "replayed 2 of 2 recorded calls" in again.stderr


@pytest.mark.slow
def test_it_can_be_left_out_and_costs_no_import(tmp_path: Path) -> None:
    """By the ini options; and what hooks a client is only loaded when a test imports that
    client.
    """
    tests = """
        import logging, sys
        def test_says(): logging.getLogger("shop").warning("not recorded")
        def test_nothing_is_loaded():
            loaded = {name for name in sys.modules if name.startswith("vestige.wire.")}
            names = ("capture", "outgoing_request", "patching", "unrecorded_calls")
            assert loaded <= {f"vestige.wire.{name}" for name in names}
            assert "httpx" not in sys.modules
        def test_asks(url):
            import httpx
            body = {"model": "m-1", "messages": [{"role": "user", "content": "x"}]}
            httpx.post(url + "/chat/completions", json=body)
    """
    project = make_shop(tmp_path, tests)
    arguments = ("--vestige-bundle", "art")
    on = run_pytest(project, *arguments)
    off = run_pytest(project, *arguments, "-o", "vestige_wire=false", "-o", "vestige_logs=false")
    settings = run_pytest(project, *arguments, env={"VESTIGE_WIRE": "0", "VESTIGE_LOGS": "0"})
    suites = [run for run in load(Home(tmp_path / "home")) if run.info.name == "shop"]

    for done in (on, off, settings):
        assert "3 passed" in done.stdout, done.stdout
    assert [list(heard(run).values()) for run in suites] == [["test_asks"], [], []]
    assert [len(run.logs) for run in suites] == [1, 0, 0]


@pytest.mark.slow
def test_a_file_that_cannot_be_collected_is_a_failed_test_of_the_run(tmp_path: Path) -> None:
    """As it is a failed case of the bundle; with its place."""
    project = make_project(tmp_path / "shop", "import nothing_of_that_name")
    run_pytest(project, "--vestige-bundle", "art")
    (suite,) = (run for run in load(Home(tmp_path / "home")) if run.info.name == "shop")
    (test,) = (span for span in suite.spans if span.type == "test")
    output = vestige(project, "check", suite.info.id).stdout

    assert (
        test.attributes["error.message"]
        == "collection: ModuleNotFoundError: No module named 'nothing_of_that_name'"
    )
    assert "failed-case/collection" in output
    assert "at test_it.py:1 in <module>" in output
