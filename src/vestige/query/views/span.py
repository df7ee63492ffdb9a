"""`span`: one span with its attributes, neighbours, links, log lines and bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vestige.errors import VestigeError
from vestige.limits import PREVIEW_MAX
from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.failures.faulthandler_dump import format_dump
from vestige.query.failures.stall_report import format_stacks, is_stall
from vestige.query.failures.traceback_parsing import format_frames
from vestige.query.run_as_data import log_data, span_data
from vestige.query.stats.costs import span_costs
from vestige.query.text_layout import CommandAnswer, fit, quoted
from vestige.query.trajectory.file_edits import ARGUMENTS_MAX, FileEdit, find_edits
from vestige.query.trajectory.span_roles import get_tool_name
from vestige.query.views.lines.common_attributes import find_common, is_redundant, render_common
from vestige.query.views.notes import note_data, note_lines
from vestige.record.note import Note
from vestige.record.run import BodyRef, LinkInfo, LogInfo, Run, SpanInfo
from vestige.record.types import MODEL_CALL_TYPES
from vestige.store.protocol import SpanRef, Store

VALUE_SHOWN = 300
NEIGHBOURS_SHOWN = 8


@dataclass
class SpanAnswer(CommandAnswer):
    """A span with everything that is recorded about it."""

    verb: ClassVar[str] = "span"
    budget: ClassVar[int] = 600

    run: Run
    span: SpanInfo
    parent: SpanInfo | None
    children: Sequence[SpanInfo]
    logs: Sequence[LogInfo]
    links: Sequence[LinkInfo]
    linked_from: Sequence[tuple[SpanRef, str | None]]
    previews: dict[str, str]
    """The first characters of `input` and `output`, or why they are missing."""
    notes: Sequence[Note] = ()
    faults: Mapping[int, str] = field(default_factory=dict)
    """Stacks of all threads at a fatal signal, by the sequence number of its log line."""
    stacks: Mapping[int, str] = field(default_factory=dict)
    """Stacks of the latest stall report (emit/process/stall_watch.py), by its sequence number."""
    cost_usd: float | None = None
    edits: Sequence[FileEdit] = ()
    """Files that a tool edited."""
    ids: bool = False
    """Show the full ids, too."""

    def lines(self, budget: int) -> list[str]:
        span = self.span
        full = self.command("span", span.short_id, "--json")
        head = [
            f"{span.short_id} {format_span(span)}",
            (f"{span.id}  " if self.ids else "") + f"{formatting.timestamp(span.started_ns)}"
            f"  +{formatting.duration(max(0, span.started_ns - self.run.info.started_ns))} into"
            f" {self.run.info.short_id} {formatting.single_line(self.run.info.name, 40)}",
        ]
        rows = [*self._attributes(), *self._edits(), *self._neighbours(), *self._log_lines()]
        rows += note_lines(self.notes, lambda: self.command("notes", span.short_id))
        return fit(head, rows, self._bodies(), budget, lambda n: f"… {n} lines hidden: {full}")

    def _attributes(self) -> list[str]:
        rows = []
        common = find_common(self.run.spans)
        for key, value in self.span.attributes.items():
            if key == "file_diff" and self.edits:
                continue
            if is_redundant(self.span, key, value) or (key in common and common[key] == value):
                continue
            if key in ("error.stack", "error.cause.stack") and (frames := format_frames(value)):
                rows += [f"  {key}:", *(f"    {frame}" for frame in frames)]
                continue
            text = formatting.value(value, VALUE_SHOWN)
            size = ""
            if isinstance(value, str) and len(value) > VALUE_SHOWN:
                size = f"  ({len(value)} characters)"
            rows.append(f"  {formatting.single_line(key, 60)} = {text}{size}")
        if any(row.endswith(" characters)") for row in rows):
            rows.append(f"  … full values: {self.command('span', self.span.short_id, '--json')}")
        if any(common.get(key) == value for key, value in self.span.attributes.items()):
            rows.append(f"  {render_common(common)}")
        return rows

    def _edits(self) -> list[str]:
        rows = []
        for edit in self.edits:
            rows.append(f"{edit.kind} {formatting.single_line(edit.path, 100)}:")
            rows += [f"  {formatting.clean_controls(line)}" for line in edit.diff.splitlines()]
        return rows

    def _neighbours(self) -> list[str]:
        rows = []
        if self.parent is not None:
            rows.append(f"parent: {self.parent.short_id} {format_span(self.parent)}")
        elif self.span.parent_id is not None:
            rows.append(
                f"parent: {formatting.single_line(self.span.parent_id, 20)} (not in this run)"
            )
        rows += [
            f"child:  {child.short_id} {format_span(child)}"
            for child in self.children[:NEIGHBOURS_SHOWN]
        ]
        if len(self.children) > NEIGHBOURS_SHOWN:
            rest = len(self.children) - NEIGHBOURS_SHOWN
            rows.append(f"… {rest} more children: {self.command('show', self.run.info.short_id)}")
        rows += [self._format_link(link) for link in self.links[:NEIGHBOURS_SHOWN]]
        rows += self._more_links(len(self.links), "links")
        rows += [
            f"linked from: {source.short_id} {formatting.single_line(source.name, 40)}"
            f"{_format_reason(reason)}"
            for source, reason in self.linked_from[:NEIGHBOURS_SHOWN]
        ]
        return [*rows, *self._more_links(len(self.linked_from), "links to it")]

    def _more_links(self, count: int, noun: str) -> list[str]:
        if count <= NEIGHBOURS_SHOWN:
            return []
        full = self.command("span", self.span.short_id, "--json")
        return [f"… {count - NEIGHBOURS_SHOWN} more {noun}: {full}"]

    def _format_link(self, link: LinkInfo) -> str:
        reason = _format_reason(link.reason)
        spans = {span.id: span for span in self.run.spans}
        if link.target_run in (None, self.run.info.id) and link.target_span in spans:
            target = spans[link.target_span]
            return f"links to: {target.short_id} {format_span(target)}{reason}"
        run = f" of run {formatting.single_line(link.target_run, 40)}" if link.target_run else ""
        return f"links to: {formatting.single_line(link.target_span, 20)}{run}{reason}"

    def _log_lines(self) -> list[str]:
        rows = []
        for log in _select_logs(self.logs):
            rows.append(f"{formatting.single_line(log.level, 10)}: {quoted(log.message, 160)}")
            error = log.attributes.get("error.type")
            if error is not None:
                text = formatting.single_line(str(log.attributes.get("error.message") or ""), 160)
                rows.append(f"  {formatting.single_line(str(error), 60)}: {text}")
                rows += [
                    f"    {frame}" for frame in format_frames(log.attributes.get("error.stack"))
                ]
            rows += [f"  {line}" for line in format_dump(self.faults.get(log.seq, ""))]
            rows += [f"  {line}" for line in format_stacks(self.stacks.get(log.seq, ""))]
        if len(self.logs) > NEIGHBOURS_SHOWN:
            rest = len(self.logs) - NEIGHBOURS_SHOWN
            rows.append(
                f"… {rest} more log lines: {self.command('span', self.span.short_id, '--json')}"
            )
        return rows

    def _bodies(self) -> list[str]:
        rows = []
        for which, option in (("input", "--in"), ("output", "--out")):
            body: BodyRef | None = getattr(self.span, which)
            if body is not None:
                cut = f", {formatting.single_line(body.cut, 60)}" if body.cut else ""
                command = self.command("body", self.span.short_id, option)
                rows.append(f"{which}: {formatting.size(body.size_bytes)}{cut}; {command}")
                rows.append(f"  {quoted(self.previews[which], PREVIEW_MAX)}")
        return rows

    def data(self) -> dict[str, Any]:
        links = [
            {"run_id": link.target_run, "span_id": link.target_span, "reason": link.reason}
            for link in self.links
        ]
        return {
            "version": self.version,
            "run_id": self.run.info.id,
            "span": span_data(self.span, links),
            "parent": self.parent.short_id if self.parent else None,
            "children": [child.short_id for child in self.children],
            "linked_from": [
                {"run_id": source.run_id, "span_id": source.span_id, "reason": reason}
                for source, reason in self.linked_from
            ],
            "logs": [log_data(log) for log in self.logs],
            "previews": self.previews,
            "faults": {str(seq): text for seq, text in self.faults.items()},
            "stacks": {str(seq): text for seq, text in self.stacks.items()},
            "cost_usd": self.cost_usd,
            "edits": [edit.data() for edit in self.edits],
            "notes": note_data([self.span], self.notes),
        }


def span_answer(store: Store, evidence: Evidence, span_id: str) -> SpanAnswer:
    run, spans = evidence.run, evidence.spans
    span = spans[span_id]
    logs = evidence.logs_of.get(span_id, [])
    return SpanAnswer(
        run=run,
        span=span,
        parent=spans.get(span.parent_id) if span.parent_id else None,
        children=[each for each in evidence.children.get(span_id, []) if each.id != span_id],
        logs=logs,
        links=evidence.links_of.get(span_id, []),
        linked_from=store.links_to(run.info.id, span_id),
        previews={
            which: _preview(store.read_body, body)
            for which, body in (("input", span.input), ("output", span.output))
            if body is not None
        },
        faults=_read_bodies(evidence, [log for log in logs if "fault" in log.attributes]),
        stacks=_read_bodies(evidence, [log for log in logs if is_stall(log)][-1:]),
        notes=[note for note in store.notes(run.info.id) if note.span_id == span_id],
        cost_usd=_cost(span, evidence),
        edits=_find_edits(span, evidence),
    )


def _find_edits(span: SpanInfo, evidence: Evidence) -> list[FileEdit]:
    if span.type != "tool" or span.input is None or span.input.size_bytes > ARGUMENTS_MAX:
        return []
    recorded = str(span.attributes.get("file_diff") or "")
    return find_edits(get_tool_name(span), evidence.input(span) or "", recorded)


def _cost(span: SpanInfo, evidence: Evidence) -> float | None:
    if span.type not in MODEL_CALL_TYPES:
        return None
    return span_costs([span], evidence.prices).dollars


def _read_bodies(evidence: Evidence, logs: Sequence[LogInfo]) -> dict[int, str]:
    """Return the bodies of log lines by sequence number."""
    return {
        log.seq: (evidence.raw(log.body) or b"").decode(errors="replace")
        for log in logs
        if log.body is not None
    }


def _select_logs(logs: Sequence[LogInfo]) -> list[LogInfo]:
    """Return the log lines to show, in order: the latest warnings and errors, then others."""
    bad = [log for log in logs if log.level in ("error", "warn")][-NEIGHBOURS_SHOWN:]
    others = [log for log in logs if log.level not in ("error", "warn")]
    room = NEIGHBOURS_SHOWN - len(bad)
    shown = {id(log) for log in (*bad, *(others[-room:] if room else ()))}
    return [log for log in logs if id(log) in shown]


def format_span(span: SpanInfo) -> str:
    """Format a span in half a line: type, name, status, duration, error."""
    status = "open" if span.status is None else formatting.single_line(span.status, 20)
    took = formatting.after(span.duration_ns)
    kind = span.attributes.get("error.type")
    error = ""
    if kind is not None and span.status != "ok":
        message = formatting.single_line(str(span.attributes.get("error.message") or ""), 120)
        error = f" {formatting.single_line(str(kind), 40)}" + (f': "{message}"' if message else "")
    name = f"{formatting.single_line(span.type, 20)} {formatting.single_line(span.name, 60)}"
    return f"{name}: {status}{took}{error}"


def _format_reason(reason: str | None) -> str:
    return f" ({formatting.single_line(reason, 60)})" if reason else ""


def _preview(read: Callable[[int, int, int | None], bytes], body: BodyRef) -> str:
    if body.id is None:
        return f"(missing: {body.cut or 'reason unknown'})"
    try:
        data = read(body.id, 0, PREVIEW_MAX * 4)
    except VestigeError as error:
        return f"({error})"
    if b"\x00" in data:
        return f"(binary: {data[:24].hex(' ')} …)"
    return data.decode(errors="replace")[: PREVIEW_MAX + 1]
