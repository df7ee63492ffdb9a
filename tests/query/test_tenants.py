"""Two tenants in one store: whatever is asked, one never learns anything of the other.

Their runs are alike (same name, same conversation, same texts, links to each other), so that a
query that forgot about tenants would mix them up.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.clickhouse import ClickHouseServer
from vestige._runtime.clock import FakeClock
from vestige.errors import NotFoundError, UsageError, VestigeError
from vestige.home import Home, get_home
from vestige.query.command_tools import TOOLS, ask, check_arguments
from vestige.query.debugger import Debugger
from vestige.query.failures.check import _build_evidence
from vestige.record.codec import parse_lines
from vestige.record.note import Note
from vestige.record.types import AnyRecord, Link, SpanUpdate
from vestige.recorder import Recorder
from vestige.settings import find_store
from vestige.store.open import open_store
from vestige.store.protocol import Store
from vestige.store.sqlite import tenant_views
from vestige.store.sqlite.sqlite_store import SqliteStore
from vestige.transfer import open_tenant

SHARED = json.dumps(
    {"model": "gpt-4o", "messages": [{"role": "user", "content": "refunds? " * 20}]}
)


@dataclass
class Planted:
    """What a tenant has that no other may see."""

    word: str
    run_id: str
    run: int
    spans: list[str]
    bodies: list[int]
    conversation: str

    @property
    def marks(self) -> list[str]:
        return [self.word, self.run_id, *self.spans, self.conversation]


def records_of(folder: Path, word: str, number: int) -> list[AnyRecord]:
    """A run with a bit of everything, as its journal has it."""
    clock = FakeClock(start_ns=1_700_000_000_000_000_000 + number)
    for _ in range(1000 * number):
        clock.span_id()
    with Recorder(folder, clock=clock, last_words=False) as recorder:
        with recorder.run("triage", conversation_id="c-shared", attributes={"word": word}) as run:
            usage = {
                "model": "gpt-4o",
                "input_tokens": 9,
                "output_tokens": 3,
                "request_id": f"req-{word}",
            }
            run.span("chat", type="llm", body=SHARED).end(attributes=usage, body=f"answer {word}")
            with run.span("search", type="tool", body=f'{{"q": "{word}"}}') as tool:
                tool.log.warn(f"slow {word}", body=f"log body {word}")
                tool.end(ValueError(f"no index {word}"), body="shared result " * 10)
            state = {
                "version": "1",
                "session_id": word,
                "slices": [{"slice_type": word, "items": [word]}],
            }
            run.span("state", type="snapshot", attributes={"index": 0}).end(body=json.dumps(state))
            run.span("f", type="file", attributes={"path": f"{word}.txt"}).end(body=f"file {word}")
            run.span(f"only {word}", type="tool").end()
        recorder.run(f"own {word}", conversation_id=f"c-{word}").end()
    found: list[AnyRecord] = []
    for path in sorted((folder / "journal").iterdir()):
        found += parse_lines(path.read_bytes())[0]
    return found


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, dict[str, Planted]]:
    home = get_home(tmp_path_factory.mktemp("tenants") / "home")
    home.make()
    return home, plant(home)


@pytest.fixture(scope="module")
def planted_on_server(
    tmp_path_factory: pytest.TempPathFactory, clickhouse_server: ClickHouseServer
) -> tuple[Home, dict[str, Planted]]:
    home = get_home(tmp_path_factory.mktemp("tenants") / "home")
    home.make()
    home.config.write_text(f'store = "{clickhouse_server.make_store()}"\n')
    return home, plant(home)


def plant(home: Home) -> dict[str, Planted]:
    """Store the runs of three tenants in the store of a home."""
    found: dict[str, Planted] = {}
    with open_store(find_store(home)) as store:
        for number, tenant in enumerate(("default", "a", "b"), 1):
            word = f"word{number}{tenant}{number}"
            records = records_of(home.root.parent / tenant, word, number)
            store.append(records, tenant=tenant)
            sql = f"SELECT id, run_id FROM runs WHERE tenant = '{tenant}' AND name = 'triage'"
            row, run_id = store.query(sql, 0, 1).rows[0]
            run = store.load_run(run_id)
            refs = [ref for span in run.spans for ref in (span.input, span.output)]
            refs += [log.body for log in run.logs]
            bodies = [ref.id for ref in refs if ref is not None and ref.id is not None]
            spans = [span.id for span in run.spans]
            found[tenant] = Planted(word, run_id, row, spans, bodies, f"c-{word}")
            note = Note(id=f"note-{word}", run_id=run_id, text=f"said {word}", created_ns=1)
            store.add_note(note, tenant)
        _link_to_each_other(store, found)
    return found


def _link_to_each_other(store: Store, found: dict[str, Planted]) -> None:
    for tenant, other in (("a", "b"), ("b", "a"), ("default", "a")):
        mine, theirs = found[tenant], found[other]
        link = Link(theirs.spans[1], theirs.run_id, f"because {mine.word}")
        # Said by its own spans: only the tenant that says it may see it, and not who is meant.
        update = SpanUpdate(
            1,
            f"{mine.run:016x}",
            1,
            1_700_000_000_000_000_500,
            mine.run_id,
            mine.spans[1],
            {},
            [link],
        )
        store.append([update], tenant=tenant)


Asking = tuple[Debugger, Planted | None, list[Planted]]
"""A tenant's debugger, what it owns, and what it must not see."""

