"""Records of small runs, for tests of a store: times, ids and sizes are known in advance."""

from __future__ import annotations

from typing import Any

from vestige.record.types import AnyRecord, Link, Log, SpanClose, SpanOpen

T0 = 1_763_229_905_000_000_000
SECOND_NS = 10**9
DAY_NS = 86_400 * SECOND_NS

MODEL_USAGE = {"model": "m-1", "input_tokens": 120, "output_tokens": 30}


def run_id_of(number: int) -> str:
    return f"3d1957bd-0000-4000-8000-{number:012x}"


def writer_of(number: int) -> str:
    return f"{number:016x}"


def span_id_of(number: int, at: int) -> str:
    return f"{number:08x}{at:08x}"


def make_run(
    number: int,
    *,
    name: str = "triage",
    started_ns: int = T0,
    status: str = "ok",
    conversation_id: str | None = None,
    attributes: dict[str, Any] | None = None,
    request: str = '{"q": "where is order 7?"}',
    answer: str = "It is on its way.",
    ended: bool = True,
) -> list[AnyRecord]:
    """Return the records of a run: root 1, model call 2, tool call 3 with a link, a log record."""
    writer, run = writer_of(number), run_id_of(number)
    root, call, tool = (span_id_of(number, at) for at in (1, 2, 3))
    step = SECOND_NS
    records: list[AnyRecord] = [
        SpanOpen(
            1,
            writer,
            1,
            started_ns,
            run,
            root,
            "agent",
            "run",
            name,
            conversation_id=conversation_id,
            attributes=attributes or {},
        ),
        SpanOpen(
            1, writer, 2, started_ns + step, run, call, "agent", "llm", "chat", root, body=request
        ),
        SpanClose(
            1, writer, 3, started_ns + 2 * step, run, call, "ok", step, MODEL_USAGE, body=answer
        ),
        SpanOpen(
            1,
            writer,
            4,
            started_ns + 2 * step,
            run,
            tool,
            "agent",
            "tool",
            "search",
            root,
            attributes={"tool_call_id": f"call_{number}"},
            links=[Link(call, reason="requested by")],
        ),
        Log(1, writer, 5, started_ns + 2 * step, run, "agent", "info", f"searching {number}", tool),
        SpanClose(1, writer, 6, started_ns + 3 * step, run, tool, status, step),
    ]
    if ended:
        records.append(SpanClose(1, writer, 7, started_ns + 4 * step, run, root, status, 4 * step))
    return records
