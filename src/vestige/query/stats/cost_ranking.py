"""Which tools and prompt contributors are worth what they cost, every turn.

A tool's definition stands in every request; a contributor's segment does too. That standing
cost, measured in the requests as they were sent, is set against use (calls) and success.
Counts and sizes are measured; what they mean is a hypothesis, and is labelled so.

Bounded: the last request of each of the latest runs, and the latest prompts' segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from vestige.errors import VestigeError
from vestige.limits import MIB
from vestige.query import formatting
from vestige.query.budget import CHARACTERS_A_TOKEN
from vestige.query.diff.body_diff import parse_model_request
from vestige.query.text_layout import columns
from vestige.record.prompt_segments import parse_segments
from vestige.store.protocol import Store
from vestige.store.sqlite.read import reports
from vestige.store.sqlite.read.reports import LatestCall

RUNS_MAX: Final = 50
"""Runs that are looked at, the latest: what is defined now is what one can change."""

REQUEST_MAX: Final = 2 * MIB
ASSEMBLIES_MAX: Final = 200

FAILING: Final = 0.5
"""A tool that fails more often than this is said to."""

SUGGESTIONS_MAX: Final = 5


@dataclass(slots=True)
class CostRow:
    """One tool or contributor: what it costs each turn, and what it gives."""

    name: str
    size_bytes: int = 0
    """Mean, of the requests that have it."""
    seen: int = 0
    """Requests or prompts that have it."""
    looked_at: int = 0
    """Of so many."""
    calls: int | None = None
    """None: nothing that one could call."""
    ok: int = 0
    asked: int = 0
    """Calls that stand in the histories of requests: for programs that do not record their tools."""

    @property
    def tokens(self) -> int:
        """An estimate."""
        return self.size_bytes // CHARACTERS_A_TOKEN

    @property
    def uses(self) -> int:
        return (self.calls or 0) or self.asked

    def order(self) -> tuple[Any, ...]:
        """Never used and fat first; then by what one successful call costs; without a cost last."""
        standing = self.size_bytes * self.seen
        good = self.ok if self.calls else self.asked
        return (standing == 0, self.uses > 0, -standing / max(1, good), self.name)

    def data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bytes_per_turn": self.size_bytes,
            "tokens_per_turn_estimated": self.tokens,
            "seen": self.seen,
            "looked_at": self.looked_at,
            "calls": self.calls,
            "ok": self.ok if self.calls else None,
            "asked": self.asked,
        }


@dataclass(slots=True)
class Ranking:
    """Tools and contributors, those first that cost most for what they give."""

    runs: int
    turns: int
    requests: int
    skipped: int = 0
    tools: list[CostRow] = field(default_factory=list)
    contributors: list[CostRow] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Two lines of heading, then rows."""
        if not self.tools and not self.contributors:
            return []
        told = [
            "",
            f"standing cost against use (measured: the last request of each of the latest "
            f"{formatting.pluralize(self.requests, 'run')}; calls of {formatting.pluralize(self.turns, 'turn')})",
        ]
        if self.skipped:
            told.append(
                f"{formatting.pluralize(self.skipped, 'request')} gone, too long or of no known form: not looked at"
            )
        told += self._hypotheses()
        if self.tools:
            rows = [["tool", "bytes/turn", "~tokens", "in", "calls", "ok"]]
            told += columns([*rows, *map(_tool_row, self.tools)], right=range(1, 6))
        if self.contributors:
            rows = [["contributor", "bytes/turn", "~tokens", "in", "calls", "ok"]]
            told += columns([*rows, *map(_tool_row, self.contributors)], right=range(1, 6))
        return told

    def _hypotheses(self) -> list[str]:
        told = [f"hypothesis: {text}" for text in self.hypotheses()]
        if len(told) > SUGGESTIONS_MAX:
            left = len(told) - SUGGESTIONS_MAX
            return [
                *told[:SUGGESTIONS_MAX],
                f"… {left} more {'hypothesis' if left == 1 else 'hypotheses'}, see the table",
            ]
        return told

    def hypotheses(self) -> list[str]:
        """Readings of the numbers; somebody has to look."""
        told = []
        for tool in self.tools:
            name = formatting.single_line(tool.name, 40)
            if tool.seen and not tool.uses:
                told.append(
                    f"{name} ({formatting.size(tool.size_bytes)} a turn) is defined but was never called: it is "
                    "not needed, or its description does not tell the model when to use it"
                )
            elif tool.calls and tool.ok / tool.calls < FAILING:
                told.append(
                    f"{name} failed in {tool.calls - tool.ok} of {formatting.pluralize(tool.calls, 'call')}: its "
                    "parameters may be described wrongly, or what is behind it is down"
                )
            elif tool.calls and not tool.seen and self.requests:
                told.append(
                    f"{name} is called but not defined in the requests: the name may be changed on the way"
                )
        return told

    def data(self) -> dict[str, Any]:
        return {
            "measured": {
                "runs": self.runs,
                "requests": self.requests,
                "requests_skipped": self.skipped,
                "turns": self.turns,
                "tools": [tool.data() for tool in self.tools],
                "contributors": [part.data() for part in self.contributors],
            },
            "hypotheses": self.hypotheses(),
        }


