"""Items of a run's transcript: messages, model answers, tool calls, logs, in reading order.

A flat list of a trajectory: each step yields the messages that are new in its input, then its
answer, then each action with its result. Items of a sub-agent are one level deeper.

    for item in Items(evidence).walk(after="s7.2"): item.data()

Elsewhere: the trajectory in query/trajectory; its text in query/views/transcript.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from vestige._runtime.gc_pause import pause_gc
from vestige.errors import UsageError
from vestige.limits import TRANSCRIPT_CODE_MAX, TRANSCRIPT_TEXT_MAX
from vestige.query import formatting
from vestige.query.evidence import Evidence
from vestige.query.trajectory import Action, Step, build_trajectory
from vestige.query.trajectory import Item as Content
from vestige.query.trajectory.actions import body_item, error_text
from vestige.query.trajectory.file_edits import find_edits
from vestige.query.trajectory.headline import action_line, result_line
from vestige.query.views.timeline import format_attributes, is_stamp
from vestige.record.run import LogInfo, SpanInfo

ERROR_SHOWN = 160
"""Characters of a log record's exception."""

Kind = Literal["message", "call", "tool", "step", "state", "log", "error"]


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or its first characters."""

    text: str
    size_bytes: int
    cut: bool
    span: str | None = None
    which: Literal["input", "output"] | None = None
    """The body of `span` that has the full text."""
    repeats: tuple[tuple[int, int, int], ...] = ()
    """Begin, end and step of each passage that another step shows."""

    def data(self) -> dict[str, Any]:
        body = None if self.which is None else {"span": self.span, "which": self.which}
        data: dict[str, Any] = {
            "text": self.text,
            "size_bytes": self.size_bytes,
            "cut": self.cut,
            "body": body,
        }
        if self.repeats:
            data["repeats"] = [
                {"begin": begin, "end": end, "step": step} for begin, end, step in self.repeats
            ]
        return data


@dataclass(frozen=True, slots=True)
class Item:
    """A message, model call, tool call, step, state, log record or error."""

    kind: Kind
    cursor: str
    at_us: int
    depth: int
    span: str | None
    step: int | None
    facts: dict[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            key: value.data() if isinstance(value, Text) else value
            for key, value in self.facts.items()
        }
        if "calls" in facts:
            calls = facts["calls"]
            facts["calls"] = [{**call, "arguments": call["arguments"].data()} for call in calls]
        return {
            "kind": self.kind,
            "cursor": self.cursor,
            "span": self.span,
            "step": self.step,
            "at_us": self.at_us,
            "depth": self.depth,
            **facts,
        }


class Items:
    """The items of one run, in order."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.trajectory = evidence.once(build_trajectory)
        self.base_ns = evidence.run.info.started_ns
        self._short = evidence.short_ids
        self._states = self._assign_states()

    @cached_property
    def _items(self) -> list[Item]:
        with pause_gc():
            return [*self._all_items()]

    @cached_property
    def _index_of(self) -> dict[str, int]:
        return {item.cursor: index for index, item in enumerate(self._items)}

    def walk(self, after: str | None = None) -> Iterator[Item]:
        """Yield the items, from the start or after a cursor or a span's short id."""
        if after is None and "_items" not in self.__dict__:
            yield from self._all_items()  # a first page needs only the first items
            return
        begin = 0 if after is None else self._find(after.strip()) + 1
        yield from self._items[begin:]

    def last_cursor(self, step: Step) -> str | None:
        """Return the cursor of a step's last item."""
        cursor = None
        for item in self._step_items(step):
            cursor = item.cursor
        return cursor

    def _find(self, after: str) -> int:
        if after in self._index_of:
            return self._index_of[after]
        found = [index for index, item in enumerate(self._items) if item.span == after]
        if found:
            return found[-1]
        span = next((s for s in self.evidence.run.spans if s.short_id == after), None)
        if span is not None:  # a span without items of its own: continue at its time
            at_us = (span.started_ns - self.base_ns) // 1000
            number = self.trajectory.by_span.get(span.id)
            inside = [i for i, item in enumerate(self._items) if item.step == number]
            if number is not None and inside:
                return inside[-1]
            return bisect_right([item.at_us for item in self._items], at_us) - 1
        run = self.evidence.run.info.short_id
        raise UsageError(
            f"after {formatting.single_line(after, 40)!r}: not a position in {run}"
            " (expected `cursor` or `next` of an answer, or a span of the run)."
        )

    # --- order ------------------------------------------------------------------------------------

    def _assign_states(self) -> dict[int, list[SpanInfo]]:
        """Return the snapshots and states by the step during which they were taken."""
        steps = sorted(self.trajectory.steps, key=lambda step: step.started_ns)
        starts = [step.started_ns for step in steps]
        found: dict[int, list[SpanInfo]] = {}
        own = {step.span.id for step in steps if step.span is not None}
        for span in self.evidence.of_type("snapshot", "state"):
            if span.id not in own:
                at = bisect_right(starts, span.started_ns) - 1
                number = steps[max(0, at)].number if steps else 0
                found.setdefault(number, []).append(span)
        return found

    def _all_items(self) -> Iterator[Item]:
        if not self.trajectory.steps:
            extras: list[SpanInfo | LogInfo] = [*self._states.get(0, ()), *self.evidence.run.logs]
            yield from self._extra_items(sorted(extras, key=_time_ns), None)
        for step in self.trajectory.steps:
            yield from self._step_items(step)
        yield from self._end_items()

    def _step_items(self, step: Step) -> Iterator[Item]:
        """Yield a step's items; logs and states come between its actions, in order of time."""
        counts = _Counter(self._number_of(step))
        at_us = self._us(step.started_ns)
        extras: list[SpanInfo | LogInfo] = [*step.logs, *self._states.get(step.number, ())]
        extras.sort(key=_time_ns)
        for group in _messages(step.new_input):
            facts = self._message_facts(group)
            kind: Kind = "tool" if group[0].kind == "tool_result" else "message"
            yield self._item(kind, counts, at_us, step, group[0].span_id, facts)
        if self._has_call(step):
            yield self._item("call", counts, at_us, step, None, self._call_facts(step))
        elif step.span is not None and not step.actions:
            yield self._plain_item(step, step.span, counts)
        for action in step.actions:
            begun = action.started_ns
            while extras and begun is not None and _time_ns(extras[0]) < begun:
                yield from self._extra_items([extras.pop(0)], step, counts)
            at = at_us if begun is None else self._us(begun)
            span_id = action.span_id or (step.span.id if step.span is not None else None)
            depth = step.depth + (1 if action.span_id else 0)
            facts = self._action_facts(step, action)
            yield self._item("tool", counts, at, step, span_id, facts, depth)
        yield from self._extra_items(extras, step, counts)

    def _number_of(self, step: Step) -> str:
        if step.span is None:
            return f"step{step.number}"
        return f"s{step.span.short_id.rpartition('.s')[2]}"

    def _has_call(self, step: Step) -> bool:
        return step.span is not None and step.span.type == "llm"

    def _item(
        self,
        kind: Kind,
        counts: _Counter,
        at_us: int,
        step: Step,
        span_id: str | None,
        facts: dict[str, Any],
        depth: int | None = None,
    ) -> Item:
        if span_id is None and step.span is not None:
            span_id = step.span.id
        span = self._short.get(span_id or "")
        shown = step.depth if depth is None else depth
        return Item(kind, counts.next(), at_us, shown, span, step.number, facts)

    def _plain_item(self, step: Step, span: SpanInfo, counts: _Counter) -> Item:
        if span.type in ("snapshot", "state"):
            facts = self._state_facts(span)
            return self._item("state", counts, self._us(span.started_ns), step, span.id, facts)
        facts = {
            "type": span.type,
            "name": span.name,
            "component": span.component,
            "status": span.status or "open",
            "duration_us": _us(span.duration_ns),
            "label": " ".join(format_attributes(span.attributes)),
            "error": error_text(span),
            "children": bool(self.evidence.children.get(span.id)),
            "text": self._join(step.answer, TRANSCRIPT_TEXT_MAX),
        }
        return self._item("step", counts, self._us(span.started_ns), step, span.id, facts)

    def _extra_items(
        self, extras: list[SpanInfo | LogInfo], step: Step | None, counts: _Counter | None = None
    ) -> Iterator[Item]:
        for extra in extras:
            kind: Kind
            if isinstance(extra, SpanInfo):
                kind, facts, span = "state", self._state_facts(extra), extra.short_id
                cursor = f"s{extra.short_id.rpartition('.s')[2]}.0"
            else:
                kind, facts = self._log_facts(extra)
                span = self._short.get(extra.span_id or "") or ""
                cursor = f"l{extra.seq}-{extra.writer}.0"
            number = None if step is None else step.number
            depth = 0 if step is None else step.depth + 1
            at_us = self._us(_time_ns(extra))
            yield Item(kind, cursor, at_us, depth, span or None, number, facts)

    def _end_items(self) -> Iterator[Item]:
        """Yield an error item for a run that failed."""
        for span in self.evidence.of_type("run"):
            if span.parent_id in self.evidence.spans or span.status in ("ok", None):
                continue
            text = error_text(span)
            if text is None or text == span.status:
                text = f"the run ended with status {span.status}"
            kind = span.attributes.get("error.type")
            facts = {"text": _plain(text), "type": kind if isinstance(kind, str) else None}
            at_us = self._us(span.started_ns + (span.duration_ns or 0))
            cursor = f"s{span.short_id.rpartition('.s')[2]}.end"
            yield Item("error", cursor, at_us, 0, span.short_id, None, facts)

    # --- facts ------------------------------------------------------------------------------------

    def _message_facts(self, group: list[Content]) -> dict[str, Any]:
        content = group[0]
        if content.kind == "tool_result":
            return {
                "name": content.name,
                "line": result_line(content.text),
                "call_id": content.call_id,
                "asked_by": None,
                "status": "answered",
                "duration_us": None,
                "arguments": None,
                "result": self._text(content),
                "is_error": content.is_error,
                "error": None,
            }
        calls = [
            {
                "id": each.call_id,
                "name": each.name,
                "arguments": self._text(each),
                "span": None,
            }
            for each in group
            if each.kind == "tool_call"
        ]
        is_call = content.kind == "tool_call"
        role = "input" if content.message_index is None and content.role == "user" else content.role
        return {
            "role": role,
            "part": "text" if is_call else content.kind,
            "text": _plain("") if is_call else self._text(content),
            "calls": calls,
        }

    def _call_facts(self, step: Step) -> dict[str, Any]:
        span = step.span
        assert span is not None
        attributes = span.attributes
        calls = [item for item in step.answer if item.kind == "tool_call"]
        written = [item for item in step.answer if item.kind not in ("tool_call", "thinking")]
        thinking = [item for item in step.answer if item.kind == "thinking"]
        return {
            "name": span.name,
            "agent": step.agent,
            "conversation": step.conversation,
            "headline": step.headline,
            "model": _attribute(attributes, "model") or step.model,
            "status": step.status,
            "duration_us": _us(span.duration_ns),
            "input_tokens": attributes.get("input_tokens"),
            "output_tokens": attributes.get("output_tokens"),
            "cache_read": attributes.get("cache_read_tokens"),
            "cache_write": attributes.get("cache_write_tokens"),
            "messages": step.repeated + len({id(item) for item in step.new_input}),
            "repeated": step.repeated,
            "text": self._join(written, TRANSCRIPT_CODE_MAX) or _plain(""),
            "thinking": self._join(thinking, TRANSCRIPT_TEXT_MAX),
            "calls": self._calls_data(step, calls),
            "finish_reason": _attribute(attributes, "finish_reason") or step.finish_reason,
            "error": step.error,
        }

    def _calls_data(self, step: Step, calls: list[Content]) -> list[dict[str, Any]]:
        """Return the tool calls of an answer, each with the span that executed it."""
        found: list[dict[str, Any]] = []
        free = list(step.actions)
        for content in calls:
            action = next((each for each in free if _is_action_of(each, content)), None)
            if action is not None:
                free.remove(action)
            span_id = None if action is None else action.span_id
            found.append(
                {
                    "id": content.call_id,
                    "name": content.name,
                    "arguments": self._text(content),
                    "span": self._short.get(span_id or ""),
                }
            )
        return found

    def _action_facts(self, step: Step, action: Action) -> dict[str, Any]:
        status = action.status
        if action.span_id is None and not action.error:
            status = "unanswered" if action.result is None else "answered"
        asked_by = step.span.short_id if self._has_call(step) and step.span else None
        is_code = action.kind == "code"
        return {
            "name": action.name,
            "line": action_line(action),
            "action": action.kind,
            "call_id": action.call_id,
            "asked_by": asked_by,
            "status": status,
            "duration_us": _us(action.duration_ns),
            "arguments": None if is_code or not action.arguments else self._text(action.arguments),
            "result": None if action.result is None else self._text(action.result),
            "is_error": action.is_failed,
            "error": action.error,
            "steps": action.steps,
            "edits": _edits_data(action),
        }

    def _log_facts(self, log: LogInfo) -> tuple[Kind, dict[str, Any]]:
        if is_stamp(log):
            return "error", {"text": _plain(log.message), "type": None}
        label = format_attributes(log.attributes)
        kind = log.attributes.get("error.type")
        if kind:
            error = f"{kind}: {log.attributes.get('error.message') or ''}"
            label = [formatting.single_line(error, ERROR_SHOWN), *label]
        return "log", {
            "level": log.level,
            "component": log.component,
            "text": _plain(log.message),
            "label": " ".join(label),
        }

    def _state_facts(self, span: SpanInfo) -> dict[str, Any]:
        index = span.attributes.get("index")
        text: Text | None
        if span.type == "snapshot":
            counts = [
                f"{span.attributes[key]} {noun}" for key, noun in _COUNTS if key in span.attributes
            ]
            text = _plain(", ".join(counts), span.short_id, "output")
        else:
            body = body_item(self.evidence, span, "input", "tool")
            body = body or body_item(self.evidence, span, "output", "tool")
            text = None if body is None else self._text(body)
        return {
            "name": span.name,
            "index": index if isinstance(index, int) else None,
            "status": span.status or "open",
            "text": text,
            "error": error_text(span),
        }

    def _text(self, content: Content, length: int = TRANSCRIPT_TEXT_MAX) -> Text:
        shown = content.text[:length]
        cut = content.truncated or len(shown) < len(content.text)
        repeats = tuple(
            (each.begin, min(each.end, len(shown)), each.step)
            for each in content.repeats
            if each.begin < len(shown)
        )
        span = self._short.get(content.span_id)
        return Text(shown, content.size_bytes, cut, span, content.side, repeats)

    def _join(self, contents: list[Content], length: int) -> Text | None:
        """Return the parts of an answer as one text, with fences around code."""
        if not contents:
            return None
        if len(contents) == 1 and contents[0].kind != "code":
            return self._text(contents[0], length)
        parts = [
            f"```{item.name or ''}\n{item.text}\n```" if item.kind == "code" else item.text
            for item in contents
        ]
        text = "\n".join(parts)
        first = contents[0]
        size = sum(item.size_bytes for item in contents)
        cut = len(text) > length or any(item.truncated for item in contents)
        return Text(text[:length], size, cut, self._short.get(first.span_id), first.side)

    def _us(self, ns: int) -> int:
        return (ns - self.base_ns) // 1000


