"""The complete easy view of one run that passed through every folder, byte by byte.

`pytest tests/golden --rewrite` writes the files; review the diff.
"""

from __future__ import annotations

import json

from support.programs import Golden, load
from vestige._runtime.clock import FakeClock
from vestige.home import Home
from vestige.query.views import show
from vestige.query.views.timeline import Line, timeline
from vestige.record.run import Run
from vestige.recorder import Recorder


def triage(recorder: Recorder, clock: FakeClock) -> None:
    """A small agent: it thinks, searches twice too often, fails once, and recovers."""
    with recorder.run(
        "triage", "c-9", {"goal": "reply to the customer"}, component="triage"
    ) as run:
        run.log.info("started", tenant="acme", attempt=1)
        with run.span("plan", type="llm", body='{"messages": []}') as call:
            clock.advance(1_800_000_000)
            call.set_attributes(model="model-1", input_tokens=1200, output_tokens=80)
            call.end(body="Search for the order.")
        for _ in range(3):
            run.span("search", type="tool", body='{"q": "order 7"}').end(body="[]")
        try:
            with run.span("refund", type="tool", attributes={"tool_call_id": "call_7"}) as tool:
                tool.log.warn("retrying", status_code=503)
                clock.advance(30_000_000_000)
                raise TimeoutError("no answer from the bank")
        except TimeoutError:
            run.log.error("gave up\nfor now", api_key="sk-ant-api03-abcdefghijklmnopqrstuvwxyz")
        run.span("still waiting", type="queue.enqueue")


def recorded(home: Home) -> Run:
    clock = FakeClock()
    with Recorder(home, clock=clock, crash_hooks=False) as recorder:
        triage(recorder, clock)
    (run,) = [run for run in load(home) if run.info.name == "triage"]
    return run


def rendered(lines: list[Line]) -> list[str]:
    width = max(len(line.id) for line in lines)
    return [show.render_line(line, width).rstrip() for line in lines]


def test_the_easy_view(home: Home, golden: Golden) -> None:
    """What `vestige show` prints: header, then one line per span or log line."""
    run = recorded(home)

    lines = [*show.header(run), "", *rendered(timeline(run))]

    golden("easy_view.txt", "\n".join(lines) + "\n")


def test_the_easy_view_of_what_failed(home: Home, golden: Golden) -> None:
    """What `vestige show --errors` prints."""
    lines = rendered(timeline(recorded(home), errors_only=True))

    golden("easy_view_errors.txt", "\n".join(lines) + "\n")


def test_the_same_for_a_program(home: Home, golden: Golden) -> None:
    """What `vestige show --json` prints."""
    data = show.show_data(recorded(home))
    for node in (*data["spans"], *data["logs"]):
        for name in ("error.stack", "pid"):  # of this checkout and this process
            node["attributes"].pop(name, None)

    golden("easy_view.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")
