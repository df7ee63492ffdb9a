"""The API: each verb over HTTP, with pages, ETags, gzip, and errors that teach."""

from __future__ import annotations

import gzip
import json
import re
from contextlib import closing
from typing import Any
from urllib.parse import parse_qsl

import jsonschema
import pytest

import vestige
from support.http_server import Site, record_collected, served
from vestige.collector.loop import catch_up
from vestige.errors import StoreError
from vestige.home import Home
from vestige.query.command_tools import BY_NAME, TOOLS, ask, check_arguments, get_tool
from vestige.server.openapi_schemas import SHAPES, answer_schema
from vestige.server.responses import encode
from vestige.server.routes.api import PAGES, ToolRequest, _respond, parse_arguments
from vestige.server.server_state import LOCAL, Server
from vestige.store.protocol import RetentionPolicy
from vestige.store.sqlite import schema
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import add_note, open_path

QUESTIONS = {
    "doctor": "",
    "list": "",
    "overview": "id=A",
    "check": "id=A",
    "why": "id=A.s2",
    "show": "id=A",
    "span": "id=A.s2",
    "body": "id=A.s2",
    "grep": "pattern=refunds",
    "diff": "a=A&b=B",
    "stats": "",
    "compare": "a=A&b=B",
    "groups": "",
    "sql": "query=select+1",
    "schema": "table=spans",
    "transcript": "id=C",
    "outline": "id=C",
    "segments": "id=C.s2",
    "state": "id=C",
    "files": "id=C",
    "notes": "id=C",
    "trends": "",
    "help": "component=billing",
}


def _runs(home: Home) -> dict[str, str]:
    """Three of them; each verb's question about them."""
    names = {
        "A": record_collected(home),
        "B": record_collected(home, spans=4),
        "C": _record_everything(home),
    }
    return {
        verb: re.sub("[ABC]", lambda found: names[found[0]], query)
        for verb, query in QUESTIONS.items()
    }


def _record_everything(home: Home) -> str:
    """A run with a model call, snapshots, a file, a note and a component that has hints."""
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Why?"}]}
    with vestige.Recorder(home) as recorder, recorder.run("everything") as run:
        recorder.logger("billing").surface(text="Look at deliver.", span_types=["deliver"])
        run.span("chat", "llm", {"model": "gpt-4o"}, body=json.dumps(request)).end(body="So.")
        for number in range(3):
            run.span("plan", "state", body={"step": number}).end()
        run.span("a.txt", "file", {"path": "a.txt"}).end(body="text")
    catch_up(home)
    with open_path(home) as debugger:
        add_note(home, debugger, run.run_id, "looked at")
        return debugger.resolve(run.run_id).run.short_id


def test_every_verb_has_a_shape_and_a_question_here() -> None:
    """A verb that is added later has to say what it answers, and that is then compared."""
    verbs = {tool.name for tool in TOOLS}

    assert set(SHAPES) == verbs
    assert set(QUESTIONS) == verbs


@pytest.mark.slow
def test_every_verb_answers_with_the_data_of_the_command(home: Home) -> None:
    """Each verb exists once: the API gives what `--json` gives."""
    questions = _runs(home)
    with served(home) as site, open_path(home) as debugger:
        answers = {verb: site.data(f"/api/v1/{verb}?{q}") for verb, q in questions.items()}
        for verb, query in questions.items():
            tool = BY_NAME[verb]
            if verb not in ("doctor", "trends"):  # which tell of this moment
                page = f"&limit={PAGES[verb]}" if verb in PAGES else ""
                arguments, _ = parse_arguments(tool, parse_qsl(query + page))
                expected = ask(debugger, tool, check_arguments(tool, arguments)).data()

                assert answers[verb] == json.loads(encode(expected)), verb

    assert answers["sql"]["rows"] == [[1]]
    assert len(answers["list"]["runs"]) == 3
    assert all(answer["version"] for answer in answers.values())


@pytest.mark.slow
def test_the_shapes_in_the_document_are_those_of_real_answers(home: Home) -> None:
    """A key that is promised is there, with its type."""
    questions = _runs(home)
    with served(home) as site:
        for verb, query in questions.items():
            data = site.data(f"/api/v1/{verb}?{query}")
            jsonschema.validate(data, answer_schema(verb))


