"""Small recorded runs, for tests that need a run and do not care what is in it."""

from __future__ import annotations

from vestige.home import Home
from vestige.recorder import Recorder

LONG = "x" * 300_000
"""A body that does not fit into a journal's line and gets a file of its own."""


def record(
    home: Home,
    name: str = "agent",
    *,
    request: str | bytes | None = None,
    answer: str | bytes | None = None,
    spans: int = 1,
    ended: bool = True,
) -> str:
    """Record a run with some tool calls into a home's journals, and return the run's id."""
    with Recorder(home, crash_hooks=False) as recorder:
        run = recorder.run(name)
        for _ in range(spans):
            span = run.span("search", type="tool", body=request)
            if ended:
                span.end(body=answer)
        if ended:
            run.end()
    return run.run_id
