"""Runs, spans and log records as data, for `--json` and the HTTP API."""

from __future__ import annotations

from typing import Any, Final

from vestige.query import formatting
from vestige.record.run import BodyRef, LogInfo, Node, Run, RunInfo, SpanInfo, in_order

JSON_VERSION: Final = 1


def run_data(info: RunInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "short_id": info.short_id,
        "name": info.name,
        "outcome": info.outcome,
        "started_at": formatting.timestamp(info.started_ns),
        "ended_at": formatting.timestamp(info.ended_ns),
        "duration_ms": _ms(info.duration_ns),
        "span_count": info.span_count,
        "log_count": info.log_count,
        "error_count": info.error_count,
        "missing_count": info.missing_count,
        "conversation_id": info.conversation_id,
        "component": info.component,
        "tokens": info.tokens,
        "input_tokens": info.input_tokens,
        "output_tokens": info.output_tokens,
        "pinned": info.pinned,
    }


def list_data(runs: list[RunInfo]) -> dict[str, Any]:
    return {"version": JSON_VERSION, "runs": [run_data(info) for info in runs]}


def show_data(run: Run, after: int = 0, limit: int | None = None) -> dict[str, Any]:
    """Return a run as JSON data, or a page of `limit` spans and log lines in event order.

    A page has `next`, the `after` of the following page.
    """
    spans, logs = run.spans, run.logs
    more: dict[str, Any] = {}
    if after or limit is not None:
        nodes: list[Node] = in_order([*run.spans, *run.logs])
        page = nodes[after:] if limit is None else nodes[after : after + limit]
        end = after + len(page)
        more = {"next": end if page and end < len(nodes) else None}
        spans = [node for node in page if isinstance(node, SpanInfo)]
        logs = [node for node in page if isinstance(node, LogInfo)]
    links: dict[str, list[dict[str, Any]]] = {}
    for link in run.links:
        links.setdefault(link.span_id, []).append(
            {"run_id": link.target_run, "span_id": link.target_span, "reason": link.reason}
        )
    return {
        "version": JSON_VERSION,
        "run": run_data(run.info),
        "spans": [span_data(span, links.get(span.id, [])) for span in spans],
        "logs": [log_data(log) for log in logs],
        **more,
    }


def span_data(span: SpanInfo, links: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": span.id,
        "short_id": span.short_id,
        "parent_id": span.parent_id,
        "type": span.type,
        "name": span.name,
        "component": span.component,
        "status": span.status or "open",
        "started_at": formatting.timestamp(span.started_ns),
        "duration_ms": _ms(span.duration_ns),
        "attributes": span.attributes,
        "links": links,
        "input": _body_data(span.input),
        "output": _body_data(span.output),
        "redacted": span.redacted,
    }


def log_data(log: LogInfo) -> dict[str, Any]:
    return {
        "time": formatting.timestamp(log.time_ns),
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
