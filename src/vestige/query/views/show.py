"""`show`: a run's header and easy view as text, and the same as data for `--json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import inf
from typing import Any, ClassVar

import msgspec

from vestige.limits import SHOW_LINES_MAX
from vestige.query import formatting
from vestige.query.budget import count_tokens
from vestige.query.failures.suite_cases import render_failed_cases
from vestige.query.text_layout import CommandAnswer, begin_of, cost
from vestige.query.views.timeline import Line, is_stamp, nodes_in_depth, timeline
from vestige.record.run import (
    BodyRef,
    LogInfo,
    Node,
    Run,
    RunInfo,
    SpanInfo,
    in_order,
    partial_of,
    time_ns,
)

JSON_VERSION = 1
_ROOM_FOR_CASES = 600
"""Tokens of an answer in which the failed cases of a suite leave room for the rest."""


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """What of a run to show."""

    errors: bool = False
    fold: bool = True
    type: str | None = None
    from_s: float | None = None
    to_s: float | None = None
    depth: int | None = None
    limit: int | None = None
    """None: a usual number of lines; as data, all of it."""
    after: int | None = None
    """Lines to pass over: those that an answer has shown before. As data: spans and log lines."""

    @property
    def lines_max(self) -> int:
        return SHOW_LINES_MAX if self.limit is None else self.limit

    def words(self) -> list[str]:
        """As a command has them; without the two that move: `limit` and `after`."""
        found = ["--errors"] if self.errors else []
        found += [] if self.fold else ["--no-fold"]
        told = {
            "--type": self.type,
            "--from": self.from_s,
            "--to": self.to_s,
            "--depth": self.depth,
        }
        for name, value in told.items():
            if value is not None:
                found += [
                    name,
                    formatting.seconds(value) if isinstance(value, float) else str(value),
                ]
        return found


@dataclass
class ShowAnswer(CommandAnswer):
    """The easy view of one run."""

    verb: ClassVar[str] = "show"
    budget: ClassVar[int] = 2_000

    run: Run
    options: ShowOptions = ShowOptions()
    asked: str | None = None
    """The id as it was given; None: the latest."""
    unread: int = 0
    """About how many events after these were not read for this answer: it is the first page."""

    def lines(self, budget: int) -> list[str]:
        return [text for text, _ in self.styled(budget)]

    def styled(self, budget: int) -> list[tuple[str, str]]:
        """The lines, each with the mood in which it is told."""
        outcome = self.run.info.outcome
        first, *rest = header(self.run)
        head = [(first, f"head {outcome}"), *((text, "ok") for text in rest)]
        if self.unread:
            head.append(
                (
                    f"counts so far: about {self.unread} more events are read with the next page",
                    "ok",
                )
            )
        head += [(f"!! {text}", "stamp") for text in stamps(self.run)[:3]]
        if budget >= _ROOM_FOR_CASES and not self.options.words() and not self.options.after:
            head += [(text, "error") for text in render_failed_cases(self.run)]
        head.append(("", "ok"))
        if budget < 200:
            head = head[:1]
        found = self._found
        if not found:
            return [*head, (self._nothing(), "ok")]
        told = self._cut(found, budget - cost([text for text, _ in head]))
        if self._is_page and len(told) == 2 and cost([text for text, _ in told]) > budget:
            (row, mood), more = told  # the page that goes on after this line must tell it
            told = [(begin_of(row, budget - cost([more[0]])), mood), more]
        while len(told) > 1 and cost([text for text, _ in told]) > budget:
            told.pop(0)  # a budget for hardly more than the command
        return [*head, *told] if cost([text for text, _ in [*head, *told]]) <= budget + 1 else told

    @property
    def _is_page(self) -> bool:
        """From some place on, and not both ends."""
        return self.options.after is not None or bool(self.unread)

    def _cut(self, found: list[Line], budget: int) -> list[tuple[str, str]]:
        """The end of a run is what one came for: a long one is cut in the middle. Pages follow."""
        skipped, limit = self.options.after or 0, self.options.lines_max
        found = found[skipped:]
        total = len(found)
        width = max((len(line.id) for line in found), default=1)
        rows = _fitting(found, width, budget)
        if len(rows) == total:
            if self.unread and total <= limit:
                return [*rows, (_told(self.unread, self._page(skipped + total), "about "), "ok")]
            return self._within_limit(rows, limit)
        told = count_tokens(_told(total + self.unread, self._page(skipped + total), "about ")) + 1
        if self._is_page:
            rows = _fitting(found[:limit], width, budget - told) or _fitting(found[:1], width)
            left = total - len(rows) + self.unread
            more = _told(left, self._page(skipped + len(rows)), "about " if self.unread else "")
            return [*rows, (more, "ok")]
        head = _fitting(found[: limit // 4], width, (budget - told) // 3)
        room = budget - told - cost([text for text, _ in head])
        tail = _fitting(islice(reversed(found[len(head) :]), limit - len(head)), width, room)
        gap = (_told(total - len(head) - len(tail), self._page(len(head))), "ok")
        return [*head, gap, *reversed(tail)]

    def _within_limit(self, rows: list[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
        """All would fit; a limit of lines is asked for."""
        if len(rows) <= limit:
            return rows
        if self.options.after is not None:
            after = self._page(self.options.after + limit)
            return [*rows[:limit], (_told(len(rows) - limit, after), "ok")]
        everything = self._again("--limit", str(len(rows)))
        gap = f"… {len(rows) - limit} lines left out here; all of them: {everything}"
        return [*rows[: limit // 4], (gap, "ok"), *rows[len(rows) - (limit - limit // 4) :]]

    def _page(self, after: int) -> str:
        return self._again("--after", str(after))

    def _again(self, *more: str) -> str:
        # The latest is another one as soon as the next begins.
        own = self.asked or self.run.info.short_id
        return self.command("show", own, *self.options.words(), *more)

    @cached_property
    def _found(self) -> list[Line]:
        options = self.options
        between = (_ns(options.from_s, 0), _ns(options.to_s, 2**62))
        lines = timeline(self.run, errors_only=options.errors, fold=options.fold, between=between)
        if options.type is not None:
            ids = {span.short_id for span in self.run.spans if span.type == options.type}
            lines = [line for line in lines if line.id in ids]
        if options.depth is not None:
            lines = [line for line in lines if line.depth <= options.depth]
        return lines

    def _nothing(self) -> str:
        """Empty teaches: what there is instead."""
        types = sorted({formatting.single_line(span.type, 20) for span in self.run.spans})
        if self.options.type is not None and self.options.type not in types:
            return f"No spans of type {formatting.single_line(self.options.type, 20)}. There are: {', '.join(types[:20])}."
        return f"Nothing to show here. All of it: {self.command('show', self.run.info.short_id)}"

    def data(self) -> dict[str, Any]:
        return show_data(self._narrowed(), self.options.after or 0, self.options.limit)

    def _narrowed(self) -> Run:
        """The run with what the options leave of it."""
        options = self.options
        wanted = (options.errors, options.type, options.from_s, options.to_s, options.depth)
        if wanted == (False, None, None, None, None):
            return self.run
        low, high = _ns(options.from_s, 0), _ns(options.to_s, 2**62)
        begin = self.run.info.started_ns
        kept = {
            id(node)
            for node, depth in nodes_in_depth(self.run, errors_only=options.errors)
            if (options.type is None or (isinstance(node, SpanInfo) and node.type == options.type))
            and low <= max(0, time_ns(node) - begin) <= high
            and (options.depth is None or depth <= options.depth)
        }
        return msgspec.structs.replace(
            self.run,
            spans=[span for span in self.run.spans if id(span) in kept],
            logs=[log for log in self.run.logs if id(log) in kept],
        )


def _told(left: int, command: str, about: str = "") -> str:
    return f"… {about}{left} lines left out here; on from here: {command}"


def _fitting(lines: Iterable[Line], width: int, room: float = inf) -> list[tuple[str, str]]:
    """The first ones, as many as there is room for; the others are not put into words."""
    rows: list[tuple[str, str]] = []
    for line in lines:
        text = render_line(line, width)
        room -= count_tokens(text) + 1
        if room < 0:
            break
        rows.append((text, line.mood))
    return rows


def _ns(seconds: float | None, default: int) -> int:
    return default if seconds is None else round(seconds * 1e9)


# --- the header ---------------------------------------------------------------------------------


def header(run: Run) -> list[str]:
    """What one wants to know before the first line."""
    info = run.info
    spent = formatting.duration(
        info.duration_ns if info.duration_ns is not None else info.last_ns - info.started_ns
    )
    facts = [
        formatting.pluralize(info.span_count, "span"),
        formatting.pluralize(info.log_count, "log line"),
        formatting.pluralize(info.error_count, "error"),
    ]
    if info.tokens:
        facts.append(
            f"{formatting.number(info.input_tokens)}+{formatting.number(info.output_tokens)} tokens"
        )
    if info.conversation_id:
        facts.append(f"conversation {formatting.single_line(info.conversation_id, 60)}")
    if info.pinned:
        facts.append("pinned")
    redactions = count_redactions(run)
    if redactions:
        facts.append(formatting.pluralize(redactions, "redaction"))
    if any(span.attributes.get("sampled") is False for span in run.spans):
        facts.append("not sampled: only the run itself, warnings and errors were kept")
    partial = " (partial)" if partial_of(run) else ""
    # One that hangs is silent: when it last said something is not how long it has been running.
    heard = ", last heard of" if info.outcome == "running" else ""
    return [
        f"{info.short_id} {formatting.single_line(info.name, 80)}: {formatting.single_line(info.outcome, 20)}{heard} after {spent}{partial}",
        f"{info.id}  {formatting.timestamp(info.started_ns)}",
        " · ".join(facts),
    ]


def count_redactions(run: Run) -> int:
    nodes: list[SpanInfo | LogInfo] = [*run.spans, *run.logs]
    return sum(sum(node.redacted.values()) for node in nodes)


def stamps(run: Run) -> list[str]:
    """What must not be missed: that the run is not all here; how its process ended."""
    partial = partial_of(run)
    said = [log.message for log in run.logs if is_stamp(log)]
    return [formatting.single_line(text, 200) for text in ([partial, *said] if partial else said)]


def render_line(line: Line, id_width: int) -> str:
    """One line as text: id, time since the start, indented words."""
    return f"{line.id or '·':<{id_width}}  {_offset(line.at_ns):>9}  {'  ' * min(line.depth, 20)}{line.text}"


def _offset(ns: int) -> str:
    return f"+{ns / 1e9:.3f}s" if ns < 1000 * 10**9 else f"+{formatting.duration(ns)}"


# --- as data ----------------------------------------------------------------------------------


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
    """The run; or a page of it: `limit` spans and log lines after so many, in the order of events,
    and what the next page comes after."""
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