TENANTS = ("a", "default", "nobody")


@pytest.fixture(params=TENANTS)
def asking(
    request: pytest.FixtureRequest, planted: tuple[Home, dict[str, Planted]]
) -> Iterator[Asking]:
    yield from ask_as(request.param, *planted)


@pytest.fixture(
    params=[
        *(pytest.param((tenant, "planted"), id=tenant) for tenant in TENANTS),
        *(
            pytest.param(
                (tenant, "planted_on_server"), id=f"{tenant} on ClickHouse", marks=pytest.mark.full
            )
            for tenant in TENANTS
        ),
    ]
)
def asking_any_engine(request: pytest.FixtureRequest) -> Iterator[Asking]:
    tenant, planted = request.param
    yield from ask_as(tenant, *request.getfixturevalue(planted))


def ask_as(tenant: str, home: Home, found: dict[str, Planted]) -> Iterator[Asking]:
    with open_tenant(home, tenant) as debugger:
        yield debugger, found.get(tenant), [found[each] for each in found if each != tenant]


def leaks(text: str, others: list[Planted], question: str = "") -> list[str]:
    """Marks of others in a text, beside what was itself in the question."""
    text = text.replace(question, "") if question else text
    found = [mark for other in others for mark in other.marks if mark in text]
    return found + [f"r{one.run}" for one in others if re.search(rf"\br{one.run}\b", text)]


def answer_or_error(make: Callable[[], Any]) -> str:
    """All that an answer, or an error in its place, says."""
    try:
        answer = make()
    except VestigeError as error:
        return f"{error} {getattr(error, 'candidates', '')}"
    if isinstance(answer, str):
        return answer
    return answer.text(8000) + json.dumps(answer.data(), default=str)


