"""A run as items of a chat: what was said to a model, what it said, what its tools gave.

Of each model call only the messages that are new since the request before it; then its answer;
then each tool call with its result, at the tool's own span where there is one. What happened
inside a tool or a sub-agent stands one deeper.

    for item in Items(evidence).walk(after="s7.2"): item.data()

Elsewhere: what is new in a request, in query/message_history.py; the words, in query/views/transcript.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from vestige.errors import UsageError
from vestige.limits import TRANSCRIPT_TEXT_MAX
from vestige.providers.models import Message, ToolCall
from vestige.query import formatting
from vestige.query.checks.requested_calls import get_call_id, get_tool_name
from vestige.query.evidence import Evidence
from vestige.query.message_history import Histories
from vestige.query.views.timeline import format_attributes, is_stamp, tree_of
from vestige.record.prompt_segments import SPAN_TYPE as ASSEMBLY
from vestige.record.run import BodyRef, LogInfo, Node, SpanInfo, time_ns

ERROR_SHOWN = 160
"""Characters of the exception that a log line carries."""

Kind = Literal["message", "call", "tool", "step", "state", "log", "error"]
_NOT_TOLD = (ASSEMBLY, "process", "run")
"""Spans that are no part of the talk; what is in them is."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text, perhaps its beginning only."""

    text: str
    size_bytes: int
    cut: bool
    span: str | None = None
    which: Literal["input", "output"] | None = None
    """Where the whole is."""

    def data(self) -> dict[str, Any]:
        body = None if self.which is None else {"span": self.span, "which": self.which}
        return {"text": self.text, "size_bytes": self.size_bytes, "cut": self.cut, "body": body}


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was said or done."""

    kind: Kind
    cursor: str
    at_us: int
    depth: int
    span: str | None
    facts: dict[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            key: value.data() if isinstance(value, Text) else value
            for key, value in self.facts.items()
        }
        if "calls" in told:
            calls = told["calls"]
            told["calls"] = [{**call, "arguments": call["arguments"].data()} for call in calls]
        return {
            "kind": self.kind,
            "cursor": self.cursor,
            "span": self.span,
            "at_us": self.at_us,
            "depth": self.depth,
            **told,
        }


class Items:
    """The items of one run, in order."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.base_ns = evidence.run.info.started_ns
        self.histories = Histories(evidence)
        self._walking = self._walk_tree()
        self._nodes: list[tuple[Node, int, bool]] = []
        self._places: dict[str, int] = {}

    def walk(self, after: str | None = None) -> Iterator[Item]:
        """From the start, or after a cursor (or a span's short id)."""
        place, passed = _parse_cursor(after, self.evidence.run.info.short_id)
        begin = 0
        if place is not None:
            found = self._find(place)
            if found is None:
                raise UsageError(
                    f"after {formatting.single_line(after or '', 40)!r}: no place in {self.evidence.run.info.short_id}"
                    " (expected `cursor` or `next` of an answer, or a span of it)."
                )
            if passed is not None:
                yield from self._numbered(*self._nodes[found], begin=passed + 1)
            begin = found + 1
        for each in self._nodes_from(begin):
            yield from self._numbered(*each)

    def _numbered(
        self, node: Node, depth: int, has_children: bool, begin: int = 0
    ) -> Iterator[Item]:
        name = _name(node)
        at_ns = time_ns(node)
        if isinstance(node, SpanInfo) and node.type == "run":
            at_ns += node.duration_ns or 0  # it is told where it ended
        span = self._short(node.span_id) if isinstance(node, LogInfo) else node.short_id
        for number, (kind, facts) in enumerate(self._tell(node, has_children)):
            if number >= begin:
                at_us = (at_ns - self.base_ns) // 1000
                yield Item(kind, f"{name}.{number}", at_us, depth, span, facts)

    def _short(self, span_id: str | None) -> str | None:
        span = self.evidence.spans.get(span_id or "")
        return None if span is None else span.short_id

    def _nodes_from(self, at: int) -> Iterator[tuple[Node, int, bool]]:
        """The tree is walked as far as somebody looked, and no part of it twice."""
        while True:
            if at == len(self._nodes):
                each = next(self._walking, None)
                if each is None:
                    return
                self._places.setdefault(_name(each[0]), at)
                self._nodes.append(each)
            yield self._nodes[at]
            at += 1

    def _find(self, place: str) -> int | None:
        """Where a node stands, by what a cursor calls it."""
        if place not in self._places:
            for _ in self._nodes_from(len(self._nodes)):
                if place in self._places:
                    break
        return self._places.get(place)

    def _walk_tree(self) -> Iterator[tuple[Node, int, bool]]:
        """Everything in the order of the tree, with its depth; what is not told adds none, and a
        run is told where it ended."""
        children, roots = tree_of(self.evidence.run)
        stack: list[tuple[Node, int, bool]] = [(node, 0, False) for node in reversed(roots)]
        while stack:
            node, depth, at_end = stack.pop()
            if isinstance(node, LogInfo) or at_end:
                yield node, depth, False
                continue
            below = children.get(node.id, [])
            inner = depth if self._is_passed_over(node) else depth + 1
            if node.type == "run":
                stack.append((node, depth, True))
            else:
                yield node, depth, bool(below)
            stack.extend((child, inner, False) for child in reversed(below))

    def _is_passed_over(self, span: SpanInfo) -> bool:
        return span.type in _NOT_TOLD or (span.type == "llm" and not self.histories.is_call(span))

    # --- what each thing tells --------------------------------------------------------------------

    def _tell(self, node: Node, has_children: bool) -> Iterator[tuple[Kind, dict[str, Any]]]:
        if isinstance(node, LogInfo):
            yield self._tell_log(node)
        elif self._is_passed_over(node):
            yield from self._tell_end(node)
        elif node.type == "llm":
            yield from self._tell_call(node)
        elif node.type == "tool":
            yield "tool", self._tool(node)
        elif node.type in ("snapshot", "state"):
            yield "state", self._state(node)
        else:
            yield (
                "step",
                {
                    "type": node.type,
                    "name": node.name,
                    "component": node.component,
                    "status": node.status or "open",
                    "duration_us": _us(node.duration_ns),
                    "label": " ".join(format_attributes(node.attributes)),
                    "error": _error(node),
                    "children": has_children,
                },
            )

    def _tell_log(self, log: LogInfo) -> tuple[Kind, dict[str, Any]]:
        if is_stamp(log):
            return "error", {"text": _cut(log.message), "type": None}
        error = log.attributes.get("error.type")
        said = formatting.single_line(
            f"{error}: {log.attributes.get('error.message') or ''}", ERROR_SHOWN
        )
        told = " ".join([*([said] if error else []), *format_attributes(log.attributes)])
        return "log", {
            "level": log.level,
            "component": log.component,
            "text": _cut(log.message),
            "label": told,
        }

    def _tell_end(self, span: SpanInfo) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """Of what is passed over, only that it failed."""
        if span.type == "run" and span.status not in ("ok", None):
            told = _error(span) or f"the run ended as {span.status}"
            kind = span.attributes.get("error.type")
            yield "error", {"text": _cut(told), "type": kind if isinstance(kind, str) else None}

    def _tell_call(self, span: SpanInfo) -> Iterator[tuple[Kind, dict[str, Any]]]:
        told = self.histories.new_in(span)
        if told is not None:
            for message in told.messages:
                yield from self._tell_message(span, message)
        elif span.input is not None:
            yield "message", {"role": "input", "text": self._body(span, "input"), "calls": []}
        response = self.histories.response(span)
        attributes = span.attributes
        text = (
            self._body(span, "output")
            if response is None
            else _cut(response.text, span.short_id, "output")
        )
        calls = list(response.calls) if response is not None else []
        # Of calls that have no id, one is told from another of its name by the order alone.
        alike: Counter[str] = Counter()
        nth = []
        for call in calls:
            nth.append(alike[call.name])
            alike[call.name] += 1
        made = [
            (call, self.histories.execution(span, call, n))
            for call, n in zip(calls, nth, strict=True)
        ]
        yield (
            "call",
            {
                "name": span.name,
                "model": _text(attributes, "model") or (response.model if response else None),
                "status": span.status or "open",
                "duration_us": _us(span.duration_ns),
                **{
                    name.removesuffix("_tokens")
                    if name.startswith("cache")
                    else name: attributes.get(name)
                    for name in _TOKENS
                },
                "messages": None if told is None else told.total,
                "repeated": None if told is None else told.repeated,
                "text": text,
                "calls": [_call_facts(call, tool) for call, tool in made],
                "finish_reason": _text(attributes, "finish_reason")
                or (response.finish_reason if response else None),
                "error": _error(span) or (response.error if response else None),
            },
        )
        for (call, tool), n in zip(made, nth, strict=True):
            if tool is None:
                yield "tool", self._unrecorded(span, call, n, alike[call.name])

    def _tell_message(
        self, span: SpanInfo, message: Message
    ) -> Iterator[tuple[Kind, dict[str, Any]]]:
        calls = [_call_facts(call, None) for call in message.calls]
        if message.text or calls or not message.results:
            text = _cut(message.text, span.short_id, "input")
            yield "message", {"role": message.role, "text": text, "calls": calls}
        for result in message.results:
            known = self.histories.was_executed(result.call_id)
            if known or self.histories.was_answered_here(span, result.call_id):
                continue  # it stands with its call
            yield (
                "tool",
                {
                    "name": None,
                    "call_id": result.call_id,
                    "asked_by": None,
                    "status": "answered",
                    "duration_us": None,
                    "arguments": None,
                    "result": _cut(result.text, span.short_id, "input"),
                    "is_error": result.is_error,
                    "error": None,
                },
            )

    # --- tools and states ---------------------------------------------------------------------------

    def _tool(self, span: SpanInfo) -> dict[str, Any]:
        asked = self.histories.asker(span)
        arguments = self._body(span, "input")
        if arguments is None and asked is not None:
            arguments = _cut(asked[1].arguments, asked[0].short_id, "output")
        result = self._body(span, "output")
        if result is None and asked is not None and span.status == "ok":
            found = self.histories.result_of(*asked)
            result = None if found is None else _cut(found.text)
        return {
            "name": get_tool_name(span),
            "call_id": get_call_id(span),
            "asked_by": None if asked is None else asked[0].short_id,
            "status": span.status or "open",
            "duration_us": _us(span.duration_ns),
            "arguments": arguments,
            "result": result,
            "is_error": span.status not in ("ok", None),
            "error": _error(span),
        }

    def _unrecorded(self, span: SpanInfo, call: ToolCall, nth: int, alike: int) -> dict[str, Any]:
        """A tool that ran unseen: what it was asked is in the answer, what it gave in a later request."""
        result = self.histories.result_of(span, call, nth, alike)
        return {
            "name": call.name,
            "call_id": call.id,
            "asked_by": span.short_id,
            "status": "unanswered" if result is None else "answered",
            "duration_us": None,
            "arguments": _cut(call.arguments, span.short_id, "output"),
            "result": None if result is None else _cut(result.text),
            "is_error": result is not None and result.is_error,
            "error": None,
        }

    def _state(self, span: SpanInfo) -> dict[str, Any]:
        index = span.attributes.get("index")
        if span.type == "snapshot":
            counts = [
                f"{span.attributes[key]} {word}" for key, word in _COUNTS if key in span.attributes
            ]
            text: Text | None = _cut(", ".join(counts), span.short_id, "output")
        else:
            text = self._body(span, "input") or self._body(span, "output")
        return {
            "name": span.name,
            "index": index if isinstance(index, int) else None,
            "status": span.status or "open",
            "text": text,
            "error": _error(span),
        }

    def _body(self, span: SpanInfo, which: Literal["input", "output"]) -> Text | None:
        """What went in or came out; None: nothing did."""
        ref: BodyRef | None = span.input if which == "input" else span.output
        if ref is None:
            return None
        text = self.evidence.input(span) if which == "input" else self.evidence.output(span)
        if text is None:
            return Text(f"({ref.cut or 'no longer in the store'})", ref.size_bytes, True)
        shown = text[:TRANSCRIPT_TEXT_MAX]
        return Text(shown, ref.size_bytes, len(shown) < len(text), span.short_id, which)