def test_text_is_what_the_command_line_prints(home: Home) -> None:
    """`format=text` with a budget."""
    run = record_collected(home)
    with served(home) as site, open_path(home) as debugger:
        reply = site.ask(f"/api/v1/show?id={run}&format=text&budget=60")
        debugger.at = ""
        expected = debugger.show(run).text(60)

    assert reply.headers["content-type"].startswith("text/plain")
    assert reply.body.decode() == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/api/v1/show?id=r99", 404, "Run 'r99' not found"),
        ("/api/v1/show?limit=abc", 400, "whole number"),
        ("/api/v1/show?limit=0", 400, "from 1"),
        ("/api/v1/show?errors=maybe", 400, "true or false"),
        ("/api/v1/show?colour=red", 400, "not an argument of show"),
        ("/api/v1/show?id=r1&id=r2", 400, "twice"),
        ("/api/v1/span", 400, "id is missing"),
        ("/api/v1/list?since=soon", 400, "duration"),
        ("/api/v1/list?since=99999999999999999w", 400, "duration"),
        ("/api/v1/sql?query=DELETE+FROM+runs", 400, "only reading"),
        ("/api/v1/list?format=xml", 400, "json or text"),
        ("/api/v1/list?name=a%00b", 400, "NUL"),
        ("/api/v1/grep?pattern=(&regex=true", 400, "grep"),
        ("/api/v1/nothing", 404, "nothing at this path"),
        ("/nowhere", 404, "nothing at this path"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    home: Home, path: str, status: int, message: str
) -> None:
    """Every error is the closed envelope, with a message that says what was expected."""
    record_collected(home)
    with served(home) as site:
        reply = site.ask(path)

    assert reply.status == status
    assert set(reply.json()) <= {"error", "message", "details"}
    assert message in reply.json()["message"]
    assert "\n" not in reply.json()["message"]
    assert str(home.root) not in reply.body.decode()
    assert reply.headers["cache-control"] == "no-store"


def test_since_is_how_long_ago(home: Home) -> None:
    """The same words as on the command line; also further back than there is time."""
    record_collected(home)
    with served(home) as site:
        recent = site.data("/api/v1/stats?since=2h")
        ever = site.data("/api/v1/stats?since=99999999999w")

    assert recent["rows"]
    assert ever["rows"] == recent["rows"]


def test_a_method_that_a_path_does_not_take_is_405(home: Home) -> None:
    record_collected(home)
    with served(home) as site:
        reply = site.ask("/api/v1/list", method="POST")

    assert reply.status == 405
    assert reply.json()["error"] == "method_not_allowed"
    assert "GET" in reply.headers["allow"]


def test_an_answer_that_has_not_changed_is_not_sent_again(home: Home) -> None:
    """The ETag is of the store's state: it stays while nothing is written, and goes when it is."""
    record_collected(home)
    with served(home) as site:
        first = site.ask("/api/v1/list")
        again = site.ask("/api/v1/list", headers={"If-None-Match": first.headers["etag"]})
        other = site.ask("/api/v1/list?all=true", headers={"If-None-Match": first.headers["etag"]})
        record_collected(home)
        later = site.ask("/api/v1/list", headers={"If-None-Match": first.headers["etag"]})

    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert other.status == 200
    assert later.status == 200
    assert len(later.json()["runs"]) == 2


def test_an_answer_about_time_has_a_tag_of_its_bytes(home: Home) -> None:
    """`since` selects other runs tomorrow: the store's state is not a tag."""
    record_collected(home)
    with served(home) as site:
        first = site.ask("/api/v1/list?since=1h")
        again = site.ask("/api/v1/list?since=1h", headers={"If-None-Match": first.headers["etag"]})
        short = site.ask(
            "/api/v1/list?since=0.000001s", headers={"If-None-Match": first.headers["etag"]}
        )

    assert again.status == 304
    assert short.status == 200
    assert short.json()["runs"] == []


@pytest.mark.parametrize("term", ["since", "before", "SINCE", "Before"])
def test_an_age_inside_a_filter_is_about_time_too(home: Home, term: str) -> None:
    """Two questions with the same answer have the same tag: it is of the answer, not of the
    store.
    """
    record_collected(home)
    with served(home) as site:
        replies = [
            site.ask(f"/api/v1/list?filter={term}:{age}&all=true") for age in ("9000d", "9001d")
        ]

    assert replies[0].json() == replies[1].json()
    assert replies[0].headers["etag"] == replies[1].headers["etag"]


