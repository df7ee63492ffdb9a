"""What a model streamed in pieces is found as it reads: by grep, list --like, and a pasted line."""

from __future__ import annotations

import json

import pytest

import vestige
from vestige.collector.loop import catch_up
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.record.redaction.stream_redaction import spell
from vestige.store.sqlite.sqlite_store import SqliteStore

ANSWER = 'Refund approved: "order 7" is paid back to the é-card on Monday.'
ARGUMENTS = '{"order": 7, "reason": "arrived broken twice"}'


def events(text: str, key: str = "content") -> str:
    lines = []
    for at in range(0, len(text), 3):
        piece = text[at : at + 3]
        call = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
        delta = {"content": piece} if key == "content" else call
        data = {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta}]}
        lines.append(f"data: {json.dumps(data)}\n\n")
    return "".join(lines)


def ollama(text: str) -> str:
    return "".join(
        json.dumps({"model": "m", "message": {"content": text[at : at + 4]}, "done": False}) + "\n"
        for at in range(0, len(text), 4)
    )


@pytest.fixture
def debugger(home: Home) -> Debugger:
    with vestige.Recorder(home) as recorder:
        with recorder.run("other") as run:
            run.log.info("nothing of the kind")
        with recorder.run("desk") as run, run.span("chat", type="llm", body="{}") as span:
            span.end(body=events(ANSWER) + events(ARGUMENTS, "arguments"))
        with recorder.run("local") as run, run.span("chat", type="llm", body="{}") as span:
            span.end(body=ollama("The parcel went to Lisbon instead."))
    catch_up(home)
    return Debugger(SqliteStore.open(home.store, readonly=True))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Refund approved", "desk"),
        ('"order 7" is paid back', "desk"),
        ("the é-card on Monday", "desk"),
        ("arrived broken twice", "desk"),
        ("went to Lisbon", "local"),
    ],
)
def test_grep_and_like_find_what_a_stream_spells(debugger: Debugger, text: str, name: str) -> None:
    hits = debugger.grep(text).data()["hits"]
    runs = debugger.list(like=text.lower()).runs

    assert [(hit["part"], hit["start_byte"], hit["match"]) for hit in hits] == [
        ("output", None, text)
    ]
    assert [run.name for run in runs] == [name]


def test_a_pasted_line_of_an_answer_leads_to_its_call(debugger: Debugger) -> None:
    target = debugger.resolve(ANSWER, "any")

    assert target.run.name == "desk"
    assert debugger.span(ANSWER).span.type == "llm"


def test_what_was_never_said_is_not_found(debugger: Debugger) -> None:
    assert debugger.grep("Refund declined").data()["hits"] == []
    assert debugger.list(like="Refund declined").runs == []


def test_a_part_of_a_stream_spells_its_part() -> None:
    body = events(ANSWER).encode()

    (spelled,) = spell(body[len(body) // 2 - 30 :])
    assert spelled and ANSWER.endswith(spelled)
    assert spell(b'{"a": "plain"}') == [] and spell(b"") == [] and spell(b"hello\n") == []
