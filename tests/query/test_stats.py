"""Sums come from the daily rollups; the cost of a tool in every turn is shown beside its use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vestige import Recorder
from vestige._runtime.clock import SYSTEM
from vestige.collector.loop import catch_up
from vestige.errors import UsageError
from vestige.home import Home
from vestige.query.stats.cost_ranking import SUGGESTIONS_MAX, CostRow, Ranking, rank_tools
from vestige.query.stats.costs import format_dollars, price_calls
from vestige.query.stats.stats_answer import stats_answer
from vestige.query.stats.trends import trends_answer
from vestige.query.token_budget import count_tokens
from vestige.store.protocol import GROUPS, ModelSum, Sum
from vestige.store.sqlite.sqlite_store import SqliteStore


def tool(name: str, description: str = "") -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": {}},
    }


def request(*tools: dict[str, Any]) -> str:
    return json.dumps(
        {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "tools": list(tools)}
    )


TOOLS = (tool("search"), tool("delete_all", "x" * 2_000), tool("read", "y" * 100))
USED = {"model": "gpt-4o", "input_tokens": 1_000, "output_tokens": 100, "cache_read_tokens": 500}


def record_tool_use(home: Home) -> None:
    """Two runs: search works, read fails, delete_all is never called."""
    with Recorder(home) as recorder:
        for _ in range(2):
            with recorder.run("triage") as run:
                call = run.span("chat", "llm", USED, body=request(*TOOLS))
                call.segments([("persona", "p" * 300), ("tool:search", "s" * 50)])
                call.end()
                run.span("search", "tool").end(body="found")
                run.span("read", "tool").end(status="error")
        with recorder.run("other") as run:
            run.span("chat", "llm", {**USED, "model": "my-own-model"}).end(status="error")


def opened(home: Home) -> SqliteStore:
    catch_up(home)
    return SqliteStore.open(home.store, readonly=True)


def test_sums_by_name_model_component_and_type(home: Home) -> None:
    """Counts, errors and tokens, each group once."""
    record_tool_use(home)

    with opened(home) as store:
        answers = {by: stats_answer(store, by) for by in GROUPS}

    def counts(by: str) -> dict[str, tuple[int, int]]:
        return {row["key"]: (row["count"], row["errors"]) for row in answers[by].data()["rows"]}

    assert counts("name") == {
        "tool read": (2, 2),
        "llm chat": (3, 1),
        "prompt.assembly prompt": (2, 0),
        "run triage": (2, 0),
        "tool search": (2, 0),
        "run other": (1, 0),
    }
    assert list(counts("name"))[:2] == ["tool read", "llm chat"]
    assert counts("model") == {"gpt-4o": (2, 0), "my-own-model": (1, 1)}
    assert counts("tool") == {"read": (2, 2), "search": (2, 0)}
    assert counts("component")["agent"] == (12, 3)
    assert counts("type")["llm"] == (3, 1)
    assert list(counts("day").values()) == [(3, 0)]
    row = answers["model"].data()["rows"][0]
    assert (row["input_tokens"], row["output_tokens"], row["cache_read_tokens"]) == (
        2_000,
        200,
        1_000,
    )


def test_cost_is_money_and_an_unknown_model_is_said_to_be_unknown(home: Home) -> None:
    record_tool_use(home)

    with opened(home) as store:
        by_model, by_day = stats_answer(store, "model"), stats_answer(store, "day")

    rows = {row["key"]: row for row in by_model.data()["rows"]}
    assert rows["gpt-4o"]["cost_usd"] > 0
    assert rows["my-own-model"]["cost_usd"] is None
    lines = by_model.text().splitlines()
    assert lines[2].startswith("gpt-4o") and lines[2].endswith(
        format_dollars(rows["gpt-4o"]["cost_usd"])
    )
    assert lines[3].startswith("my-own-model") and lines[3].endswith("unknown")
    assert lines[4] == "no price known for my-own-model (not included in the cost)"
    assert by_day.text().splitlines()[2].split()[-1].endswith("+")


def test_trends_say_which_models_are_not_in_their_cost(home: Home) -> None:
    """A sum that leaves something out is marked as partial."""
    record_tool_use(home)

    with opened(home) as store:
        lines = trends_answer(store, since_s=86_400, now_ns=SYSTEM.now_ns()).text().splitlines()

    assert lines[-2] == "no price known for my-own-model (not included in the cost)"


def test_a_sum_is_priced_like_its_calls() -> None:
    """Prices may rise with a request's length; a thousand short ones are still short."""
    one = price_calls(ModelSum("", "gemini-2.5-pro", 1, 10_000, 100, 0, 0))
    many = price_calls(ModelSum("", "gemini-2.5-pro", 1_000, 10_000_000, 100_000, 0, 0))
    long = price_calls(ModelSum("", "gemini-2.5-pro", 1, 400_000, 100, 0, 0))

    assert one is not None and many is not None and long is not None
    assert many == pytest.approx(one * 1_000)
    assert long > one * 41


@pytest.mark.parametrize(
    ("dollars", "shown"),
    [(0, "$0"), (0.00001, "<$0.0001"), (0.0042, "$0.0042"), (1.274, "$1.27"), (12345.6, "$12,346")],
)
def test_money_is_short(dollars: float, shown: str) -> None:
    assert format_dollars(dollars) == shown


