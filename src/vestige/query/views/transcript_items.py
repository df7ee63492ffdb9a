"""Items of a run's chat: messages to a model, its answers, tool calls with their results.

A model call yields the messages that are new since the previous request, then its answer, then
each tool call with its result. A tool call with a span of its own is an item at that span.
Items inside a tool or a sub-agent are one level deeper.

    for item in Items(evidence).walk(after="s7.2"): item.data()

Elsewhere: new messages of a request in query/message_history.py; rendering in
query/views/transcript.py.
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
"""Characters of a log record's exception."""

Kind = Literal["message", "call", "tool", "step", "state", "log", "error"]
_SKIPPED_TYPES = (ASSEMBLY, "process", "run")
"""Types of spans that are not items themselves; their children are."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or its first characters."""

    text: str
    size_bytes: int
    cut: bool
    span: str | None = None
    which: Literal["input", "output"] | None = None
    """The body of `span` that has the full text."""

    def data(self) -> dict[str, Any]:
        body = None if self.which is None else {"span": self.span, "which": self.which}
        return {"text": self.text, "size_bytes": self.size_bytes, "cut": self.cut, "body": body}


@dataclass(frozen=True, slots=True)
class Item:
    """A message, model call, tool call, step, state, log record or error."""

    kind: Kind
    cursor: str
    at_us: int
    depth: int
    span: str | None
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
            "at_us": self.at_us,
            "depth": self.depth,
            **facts,
        }