_COUNTS = (("slice_count", "slices"), ("item_count", "items"))


class _Counter:
    """Cursors of one step's items: `s7.0`, `s7.1`, ..."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, -1

    def next(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"


def _messages(contents: list[Content]) -> Iterator[list[Content]]:
    """Yield each content with the tool calls of the same message after it."""
    group: list[Content] = []
    for content in contents:
        same = group and (group[0].span_id, group[0].message_index) == (
            content.span_id,
            content.message_index,
        )
        if same and content.kind == "tool_call" and group[0].kind != "tool_result":
            group.append(content)
            continue
        if group:
            yield group
        group = [content]
    if group:
        yield group


def _is_action_of(action: Action, content: Content) -> bool:
    if content.call_id is not None and action.call_id is not None:
        return content.call_id == action.call_id
    return action.arguments is content or (
        action.span_id is not None and action.name == content.name
    )


def _plain(
    text: str, span: str | None = None, which: Literal["input", "output"] | None = None
) -> Text:
    shown = text[:TRANSCRIPT_TEXT_MAX]
    size = len(text.encode(errors="replace"))
    return Text(shown, size, len(shown) < len(text), span if which else None, which)


def _attribute(attributes: dict[str, Any], name: str) -> str | None:
    """Return an attribute as text: programs may store any type of value."""
    value = attributes.get(name)
    return None if value is None else str(value)


def _time_ns(extra: SpanInfo | LogInfo) -> int:
    return extra.started_ns if isinstance(extra, SpanInfo) else extra.time_ns


def _us(ns: int | None) -> int | None:
    return None if ns is None else ns // 1000


def _edits_data(action: Action) -> list[dict[str, Any]]:
    arguments = action.arguments.text if action.arguments is not None else ""
    return [edit.data() for edit in find_edits(action.name, arguments, action.file_diff)]
