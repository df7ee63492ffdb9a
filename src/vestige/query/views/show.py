"""`show`: a run's header and timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import inf
from typing import Any, ClassVar

import msgspec

from vestige.limits import SHOW_LINES_MAX
from vestige.query import formatting
from vestige.query.failures.split_by_test_case import render_failed_cases
from vestige.query.run_as_data import show_data
from vestige.query.text_layout import CommandAnswer, cost, truncate_line
from vestige.query.token_budget import count_tokens
from vestige.query.views.lines.common_attributes import find_common, render_common
from vestige.query.views.timeline import Line, is_stamp, nodes_in_depth, timeline
from vestige.record.run import (
    LogInfo,
    Run,
    SpanInfo,
    partial_of,
    time_ns,
)

Row = tuple[str, str]
"""Text and style."""

PIPE_COLUMNS = 160
"""Width of a line that goes to a file or a program."""
_ROOM_FOR_CASES = 600
"""Smallest budget in which the failed test cases are listed above the timeline."""


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """Filters and paging of `show`."""

    errors: bool = False
    fold: bool = True
    type: str | None = None
    from_s: float | None = None
    to_s: float | None = None
    depth: int | None = None
    limit: int | None = None
    """None: SHOW_LINES_MAX lines of text; everything as data."""
    after: int | None = None
    """Lines to skip, which earlier pages have shown; as data, spans and log lines."""
    ids: bool = False
    """Show the full ids, too."""
    tree: bool = False
    """Show spans on a terminal, too, not steps."""

    @property
    def lines_max(self) -> int:
        return SHOW_LINES_MAX if self.limit is None else self.limit

    def arguments(self) -> list[str]:
        """Return the filters as command-line arguments, without `limit` and `after`."""
        arguments = ["--errors"] if self.errors else []
        arguments += [] if self.fold else ["--no-fold"]
        arguments += ["--ids"] if self.ids else []
        values = {
            "--type": self.type,
            "--from": self.from_s,
            "--to": self.to_s,
            "--depth": self.depth,
        }
        for name, value in values.items():
            if value is not None:
                text = formatting.seconds(value) if isinstance(value, float) else str(value)
                arguments += [name, text]
        return arguments


@dataclass
class ShowAnswer(CommandAnswer):
    """The timeline of a run."""

    verb: ClassVar[str] = "show"
    budget: ClassVar[int] = 2_000

    run: Run
    options: ShowOptions = ShowOptions()
    requested_id: str | None = None
    """The id as the user wrote it; None: the latest run."""
    unread: int = 0
    """Approximate number of later events that were not read for this first page."""
    describe: Callable[[SpanInfo], str] | None = None
    """Return the arguments of a tool span, `(q=order 7)`; called for the lines that are shown."""
    steps: Callable[[], Sequence[Row]] | None = None
    """Return the run as a line for each step, for a person; empty if it has no steps."""

    def lines(self, budget: int) -> list[str]:
        return [text for text, _ in self.styled(budget)]

    def styled(self, budget: int) -> list[Row]:
        """Return the lines within a budget, each with its style."""
        if self._is_for_steps and self.steps is not None and (rows := self._fit(self.steps())):
            return rows
        outcome = self.run.info.outcome
        first, *rest = header(self.run, ids=self.options.ids)
        common = render_common(find_common(self.run.spans))
        rest += [common] if common else []
        head = [(first, f"head {outcome}"), *((text, "ok") for text in rest)]
        if self.unread:
            text = f"partial counts: about {self.unread} more events are on later pages"
            head.append((text, "ok"))
        head += [(f"!! {text}", "stamp") for text in stamps(self.run)[:3]]
        if budget >= _ROOM_FOR_CASES and not self.options.arguments() and not self.options.after:
            head += [(text, "error") for text in render_failed_cases(self.run)]
        head.append(("", "ok"))
        if budget < 200:
            head = head[:1]
        lines = self._lines
        if not lines:
            return [*head, (self._empty_hint(), "ok")]
        rows = self._shorten(lines, budget - _cost(head))
        if self._is_page and len(rows) == 2 and _cost(rows) > budget:
            # The next page starts after this line, so at least its beginning must be shown.
            (row, style), more = rows
            rows = [(truncate_line(row, budget - cost([more[0]])), style), more]
        while len(rows) > 1 and _cost(rows) > budget:
            rows.pop(0)  # the budget holds little more than the command
        rows = self._fit(rows)
        return [*head, *rows] if _cost([*head, *rows]) <= budget + 1 else rows

    @property
    def _is_for_steps(self) -> bool:
        """Return True on a terminal, if no option selects spans or log lines."""
        return self.columns is not None and self.options == ShowOptions(limit=self.options.limit)

    def _fit(self, rows: Sequence[Row]) -> list[Row]:
        """Truncate the lines to the width; a line that starts with … holds a command."""
        width = self.columns or PIPE_COLUMNS
        return [
            (text if text.startswith("…") else formatting.truncate(text, width), style)
            for text, style in rows
        ]

    @property
    def _is_page(self) -> bool:
        """Return True for a page from an offset on, False for both ends of the run."""
        return self.options.after is not None or bool(self.unread)

    def _shorten(self, lines: list[Line], budget: int) -> list[Row]:
        """Fit lines into the budget: a page loses its end, a complete run its middle."""
        skipped, limit = self.options.after or 0, self.options.lines_max
        lines = lines[skipped:]
        total = len(lines)
        width = max((len(line.id) for line in lines), default=1)
        rows = self._fitting_rows(lines, width, budget)
        if len(rows) == total:
            if self.unread and total <= limit:
                return [*rows, (_hidden(self.unread, self._page(skipped + total), "about "), "ok")]
            return self._apply_limit(rows, limit)
        reserved = cost([_hidden(total + self.unread, self._page(skipped + total), "about ")])
        if self._is_page:
            rows = self._fitting_rows(lines[:limit], width, budget - reserved)
            rows = rows or self._fitting_rows(lines[:1], width)
            left = total - len(rows) + self.unread
            more = _hidden(left, self._page(skipped + len(rows)), "about " if self.unread else "")
            return [*rows, (more, "ok")]
        head = self._fitting_rows(lines[: limit // 4], width, (budget - reserved) // 3)
        room = budget - reserved - _cost(head)
        last = islice(reversed(lines[len(head) :]), limit - len(head))
        tail = self._fitting_rows(last, width, room)
        gap = (_hidden(total - len(head) - len(tail), self._page(len(head))), "ok")
        return [*head, gap, *reversed(tail)]

    def _apply_limit(self, rows: list[Row], limit: int) -> list[Row]:
        """Apply the line limit to rows that fit into the budget."""
        if len(rows) <= limit:
            return rows
        if self.options.after is not None:
            next_page = self._page(self.options.after + limit)
            return [*rows[:limit], (_hidden(len(rows) - limit, next_page), "ok")]
        everything = self._again("--limit", str(len(rows)))
        gap = f"… {len(rows) - limit} lines hidden; show all: {everything}"
        return [*rows[: limit // 4], (gap, "ok"), *rows[len(rows) - (limit - limit // 4) :]]

    def _fitting_rows(self, lines: Iterable[Line], width: int, room: float = inf) -> list[Row]:
        """Render the first lines, as many as there is room for."""
        columns = self.columns or PIPE_COLUMNS
        with_times = self.run.info.elapsed_ns > 0
        rows: list[Row] = []
        for line in lines:
            arguments = self._arguments(line)
            row = render_line(line, width, arguments, with_times=with_times)
            text = formatting.truncate(row, columns)
            room -= count_tokens(text) + 1
            if room < 0:
                break
            rows.append((text, line.style))
        return rows

    def _arguments(self, line: Line) -> str:
        node = line.node
        if self.describe is None or isinstance(node, LogInfo) or node.type != "tool":
            return ""
        return self.describe(node)

    def _page(self, after: int) -> str:
        return self._again("--after", str(after))

    def _again(self, *more: str) -> str:
        # Name the run: "the latest" may be another run by the time the command is typed.
        run = self.requested_id or self.run.info.short_id
        return self.command("show", run, *self.options.arguments(), *more)

    @cached_property
    def _lines(self) -> list[Line]:
        options = self.options
        between = (_ns(options.from_s, 0), _ns(options.to_s, 2**62))
        lines = timeline(self.run, errors_only=options.errors, fold=options.fold, between=between)
        if options.type is not None:
            ids = {span.short_id for span in self.run.spans if span.type == options.type}
            lines = [line for line in lines if line.id in ids]
        if options.depth is not None:
            lines = [line for line in lines if line.depth <= options.depth]
        return lines

    def _empty_hint(self) -> str:
        """Suggest how to get a result when nothing matches."""
        types = sorted({formatting.single_line(span.type, 20) for span in self.run.spans})
        if self.options.type is not None and self.options.type not in types:
            missing = formatting.single_line(self.options.type, 20)
            return f"No spans of type {missing}. Types in this run: {', '.join(types[:20])}."
        return f"No matches. Show all: {self.command('show', self.run.info.short_id)}"

    def data(self) -> dict[str, Any]:
        return show_data(self._filtered_run(), self.options.after or 0, self.options.limit)

    def _filtered_run(self) -> Run:
        """Return the run with only the spans and log lines that match the options."""
        options = self.options
        filters = (options.errors, options.type, options.from_s, options.to_s, options.depth)
        if filters == (False, None, None, None, None):
            return self.run
        low, high = _ns(options.from_s, 0), _ns(options.to_s, 2**62)
        begin = self.run.info.started_ns
        matching = {
            id(node)
            for node, depth in nodes_in_depth(self.run, errors_only=options.errors)
            if (options.type is None or (isinstance(node, SpanInfo) and node.type == options.type))
            and low <= max(0, time_ns(node) - begin) <= high
            and (options.depth is None or depth <= options.depth)
        }
        return msgspec.structs.replace(
            self.run,
            spans=[span for span in self.run.spans if id(span) in matching],
            logs=[log for log in self.run.logs if id(log) in matching],
        )


def _hidden(left: int, command: str, about: str = "") -> str:
    return f"… {about}{left} lines hidden; continue: {command}"


def _cost(rows: Iterable[Row]) -> int:
    return cost([text for text, _ in rows])


def _ns(seconds: float | None, default: int) -> int:
    return default if seconds is None else round(seconds * 1e9)


# --- the header ---------------------------------------------------------------------------------


def header(run: Run, *, ids: bool = False) -> list[str]:
    """Return the lines above the timeline: outcome, time, counts, and the full id on request."""
    info = run.info
    facts = [
        formatting.pluralize(info.span_count, "span"),
        formatting.pluralize(info.log_count, "log line"),
        formatting.pluralize(info.error_count, "error"),
    ]
    if info.missing_count:
        facts.append(f"{formatting.pluralize(info.missing_count, 'record')} missing")
    if info.tokens:
        facts.append(formatting.token_counts(info.input_tokens, info.output_tokens))
    if info.conversation_id:
        facts.append(f"conversation {formatting.single_line(info.conversation_id, 60)}")
    if info.pinned:
        facts.append("pinned")
    redactions = count_redactions(run)
    if redactions:
        facts.append(formatting.pluralize(redactions, "redaction"))
    if any(span.attributes.get("sampled") is False for span in run.spans):
        facts.append("not sampled: only the run, its warnings and its errors are stored")
    partial = " (partial)" if partial_of(run) else ""
    # A hung run records nothing, so the time of its last record is not its duration.
    last = ", last activity" if info.outcome == "running" else ""
    name, outcome = formatting.single_line(info.name, 80), formatting.single_line(info.outcome, 20)
    return [
        f"{info.short_id} {name}: {outcome}{last}{formatting.after(info.elapsed_ns)}{partial}",
        (f"{info.id}  " if ids else "") + (formatting.timestamp(info.started_ns) or ""),
        " · ".join(facts),
    ]


def count_redactions(run: Run) -> int:
    nodes: list[SpanInfo | LogInfo] = [*run.spans, *run.logs]
    return sum(sum(node.redacted.values()) for node in nodes)


def stamps(run: Run) -> list[str]:
    """Return warnings for the header: why the run is partial, how its process ended."""
    partial = partial_of(run)
    texts = [partial] if partial else []
    texts += [log.message for log in run.logs if is_stamp(log)]
    return [formatting.single_line(text, 200) for text in texts]


def render_line(line: Line, id_width: int, arguments: str = "", *, with_times: bool = True) -> str:
    """Render a timeline line: id, time since the start, indented text."""
    indent = "  " * min(line.depth, 20)
    text = line.render(arguments)
    offset = _offset(line.at_ns) if with_times else ""
    return f"{line.id or '·':<{id_width}}  {offset:>9}  {indent}{text}"


def _offset(ns: int) -> str:
    return f"+{ns / 1e9:.3f}s" if ns < 1000 * 10**9 else f"+{formatting.duration(ns)}"
