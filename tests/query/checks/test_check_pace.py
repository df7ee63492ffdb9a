"""Too slow, too much, too full, suddenly empty."""

from __future__ import annotations

from support.planted_bugs import answer, findings, recording, request, think
from vestige._runtime.clock import FakeClock
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.checks.progress import time_and_usage
from vestige.recorder import Recorder

SECOND = 10**9


def work(run: Span, clock: FakeClock, seconds: float, name: str = "fetch") -> Span:
    span = run.child(name, "tool")
    clock.advance(int(seconds * SECOND))
    span.end()
    return span


def test_a_step_that_takes_far_longer_than_its_like(home: Home) -> None:
    clock = FakeClock()
    with recording(home, clock=clock) as run:
        for _ in range(4):
            work(run, clock, 1)
        with run.child("plan", "step") as outer:
            slow = work(outer, clock, 120)

    (found,) = findings(home, time_and_usage.stalled_step)

    assert found.cause == slow.id
    # The others are only compared with it: as evidence, their own findings would count as related.
    assert found.evidence == [slow.id]
    assert "2m00s" in found.message and "1.0s" in found.message


def test_slow_work_that_is_always_slow_is_no_stall(home: Home) -> None:
    clock = FakeClock()
    with recording(home, clock=clock) as run:
        for seconds in (40, 50, 90):
            work(run, clock, seconds)
        for seconds in (0.1, 0.1, 0.1, 20):
            work(run, clock, seconds, "quick")
        work(run, clock, 500, "once")

    assert findings(home, time_and_usage.stalled_step) == []


def test_a_step_that_stalled_says_where_it_stood(home: Home) -> None:
    """As the process wrote it down meanwhile; here it is asked to, which needs no waiting."""
    clock = FakeClock()
    recorder = Recorder(home, clock=clock)
    with recorder.run("agent") as run:
        for _ in range(3):
            work(run, clock, 1)
        with run.child("fetch", "tool"):
            clock.advance(90 * SECOND)
            home.asks.mkdir()
            home.ask_file(recorder.writer).write_text(f"{run.run_id} k")
            recorder._writer.self_reporter.check()
    recorder.close()

    (found,) = findings(home, time_and_usage.stalled_step)

    assert "; stuck at test_check_pace.py:" in found.message
    assert findings(home, time_and_usage.standstill) == []  # it is over


def ask(run: Span, tokens: int, **attributes: object) -> Span:
    fields = {"model": "gpt-4o", "input_tokens": tokens, "output_tokens": 10, **attributes}
    span = run.child("chat", "llm", fields)
    span.end()
    return span


def test_more_than_a_million_tokens(home: Home) -> None:
    with recording(home) as run:
        for _ in range(12):
            ask(run, 90_000)
        largest = ask(run, 95_000)

    (found,) = findings(home, time_and_usage.runaway_cost)

    assert (found.kind, found.cause) == ("runaway/tokens", largest.id)
    assert "1.2M tokens in 13 model calls" in found.message


def test_a_run_that_costs_too_much(home: Home) -> None:
    with recording(home) as run:
        ask(run, 10, cost_usd=4.0)
        dearest = ask(run, 10, cost_usd=7.5)

    (found,) = findings(home, time_and_usage.runaway_cost)

    assert (found.kind, found.cause) == ("runaway/cost", dearest.id)
    assert "$11.50" in found.message


def test_input_that_grows_with_every_call(home: Home) -> None:
    with recording(home) as run:
        for tokens in (1_000, 2_000, 3_000, 4_000, 5_000):
            ask(run, tokens)
        jump = ask(run, 40_000)
        for tokens in (45_000, 50_000, 60_000):
            ask(run, tokens)

    (found,) = findings(home, time_and_usage.runaway_cost)

    assert (found.kind, found.cause) == ("runaway/growth", jump.id)
    assert "9 consecutive calls" in found.message


def test_the_cost_of_a_run_comes_from_the_price_table(home: Home) -> None:
    with recording(home) as run:
        ask(run, 100_000, model="gpt-4-32k", output_tokens=10)
        dearest = ask(run, 900_000, model="gpt-4-32k", output_tokens=10)

    kinds = {found.kind: found.cause for found in findings(home, time_and_usage.runaway_cost)}

    assert kinds.get("runaway/cost") == dearest.id


def test_an_ordinary_run_costs_what_it_costs(home: Home) -> None:
    with recording(home) as run:
        for tokens in (1_000, 2_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000, 9_500, 9_900):
            ask(run, tokens, cost_usd=0.1)

    assert (
        findings(
            home,
            time_and_usage.runaway_cost,
            time_and_usage.context_pressure,
            time_and_usage.history_loss,
        )
        == []
    )


