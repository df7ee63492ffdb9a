"""What an exported page has in it: the answers of the API, asked of a run that is read once."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from vestige._runtime.clock import FakeClock
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.query.command_tools import BY_NAME, ask, check_arguments
from vestige.query.debugger import Debugger
from vestige.record.note import Note
from vestige.recorder import Recorder
from vestige.server.cached_debugger import CachedDebugger
from vestige.server.html_export import render
from vestige.server.responses import encode
from vestige.server.viewer_assets import ANSWERS, Viewer
from vestige.store.sqlite.sqlite_store import SqliteStore

TURNS = 12


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    """Two runs of a conversation: model calls that grow, tools that fail, links, lines, states,
    notes.
    """
    home = Home(tmp_path_factory.mktemp("page"))
    with Recorder(home, crash_hooks=False, clock=FakeClock()) as recorder:
        for order in ("A-1", "A-2"):
            _record(recorder, order)
    catch_up(home)
    with SqliteStore.open(home.store) as writing:
        (info,) = writing.find_runs("r2")
        failed = next(span for span in writing.load_run(info.id).spans if span.status == "error")
        for number, span_id in enumerate((failed.id, None)):
            note = Note(
                id=f"n{number}", run_id=info.id, text="seen", created_ns=number, span_id=span_id
            )
            writing.add_note(note)
    with SqliteStore.open(home.store, readonly=True) as reading:
        yield reading


def _record(recorder: Recorder, order: str) -> None:
    messages: list[dict[str, Any]] = []
    with recorder.run("refund desk", "talk") as run:
        for turn in range(TURNS):
            messages.append({"role": "user", "content": f"turn {turn} of {order}"})
            request = {"model": "gpt-4o-mini", "messages": messages}
            answer = {"choices": [{"message": {"role": "assistant", "content": f"ok {turn}"}}]}
            with run.child("chat", "llm", body=json.dumps(request)) as call:
                call.end(body=json.dumps(answer))
            with run.tool("lookup", {"turn": turn}) as tool:
                tool.log.info("looked", turn=turn)
                tool.add_link(call, reason="asked for")
                tool.end(status="error" if turn % 5 == 4 else "ok", body=f"result {turn}")
            with run.child(f"state {turn}", "state", body=json.dumps({"turn": turn})) as state:
                state.end()


def _page(one: CachedDebugger) -> dict[str, bytes]:
    html = render(Viewer(f"<head></head>{ANSWERS}", (), ()), one).decode()
    found: dict[str, msgspec.Raw] = {}
    for text in re.findall(r"<script[^>]*>([^<]*)</script>", html):
        packed = gzip.decompress(base64.b64decode(text))
        found |= msgspec.json.decode(packed, type=dict[str, msgspec.Raw])
    return {key: bytes(raw) for key, raw in found.items()}


def _answer_of(debugger: Debugger, key: str) -> bytes:
    verb, _, query = key.partition("?")
    params = {name: True if value == "true" else value for name, value in parse_qsl(query)}
    if verb == "messages":  # a route of its own (server/routes/messages.py)
        return encode(debugger.messages(str(params["id"])).data())
    tool = BY_NAME[verb]
    return encode(ask(debugger, tool, check_arguments(tool, params)).data())


@pytest.mark.slow
def test_each_answer_in_a_page_is_the_apis_own_byte_for_byte(store: SqliteStore) -> None:
    """Whatever is kept between the questions, each is answered as if it were the only one."""
    (info,) = store.find_runs("r2")
    answers = _page(CachedDebugger(store, info))
    about = json.loads(answers.pop("export"))

    assert {key.partition("?")[0] for key in answers} == {
        "messages",
        "outline",
        "transcript",
        "overview",
        "check",
        "files",
        "notes",
        "state",
        "span",
        "why",
        "body",
        "segments",
        "diff",
    }
    assert about["spans"] == len(store.load_run(info.id).spans) > 3 * TURNS
    for key, answer in answers.items():
        assert answer == _answer_of(Debugger(store), key), key


def test_a_page_reads_its_run_once_however_long_it_is(store: SqliteStore) -> None:
    """Else each of its spans would read all of them, and the time would grow with the square."""
    (info,) = store.find_runs("r2")
    statements: list[str] = []
    connection = store._connection
    connection.set_trace_callback(statements.append)
    try:
        _page(CachedDebugger(store, info))
    finally:
        connection.set_trace_callback(None)
    number = info.short_id[1:]
    loads = [
        each for each in statements if re.search(rf"FROM spans s WHERE s.run = {number}\s*$", each)
    ]

    assert len(loads) == 1
    assert not [each for each in statements if "s.number =" in each]