class Items:
    """The items of one run, in order."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.base_ns = evidence.run.info.started_ns
        self.histories = Histories(evidence)
        self._unread_nodes = self._walk_tree()
        self._nodes: list[tuple[Node, int, bool]] = []
        self._index_of: dict[str, int] = {}

    def walk(self, after: str | None = None) -> Iterator[Item]:
        """Yield the items, from the start or after a cursor or a span's short id."""
        run = self.evidence.run.info.short_id
        name, last_item = _parse_cursor(after, run)
        begin = 0
        if name is not None:
            index = self._find_node(name)
            if index is None:
                raise UsageError(
                    f"after {formatting.single_line(after or '', 40)!r}: not a position in {run}"
                    " (expected `cursor` or `next` of an answer, or a span of the run)."
                )
            if last_item is not None:
                yield from self._items_of(*self._nodes[index], begin=last_item + 1)
            begin = index + 1
        for node in self._nodes_from(begin):
            yield from self._items_of(*node)

    def _items_of(
        self, node: Node, depth: int, has_children: bool, begin: int = 0
    ) -> Iterator[Item]:
        name = _cursor_name(node)
        at_ns = time_ns(node)
        if isinstance(node, SpanInfo) and node.type == "run":
            at_ns += node.duration_ns or 0  # its item reports how it ended
        span = self._short_id(node.span_id) if isinstance(node, LogInfo) else node.short_id
        for number, (kind, facts) in enumerate(self._facts(node, has_children)):
            if number >= begin:
                at_us = (at_ns - self.base_ns) // 1000
                yield Item(kind, f"{name}.{number}", at_us, depth, span, facts)

    def _short_id(self, span_id: str | None) -> str | None:
        span = self.evidence.spans.get(span_id or "")
        return None if span is None else span.short_id

    def _nodes_from(self, at: int) -> Iterator[tuple[Node, int, bool]]:
        """Yield nodes from an index on; the tree is walked lazily, and only once."""
        while True:
            if at == len(self._nodes):
                node = next(self._unread_nodes, None)
                if node is None:
                    return
                self._index_of.setdefault(_cursor_name(node[0]), at)
                self._nodes.append(node)
            yield self._nodes[at]
            at += 1

    def _find_node(self, name: str) -> int | None:
        """Return the index of the node with this cursor name."""
        if name not in self._index_of:
            for _ in self._nodes_from(len(self._nodes)):
                if name in self._index_of:
                    break
        return self._index_of.get(name)

    def _walk_tree(self) -> Iterator[tuple[Node, int, bool]]:
        """Yield (node, depth, has children) in tree order.

        Skipped spans add no depth, and a run comes after its children.
        """
        children, roots = tree_of(self.evidence.run)
        stack: list[tuple[Node, int, bool]] = [(node, 0, False) for node in reversed(roots)]
        while stack:
            node, depth, at_end = stack.pop()
            if isinstance(node, LogInfo) or at_end:
                yield node, depth, False
                continue
            below = children.get(node.id, [])
            inner = depth if self._is_skipped(node) else depth + 1
            if node.type == "run":
                stack.append((node, depth, True))
            else:
                yield node, depth, bool(below)
            stack.extend((child, inner, False) for child in reversed(below))

    def _is_skipped(self, span: SpanInfo) -> bool:
        if span.type in _SKIPPED_TYPES:
            return True
        return span.type == "llm" and not self.histories.is_call(span)

    # --- facts of each kind of node ---------------------------------------------------------------

    def _facts(self, node: Node, has_children: bool) -> Iterator[tuple[Kind, dict[str, Any]]]:
        if isinstance(node, LogInfo):
            yield self._log_facts(node)
        elif self._is_skipped(node):
            yield from self._failure_facts(node)
        elif node.type == "llm":
            yield from self._call_facts(node)
        elif node.type == "tool":
            yield "tool", self._tool_facts(node)
        elif node.type in ("snapshot", "state"):
            yield "state", self._state_facts(node)
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

    def _log_facts(self, log: LogInfo) -> tuple[Kind, dict[str, Any]]:
        if is_stamp(log):
            return "error", {"text": _truncate(log.message), "type": None}
        label = format_attributes(log.attributes)
        kind = log.attributes.get("error.type")
        if kind:
            error = f"{kind}: {log.attributes.get('error.message') or ''}"
            label = [formatting.single_line(error, ERROR_SHOWN), *label]
        return "log", {
            "level": log.level,
            "component": log.component,
            "text": _truncate(log.message),
            "label": " ".join(label),
        }

    def _failure_facts(self, span: SpanInfo) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """Yield an error item for a run that failed."""
        if span.type == "run" and span.status not in ("ok", None):
            text = _error(span) or f"the run ended with status {span.status}"
            kind = span.attributes.get("error.type")
            error_type = kind if isinstance(kind, str) else None
            yield "error", {"text": _truncate(text), "type": error_type}

    def _call_facts(self, span: SpanInfo) -> Iterator[tuple[Kind, dict[str, Any]]]:
        history = self.histories.new_in(span)
        if history is not None:
            for message in history.messages:
                yield from self._message_facts(span, message)
        elif span.input is not None:
            yield "message", {"role": "input", "text": self._body(span, "input"), "calls": []}
        response = self.histories.response(span)
        attributes = span.attributes
        text = (
            self._body(span, "output")
            if response is None
            else _truncate(response.text, span.short_id, "output")
        )
        # Calls of the same name that have no id are distinguished by their order alone.
        same_name: Counter[str] = Counter()
        calls: list[tuple[ToolCall, int, SpanInfo | None]] = []
        for call in response.calls if response is not None else ():
            nth = same_name[call.name]
            calls.append((call, nth, self.histories.execution(span, call, nth)))
            same_name[call.name] += 1
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
                "messages": None if history is None else history.total,
                "repeated": None if history is None else history.repeated,
                "text": text,
                "calls": [_tool_call_data(call, tool) for call, _, tool in calls],
                "finish_reason": _text(attributes, "finish_reason")
                or (response.finish_reason if response else None),
                "error": _error(span) or (response.error if response else None),
            },
        )
        for call, nth, tool in calls:
            if tool is None:
                yield "tool", self._unrecorded_tool(span, call, nth, same_name[call.name])

    def _message_facts(
        self, span: SpanInfo, message: Message
    ) -> Iterator[tuple[Kind, dict[str, Any]]]:
        calls = [_tool_call_data(call, None) for call in message.calls]
        if message.text or calls or not message.results:
            text = _truncate(message.text, span.short_id, "input")
            yield "message", {"role": message.role, "text": text, "calls": calls}
        for result in message.results:
            executed = self.histories.was_executed(result.call_id)
            if executed or self.histories.was_requested_nearby(span, result.call_id):
                continue  # the item of its call shows the result
            yield (
                "tool",
                {
                    "name": None,
                    "call_id": result.call_id,
                    "asked_by": None,
                    "status": "answered",
                    "duration_us": None,
                    "arguments": None,
                    "result": _truncate(result.text, span.short_id, "input"),
                    "is_error": result.is_error,
                    "error": None,
                },
            )

    # --- tools and states ---------------------------------------------------------------------------

    def _tool_facts(self, span: SpanInfo) -> dict[str, Any]:
        request = self.histories.find_requester(span)
        arguments = self._body(span, "input")
        if arguments is None and request is not None:
            arguments = _truncate(request[1].arguments, request[0].short_id, "output")
        result = self._body(span, "output")
        if result is None and request is not None and span.status == "ok":
            found = self.histories.result_of(*request)
            result = None if found is None else _truncate(found.text)
        return {
            "name": get_tool_name(span),
            "call_id": get_call_id(span),
            "asked_by": None if request is None else request[0].short_id,
            "status": span.status or "open",
            "duration_us": _us(span.duration_ns),
            "arguments": arguments,
            "result": result,
            "is_error": span.status not in ("ok", None),
            "error": _error(span),
        }

    def _unrecorded_tool(
        self, span: SpanInfo, call: ToolCall, nth: int, same_name: int
    ) -> dict[str, Any]:
        """Describe a tool call without a span.

        Its arguments come from the model's answer, its result from a later request.
        """
        result = self.histories.result_of(span, call, nth, same_name)
        return {
            "name": call.name,
            "call_id": call.id,
            "asked_by": span.short_id,
            "status": "unanswered" if result is None else "answered",
            "duration_us": None,
            "arguments": _truncate(call.arguments, span.short_id, "output"),
            "result": None if result is None else _truncate(result.text),
            "is_error": result is not None and result.is_error,
            "error": None,
        }

    def _state_facts(self, span: SpanInfo) -> dict[str, Any]:
        index = span.attributes.get("index")
        if span.type == "snapshot":
            counts = [
                f"{span.attributes[key]} {noun}" for key, noun in _COUNTS if key in span.attributes
            ]
            text: Text | None = _truncate(", ".join(counts), span.short_id, "output")
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
        """Return the span's input or output; None if it has none."""
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