def test_a_window_that_is_nearly_full_is_a_hypothesis(home: Home) -> None:
    with recording(home) as run:
        ask(run, 90_000)
        first = ask(run, 110_000)
        ask(run, 120_000)

    (found,) = findings(home, time_and_usage.context_pressure)

    assert (found.kind, found.basis, found.cause) == ("context/pressure", "hypothesis", first.id)
    assert "94%" in found.message and "2 calls" in found.message


def test_what_a_cache_served_is_in_the_window_too(home: Home) -> None:
    with recording(home) as run:
        ask(run, 100, model="claude-sonnet-4", cache_read_tokens=170_000)
        ask(run, 170_000, model="my-own", context_window=1_000_000)

    (found,) = findings(home, time_and_usage.context_pressure)

    assert "170,100 of 200,000" in found.message


def test_what_a_cache_served_is_not_counted_twice(home: Home) -> None:
    """The wire's `input_tokens` is of all input, the cached part included."""
    with recording(home) as run:
        for _ in range(9):
            ask(run, 101_000, model="claude-sonnet-4", cache_read_tokens=100_500)

    assert findings(home, time_and_usage.context_pressure, time_and_usage.runaway_cost) == []


def test_the_window_of_each_model_comes_from_the_table_of_models(home: Home) -> None:
    with recording(home) as run:
        ask(run, 190_000, model="claude-sonnet-4-6")  # a window of 1,000,000
        ask(run, 380_000, model="gpt-5.4", provider="openai")  # a window of 1,050,000
        ask(run, 170_000, model="us.anthropic.claude-sonnet-4-20250514-v1:0")  # of 200,000
        ask(run, 1_700, model="unheard-of")

    (found,) = findings(home, time_and_usage.context_pressure)

    assert "170,000 of 200,000" in found.message and "1 call " in found.message


def test_a_family_has_a_window_where_the_table_has_none_for_its_model(home: Home) -> None:
    with recording(home) as run:
        ask(run, 900_000, model="gemini-2.5-pro", provider="gemini")

    (found,) = findings(home, time_and_usage.context_pressure)

    assert "900,000 of 1,048,576" in found.message


def test_a_window_is_larger_than_what_it_was_seen_to_hold(home: Home) -> None:
    with recording(home) as run:
        ask(run, 8_000, model="gpt-4-1106-preview")
        ask(run, 30_000, model="gpt-4-1106-preview")

    assert findings(home, time_and_usage.context_pressure) == []


def test_a_provider_that_says_it_is_too_long_is_believed(home: Home) -> None:
    with recording(home) as run:
        refused = run.child("chat", "llm", {"model": "unheard-of"})
        refused.end(RuntimeError("This model's maximum context length is 8192 tokens"))
        run.child("chat", "llm").end(RuntimeError("connection reset"))

    (found,) = findings(home, time_and_usage.context_pressure)

    assert (found.kind, found.severity, found.cause) == ("context/exceeded", "error", refused.id)


LONG = tuple({"role": "user", "content": f"{n} " + "words " * 100} for n in range(40))


def test_half_of_the_history_is_gone(home: Home) -> None:
    with recording(home) as run:
        before = think(run, request(*LONG), answer(text="a"), input_tokens=9_000)
        after = think(run, request(*LONG[:5]), answer(text="b"), input_tokens=1_500)

    (found,) = findings(home, time_and_usage.history_loss)

    assert (found.cause, found.evidence) == (after.id, [after.id, before.id])
    assert (found.severity, found.basis) == ("warning", "measured")
    assert "83% less" in found.message
    assert found.command.startswith("vestige diff ")


def test_without_token_counts_the_bytes_tell(home: Home) -> None:
    with recording(home) as run:
        think(run, request(*LONG), answer(text="a"))
        after = think(run, request(*LONG[:5]), answer(text="b"))

    (found,) = findings(home, time_and_usage.history_loss)

    assert found.cause == after.id


def test_a_compaction_or_another_conversation_explains_it(home: Home) -> None:
    with recording(home) as run:
        think(run, request(*LONG), answer(text="a"), input_tokens=9_000)
        run.child("compact history", "step").end()
        think(run, request(*LONG[:5]), answer(text="b"), input_tokens=1_500)
        think(run, request(*LONG, text="another task"), answer(text="c"), input_tokens=9_000)
        think(run, request(*LONG[:5]), answer(text="d"), input_tokens=1_500)

    assert findings(home, time_and_usage.history_loss) == []