_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_COUNTS = (("slice_count", "slices"), ("item_count", "items"))


def _name(node: Node) -> str:
    """Of a node, in a cursor: it stays when more comes in."""
    if isinstance(node, LogInfo):
        return f"l{node.seq}-{node.writer}"
    return f"s{node.short_id.rpartition('.s')[2]}"


def _parse_cursor(text: str | None, run: str) -> tuple[str | None, int | None]:
    """A node's name, and the number of the item of it that was told last; None: all of them."""
    if text is None:
        return None, None
    head, _, tail = text.strip().rpartition(".")
    if head == run:  # a short id: on from after this span
        return tail, None
    if not tail.isdecimal() or len(tail) > 9:
        return text, None
    return head, int(tail)


def _cut(
    text: str, span: str | None = None, which: Literal["input", "output"] | None = None
) -> Text:
    shown = text[:TRANSCRIPT_TEXT_MAX]
    size = len(text.encode(errors="replace"))
    return Text(shown, size, len(shown) < len(text), span if which else None, which)


def _call_facts(call: ToolCall, tool: SpanInfo | None) -> dict[str, Any]:
    return {
        "id": call.id,
        "name": call.name,
        "arguments": _cut(call.arguments),
        "span": None if tool is None else tool.short_id,
    }


def _error(span: SpanInfo) -> str | None:
    if span.status in ("ok", None):
        return None
    kind, message = (span.attributes.get(f"error.{part}") for part in ("type", "message"))
    told = ": ".join(str(part)[:1_000] for part in (kind, message) if part)
    return told or None


def _text(attributes: dict[str, Any], name: str) -> str | None:
    """Programs put anything into an attribute: what is told as a text is one."""
    value = attributes.get(name)
    return None if value is None else str(value)


def _us(ns: int | None) -> int | None:
    return None if ns is None else ns // 1000