def test_a_long_answer_is_packed_for_who_can_unpack_it(home: Home) -> None:
    path = f"/api/v1/show?id={record_collected(home, spans=50)}"
    with served(home) as site:
        plain = site.ask(path)
        packed = site.ask(path, headers={"Accept-Encoding": "br, gzip"})
        refused = site.ask(path, headers={"Accept-Encoding": "gzip;q=0"})

    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 3
    assert packed.headers["vary"] == "accept-encoding"
    assert packed.headers["etag"] == plain.headers["etag"]
    assert "content-encoding" not in refused.headers


@pytest.mark.slow
def test_pages_follow_each_other_to_the_end(home: Home) -> None:
    """`Link: rel=next` leads through all of a list, each run once."""
    for number in range(5):
        record_collected(home, f"run {number}", spans=1)
    seen: list[str] = []
    with served(home) as site:
        path: str | None = "/api/v1/list?limit=2"
        while path is not None:
            reply = site.ask(path)
            seen += [run["name"] for run in reply.json()["runs"]]
            link = reply.headers.get("link")
            path = None if link is None else link[1 : link.index(">")]

    assert seen == [f"run {number}" for number in (4, 3, 2, 1, 0)]


def _pages(site: Site, path: str) -> list[Any]:
    """By `Link`, from the first to the last."""
    pages = []
    following: str | None = path
    while following is not None:
        reply = site.ask(following)
        assert reply.status == 200, (following, reply)
        pages.append(reply.json())
        assert len(pages) < 100, following
        link = reply.headers.get("link")
        following = None if link is None else link[1 : link.index(">")]
    return pages