@pytest.mark.slow
def test_no_verb_tells_of_another_tenant(asking_any_engine: Asking) -> None:
    """Every method of the debugger, asked as openly as it can be."""
    debugger, mine, others = asking_any_engine
    # Links of one's own name what they point at: that much the tenant said itself.
    known = [Planted(o.word, "\0", o.run, ["\0"], [], o.conversation) for o in others]
    run = mine.run_id if mine else "latest"
    special: dict[str, list[Callable[[], Any]]] = {
        "list": [
            lambda: debugger.list(everything=True, cost=True, limit=100),
            lambda: debugger.list(like="word", everything=True),
            lambda: debugger.list(conversation="c-shared"),
            lambda: debugger.list("tool:search model:gpt cost>=0 word", group="conversation"),
        ],
        "grep": [
            lambda: debugger.grep("word"),
            lambda: debugger.grep("refunds"),
            lambda: debugger.grep("w.rd", regex=True, where="bodies"),
            lambda: debugger.grep("shared result"),
        ],
        "sql": [
            lambda: debugger.sql("SELECT * FROM runs"),
            lambda: debugger.sql("SELECT 1", on="/tmp"),
        ],
        "schema": [debugger.schema],
        "stats": [
            lambda by=by: debugger.stats(by=by)  # type: ignore[misc]
            for by in ("name", "model", "tool", "component", "type", "day")
        ],
        "trends": [
            lambda by=by: debugger.trends(since="9999d", by=by)  # type: ignore[misc]
            for by in ("day", "hour")
        ],
        "compare": [lambda: debugger.compare([run], [run])],
        "measure": [lambda: repr(debugger.measure(run))],
        "groups": [debugger.groups, lambda: debugger.groups(like=run)],
        "diff": [
            lambda: debugger.diff(run, vs_good=True),
            lambda: debugger.diff(run, prev=True),
            lambda: debugger.diff(run, run),
        ],
        "doctor": [debugger.doctor],
        "reproduce": [lambda: debugger.reproduce(run, "curl")],
        "resolve": [lambda: str(debugger.resolve("c-shared"))],
    }
    verbs = [
        name
        for name, each in inspect.getmembers(Debugger, inspect.isfunction)
        if name[0] != "_" and name != "close"
    ]
    for verb in verbs:
        if verb in special:
            questions = special[verb]
        else:
            method = getattr(debugger, verb)
            assert next(iter(inspect.signature(method).parameters)) == "id", (
                f"say how to ask {verb}"
            )
            ids = [run, "c-shared", "r1", *((mine.spans[2], mine.word) if mine else ())]
            questions = [lambda method=method, text=text: method(text) for text in ids]  # type: ignore[misc]
        for question in questions:
            text = answer_or_error(question)
            assert leaks(text, known) == [], verb
    if mine is not None:
        assert mine.word in answer_or_error(lambda: debugger.overview(run))


def test_what_a_server_serves_is_the_same(asking_any_engine: Asking) -> None:
    """The table of verbs, each asked about another's run and span: not there, whatever it is."""
    debugger, _, others = asking_any_engine
    for tool in TOOLS:
        for other in others:
            for name in (other.run_id, f"r{other.run}", other.spans[1], f"r{other.run}.s2"):
                arguments = {
                    one.name: [name] if one.kind == "array" else name
                    for one in tool.parameters
                    if one.name in ("id", "a", "b", "run")
                }
                if not arguments:
                    continue
                arguments |= {"component": "agent"} if tool.name == "help" else {}
                arguments |= {"pattern": "word"} if tool.name == "grep" else {}
                values = check_arguments(tool, arguments)

                with pytest.raises(NotFoundError) as problem:
                    ask(debugger, tool, values)
                assert leaks(str(problem.value), others, name) == [], tool.name


def test_no_id_of_another_leads_anywhere_nor_is_it_hinted_at(asking_any_engine: Asking) -> None:
    """Whole, in part, misspelt, or in a line of text."""
    debugger, _, others = asking_any_engine
    for other in others:
        span = other.spans[1]
        for text in (
            other.run_id,
            other.run_id[:-1],
            f"{other.run_id[:-1]}f",
            other.run_id.upper(),
            f"r{other.run}",
            f"R{other.run}",
            span,
            span[:-2],
            f"{span[:-1]}f",
            f"r{other.run}.s1",
            f"r{other.run}#0",
            other.conversation,
            f"req-{other.word}",
            f"GET /runs/{other.run_id} failed",
            f"only {other.word}",
        ):
            if debugger.store.find_runs(text) or debugger.store.find_spans(text):
                continue  # the beginning of one's own: ids of the fake clock are alike

            with pytest.raises(NotFoundError) as problem:
                debugger.resolve(text)
            hinted = f"{problem.value} {getattr(problem.value, 'candidates', '')}"
            assert leaks(hinted, others, text.partition("#")[0]) == []


