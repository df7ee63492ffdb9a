"""Two runs side by side, as rows of JSON for the compare page.

Equal stretches are folded into one row. Every other row has a class: `prompt`, `tools`,
`parameters` (of a call, or a tool's arguments), `result`, `state`, `steps` (only one run has
the step) or `message` (a log record).

    rows, first_row, left_out = RowBuilder(a, b, rules).build(pairs, first_at)
    build_deltas(a, b)

Elsewhere: steps are paired in query/diff/run_diff.py; two spans are compared in full in
query/diff/span_diff.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from vestige.limits import MIB
from vestige.query.diff.repeated_changes import RepeatedChanges, input_texts, output_texts
from vestige.query.diff.span_diff import format_label
from vestige.query.diff.step_descriptions import (
    describe_difference,
    describe_result,
    describe_step,
)
from vestige.query.diff.word_diff import diff_words, find_difference
from vestige.query.evidence import Evidence
from vestige.query.stats.costs import span_costs
from vestige.record.run import LogInfo, Node, SpanInfo, time_ns
from vestige.record.types import MODEL_CALL_TYPES

RowClass = Literal["prompt", "tools", "parameters", "result", "state", "steps", "message"]

ROWS_MAX: Final = 5_000
"""Rows of one answer. The rest is counted."""

PAIRS_READ_MAX: Final = 400
BYTES_READ_MAX: Final = 32 * MIB
"""Differing pairs whose bodies are read for their class and words, and the bytes of them all."""

WORDS_BYTES_MAX: Final = 64 * 1024
"""Size of a body up to which changed words are shown."""

DEPTH_MAX: Final = 1_000
"""Ancestors of a step that are visited: a cycle of parents must end."""

TOOLS_MAX: Final = 50
"""Tools whose numbers of calls are compared."""

MODEL_CALLS: Final = ("llm", "provider.request")
_STATES: Final = ("snapshot", "state")


@dataclass(frozen=True, slots=True)
class StepPair:
    """A step of one run, and the step of the other run that it is aligned with."""

    mark: str
    """`=` equal, `~` changed, `-` only in the first run, `+` only in the second."""
    a: Node | None
    b: Node | None
    aspects: tuple[str, ...] = ()
    """Parts that differ: `status`, `attributes`, `input`, `output`, `message`."""
    volatile: bool = False
    """True if ignored values differ."""

    @property
    def differs(self) -> bool:
        return self.mark in "+-" or bool(self.aspects)

    @property
    def node(self) -> Node:
        """The step of the first run, or of the second if the first has none."""
        node = self.b if self.a is None else self.a
        assert node is not None
        return node


class RowBuilder:
    """Build the rows, and read a bounded number of bodies for them."""

    def __init__(self, a: Evidence, b: Evidence, rules: tuple[str, ...]) -> None:
        self.a, self.b, self.rules = a, b, rules
        self._depths: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._pairs_left = PAIRS_READ_MAX
        self._bytes_left = BYTES_READ_MAX
        self._changes = RepeatedChanges(rules)
        self._containers: set[str] = set()

    def build(
        self, pairs: Sequence[StepPair], first_at: int | None
    ) -> tuple[list[dict[str, Any]], int | None, int]:
        """Return the rows, the index of the first difference, and the number of rows left out."""
        rows: list[dict[str, Any]] = []
        first = None
        left_out = 0
        self._containers = self._find_containers(pairs)
        with_news: list[StepPair] = []
        containers: list[tuple[dict[str, Any], StepPair]] = []
        open_containers: list[tuple[dict[str, Any], StepPair]] = []
        same: list[StepPair] = []
        for at, pair in enumerate(pairs):
            if not pair.differs:
                same.append(pair)
                continue
            if same:
                rows.append(_fold(same))
                same = []
            if len(rows) >= ROWS_MAX:
                left_out += 1
                continue
            if at == first_at:
                first = len(rows)
            while open_containers and not self._is_inside(pair, open_containers[-1][1]):
                self._end(*open_containers.pop())
            is_later = first not in (None, len(rows))
            row = self._row(pair, is_later=is_later)
            rows.append(row)
            if self._contains_rows(pair):
                open_containers.append((row, pair))
            if row["container"] and is_later:
                containers.append((row, pair))
            elif not row["consequence"]:
                with_news.append(pair)
        if same:
            rows.append(_fold(same))
        while open_containers:
            self._end(*open_containers.pop())
        with_news += [pair for row, pair in containers if not row["container"]]
        news = self._find_containers(with_news)
        for row, pair in containers:
            row["consequence"] = row["container"] and news.isdisjoint(_span_ids(pair))
        return rows, first, left_out

    def _is_inside(self, pair: StepPair, container: StepPair) -> bool:
        ids = _span_ids(container)
        for node, evidence in ((pair.a, self.a), (pair.b, self.b)):
            above = None if node is None else _parent_id(node)
            for _ in range(DEPTH_MAX):
                if above is None or above in ids:
                    break
                span = evidence.spans.get(above)
                above = None if span is None else span.parent_id
            if above in ids:
                return True
        return False

    def _end(self, row: dict[str, Any], pair: StepPair) -> None:
        """Compare the output of a container after the steps inside, which it may repeat."""
        _, outputs = self._texts(pair)
        row["container"] = row["container"] and self._changes.covers(*outputs)
        self._changes.add(*outputs)

    def _row(self, pair: StepPair, *, is_later: bool) -> dict[str, Any]:
        readable = self._reserve_reading(pair)
        content = self._content(pair) if readable else None
        classes = self._classes(pair, readable)
        new = self._new_classes(pair, classes) if readable else classes
        contains = readable and self._contains_rows(pair) and set(new) <= {"result"}
        return {
            "mark": pair.mark,
            "class": (new or classes)[0],
            "classes": list(new or classes),
            # All of it repeats an earlier difference, such as the result of a tool in a prompt.
            "consequence": is_later and not new,
            # Its output only repeats steps inside, which differ and say more.
            "container": contains,
            "a": short_id(pair.a),
            "b": short_id(pair.b),
            "a_text": None if pair.a is None else format_label(pair.a),
            "b_text": None if pair.b is None else format_label(pair.b),
            "depth": self._depth(pair),
            "aspects": list(pair.aspects),
            "at_a_us": _at_us(pair.a, self.a),
            "at_b_us": _at_us(pair.b, self.b),
            "words": self._words(pair) if readable else None,
            "a_step": None if pair.a is None else describe_step(pair.a, self.a),
            "b_step": None if pair.b is None else describe_step(pair.b, self.b),
            "a_content": None if content is None else content[0],
            "b_content": None if content is None else content[1],
        }

    def _find_containers(self, pairs: Sequence[StepPair]) -> set[str]:
        """Return the ids of spans in which another step differs."""
        found: set[str] = set()
        for pair in pairs:
            if not pair.differs:
                continue
            for node, evidence in ((pair.a, self.a), (pair.b, self.b)):
                above = None if node is None else _parent_id(node)
                while above is not None and above not in found:
                    found.add(above)
                    span = evidence.spans.get(above)
                    above = None if span is None else span.parent_id
        return found

    def _new_classes(self, pair: StepPair, classes: Sequence[RowClass]) -> Sequence[RowClass]:
        """Return the classes without those that only repeat earlier differences.

        What a tool was called with, and what it returned, always counts.
        """
        a, b = pair.a, pair.b
        spans = [span for span in (a, b) if isinstance(span, SpanInfo)]
        if not spans:
            return classes
        inputs, outputs = self._texts(pair)
        is_tool = any(span.type == "tool" for span in spans)
        new = list(classes)
        if pair.mark == "~" and not is_tool and "input" in pair.aspects:
            sent: RowClass = "prompt" if "prompt" in new else "parameters"
            if sent in new and self._changes.covers(*inputs):
                new.remove(sent)
        self._changes.add(*inputs)
        if not self._contains_rows(pair):
            self._changes.add(*outputs)
        return new

    def _contains_rows(self, pair: StepPair) -> bool:
        return _is_container(pair) and not self._containers.isdisjoint(_span_ids(pair))

    def _texts(self, pair: StepPair) -> tuple[tuple[list[str], list[str]], ...]:
        """Return the texts of both inputs, and of both outputs."""
        a, b = _span(pair.a), _span(pair.b)
        inputs, outputs = (
            ([] if a is None else read(self.a, a), [] if b is None else read(self.b, b))
            for read in (input_texts, output_texts)
        )
        return inputs, outputs

    def _content(self, pair: StepPair) -> tuple[str, str] | None:
        a, b = _span(pair.a), _span(pair.b)
        if a is not None and b is not None:
            return describe_difference(a, b, (self.a, self.b), self.rules)
        if a is not None:
            return describe_result(a, self.a), ""
        return None if b is None else ("", describe_result(b, self.b))

    def _reserve_reading(self, pair: StepPair) -> bool:
        """Return True if the texts of the pair may be read, and count them."""
        spans = [node for node in (pair.a, pair.b) if isinstance(node, SpanInfo)]
        if not spans:
            return True
        size = sum(map(_body_bytes, spans))
        if not self._pairs_left or size > self._bytes_left:
            return False
        self._pairs_left -= 1
        self._bytes_left -= size
        return True

    def _classes(self, pair: StepPair, readable: bool) -> tuple[RowClass, ...]:
        node = pair.node
        if isinstance(node, LogInfo):
            return ("message",)
        if node.type in _STATES:
            return ("state",)
        if node.type.startswith("prompt"):
            return ("prompt",)
        if not isinstance(pair.a, SpanInfo) or not isinstance(pair.b, SpanInfo):
            return ("tools",) if node.type == "tool" else ("steps",)
        found: list[RowClass] = []
        if "input" in pair.aspects:
            if node.type in MODEL_CALLS:
                found += self._request_classes(pair.a, pair.b) if readable else ["prompt"]
            else:
                found.append("parameters")
        if "attributes" in pair.aspects and not found:
            found.append("parameters")
        if "output" in pair.aspects or "status" in pair.aspects:
            found.append("result")
        return tuple(dict.fromkeys(found)) or ("steps",)

    def _request_classes(self, a: SpanInfo, b: SpanInfo) -> list[RowClass]:
        """Return what differs in two requests, in the order in which a provider reads it."""
        a_request, b_request = self.a.request(a), self.b.request(b)
        if a_request is None or b_request is None:
            return ["prompt"]
        found: list[RowClass] = []
        if a_request.tools != b_request.tools:
            found.append("tools")
        a_messages, b_messages = (
            [(m.role, m.text, m.calls, m.results) for m in request.messages]
            for request in (a_request, b_request)
        )
        if a_messages != b_messages:
            found.append("prompt")
        return found or ["parameters"]

    def _words(self, pair: StepPair) -> str | None:
        """Return the words around the first byte that differs."""
        if isinstance(pair.a, LogInfo) and isinstance(pair.b, LogInfo):
            return self._diff_words(pair.a.message, pair.b.message)
        if not isinstance(pair.a, SpanInfo) or not isinstance(pair.b, SpanInfo):
            return None
        for which in ("input", "output"):
            if which in pair.aspects:
                a_text, b_text = getattr(self.a, which)(pair.a), getattr(self.b, which)(pair.b)
                if a_text is None or b_text is None:
                    continue
                if max(len(a_text), len(b_text)) <= WORDS_BYTES_MAX:
                    return self._diff_words(a_text, b_text)
        return None

    def _diff_words(self, a_text: str, b_text: str) -> str | None:
        first = find_difference(a_text, b_text, self.rules)
        return None if first is None else diff_words(a_text, b_text, first)

    def _depth(self, pair: StepPair) -> int:
        if pair.b is not None:
            return _depth(pair.b, self.b, self._depths[1])
        assert pair.a is not None
        return _depth(pair.a, self.a, self._depths[0])


def _fold(same: Sequence[StepPair]) -> dict[str, Any]:
    """Return one row for equal steps: their number, and the first and last span of each side."""
    sides = []
    for side in ("a", "b"):
        ids = [short_id(getattr(pair, side)) for pair in same]
        span_ids = [span_id for span_id in ids if span_id is not None]
        sides.append([span_ids[0], span_ids[-1]] if span_ids else None)
    volatile = sum(pair.volatile for pair in same)
    return {"mark": "=", "count": len(same), "a": sides[0], "b": sides[1], "volatile": volatile}


def _depth(node: Node, evidence: Evidence, known: dict[str, int]) -> int:
    """Return the number of ancestors without the run. A cycle of parents ends the count."""
    chain: list[str] = []
    above = node.span_id if isinstance(node, LogInfo) else node.parent_id
    while above is not None and above not in known and above not in chain:
        span = evidence.spans.get(above)
        if span is None or len(chain) >= 1_000:
            break
        chain.append(above)
        above = span.parent_id
    depth = known.get(above or "", -1)
    for span_id in reversed(chain):
        depth = known[span_id] = depth + 1
    return max(0, depth)


def short_id(node: Node | None) -> str | None:
    """Return the short id of a span; None for a log record, which has none."""
    return node.short_id if isinstance(node, SpanInfo) else None


def _at_us(node: Node | None, evidence: Evidence) -> int | None:
    return None if node is None else (time_ns(node) - evidence.run.info.started_ns) // 1000


def _span(node: Node | None) -> SpanInfo | None:
    return node if isinstance(node, SpanInfo) else None


def _span_ids(pair: StepPair) -> set[str]:
    return {node.id for node in (pair.a, pair.b) if isinstance(node, SpanInfo)}


def _parent_id(node: Node) -> str | None:
    return node.span_id if isinstance(node, LogInfo) else node.parent_id


def _is_container(pair: StepPair) -> bool:
    """Return True for two spans that have no content of their own: agents, steps, nodes."""
    kinds = {node.type for node in (pair.a, pair.b) if isinstance(node, SpanInfo)}
    return pair.mark == "~" and bool(kinds) and kinds.isdisjoint({"tool", *MODEL_CALLS})


def _body_bytes(span: SpanInfo) -> int:
    return sum(ref.size_bytes for ref in (span.input, span.output) if ref)


# --- totals -------------------------------------------------------------------------------------


def build_deltas(a: Evidence, b: Evidence) -> list[dict[str, Any]]:
    """Return the totals of both runs: outcome, duration, sizes, cost, and calls of each tool."""
    a_totals, b_totals = _totals(a), _totals(b)
    deltas = [{"name": name, "a": a_totals[name], "b": b_totals[name]} for name in a_totals]
    a_calls, b_calls = (Counter(span.name for span in side.of_type("tool")) for side in (a, b))
    names = sorted(a_calls.keys() | b_calls.keys())
    names.sort(key=lambda name: -abs(a_calls[name] - b_calls[name]))
    deltas += [
        {"name": f"tool:{name}", "a": a_calls[name], "b": b_calls[name]}
        for name in names[:TOOLS_MAX]
    ]
    return deltas


def _totals(evidence: Evidence) -> dict[str, Any]:
    info, calls = evidence.run.info, evidence.model_calls
    cost = span_costs(evidence.of_type(*MODEL_CALL_TYPES), evidence.prices) if info.tokens else None
    return {
        "outcome": info.outcome,
        "duration_ms": None if info.duration_ns is None else round(info.duration_ns / 1e6, 3),
        "spans": info.span_count,
        "logs": info.log_count,
        "errors": info.error_count,
        "model_calls": len(calls),
        "tool_calls": len(evidence.of_type("tool")),
        "input_tokens": info.input_tokens,
        "output_tokens": info.output_tokens,
        "cache_read_tokens": _sum(calls, "cache_read_tokens"),
        "cache_write_tokens": _sum(calls, "cache_write_tokens"),
        "cost_usd": None if cost is None else cost.dollars,
    }


def _sum(spans: Sequence[SpanInfo], name: str) -> int:
    values = (span.attributes.get(name) for span in spans)
    return sum(value for value in values if isinstance(value, int) and 0 < value < 2**53)