def _tool_row(part: CostRow) -> list[str]:
    calls = "–" if part.calls is None else str(part.calls)
    if not part.calls and part.asked:
        calls = f"{part.asked} asked"
    return [
        formatting.single_line(part.name, 40),
        formatting.size(part.size_bytes) if part.seen else "–",
        str(part.tokens) if part.seen else "–",
        f"{part.seen / part.looked_at:.0%}" if part.looked_at else "–",
        calls,
        f"{part.ok / part.calls:.0%}" if part.calls else "–",
    ]


def rank(store: Store, since_ns: int | None = None, runs_max: int = RUNS_MAX) -> Ranking:
    """Look at the latest runs with model calls."""
    connection = reports.connection_of(store)
    latest = reports.read_latest_calls(connection, since_ns, runs_max)
    run_ids = [call.run_id for call in latest]
    found: dict[str, CostRow] = {}
    asked: dict[str, int] = {}
    requests, skipped = _measure_requests(store, latest, found, asked)
    calls = reports.count_tool_calls(connection, run_ids)
    for name in {*calls, *asked}:
        found.setdefault(name, CostRow(name))
    for name, tool in found.items():
        tool.calls, tool.ok = calls.get(name, (0, 0))
        tool.asked = asked.get(name, 0)
        tool.looked_at = requests
    return Ranking(
        runs=len(latest),
        turns=sum(call.turns for call in latest),
        requests=requests,
        skipped=skipped,
        tools=sorted(found.values(), key=CostRow.order),
        contributors=_measure_contributors(store, run_ids, calls),
    )


def _measure_requests(
    store: Store, latest: Iterable[LatestCall], found: dict[str, CostRow], asked: dict[str, int]
) -> tuple[int, int]:
    """Definitions in requests, and calls in their histories. How many were read, and not."""
    requests = skipped = 0
    for call in latest:
        text = _read(store, call.body) if call.size_bytes <= REQUEST_MAX else None
        request = None if text is None else parse_model_request(text)
        if request is None:
            skipped += 1
            continue
        requests += 1
        for tool in {tool.name: tool for tool in request.tools}.values():
            _add(found, tool.name, tool.size_bytes)
        for message in request.messages:
            for made in message.calls:
                asked[made.name] = asked.get(made.name, 0) + 1
    return requests, skipped


def _measure_contributors(
    store: Store, run_ids: list[str], calls: dict[str, tuple[int, int]]
) -> list[CostRow]:
    found: dict[str, CostRow] = {}
    looked_at = 0
    connection = reports.connection_of(store)
    for _, body in reports.read_assemblies(connection, run_ids, ASSEMBLIES_MAX):
        lengths: dict[str, int] = {}
        for segment in parse_segments(_read(store, body)):
            lengths[segment.contributor] = lengths.get(segment.contributor, 0) + segment.length
        looked_at += bool(lengths)
        for contributor, length in lengths.items():
            _add(found, contributor, length)
    for name, part in found.items():
        part.looked_at = looked_at
        kind, _, tool = name.partition(":")
        if kind == "tool":
            part.calls, part.ok = calls.get(tool, (0, 0))
    return sorted(found.values(), key=lambda part: (-part.size_bytes * part.seen, part.name))


def _add(found: dict[str, CostRow], name: str, size_bytes: int) -> None:
    part = found.setdefault(name, CostRow(name))
    total = part.size_bytes * part.seen + size_bytes
    part.seen += 1
    part.size_bytes = total // part.seen


def _read(store: Store, body: int | None) -> str | None:
    if body is None:
        return None
    try:
        return store.read_body(body, 0, REQUEST_MAX).decode(errors="replace")
    except VestigeError:
        return None  # evicted, or damaged