STATEMENTS = [
    "SELECT * FROM runs",
    "SELECT * FROM spans",
    "SELECT * FROM logs",
    "SELECT * FROM links",
    "SELECT * FROM findings",
    "SELECT * FROM notes",
    "SELECT * FROM rollups",
    "SELECT * FROM bodies",
    "SELECT * FROM writers",
    "SELECT * FROM unknown",
    "SELECT * FROM journals",
    "SELECT * FROM tenants",
    "SELECT * FROM snapshots",
    "SELECT * FROM slices",
    "SELECT * FROM files",
    "SELECT body_text(input_body), body_text(output_body) FROM spans",
    "SELECT body_json(body) FROM snapshots",
    "SELECT group_concat(run_id) FROM temp.runs",
    "SELECT a.*, b.* FROM runs a LEFT JOIN runs b ON b.tenant <> a.tenant",
    "SELECT * FROM runs WHERE tenant = 'b' OR 1 = 1",
    "SELECT * FROM links l JOIN spans s ON s.span_id = l.target_span",
    "SELECT * FROM links l JOIN runs r ON r.run_id = l.target_run",
    "SELECT value FROM runs, json_each(json_array(run_id, name))",
    "EXPLAIN SELECT * FROM spans",
]
REFUSED = [
    "SELECT * FROM main.runs",
    "SELECT count(*) FROM main.runs",
    "SELECT 1 FROM main.spans",
    "SELECT (SELECT max(id) FROM main.runs)",
    "SELECT * FROM main.logs",
    "SELECT rowid FROM main.bodies",
    "SELECT * FROM MAIN.Runs",
    'SELECT * FROM "main"."runs"',
    "SELECT * FROM main . runs",
    "SELECT EXISTS (SELECT 1 FROM main.runs WHERE run_id LIKE '0%')",
    "SELECT * FROM runs ORDER BY (SELECT count(*) FROM main.spans)",
    "SELECT * FROM runs UNION ALL SELECT * FROM main.runs",
    # A part of the query that is named as what may read the tables.
    "WITH runs AS (SELECT * FROM main.runs) SELECT * FROM runs",
    "WITH spans AS (SELECT * FROM main.spans) SELECT * FROM spans",
    "WITH own_ AS (SELECT * FROM main.runs) SELECT * FROM own_",
    "WITH snapshots AS (SELECT * FROM main.spans) SELECT * FROM slices, snapshots",
    (
        "WITH RECURSIVE runs(x) AS (SELECT id FROM main.runs UNION SELECT x FROM runs)"
        " SELECT * FROM runs"
    ),
    "SELECT * FROM (WITH tenants AS (SELECT * FROM main.tenants) SELECT * FROM tenants)",
    # Views of the file itself, and the schema.
    "SELECT * FROM main.snapshots",
    "SELECT * FROM main.slices",
    "SELECT * FROM main.files",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM main.sqlite_master",
    "SELECT * FROM sqlite_schema",
    "SELECT * FROM temp.sqlite_master",
    "SELECT * FROM sqlite_temp_master",
    "SELECT * FROM sqlite_temp_schema",
    "SELECT * FROM sqlite_sequence",
    "SELECT * FROM main.sqlite_sequence",
    # What is shared, or the home's.
    "SELECT * FROM pieces",
    "SELECT * FROM nodes",
    "SELECT * FROM facts",
    "SELECT data FROM main.pieces",
    # Other doors.
    "PRAGMA database_list",
    "PRAGMA table_info(runs)",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pragma_table_list",
    "SELECT * FROM dbstat",
    "SELECT * FROM sqlite_dbpage",
    "SELECT * FROM sqlite_stmt",
    "SELECT * FROM bytecode('SELECT 1')",
    "SELECT * FROM tables_used('SELECT 1')",
    "ATTACH DATABASE 'store.db' AS other",
    "SELECT load_extension('x')",
    "SELECT readfile('store.db')",
    "DROP VIEW runs",
    "DROP VIEW temp.runs",
    "CREATE TEMP VIEW x AS SELECT * FROM main.runs",
    "CREATE TEMP TABLE y AS SELECT * FROM main.runs",
    "DELETE FROM temp.runs",
    "DETACH DATABASE main",
    "VACUUM INTO '/tmp/vestige-stolen.db'",
]


@pytest.mark.slow
@pytest.mark.parametrize("statement", STATEMENTS)
def test_sql_sees_only_ones_own(asking: Asking, statement: str) -> None:
    """Rows come, and none is another's."""
    debugger, mine, others = asking
    known = [Planted(o.word, "\0", o.run, ["\0"], [], o.conversation) for o in others]
    text = json.dumps(debugger.sql(statement).data(), default=str)

    assert leaks(text, known) == []
    if mine is not None and "slices" in statement:
        assert mine.word in text


@pytest.mark.slow
@pytest.mark.parametrize("statement", REFUSED)
def test_sql_that_reaches_round_the_views_is_refused(
    planted: tuple[Home, dict[str, Planted]], statement: str
) -> None:
    """And the refusal says nothing of what is there."""
    home, found = planted
    with open_tenant(home, "a") as debugger, pytest.raises(UsageError) as problem:
        debugger.sql(statement)

    assert leaks(str(problem.value), [found["b"], found["default"]]) == []
    assert str(home.root) not in str(problem.value)
    assert not Path("/tmp/vestige-stolen.db").exists()