def _cursor_name(node: Node) -> str:
    """Name a node in a cursor; the name does not change when a run grows."""
    if isinstance(node, LogInfo):
        return f"l{node.seq}-{node.writer}"
    return f"s{node.short_id.rpartition('.s')[2]}"


def _parse_cursor(text: str | None, run: str) -> tuple[str | None, int | None]:
    """Return a node's name and the number of its last item shown, or None for all items."""
    if text is None:
        return None, None
    head, _, tail = text.strip().rpartition(".")
    if head == run:  # a span's short id: continue after that span
        return tail, None
    if not tail.isdecimal() or len(tail) > 9:
        return text, None
    return head, int(tail)


def _truncate(
    text: str, span: str | None = None, which: Literal["input", "output"] | None = None
) -> Text:
    shown = text[:TRANSCRIPT_TEXT_MAX]
    size = len(text.encode(errors="replace"))
    return Text(shown, size, len(shown) < len(text), span if which else None, which)


def _tool_call_data(call: ToolCall, tool: SpanInfo | None) -> dict[str, Any]:
    return {
        "id": call.id,
        "name": call.name,
        "arguments": _truncate(call.arguments),
        "span": None if tool is None else tool.short_id,
    }


def _error(span: SpanInfo) -> str | None:
    if span.status in ("ok", None):
        return None
    kind, message = (span.attributes.get(f"error.{part}") for part in ("type", "message"))
    return ": ".join(str(part)[:1_000] for part in (kind, message) if part) or None


def _text(attributes: dict[str, Any], name: str) -> str | None:
    """Return an attribute as text: programs may store any type of value."""
    value = attributes.get(name)
    return None if value is None else str(value)


def _us(ns: int | None) -> int | None:
    return None if ns is None else ns // 1000