def test_tools_are_ranked_by_standing_cost_against_use(home: Home) -> None:
    """Fat and never called first; what is measured and what is guessed stand apart."""
    record_tool_use(home)

    with opened(home) as store:
        answer = stats_answer(store, "tool")
        ranking = rank_tools(store)

    assert [(part.name, part.calls, part.ok) for part in ranking.tools] == [
        ("delete_all", 0, 0),
        ("read", 2, 0),
        ("search", 2, 2),
    ]
    assert ranking.tools[0].size_bytes == len(json.dumps(TOOLS[1]))
    assert [(part.name, part.size_bytes) for part in ranking.contributors] == [
        ("persona", 300),
        ("tool:search", 50),
    ]
    assert (ranking.requests, ranking.turns, ranking.skipped) == (2, 3, 1)
    text = answer.text().splitlines()
    assert text[text.index("") + 1 :] == [
        "Prompt cost vs. usage (the last request of each of the latest 2 runs, with 3 model calls)",
        "1 request skipped (missing, too long or of unknown format)",
        "hypothesis: delete_all (2.1k per turn) was never called: it is not needed, or its "
        "description does not explain when to use it",
        "hypothesis: read failed in 2 of 2 calls: its parameters may be described wrongly, or a "
        "service that it needs is down",
        "tool        bytes/turn  ~tokens    in  calls    ok",
        f"delete_all        2.1k      {ranking.tools[0].tokens}  100%      0     –",
        (
            f"read              {ranking.tools[1].size_bytes}B       "
            f"{ranking.tools[1].tokens}  100%      2    0%"
        ),
        (
            f"search             {ranking.tools[2].size_bytes}B       "
            f"{ranking.tools[2].tokens}  100%      2  100%"
        ),
        "contributor  bytes/turn  ~tokens    in  calls    ok",
        "persona            300B       75  100%      –     –",
        "tool:search         50B       12  100%      2  100%",
    ]


def test_calls_in_histories_count_where_tools_are_not_recorded(home: Home) -> None:
    made = {
        "role": "assistant",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        ],
    }
    body = json.dumps(
        {
            "model": "m",
            "messages": [made, {"role": "tool", "tool_call_id": "c", "content": "x"}],
            "tools": [tool("search")],
        }
    )
    with Recorder(home) as recorder, recorder.run("r") as run:
        run.span("chat", "llm", body=body).end()

    with opened(home) as store:
        ranking = rank_tools(store)

    assert [(part.name, part.calls, part.requested) for part in ranking.tools] == [("search", 0, 1)]
    assert not ranking.hypotheses()


def test_since_means_whole_days(home: Home) -> None:
    record_tool_use(home)

    with opened(home) as store:
        today = stats_answer(store, "day").data()["rows"][0]["key"]
        all_of_it = stats_answer(store, "day", since=0)
        later = stats_answer(store, "name", since=253_402_300_000 * 10**9)

    assert all_of_it.data()["rows"][0]["key"] == today
    assert later.text().splitlines() == [
        "No data by name since 9999-12-31.",
        "next: vestige list",
    ]


def test_what_one_cannot_group_by_is_refused_with_what_one_can(home: Home) -> None:
    record_tool_use(home)

    with (
        opened(home) as store,
        pytest.raises(UsageError, match="expected name, model, tool, component, type, day"),
    ):
        stats_answer(store, "colour")


@pytest.mark.slow
def test_many_hostile_names_stay_within_the_budget(home: Home) -> None:
    """What is cut says how much, and the next command."""
    with Recorder(home) as recorder, recorder.run("r") as run:
        tools = [tool(f"工具{n}\x1b[2J", "z" * n) for n in range(400)]
        run.span("chat", "llm", {"model": "界" * 300}, body=request(*tools)).end()
        for number in range(400):
            run.span(f"\x1b[31m工具 {number}\n" * 5, "tool").end()

    with opened(home) as store:
        answers = [stats_answer(store, by) for by in GROUPS]

    for answer in answers:
        for budget in (50, 300, 800, 8000):
            text = answer.text(budget)
            assert count_tokens(text) <= budget
            assert "\x1b" not in text
    by_tool = answers[GROUPS.index("tool")]
    assert "more rows: vestige stats --by tool --budget 3200" in by_tool.text()
    assert "Prompt cost vs. usage" in by_tool.text()
    assert by_tool.text() == by_tool.text()


def test_a_cut_answer_since_a_day_does_not_name_a_command_that_asks_for_more(home: Home) -> None:
    with Recorder(home) as recorder, recorder.run("r") as run:
        for number in range(100):
            run.span(f"step {number}").end()

    with opened(home) as store:
        answer = stats_answer(store, "name", since=0)

    assert "the same command with --budget 3200" in answer.text()


def test_no_day_has_no_bar() -> None:
    """A sum without calls (only tokens of that day) still has a row."""
    from vestige.query.stats.stats_answer import StatsAnswer

    answer = StatsAnswer(
        "day",
        [Sum("2026-01-01"), Sum("2026-01-02", 8), Sum("2026-01-03", 4)],
        [],
        None,
        "2026-01-01",
        None,
    )

    assert [line.split()[2] for line in answer.text().splitlines()[3:]] == ["█", "▄"]


def test_more_hypotheses_than_are_shown_are_counted() -> None:
    unused = [CostRow(f"tool{n}", size_bytes=10, seen=1) for n in range(SUGGESTIONS_MAX + 2)]

    lines = Ranking(runs=1, turns=1, requests=1, tools=unused).lines()

    assert "… 2 more hypotheses, see the table" in lines
