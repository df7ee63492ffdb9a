"""A process that dies while an answer is streamed leaves what had arrived, without its secrets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.programs import WAIT_S
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.providers.parsing import parse_response
from vestige.query.debugger import Debugger
from vestige.record.redaction.redactor import Redactor
from vestige.record.redaction.stream_redaction import redact_stream
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.wire.http_exchange import pause_between_saves

SHAPED = "sk-proj-Zk3Jq8Lm2Np5Rt7Vx9Bc1Df4Gh6Jk8Lm0Qw"
REGISTERED = "zebra quilt mango 4417"

AGENT = """
import sys, httpx, vestige
recorder = vestige.default_recorder()
recorder.secret("zebra quilt mango 4417")
vestige.capture_http()
body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "q"}]}
with recorder.run("agent"):
    with httpx.stream("POST", sys.argv[1] + "/v1/chat/completions", json=body, timeout=None) as got:
        for line in got.iter_lines():
            print(line, flush=True)
"""


def event(text: str) -> bytes:
    delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return (
        f"data: {json.dumps({'id': 'chatcmpl-1', 'model': 'm', 'choices': [delta]})}\n\n".encode()
    )


class Provider:
    """Streams word after word until the home has kept some of them, then stops in mid-sentence."""

    def __init__(self, home: Home, texts: list[str], last: str) -> None:
        provider = self
        self.sent = threading.Event()
        self.gone = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for text in texts:
                    self.wfile.write(event(text))
                    self.wfile.flush()
                # A partial body, written after all of the texts have come.
                while not provider._is_kept(home, last) and not provider.gone.wait(0.05):
                    self.wfile.write(b": still here\n\n")
                    self.wfile.flush()
                provider.sent.set()
                provider.gone.wait(WAIT_S)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @staticmethod
    def _is_kept(home: Home, last: str) -> bool:
        for path in Path(home.bodies).glob("*.partial"):
            response = parse_response(path.read_bytes())
            if response is not None and last in response.text:
                return True
        return False

    def __enter__(self) -> Provider:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gone.set()
        self._server.shutdown()
        self._server.server_close()


def die(home: Home, number: int, texts: list[str], last: str) -> None:
    with Provider(home, texts, last) as provider:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, provider.url],
            env={**os.environ, "VESTIGE_HOME": str(home.root)},
            stdout=subprocess.DEVNULL,
        )
        try:
            assert provider.sent.wait(WAIT_S)
            agent.send_signal(number)
            agent.wait(WAIT_S)
        finally:
            agent.kill()
            agent.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_had_arrived_survives_a_kill_marked_partial_and_redacted(
    home: Home, number: int
) -> None:
    words = ["The key ", *SHAPED, " and the phrase ", *REGISTERED, " are secret. ", "Go", "od"]
    die(home, number, words, "secret.")
    stored = b"".join(path.read_bytes() for path in Path(home.root).rglob("*") if path.is_file())
    catch_up(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        runs = [store.load_run(info.id) for info in store.list_runs(RunFilter())]
        (span,) = [span for run in runs for span in run.spans if span.type == "llm"]
        assert span.output is not None and span.output.id is not None
        body = store.read_body(span.output.id)
        transcript = Debugger(store).transcript(runs[0].info.short_id).text()
    response = parse_response(body)

    assert (span.status, span.attributes["response.partial"]) == ("interrupted", True)
    assert response is not None
    assert response.text == "The key sk-…redacted…0Qw and the phrase zeb…redacted…417 are secret. "
    assert "are secret." in transcript
    assert SHAPED.encode() not in stored and REGISTERED.encode() not in stored
    assert list(Path(home.bodies).glob("*.partial")) == []


def test_an_answer_that_ends_leaves_no_partial_file(home: Home) -> None:
    with Provider(home, ["word "] * 30, "word") as provider:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, provider.url],
            env={**os.environ, "VESTIGE_HOME": str(home.root)},
            stdout=subprocess.DEVNULL,
        )
        assert provider.sent.wait(WAIT_S)
        provider.gone.set()
        assert agent.wait(WAIT_S) == 0

    assert list(Path(home.bodies).glob("*partial")) == []


REDACTOR = Redactor()
REDACTOR.add_secrets([REGISTERED, "mango-9912"])
_ = REDACTOR.suspicious
CORES = (
    SHAPED,
    REGISTERED,
    "mango-9912",
    "hunter2-is-not-enough",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
)
TEXTS = [
    f"so {SHAPED} it is",
    f"the {REGISTERED} phrase",
    "a mango-9912 b",
    '{"api_key": "hunter2-is-not-enough", "limit": 5}',
    f"x -----BEGIN PRIVATE KEY-----\n{CORES[4]}\n-----END PRIVATE KEY----- y",
    "plain words only ",
]


@pytest.mark.slow
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3), st.data())
def test_wherever_a_stream_stops_no_beginning_of_a_secret_is_kept(
    texts: list[str], data: st.DataObject
) -> None:
    text = " ".join(texts)
    size = data.draw(st.integers(1, 9))
    stop = data.draw(st.integers(0, len(text)))
    pieces = [text[at : min(at + size, stop)] for at in range(0, stop, size)]
    redacted = redact_stream(b"".join(map(event, pieces)), REDACTOR, is_partial=True)
    response = parse_response(bytes(redacted))
    streamed_text = "" if response is None else response.text

    assert [core for core in CORES if core[:5] in streamed_text] == []
    if set(texts) == {TEXTS[-1]}:
        assert text[:stop].startswith(streamed_text) and stop - len(streamed_text) < 10, (
            "only a word is held back"
        )


TERMINATES_ITSELF = """
import os, signal, sys, httpx, vestige
recorder = vestige.default_recorder()
vestige.capture_http()
body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "q"}]}
with recorder.run("agent"):
    with httpx.stream("POST", sys.argv[1] + "/v1/chat/completions", json=body, timeout=None) as got:
        for line in got.iter_lines():
            if "third" in line:
                os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_stream_that_began_a_moment_ago_is_stored_when_the_process_is_terminated(
    home: Home,
) -> None:
    """The signal has its default action, so nothing can be written when it arrives."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for text in ("first ", "second ", "third "):
                self.wfile.write(event(text))
                self.wfile.flush()
                sleep(0.08)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        done = subprocess.run(
            [sys.executable, "-c", TERMINATES_ITSELF, f"http://127.0.0.1:{server.server_port}"],
            env={**os.environ, "VESTIGE_HOME": str(home.root)},
            timeout=WAIT_S,
        )
        server.shutdown()
    catch_up(home)

    assert done.returncode == -signal.SIGTERM
    with SqliteStore.open(home.store, readonly=True) as store:
        (info,) = store.list_runs(RunFilter(name_is="agent"))
        (span,) = (span for span in store.load_run(info.id).spans if span.type == "llm")
        assert span.output is not None and span.output.id is not None
        response = parse_response(store.read_body(span.output.id))
    assert span.attributes["response.partial"] is True
    assert response is not None and response.text.startswith("first ")


@pytest.mark.parametrize(
    ("spent_ms", "pause_ms"),
    [(0, 20), (0.1, 20), (1, 100), (200, 4_000), (150, 3_000), (30, 1_000)],
)
def test_a_slow_save_delays_the_next_one_by_about_a_second(spent_ms: float, pause_ms: int) -> None:
    assert pause_between_saves(int(spent_ms * 1e6)) == pause_ms * 10**6