def test_a_body_is_read_only_by_whose_it_is(planted: tuple[Home, dict[str, Planted]]) -> None:
    """By guessing its number: nothing. Equal texts of two tenants are two bodies."""
    home, found = planted
    with open_tenant(home, "a") as debugger:
        rows = debugger.sql(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 199)"
            " SELECT x, body_text(x) FROM n"
        ).data()["rows"]
        readable = {number for number, text in rows if text is not None}
        for body in found["b"].bodies + found["default"].bodies:
            with pytest.raises(NotFoundError, match="no such body"):
                debugger.store.read_body(body)
            assert list(debugger.store.read_bodies([body])) == []

    assert readable == set(found["a"].bodies)
    assert not readable & {*found["b"].bodies, *found["default"].bodies}


def test_the_owner_of_the_home_sees_all(planted: tuple[Home, dict[str, Planted]]) -> None:
    """Without a tenant nothing is hidden; so what these tests look for is there to be seen."""
    home, found = planted
    with SqliteStore.open(home.store, readonly=True) as store:
        owner = Debugger(store)
        for question in (
            lambda: owner.list(everything=True),
            lambda: owner.list(like="word2"),
            lambda: owner.grep("word2"),
            lambda: owner.stats(by="tool"),
            lambda: owner.overview(found["a"].run_id),
            lambda: owner.sql("SELECT body_text(output_body) FROM spans"),
            lambda: owner.span(found["a"].spans[1]),
        ):
            assert leaks(answer_or_error(question), [found["a"]])
        ids = set(store.run_ids())
        rows = store.query("SELECT DISTINCT tenant FROM runs ORDER BY 1", 0, 10).rows

    assert {each.run_id for each in found.values()} <= ids
    assert [row[0] for row in rows] == ["a", "b", "default"]


def test_conversations_of_two_tenants_that_are_called_alike_stay_apart(
    planted: tuple[Home, dict[str, Planted]],
) -> None:
    """A reader of all tenants sees of each its newest run and the number of runs."""
    home, _ = planted
    with SqliteStore.open(home.store, readonly=True) as store:
        runs = Debugger(store).list(group="conversation").data()["runs"]

    shared = [run for run in runs if run["conversation_id"] == "c-shared"]
    assert [run["group"]["runs"] for run in shared] == [1, 1, 1]
    assert [run["group"]["input_tokens"] for run in shared] == [9, 9, 9]


def test_what_the_owner_found_tells_a_tenant_nothing_of_others(
    planted: tuple[Home, dict[str, Planted]],
) -> None:
    """Findings are kept; runs of one conversation are compared within a tenant."""
    home, found = planted
    with SqliteStore.open(home.store) as store:
        store._connection.execute("DELETE FROM findings")  # what other tests had kept
    with SqliteStore.open(home.store, readonly=True) as store:
        saved: list[Any] = []
        run_of_a = store.load_run(found["a"].run_id)
        conversation = _build_evidence(store, run_of_a, None).conversation
        owner = Debugger(store, keep=lambda run, results: saved.append((run, results)))
        owner.check(found["a"].run_id)
        good = owner.overview(found["a"].run_id).last_good
    with SqliteStore.open(home.store) as store:
        for run, results in saved:
            store.store_findings(run, results)
    with open_tenant(home, "a") as debugger:
        text = answer_or_error(lambda: debugger.check(found["a"].run_id))

    assert saved
    assert [run.id for run in conversation] == [found["a"].run_id]
    assert good is None or good.id not in (found["b"].run_id, found["default"].run_id)
    assert leaks(text, [found["b"], found["default"]]) == []


def test_every_table_is_somebodys(planted: tuple[Home, dict[str, Planted]]) -> None:
    """A table that a later step adds must be said to be a tenant's, or hidden from tenants."""
    home, _ = planted
    with SqliteStore.open(home.store, readonly=True) as store:
        rows = store._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        ).fetchall()

    assert {row[0] for row in rows} == tenant_views.TABLES.keys() | tenant_views.HIDDEN
