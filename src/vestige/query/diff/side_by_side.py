"""Two runs side by side as rows of a page: equal stretches folded, each difference with its class.

    rows, first, left_out = Rows(a, b, rules).make(places, first_at)
    make_deltas(a, b)

The class says what parted: `prompt`, `tools`, `parameters` (of a call, or a tool's arguments),
`result`, `state`, `steps` (one side has a step that the other has not), `message` (a log line).

Elsewhere: which steps belong together, query/diff/run_diff.py; two spans in full, query/diff/span_diff.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from vestige.limits import MIB
from vestige.query.diff.span_diff import label
from vestige.query.diff.word_diff import diff_words, find_parting
from vestige.query.evidence import Evidence
from vestige.query.stats.costs import span_costs
from vestige.record.run import LogInfo, Node, SpanInfo, time_ns

Class = Literal["prompt", "tools", "parameters", "result", "state", "steps", "message"]

ROWS_MAX: Final = 5_000
"""Rows of one answer; a count stands for the rest."""

LOOKED_INTO_MAX: Final = 50
"""Differing pairs whose bodies are read again to say what in them differs, the first ones;"""
LOOKED_INTO_BYTES: Final = 8 * MIB
"""and so many bytes of them."""

WORDS_BYTES_MAX: Final = 64 * 1024
"""Of a body in which the words that changed are looked for."""

TOOLS_MAX: Final = 50
"""Tools whose counts of calls are set side by side."""

MODEL_CALLS: Final = ("llm", "provider.request")
_STATES: Final = ("snapshot", "state")


@dataclass(frozen=True, slots=True)
class RowPosition:
    """One place of two runs side by side."""

    mark: str
    """`=`, `~`, `-`, `+`."""
    a: Node | None
    b: Node | None
    aspects: tuple[str, ...] = ()
    """What differs in a pair: `status`, `attributes`, `input`, `output`, `message`."""
    volatile: bool = False
    """It differs, and only in what is ignored."""

    @property
    def differs(self) -> bool:
        return self.mark in "+-" or bool(self.aspects)


class Rows:
    """Makes the rows; what it may read is bounded."""

    def __init__(self, a: Evidence, b: Evidence, rules: tuple[str, ...]) -> None:
        self.a, self.b, self.rules = a, b, rules
        self._depths: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._pairs = LOOKED_INTO_MAX
        self._bytes = LOOKED_INTO_BYTES

    def make(
        self, places: Sequence[RowPosition], first_at: int | None
    ) -> tuple[list[dict[str, Any]], int | None, int]:
        """Rows, the place among them of the first divergence, and how many were left out."""
        rows: list[dict[str, Any]] = []
        first = None
        left_out = 0
        same: list[RowPosition] = []
        for at, place in enumerate(places):
            if not place.differs:
                same.append(place)
                continue
            if same:
                rows.append(_folded(same))
                same = []
            if len(rows) >= ROWS_MAX:
                left_out += 1
                continue
            if at == first_at:
                first = len(rows)
            rows.append(self._row(place))
        if same:
            rows.append(_folded(same))
        return rows, first, left_out

    def _row(self, place: RowPosition) -> dict[str, Any]:
        looked = self._may_look(place)
        classes = self._classes(place, looked)
        return {
            "mark": place.mark,
            "class": classes[0],
            "classes": list(classes),
            "a": _short(place.a),
            "b": _short(place.b),
            "a_text": _say(place.a),
            "b_text": _say(place.b),
            "depth": self._depth(place),
            "aspects": list(place.aspects),
            "at_a_us": _at_us(place.a, self.a),
            "at_b_us": _at_us(place.b, self.b),
            "words": self._words(place) if looked else None,
        }

    def _may_look(self, place: RowPosition) -> bool:
        if not isinstance(place.a, SpanInfo) or not isinstance(place.b, SpanInfo):
            return isinstance(place.a, LogInfo) and isinstance(place.b, LogInfo)
        size = sum(_sizes(place.a)) + sum(_sizes(place.b))
        if not self._pairs or size > self._bytes:
            return False
        self._pairs -= 1
        self._bytes -= size
        return True

    # --- what parted ----------------------------------------------------------------------------

    def _classes(self, place: RowPosition, looked: bool) -> tuple[Class, ...]:
        node = place.a if place.a is not None else place.b
        if isinstance(node, LogInfo):
            return ("message",)
        assert node is not None
        if node.type in _STATES:
            return ("state",)
        if node.type.startswith("prompt"):
            return ("prompt",)
        if not isinstance(place.a, SpanInfo) or not isinstance(place.b, SpanInfo):
            return ("tools",) if node.type == "tool" else ("steps",)
        found: list[Class] = []
        if "input" in place.aspects:
            if node.type in MODEL_CALLS:
                found += self._of_request(place.a, place.b) if looked else ["prompt"]
            else:
                found.append("parameters")
        if "attributes" in place.aspects and not found:
            found.append("parameters")
        if "output" in place.aspects or "status" in place.aspects:
            found.append("result")
        return tuple(dict.fromkeys(found)) or ("steps",)

    def _of_request(self, a: SpanInfo, b: SpanInfo) -> list[Class]:
        """In the order in which a provider reads them: tools, messages, the rest."""
        was, now = self.a.request(a), self.b.request(b)
        if was is None or now is None:
            return ["prompt"]
        found: list[Class] = []
        if was.tools != now.tools:
            found.append("tools")
        said = [
            [(m.role, m.text, m.calls, m.results) for m in each.messages] for each in (was, now)
        ]
        if said[0] != said[1]:
            found.append("prompt")
        return found or ["parameters"]

    def _words(self, place: RowPosition) -> str | None:
        """The words around the first byte that differs."""
        if isinstance(place.a, LogInfo) and isinstance(place.b, LogInfo):
            return self._changed(place.a.message, place.b.message)
        if not isinstance(place.a, SpanInfo) or not isinstance(place.b, SpanInfo):
            return None
        for which in ("input", "output"):
            if which in place.aspects:
                was, now = getattr(self.a, which)(place.a), getattr(self.b, which)(place.b)
                if (
                    was is not None
                    and now is not None
                    and max(len(was), len(now)) <= WORDS_BYTES_MAX
                ):
                    return self._changed(was, now)
        return None

    def _changed(self, was: str, now: str) -> str | None:
        parting = find_parting(was, now, self.rules)
        return None if parting is None else diff_words(was, now, parting)

    def _depth(self, place: RowPosition) -> int:
        if place.b is not None:
            return _depth(place.b, self.b, self._depths[1])
        assert place.a is not None
        return _depth(place.a, self.a, self._depths[0])


def _folded(same: Sequence[RowPosition]) -> dict[str, Any]:
    """An equal stretch: how many, and its first and last span on each side."""
    sides = []
    for side in ("a", "b"):
        ids = [_short(getattr(place, side)) for place in same]
        known = [short for short in ids if short is not None]
        sides.append([known[0], known[-1]] if known else None)
    volatile = sum(place.volatile for place in same)
    return {"mark": "=", "count": len(same), "a": sides[0], "b": sides[1], "volatile": volatile}


def _depth(node: Node, evidence: Evidence, known: dict[str, int]) -> int:
    """Spans above it, the run itself not counted; a circle ends the count."""
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


def _short(node: Node | None) -> str | None:
    return node.short_id if isinstance(node, SpanInfo) else None


def _say(node: Node | None) -> str | None:
    return None if node is None else label(node)


def _at_us(node: Node | None, evidence: Evidence) -> int | None:
    return None if node is None else (time_ns(node) - evidence.run.info.started_ns) // 1000


def _sizes(span: SpanInfo) -> tuple[int, int]:
    given, made = span.input, span.output
    return (given.size_bytes if given else 0), (made.size_bytes if made else 0)


# --- numbers side by side -----------------------------------------------------------------------


def make_deltas(a: Evidence, b: Evidence) -> list[dict[str, Any]]:
    """What one compares first: how it ended, how long, how much, how dear; calls of each tool."""
    sides = [_numbers(each) for each in (a, b)]
    deltas = [{"name": name, "a": sides[0][name], "b": sides[1][name]} for name in sides[0]]
    counts = [Counter(span.name for span in each.of_type("tool")) for each in (a, b)]
    names = sorted(counts[0].keys() | counts[1].keys())
    names.sort(key=lambda name: -abs(counts[0][name] - counts[1][name]))
    deltas += [
        {"name": f"tool:{name}", "a": counts[0][name], "b": counts[1][name]}
        for name in names[:TOOLS_MAX]
    ]
    return deltas


def _numbers(evidence: Evidence) -> dict[str, Any]:
    info, calls = evidence.run.info, evidence.model_calls
    cost = span_costs(evidence.of_type("llm"), evidence.prices) if info.tokens else None
    cached = [_sum(calls, f"cache_{which}_tokens") for which in ("read", "write")]
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
        "cache_read_tokens": cached[0],
        "cache_write_tokens": cached[1],
        "cost_usd": None if cost is None else cost.dollars,
    }


def _sum(spans: Sequence[SpanInfo], name: str) -> int:
    values = (span.attributes.get(name) for span in spans)
    return sum(value for value in values if isinstance(value, int) and 0 < value < 2**53)
