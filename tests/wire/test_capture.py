"""capture_http itself: installed lazily, twice, removed; its failures invisible; what it costs to
have it.
"""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import httpx
import httpx2
import openai
import pytest
import urllib3
import urllib3.connection
import urllib3.connectionpool
import urllib3.response
from aiohttp import client_reqrep

import vestige
import vestige.wire.header_redaction
import vestige.wire.http_exchange
from support.programs import RunProgram, run_in
from support.provider_answers import chat, chat_stream, refusal
from support.provider_calls import calls_in
from support.provider_server import Reply, Server
from vestige.home import Home

HELLO: Any = [{"role": "user", "content": "hi"}]


def client(server: Server, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test-47114711471147", **more)


def hooked() -> list[Any]:
    """Everything that a hook replaces."""
    return [
        httpx.HTTPTransport.handle_request,
        httpx.AsyncHTTPTransport.handle_async_request,
        httpx2.HTTPTransport.handle_request,
        httpx2.AsyncHTTPTransport.handle_async_request,
        urllib3.connectionpool.HTTPConnectionPool._make_request,
        urllib3.connection.body_to_chunks,
        urllib3.response.HTTPResponse._fp_read,
        urllib3.response.HTTPResponse._error_catcher,
        urllib3.response.HTTPResponse.close,
        aiohttp.BaseConnector.connect,
        client_reqrep.ClientRequest.send,
        client_reqrep.ClientResponse.start,
        client_reqrep.ClientResponse.close,
    ]


@pytest.mark.slow
def test_installed_twice_it_records_once_and_the_last_one_out_undoes_it(home: Home) -> None:
    """Any number of captures; the clients are as they were when none is left."""
    before = hooked()
    first, second = vestige.capture_http(), vestige.capture_http()
    with Server(lambda seen: chat()) as server:
        client(server).chat.completions.create(model="m", messages=HELLO)
        first.remove()
        first.remove()
        client(server).chat.completions.create(model="m", messages=HELLO)
        during = hooked()
        second.remove()
        client(server).chat.completions.create(model="m", messages=HELLO)

    assert len(calls_in(home)) == 2
    assert all(a is not b for a, b in zip(before, during, strict=True))
    assert hooked() == before


def test_a_wrapper_put_over_ours_survives_our_removal(home: Home) -> None:
    """Another library's patch is not undone with ours, and ours below it records nothing more."""
    original = httpx2.HTTPTransport.handle_request
    capture = vestige.capture_http()
    ours = httpx2.HTTPTransport.handle_request

    def theirs(transport: Any, request: Any) -> Any:
        return ours(transport, request)

    httpx2.HTTPTransport.handle_request = theirs  # type: ignore[method-assign]
    try:
        capture.remove()
        with Server([chat()]) as server:
            client(server).chat.completions.create(model="m", messages=HELLO)

        assert httpx2.HTTPTransport.handle_request is theirs
    finally:
        httpx2.HTTPTransport.handle_request = original  # type: ignore[method-assign]
    vestige.default_recorder()
    assert calls_in(home) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name"),
    [
        (vestige.wire.http_exchange, "masked_headers"),
        (vestige.wire.http_exchange, "ByteBuffer"),
        (vestige.wire.http_exchange.call_attributes, "response_attributes"),
        (vestige.wire.http_exchange.call_attributes, "find_first"),
        (vestige.wire.http_exchange, "has_ended"),
        (vestige.wire.http_exchange.CallSpan, "end_at"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_failure_inside_the_hook_is_invisible_and_counted(
    home: Home, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    """Whatever breaks in us, the SDK gets its answer."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ours")

    with (
        vestige.capture_http(),
        Server(lambda seen: chat_stream(["Hel", "lo"])) as server,
        vestige.Recorder(home) as recorder,
        recorder.run("agent"),
    ):
        monkeypatch.setattr(place, name, broken)
        stream = client(server).chat.completions.create(model="m", messages=HELLO, stream=True)
        events = [event for event in stream if event.choices]
        early = client(server).chat.completions.create(model="m", messages=HELLO, stream=True)
        next(iter(early))
        early.close()
        faults = recorder.faults

    assert [event.choices[0].delta.content for event in events] == ["", "Hel", "lo", None]
    assert faults["wire: RuntimeError"] >= 1


def _outcome(call: Any) -> Any:
    try:
        answer = call()
        if isinstance(answer, openai.Stream):
            return [event.model_dump() for event in answer]
    except Exception as error:
        return type(error), str(error), getattr(error, "body", None)
    if isinstance(answer, str):
        return answer
    return answer.model_dump(), answer._request_id


@pytest.mark.slow
def test_what_the_sdk_gives_is_equal_with_and_without_the_hook(home: Home) -> None:
    """Answers, streams, refusals, resets: the same values and the same errors."""
    replies = [
        chat,
        lambda: chat_stream(["Hel", "lo"]),
        lambda: refusal(400, "bad"),
        lambda: refusal(500),
        lambda: chat_stream(["Hel"], reset_after=0),
        lambda: Reply(body=b"no json"),
    ]

    def outcomes() -> list[Any]:
        got = []
        for make in replies:
            with Server(lambda seen, make=make: make()) as server:
                sdk = client(server, max_retries=0)
                stream = make().chunks is not None
                got.append(
                    _outcome(
                        lambda sdk=sdk, stream=stream: sdk.chat.completions.create(
                            model="m", messages=HELLO, stream=stream
                        )
                    )
                )
        return got

    bare = outcomes()
    with vestige.capture_http():
        recorded = outcomes()

    assert recorded == bare


def test_chunks_reach_the_program_one_by_one(home: Home) -> None:
    """A chunk is handed on when it comes, not when the next one does; boundaries stay."""
    import threading

    gate = threading.Event()
    chunks = [b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n"]
    reply = Reply(chunks=chunks, type="text/event-stream", gate=gate)
    with (
        vestige.capture_http(http=True),
        Server([reply]) as server,
        httpx.stream("POST", server.url) as response,
    ):
        parts = response.iter_raw()
        first = next(parts)  # the server waits: only the first can have come
        gate.set()
        rest = list(parts)

    assert first == chunks[0]
    assert b"".join(rest) == b"".join(chunks[1:])
    assert "network_stream" in response.extensions


def test_hosts_and_paths_decide_what_is_recorded(home: Home) -> None:
    """Wanted ones, and `!` for never; arguments win over settings."""
    with Server(lambda seen: chat()) as server:
        sdk = client(server)
        for options in (
            {"hosts": ["api.example.com"]},
            {"hosts": ["!127.0.0.*"]},
            {"paths": ["!*/chat/*"]},
            {"hosts": ["127.*"], "paths": ["/v1/*"]},
        ):
            with vestige.capture_http(**options):
                sdk.chat.completions.create(model=str(sorted(options)), messages=HELLO)

    assert [call["model"] for call in calls_in(home)] == ["['hosts', 'paths']"]


def test_our_own_calls_are_not_recorded(home: Home) -> None:
    """Requests of Vestige itself are not part of the program."""
    from vestige.wire.call_selection import unrecorded

    with vestige.capture_http(), Server([chat()]) as server, unrecorded():
        client(server).chat.completions.create(model="m", messages=HELLO)
    vestige.default_recorder()

    assert calls_in(home) == []


def test_a_run_that_is_not_sampled_records_no_calls(home: Home) -> None:
    """As for its other spans."""
    with (
        vestige.capture_http(),
        Server([chat()]) as server,
        vestige.Recorder(home, sample=0).run("agent"),
    ):
        client(server).chat.completions.create(model="m", messages=HELLO)

    assert calls_in(home) == []


# --- vestige run ----------------------------------------------------------------------------------

RUN = (sys.executable, "-m", "vestige", "run")
AGENT = """
import sys
import openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="sk-test-47114711471147")
client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
"""


@pytest.mark.slow
def test_vestige_run_records_calls_by_itself_and_not_with_no_wire(home: Home) -> None:
    """No line of recording code in the program."""
    with Server(lambda seen: chat()) as server:
        done = run_in(home, AGENT, server.url, command=(*RUN, "--", sys.executable))
        without = run_in(home, AGENT, server.url, command=(*RUN, "--no-wire", "--", sys.executable))
    (call,) = calls_in(home)

    assert (done.returncode, without.returncode) == (0, 0), done.stderr + without.stderr
    assert call.request == server.seen[0].body
    assert call.response == server.seen[0].sent


def test_nothing_is_imported_for_a_program_that_makes_no_calls(run_program: RunProgram) -> None:
    """The hook waits: neither a client nor our own hooks are loaded before the program asks."""
    source = """
        import sys
        import vestige
        vestige.capture_http()
        assert not {"httpx", "httpx2", "urllib3", "aiohttp", "asyncio"} & set(sys.modules)
        assert not [name for name in sys.modules if name.startswith("vestige.providers")]
        assert "vestige.wire.call_selection" not in sys.modules
        import httpx
        assert "vestige.wire.httpx_hook" in sys.modules
        assert httpx.HTTPTransport.handle_request.__wrapped__
        assert type(httpx.__spec__.loader).__name__ == "SourceFileLoader"
        assert "exec_module" not in vars(httpx.__spec__.loader)
    """
    done = run_program(source)

    assert done.returncode == 0, done.stderr


def test_a_client_in_a_zip_that_was_only_looked_for_is_still_hooked(
    run_program: RunProgram,
) -> None:
    """A zip has one loader for all its modules: the next one that it loads is not the client."""
    source = """
        import importlib.util, sys, zipfile
        import vestige
        with zipfile.ZipFile("all.zip", "w") as file:
            file.writestr("aiohttp.py", "")
            file.writestr("other.py", "")
        sys.path.insert(0, "all.zip")
        vestige.capture_http()
        assert importlib.util.find_spec("aiohttp")      # is it there?
        import other
        assert not vestige.default_recorder().faults, vestige.default_recorder().faults
        import aiohttp                                  # one that we do not know: counted
        assert vestige.default_recorder().faults
    """
    done = run_program(source)

    assert done.returncode == 0, done.stderr


def test_a_module_that_fails_to_import_fails_as_without_us(run_program: RunProgram) -> None:
    """A missing client, and one that raises: the program sees its own error."""
    source = """
        import pathlib, sys
        import vestige
        vestige.capture_http()
        sys.path.insert(0, str(pathlib.Path("broken").absolute()))
        pathlib.Path("broken").mkdir()
        pathlib.Path("broken/httpx.py").write_text("raise ValueError('not today')")
        try:
            import httpx
        except ValueError as error:
            assert str(error) == "not today"
        else:
            raise AssertionError
        pathlib.Path("broken/httpx.py").write_text("HTTPTransport = None")
        import httpx                      # one that we do not know: unhooked, and counted
        assert httpx.HTTPTransport is None
        faults = vestige.default_recorder().faults
        assert [name for name in faults if name.startswith("wire: hook failed")], faults
    """
    done = run_program(source)

    assert done.returncode == 0, done.stderr
