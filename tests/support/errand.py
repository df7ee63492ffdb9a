"""One errand, done well and done badly: what every view of the run page has something of.

run_errands(home)        r2 booked a trip; r3 booked another one and failed; r4 is hostile

Each has a plan that changes (state), files that are written and written again, a second component
with an agent of its own, calls that read the cache (one does not), a secret, and a long body.
"""

from __future__ import annotations

import json
from typing import Any

from support.scene import SECOND_NS, hostile
from support.scene import _answer as answer
from support.scene import _result as result
from vestige._runtime.clock import SYSTEM, FakeClock
from vestige.collector.loop import catch_up
from vestige.emit.span import Span
from vestige.home import Home
from vestige.recorder import Recorder

PERSONA = "You book trips. Search first, then book; hold a seat before you pay."
TOOLS = [
    {
        "name": name,
        "description": description,
        "input_schema": {"type": "object", "properties": {argument: {"type": "string"}}},
    }
    for name, description, argument in (
        ("search_flights", "Flights to a place.", "to"),
        ("book", "Book a flight.", "flight"),
        ("hold_seat", "Hold a seat for some minutes.", "flight"),
    )
]
WISHES = "I like a window seat, a late breakfast, and flights that leave after ten."
SECRET = "sk-" + "errand81c77e20b35d6cQv4f9a"
FLIGHTS = [{"flight": f"VS{number}", "to": "Oslo", "price": 80 + number} for number in range(120)]


def run_errands(home: Home) -> None:
    clock = FakeClock(SYSTEM.now_ns() - 3600 * SECOND_NS)
    with Recorder(home, crash_hooks=False, clock=clock) as recorder:
        errand(recorder, clock, good=True)
        clock.advance(60 * SECOND_NS)
        errand(recorder, clock, good=False)
        clock.advance(60 * SECOND_NS)
        hostile(recorder, clock)
    catch_up(home)


def errand(recorder: Recorder, clock: FakeClock, *, good: bool) -> None:
    flight = "VS3" if good else "VS9"
    city = "Oslo"
    with recorder.run("book a trip", "trip of May", component="planner") as run:
        run.log.info("asked for a trip", to=city, nights=3)
        keep(run, clock, {"goal": city, "steps": ["search"]})
        write(run, clock, "notes/plan.md", f"# Trip to {city}\n\n- search\n")
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": f"Book me **three nights** in {city}, please. {WISHES}"}
        ]
        first = answer("I look for flights.", [("t1", "search_flights", {"to": city})], 800, 0)
        call(run, messages, first, clock)
        found = search(run, clock, city)
        messages += result(first, "t1", found)
        keep(run, clock, {"goal": city, "steps": ["search", "book"], "flight": flight})
        second = answer(f"{flight} is cheap.", [("t2", "book", {"flight": flight})], 2900, 800)
        call(run, messages, second, clock)
        with recorder.logger("booking").span("booking desk", "agent") as desk:
            book(desk, clock, flight, good=good)
        write(run, clock, "notes/plan.md", f"# Trip to {city}\n\n- search\n- book {flight}\n")
        if good:
            done(run, clock, messages)
        else:
            run.end(error=RuntimeError("the trip could not be booked"))


def search(run: Span, clock: FakeClock, city: str) -> str:
    with run.tool("search_flights", {"to": city}, tool_call_id="t1") as tool:
        tool.log.debug("asking the airline", api_key=SECRET)
        clock.advance(SECOND_NS * 2)
        found = json.dumps(FLIGHTS)
        tool.end(body=found)
    return found


def book(desk: Span, clock: FakeClock, flight: str, *, good: bool) -> None:
    question = [{"role": "user", "content": f"Book flight {flight}."}]
    call(desk, question, answer("I hold a seat.", [("t3", "hold_seat", {"flight": flight})]), clock)
    for attempt in (1, 2, 3):
        tool = desk.tool("hold_seat", {"flight": flight, "attempt": attempt}, tool_call_id="t3")
        clock.advance(SECOND_NS // 4)
        if good:
            tool.end(body='{"seat": "14A"}')
            return
        desk.log.warn("the airline refused", attempt=attempt)
        tool.end(error=TimeoutError("no seat within 250 ms"))
    desk.log.error("gave up on the seat")
    desk.end(error=RuntimeError("no seat"))


def done(run: Span, clock: FakeClock, messages: list[dict[str, Any]]) -> None:
    write(run, clock, "tickets/VS3.json", '{"seat": "14A", "flight": "VS3"}')
    keep(run, clock, {"goal": "Oslo", "steps": ["search", "book"], "seat": "14A"})
    call(run, messages, answer("You fly on VS3, seat 14A.", (), 3000, 0), clock)


def keep(run: Span, clock: FakeClock, plan: dict[str, Any]) -> None:
    run.child("plan", "state", body=plan).end()
    clock.advance(SECOND_NS // 10)


def write(run: Span, clock: FakeClock, path: str, text: str) -> None:
    run.child(path, "file", attributes={"path": path}).end(body=text)
    clock.advance(SECOND_NS // 10)


def call(
    span: Span, messages: list[dict[str, Any]], attributes: dict[str, Any], clock: FakeClock
) -> None:
    request = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "tools": TOOLS,
        "system": PERSONA,
        "messages": messages,
    }
    about = {
        "model": request["model"],
        "provider": "anthropic",
        "method": "POST",
        "url": "https://api.anthropic.com/v1/messages",
    }
    made = span.child("messages.create", "llm", body=json.dumps(request), attributes=about)
    clock.advance(SECOND_NS)
    usage = attributes["usage"]
    made.set_attributes(
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cache_read_tokens=usage["cache_read_input_tokens"],
    )
    made.end(body=json.dumps(attributes))
