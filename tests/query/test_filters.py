"""The filter language: what its terms mean for real runs, and what it says of those that are
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vestige
from support.programs import load
from vestige._runtime.clock import FakeClock
from vestige.errors import UsageError
from vestige.home import Home
from vestige.query.debugger import Debugger
from vestige.query.search.filters import KEYS, parse_filter
from vestige.record.types import Log
from vestige.recorder import Recorder
from vestige.store.protocol import Term
from vestige.store.sqlite.read import filter_sql
from vestige.store.sqlite.sqlite_store import SqliteStore

NOW = 1_800_000_000 * 10**9


def test_terms_are_read_as_they_are_meant() -> None:
    text = (
        "is:Failed -tool:search cost>$0.1 tokens>=10k "
        'duration<5s since:2d "card \\"refused\\"" -slow'
    )

    assert parse_filter(text, NOW) == (
        Term("is", ":", "failed"),
        Term("tool", ":", "search", negated=True),
        Term("cost", ">", 0.1),
        Term("tokens", ">=", 10_000),
        Term("duration", "<", 5 * 10**9),
        Term("started_ns", ">=", NOW - 2 * 86_400 * 10**9),
        Term("text", ":", 'card "refused"'),
        Term("text", ":", "slow", negated=True),
    )
    assert parse_filter('name:"two words" -', NOW) == (
        Term("name", ":", "two words"),
        Term("words", ":", ("-",)),
    )
    assert parse_filter('rate is:ok "a b" limit R59 r60.s2 -r7', NOW) == (
        Term("is", ":", "ok"),
        Term("text", ":", "a b"),
        Term("run", ":", ("r7",), negated=True),
        Term("run", ":", ("r59", "r60")),
        Term("words", ":", ("rate", "limit")),
    )
    assert parse_filter("is:crashed run:R3", NOW) == (
        Term("is", ":", "interrupted"),
        Term("run", ":", ("r3",)),
    )
    assert parse_filter("#Culprit tag:#flaky -#fixed tag:12 #12", NOW) == (
        Term("tag", ":", "culprit"),
        Term("tag", ":", "flaky"),
        Term("tag", ":", "fixed", negated=True),
        Term("tag", ":", "12"),
        Term("words", ":", ("#12",)),
    )
    assert parse_filter("  ", NOW) == ()


@pytest.mark.parametrize(
    ("text", "taught"),
    [
        ("is:faild", "expected is: and one of failed, "),
        ("is:succes", "expected is: and one of ok, failed, "),
        ("is:cra", "expected is: and one of interrupted, "),
        ("is:nothing", "expected is: and one of failed, ok"),
        ("tag:a*b", "a tag of letters"),
        ("has:notes", "expected has: and one of note, "),
        ("a b c d e f g h i", "9 words (expected at most 8)"),
        ("tol:search", "expected tool"),
        ("http://x", 'as text: "http://x"'),
        ("cost:3", "expected cost> or cost< and a number"),
        ("cost>much", "expected a number such as 10, 0.5, 10k"),
        ("since:soon", "a duration such as 90s"),
        ("name>x", "expected name: and a value"),
        ("tool:", "expected a value after tool:"),
        ('name:""', "expected a value after name:"),
        ('say "this', "expected a closing quote"),
        ("x " * 21, "21 terms (expected at most 20)"),
        ("x" * 2001, "2001 characters"),
        ("is:\x1b[31m", "expected is: and one of"),
    ],
)
def test_a_term_that_is_none_is_told_what_fits(text: str, taught: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_filter(text, NOW)

    assert taught in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


@given(st.text(max_size=200))
def test_any_text_is_terms_or_a_usage_error(text: str) -> None:
    try:
        terms = parse_filter(text, NOW)
    except UsageError as refused:
        assert "\n" not in str(refused)
    else:
        assert all(filter_sql.build_condition(term) for term in terms if term.key != "cost")


@given(
    st.lists(
        st.sampled_from(
            [*(f"{key}:" for key in KEYS), *KEYS, ">", "<=", "=", '"', "-", " ", "1", "x", "\\"]
        ),
        max_size=30,
    )
)
def test_pieces_of_the_language_in_any_order_are_terms_or_a_usage_error(pieces: list[str]) -> None:
    try:
        parse_filter("".join(pieces), NOW)
    except UsageError as refused:
        assert "\n" not in str(refused)


@given(st.text(min_size=1, max_size=50))
def test_what_stands_in_quotes_is_taken_as_it_is(text: str) -> None:
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    assert parse_filter(quoted, NOW) == (Term("text", ":", text),)
    assert parse_filter(f"-name:{quoted}", NOW) == (Term("name", ":", text, negated=True),)


# --- real runs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debugger]:
    """Forty runs: each fourth fails, some search, some cost money, five to a conversation."""
    home = Home(tmp_path_factory.mktemp("many") / "home")
    clock = FakeClock(1_794_700_800 * 10**9)
    with Recorder(home, last_words=False, clock=clock) as recorder:
        for n in range(40):
            conversation = f"conv {n // 5}" if n < 20 else None
            run = recorder.run(f"agent_{n}", conversation)
            model = "gpt-4o" if n % 2 else "claude-sonnet-4-5"
            usage = {"model": model, "input_tokens": n * 1000, "output_tokens": 10}
            run.child("chat", "llm", attributes=usage).end()
            if n % 5 == 0:
                run.tool("web_search", {"q": n}).end(body="found")
                run.log.info(f"looked for 100%_{n}")
            body = "the RateLimitError of moderate size" if n == 7 else "generate without limit"
            run.child("chat", "step").end(body=f"{body} {n}\n{'x' * (500 if n == 9 else 1)} later")
            clock.advance(10**9 * (n + 1))
            run.end(error=ValueError("card refused") if n % 4 == 0 else None)
    load(home)
    with vestige.open(home.root) as opened:
        yield opened


def found(debugger: Debugger, text: str, **options: object) -> set[int]:
    answer = debugger.list(text, limit=1000, everything=False, **options)  # type: ignore[arg-type]
    return {int(run.name.removeprefix("agent_")) for run in answer.runs}


ALL = set(range(40))
FAILED = set(range(0, 40, 4))
SEARCHED = set(range(0, 40, 5))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ALL),
        ("is:failed", FAILED),
        ("is:ok", ALL - FAILED),
        ("-is:failed", ALL - FAILED),
        ("is:error tool:search", FAILED & SEARCHED),
        ("-tool:search", ALL - SEARCHED),
        ("type:tool", SEARCHED),
        ("model:GPT", set(range(1, 40, 2))),
        ("name:agent_3", {3, *range(30, 40)}),
        ('conversation:"conv 1"', {5, 6, 7, 8, 9}),
        ("has:conversation", set(range(20))),
        ("tokens>30k", set(range(30, 40))),
        ("duration>=35s", set(range(34, 40))),
        ("errors>0", FAILED),
        ("logs=1", SEARCHED),
        ('"card refused"', FAILED),
        ("100%_5", {5}),
        ("refused card", FAILED),
        ("efused", set()),
        ('"efused"', FAILED),
        ("rate limit", {7}),
        ("LIMIT rate", {7}),
        ("error size", {7}),
        ("limit later", ALL - {9}),
        ('"limit" "later"', ALL),
        ("is:failed looked 100%", FAILED & SEARCHED),
        ("r9", {7}),
        ("run:R9", {7}),
        ("r9 r10.s1", {7, 8}),
        ("r9 r10 refused", {8}),
        ("-r9 -r10 name:agent_", ALL - {7, 8}),
        ("cost>0.086", {n for n in range(40) if n * 1000 * (2.5e-6 if n % 2 else 3e-6) > 0.086}),
        (
            "-cost>0.086 name:agent_3",
            {3, *(n for n in range(30, 40) if n * 1000 * (2.5e-6 if n % 2 else 3e-6) <= 0.086)},
        ),
        ("since:10000d", ALL),
        ("before:10000d", set()),
    ],
)
def test_a_filter_finds_the_runs_that_it_means(
    many: Debugger, text: str, expected: set[int]
) -> None:
    assert found(many, text) == expected


@pytest.mark.parametrize(
    "text",
    ["tokens>999999999999999m", "duration>999999999999d", "since:999999999999d", "x\udcff", "\x00"],
)
def test_absurd_values_find_nothing_and_break_nothing(many: Debugger, text: str) -> None:
    assert found(many, text) <= ALL


def test_texts_and_moments_are_bounded(many: Debugger) -> None:
    with pytest.raises(UsageError, match="expected at most"):
        many.list(like="x" * 100_000)
    with pytest.raises(UsageError, match="expected an age"):
        many.list(since=-1)
    with pytest.raises(UsageError, match="not a time"):
        many.files(at="nan")

    assert many.list(since="9" * 12, name="\udcff").runs == []
    assert many.files(at="1e400").data()["files"] == []
    assert many.show(from_="-inf", to="inf").data()["spans"]


@pytest.mark.parametrize("text", ["", "is:failed", "tool:search", "cost>0.01"])
def test_pages_of_a_list_tell_every_run_once(many: Debugger, text: str) -> None:
    complete = [run.short_id for run in many.list(text, limit=1000).runs]
    pages: list[str] = []
    after: str | None = None
    while True:
        page = many.list(text, limit=3, after=after).data()
        pages += [run["short_id"] for run in page["runs"]]
        after = page["next"]
        if after is None:
            break

    assert pages == complete
    assert not page["more"]


@pytest.mark.parametrize("text", ["", "tool:search", "is:failed"])
def test_of_each_conversation_the_newest_run_that_is_meant(many: Debugger, text: str) -> None:
    expected: dict[str, int] = {}
    for n in sorted(found(many, text)):
        expected[f"conv {n // 5}" if n < 20 else f"run {n}"] = n
    answer = many.list(text, limit=1000, group="conversation").data()
    groups = {run["name"]: run["group"] for run in answer["runs"]}
    paged = many.list(text, limit=2, group="conversation")
    rest = many.list(text, limit=1000, group="conversation", after=paged.next)

    assert set(groups) == {f"agent_{n}" for n in expected.values()}
    assert [*paged.runs, *rest.runs] == many.list(text, limit=1000, group="conversation").runs
    for name, group in groups.items():
        if int(name.removeprefix("agent_")) >= 20:
            assert group is None
        else:
            assert group["runs"] == 5


def test_a_look_into_runs_stops_after_so_many_and_says_so(
    many: Debugger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that may be empty; put together they are all that there is."""
    complete = [run.short_id for run in many.list("tool:search", limit=1000).runs]
    monkeypatch.setattr(filter_sql, "RUNS_SEARCHED_MAX", 4)
    first = many.list("tool:search")
    pages: list[str] = []
    after: str | None = None
    while True:
        page = many.list("tool:search", after=after)
        pages += [run.short_id for run in page.runs]
        after = page.next
        if after is None:
            break

    assert pages == complete
    assert first.searched == 4
    assert "--after" in first.text()