def test_a_run_comes_in_pages_that_have_all_of_it_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans and log lines in the order of events; never more than a bound in one answer."""
    run = record_collected(home, spans=10)
    with served(home) as site, open_path(home) as debugger:
        complete = debugger.show(run).data()
        (one,) = _pages(site, f"/api/v1/show?id={run}")
        pages = _pages(site, f"/api/v1/show?id={run}&limit=4")
        monkeypatch.setitem(PAGES, "show", 7)
        bounded = _pages(site, f"/api/v1/show?id={run}&limit=100000")
        beyond = site.data(f"/api/v1/show?id={run}&after=1000")

    assert one == {**complete, "next": None}
    assert [len(page["spans"]) + len(page["logs"]) for page in pages] == [4, 4, 4, 4, 4, 2]
    assert len(bounded) == 4
    for parts in (pages, bounded):
        for kind in ("spans", "logs"):
            assert [each for page in parts for each in page[kind]] == complete[kind]
        assert {json.dumps(page["run"]) for page in parts} == {json.dumps(complete["run"])}
    assert (beyond["spans"], beyond["logs"], beyond["next"]) == ([], [], None)


def test_what_a_run_is_narrowed_to_holds_for_data_too(home: Home) -> None:
    """`errors`, `type`, `depth`, `from`, `to`: the spans of the data are those of the lines."""
    with vestige.Recorder(home) as recorder, recorder.run("narrow") as run:
        good = run.span("good", "tool")
        good.log.info("fine")
        good.end()
        with run.span("step", "step") as step:
            bad = step.span("bad", "tool")
            bad.log.error("broken")
            bad.end(ValueError("x"))
    catch_up(home)

    def ask_for(query: str) -> tuple[list[str], list[str]]:
        data = site.data(f"/api/v1/show?id={run.run_id}&{query}")
        return [span["name"] for span in data["spans"]], [log["message"] for log in data["logs"]]

    with served(home) as site:
        assert ask_for("errors=true") == (["narrow", "step", "bad"], ["broken"])
        assert ask_for("type=tool") == (["good", "bad"], [])
        assert ask_for("depth=1") == (["narrow", "good", "step"], [])
        assert ask_for(f"from={step.id}&to={step.id}")[0] == ["step"]
        assert ask_for("from=1000000") == ([], [])
        assert ask_for("errors=true&type=tool&limit=1") == (["bad"], [])


@pytest.mark.slow
def test_a_long_body_comes_in_pages_and_only_as_far_as_was_asked(home: Home) -> None:
    text = "0123456789" * 250_000
    with vestige.Recorder(home) as recorder, recorder.run("long") as run:
        span = run.span("read", "tool", body=text)
        span.end()
    catch_up(home)
    with served(home) as site:
        content = _pages(site, f"/api/v1/body?id={span.id}&in=true")
        part = _pages(site, f"/api/v1/body?id={span.id}&in=true&bytes=10:2000000")

    assert len(content) == 3
    assert "".join(page["text"] for page in content) == text
    assert "".join(page["text"] for page in part) == text[10:2_000_000]


def test_snapshots_come_in_pages_and_a_finished_outline_has_no_next(home: Home) -> None:
    """`next` of an outline is where something new will be: no page, so no link."""
    with vestige.Recorder(home) as recorder, recorder.run("states") as run:
        for number in range(250):
            run.span("plan", "state", body={"step": number}).end()
    catch_up(home)
    with served(home) as site:
        pages = _pages(site, f"/api/v1/state?id={run.run_id}")
        outline = site.ask(f"/api/v1/outline?id={run.run_id}")

    assert len(pages) == 2
    found = [each for page in pages for each in page["snapshots"]]
    assert [each["index"] for each in found] == list(range(250))
    assert all(each["changes"] for each in found)
    assert outline.json()["next"]
    assert "link" not in outline.headers


def test_a_note_is_said_and_read_over_http(home: Home) -> None:
    """Masked before it is kept; refused where it makes no sense."""
    run = record_collected(home)
    secret = "sk-ant-api03-Zk3qT7vW2mRb9LxYc4HnJd8PsGf5Ke1UaVwQ"
    json_type = {"Content-Type": "application/json"}

    def post_note(**note: object) -> Any:
        body = json.dumps(note).encode()
        return site.ask("/api/v1/notes", method="POST", body=body, headers=json_type)

    with served(home) as site:
        added = post_note(id=f"{run}.s2", text=f"the key was {secret}", author="eva")
        listed = site.data(f"/api/v1/notes?id={run}")
        note = f"/api/v1/notes/{added.json()['note']['id']}?id={run}"
        text = json.dumps({"text": f"the key is {secret}"}).encode()
        edited = site.ask(note, method="PATCH", body=text, headers=json_type)
        empty = site.ask(note, method="PATCH", body=b'{"text": " "}', headers=json_type)
        unknown = site.ask(f"/api/v1/notes/none?id={run}", method="DELETE")
        nowhere = site.ask(note.partition("?")[0], method="DELETE")
        deleted = site.ask(note, method="DELETE")
        left = site.data(f"/api/v1/notes?id={run}")
        wrong = [
            post_note(id=run),
            post_note(id="r99", text="x"),
            post_note(id=run, text=" "),
            post_note(id=1, text="x"),
        ]
        broken = site.ask("/api/v1/notes", method="POST", body=b"{", headers=json_type)
        large = site.ask("/api/v1/notes", method="POST", body=b"x" * 200_000)
        chunked = site.raw(
            b"POST /api/v1/notes HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
            b"Connection: close\r\n"
            + f"Authorization: Bearer {site.server.token}\r\n\r\n".encode()
            + b"10000\r\n"
            + b"x" * 65536
            + b"\r\n"
            + b"20000\r\n"
            + b"x" * 131072
            + b"\r\n"
        )

    assert added.status == 201
    assert [note["text"] for note in listed["notes"]] == [added.json()["note"]["text"]]
    assert secret not in json.dumps(listed)
    assert (edited.status, deleted.status, left["notes"]) == (200, 200, [])
    assert edited.json()["note"]["text"].startswith("the key is sk-…")
    assert secret not in json.dumps(edited.json())
    assert [reply.status for reply in (empty, unknown, nowhere)] == [400, 404, 400]
    assert [reply.status for reply in (*wrong, broken, large)] == [400, 404, 400, 400, 400, 413]
    assert chunked.startswith(b"HTTP/1.1 413")


def test_a_store_that_is_pruned_or_replaced_meanwhile_is_read_on(home: Home) -> None:
    """Connections are kept between requests; what they read is still what is there."""
    record_collected(home, "first")
    with served(home) as site:
        before = site.data("/api/v1/list")
        for path in home.root.glob("store.db*"):
            path.unlink()
        gone = site.ask("/api/v1/list")
        record_collected(home, "second")
        after = site.data("/api/v1/list")

    assert [run["name"] for run in before["runs"]] == ["first"]
    assert gone.status == 503
    assert [run["name"] for run in after["runs"]] == ["second"]


def test_a_store_of_a_newer_version_is_not_read_by_an_older_server(home: Home) -> None:
    """Migrated meanwhile by a newer vestige: 503 until this server is restarted, never a guess."""
    import sqlite3

    def set_version(number: int) -> None:
        with closing(sqlite3.connect(home.store)) as connection:
            connection.execute(f"PRAGMA user_version = {number}")

    record_collected(home)
    with served(home) as site:
        site.data("/api/v1/list")
        set_version(schema.VERSION + 1)
        newer = site.ask("/api/v1/list")
        set_version(schema.VERSION)
        again = site.ask("/api/v1/list")

    assert newer.status == 503
    assert "Upgrade" in newer.json()["message"]
    assert again.status == 200


def test_a_prune_meanwhile_is_seen(home: Home) -> None:
    """What is gone is 404 for the next question; connections stay."""
    run = record_collected(home)
    with served(home) as site:
        before = site.ask(f"/api/v1/show?id={run}")
        with SqliteStore.open(home.store) as store:
            store.prune(RetentionPolicy(0.0, None), 2**62)
        after = site.ask(
            f"/api/v1/show?id={run}", headers={"If-None-Match": before.headers["etag"]}
        )

    assert before.status == 200
    assert after.status == 404


def test_a_server_without_a_store_begins_with_an_empty_one(home: Home) -> None:
    with served(home) as site:
        listed = site.data("/api/v1/list")
        health = site.ask("/healthz", key=None)

    assert listed["runs"] == []
    assert health.json() == {"status": "ok"}


@pytest.mark.slow
def test_two_hundred_readers_at_once_are_all_answered(home: Home) -> None:
    """Few threads, one connection each: requests wait, and none is refused."""
    from concurrent.futures import ThreadPoolExecutor

    path = f"/api/v1/show?id={record_collected(home, spans=20)}"

    with served(home) as site, ThreadPoolExecutor(200) as readers:
        replies = list(readers.map(lambda _: site.ask(path), range(400)))

    assert {reply.status for reply in replies} == {200}
    assert len({reply.body for reply in replies}) == 1


def test_the_numbers_are_there_for_prometheus(home: Home) -> None:
    record_collected(home)
    with served(home) as site:
        site.ask("/api/v1/list")
        site.ask("/api/v1/list?limit=abc")
        text = site.ask("/metrics").body.decode()

    assert 'vestige_http_requests_total{method="GET",route="/api/v1/list",status="200"} 1' in text
    assert 'vestige_http_requests_total{method="GET",route="/api/v1/list",status="400"} 1' in text
    assert 'vestige_http_request_duration_seconds_bucket{le="+Inf",route="/api/v1/list"} 2' in text
    assert "vestige_collector_lag_bytes 0" in text
    assert "vestige_store_runs" in text


def test_the_document_is_a_valid_one_and_has_every_verb(home: Home) -> None:
    """OpenAPI 3.1, made of the routes."""
    with served(home) as site:
        document: dict[str, Any] = site.data("/v1/openapi.json")

    assert document["openapi"] == "3.1.0"
    assert {f"/api/v1/{tool.name}" for tool in TOOLS} <= set(document["paths"])
    assert "/api/v1/live" in document["paths"]
    json.dumps(document)


def test_a_connection_that_broke_is_replaced_and_the_question_asked_again(home: Home) -> None:
    """Clients do not notice; a store that stays missing is still reported."""
    run = record_collected(home)
    server = Server(home)
    question = ToolRequest(LOCAL, get_tool("overview"), {"id": run}, "json", "", "")
    try:
        with open_path(home):
            pass  # takes the journals in
        with server.open_debugger(LOCAL) as debugger:
            debugger.store.close()
        answer = _respond(server, question)
        home.store.unlink()
        with pytest.raises(StoreError):
            _respond(server, question)
    finally:
        server.close()

    assert answer.status_code == 200
    assert json.loads(bytes(answer.body))["run"]["short_id"] == run
