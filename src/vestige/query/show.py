"""`show`: a run's header and easy view as text, and the same as data for `--json`."""

from __future__ import annotations

from typing import Any

from vestige.query import words
from vestige.query.timeline import Line, is_stamp
from vestige.record.run import BodyRef, LogInfo, Run, RunInfo, SpanInfo

JSON_VERSION = 1


def header(run: Run) -> list[str]:
    """What one wants to know before the first line."""
    info = run.info
    spent = words.duration(
        info.duration_ns if info.duration_ns is not None else info.last_ns - info.started_ns
    )
    facts = [
        words.counted(info.span_count, "span"),
        words.counted(info.log_count, "log line"),
        words.counted(info.error_count, "failure"),
    ]
    if info.tokens:
        facts.append(f"{words.number(info.input_tokens)}+{words.number(info.output_tokens)} tokens")
    if info.conversation_id:
        facts.append(f"conversation {words.one_line(info.conversation_id, 60)}")
    if info.pinned:
        facts.append("pinned")
    redactions = count_redactions(run)
    if redactions:
        facts.append(words.counted(redactions, "redaction"))
    if any(span.attributes.get("sampled") is False for span in run.spans):
        facts.append("not sampled: only the run itself, warnings and errors were kept")
    return [
        f"{info.short_id} {words.one_line(info.name, 80)}: {info.outcome} after {spent}",
        f"{info.id}  {words.timestamp(info.started_ns)}",
        " · ".join(facts),
    ]


def count_redactions(run: Run) -> int:
    nodes: list[SpanInfo | LogInfo] = [*run.spans, *run.logs]
    return sum(sum(node.redacted.values()) for node in nodes)


def stamps(run: Run) -> list[str]:
    """What the collector says about how the process ended."""
    return [words.one_line(log.message, 200) for log in run.logs if is_stamp(log)]


def render_line(line: Line, id_width: int) -> str:
    """One line as text: id, time since the start, indented words."""
    return f"{line.id or '·':<{id_width}}  {_offset(line.at_ns):>9}  {'  ' * min(line.depth, 20)}{line.text}"


def _offset(ns: int) -> str:
    return f"+{ns / 1e9:.3f}s" if ns < 1000 * 10**9 else f"+{words.duration(ns)}"


# --- as data ----------------------------------------------------------------------------------


def run_data(info: RunInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "short_id": info.short_id,
        "name": info.name,
        "outcome": info.outcome,
        "started_at": words.timestamp(info.started_ns),
        "ended_at": words.timestamp(info.ended_ns),
        "duration_ms": _ms(info.duration_ns),
        "span_count": info.span_count,
        "log_count": info.log_count,
        "error_count": info.error_count,
        "conversation_id": info.conversation_id,
        "component": info.component,
        "tokens": info.tokens,
        "input_tokens": info.input_tokens,
        "output_tokens": info.output_tokens,
        "pinned": info.pinned,
    }


def list_data(runs: list[RunInfo]) -> dict[str, Any]:
    return {"version": JSON_VERSION, "runs": [run_data(info) for info in runs]}


def show_data(run: Run) -> dict[str, Any]:
    links: dict[str, list[dict[str, Any]]] = {}
    for link in run.links:
        links.setdefault(link.span_id, []).append(
            {"run_id": link.target_run, "span_id": link.target_span, "reason": link.reason}
        )
    return {
        "version": JSON_VERSION,
        "run": run_data(run.info),
        "spans": [_span_data(span, links.get(span.id, [])) for span in run.spans],
        "logs": [_log_data(log) for log in run.logs],
    }


def _span_data(span: SpanInfo, links: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": span.id,
        "short_id": span.short_id,
        "parent_id": span.parent_id,
        "type": span.type,
        "name": span.name,
        "component": span.component,
        "status": span.status or "open",
        "started_at": words.timestamp(span.started_ns),
        "duration_ms": _ms(span.duration_ns),
        "attributes": span.attributes,
        "links": links,
        "input": _body_data(span.input),
        "output": _body_data(span.output),
        "redacted": span.redacted,
    }


def _log_data(log: LogInfo) -> dict[str, Any]:
    return {
        "time": words.timestamp(log.time_ns),
        "span_id": log.span_id,
        "level": log.level,
        "component": log.component,
        "message": log.message,
        "attributes": log.attributes,
        "body": _body_data(log.body),
        "redacted": log.redacted,
    }


def _body_data(body: BodyRef | None) -> dict[str, Any] | None:
    if body is None:
        return None
    return {"id": body.id, "size_bytes": body.size_bytes, "cut": body.cut}


def _ms(ns: int | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 3)