def test_the_rows_of_long_runs_bound_a_look_too(
    many: Debugger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_sql, "ROWS_SEARCHED_MAX", 10)

    answer = many.list('"web_search"')

    assert answer.searched is not None
    assert 1 <= answer.searched < 10
    assert answer.next is not None


def test_a_run_without_a_name_has_no_other_name(tmp_path: Path) -> None:
    """Its beginning was lost. What is not said of it is not said of it, also when turned round."""
    line = Log(1, "5f0c9a1e77b2c4d0", 1, NOW, "3d1957bd-0000-4000", "agent", "info", "card refused")
    with SqliteStore.open(tmp_path / "store.db") as store:
        store.append([line])
        debugger = Debugger(store)
        found = {
            text: len(debugger.list(text).runs)
            for text in ("-name:refund", "-missing", "name:refund", "-refused", "refused")
        }

    assert found == {
        "-name:refund": 1,
        "-missing": 1,
        "name:refund": 0,
        "-refused": 0,
        "refused": 1,
    }


def test_what_the_words_of_a_filter_are_taken_for_is_in_the_answer(many: Debugger) -> None:
    answer = many.list('card refused "no" -r3', limit=1).data()

    assert answer["understood"] == (
        'the text "no"; not run r3;'
        ' words that begin with "card" and "refused", near each other, in any order'
    )
    assert "understood" not in many.list("is:failed", limit=1).data()


@pytest.mark.parametrize("text", ["", "is:failed", "refused card", "name:nothing"])
def test_the_parts_of_a_time_range_add_up_to_its_totals(many: Debugger, text: str) -> None:
    data = many.list(text, limit=1, totals=True, buckets=True).data()
    totals, parts = data["totals"], data["buckets"]

    for key in ("runs", "failed", "tokens", "model_calls"):
        assert sum(part[key] for part in parts) == totals[key]
    assert sum(part["cost_usd"] or 0 for part in parts) == pytest.approx(totals["cost_usd"] or 0)
    assert [part["at"] for part in parts] == sorted({part["at"] for part in parts})
    assert len(parts) <= 61


def test_a_list_shows_where_a_run_has_the_words(many: Debugger) -> None:
    """In JSON, and on a terminal; a run whose name has the words needs no match."""
    answer = many.list("rate limit")
    (run,) = answer.data()["runs"]
    answer.columns = 120

    assert run["name"] == "agent_7"
    assert (run["match"]["match"], run["match"]["part"]) == ("Rate", "output")
    assert "«Rate»LimitError" in answer.text()
    assert "match" not in many.list("agent_7").data()["runs"][0]
