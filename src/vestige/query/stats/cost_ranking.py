"""Rank tools and prompt contributors by prompt size per successful call.

Every request contains all tool definitions and contributor segments. Their sizes are measured in
recorded requests, and compared with the number of calls. Explanations of the numbers are
labelled as hypotheses.

Only the last request of each of the latest runs, their answers (for the tool calls in them), and
the latest prompt segments are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vestige.errors import VestigeError
from vestige.limits import MIB
from vestige.providers.parsing import parse_response
from vestige.query import formatting
from vestige.query.diff.body_diff import parse_model_request
from vestige.query.text_layout import columns
from vestige.query.token_budget import CHARACTERS_A_TOKEN
from vestige.record.prompt_segments import parse_segments
from vestige.store.protocol import LatestCall, Store

RUNS_MAX: Final = 50
"""Latest runs to read. Older ones may have tools that no longer exist."""

REQUEST_MAX: Final = 2 * MIB
ASSEMBLIES_MAX: Final = 200
ANSWERS_MAX: Final = 2_000
ANSWER_MAX: Final = 64 * 1024
"""Answers of models in which tool calls are counted, and their size."""

FAILING: Final = 0.5
"""Share of successful calls below which a tool is reported as failing."""

SUGGESTIONS_MAX: Final = 5


@dataclass(slots=True)
class CostRow:
    """The prompt space and the calls of one tool or contributor."""

    name: str
    size_bytes: int = 0
    """Mean over the requests that contain it."""
    seen: int = 0
    """Requests or prompts that contain it."""
    total: int = 0
    """Requests or prompts that were read."""
    turns: int = 0
    """Model calls of the runs whose last request contains it."""
    calls: int | None = None
    """None for a contributor that is not a tool."""
    ok: int = 0
    requested: int = 0
    """Calls in answers and histories, for programs that do not record their tools."""

    @property
    def tokens(self) -> int:
        """Estimated tokens of `size_bytes`."""
        return self.size_bytes // CHARACTERS_A_TOKEN

    @property
    def uses(self) -> int:
        return (self.calls or 0) or self.requested

    def sort_key(self) -> tuple[Any, ...]:
        """Sort unused tools first, then by bytes per success; tools without a size come last."""
        prompt_bytes = self.size_bytes * self.seen
        successes = self.ok if self.calls else self.requested
        return (prompt_bytes == 0, self.uses > 0, -prompt_bytes / max(1, successes), self.name)

    def data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bytes_per_turn": self.size_bytes,
            "tokens_per_turn_estimated": self.tokens,
            "seen": self.seen,
            "looked_at": self.total,
            "turns": self.turns,
            "calls": self.calls,
            "ok": self.ok if self.calls else None,
            "asked": self.requested,
        }


@dataclass(slots=True)
class Ranking:
    """Tools and contributors, the most expensive per successful call first."""

    runs: int
    turns: int
    requests: int
    skipped: int = 0
    tools: list[CostRow] = field(default_factory=list)
    contributors: list[CostRow] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Render two lines of heading, then notes, hypotheses and tables."""
        if not self.tools and not self.contributors:
            return []
        runs = formatting.pluralize(self.requests, "run")
        calls = formatting.pluralize(self.turns, "model call")
        lines = [
            "",
            f"Prompt cost vs. usage (the last request of each of the latest {runs}, with {calls})",
        ]
        if self.skipped:
            skipped = formatting.pluralize(self.skipped, "request")
            lines.append(f"{skipped} skipped (missing, too long or of unknown format)")
        lines += self._render_hypotheses()
        for kind, rows in (("tool", self.tools), ("contributor", self.contributors)):
            if rows:
                heading = [kind, "bytes/turn", "~tokens", "in", "calls", "ok"]
                lines += columns([heading, *map(_cells, rows)], right=range(1, 6))
        return lines

    def _render_hypotheses(self) -> list[str]:
        lines = [f"hypothesis: {text}" for text in self.hypotheses()]
        more = len(lines) - SUGGESTIONS_MAX
        if more <= 0:
            return lines
        noun = "hypothesis" if more == 1 else "hypotheses"
        return [*lines[:SUGGESTIONS_MAX], f"… {more} more {noun}, see the table"]

    def hypotheses(self) -> list[str]:
        """Return possible explanations of the numbers."""
        found = []
        for tool in self.tools:
            name = formatting.single_line(tool.name, 40)
            if tool.seen and not tool.uses:
                found.append(
                    f"{name} ({formatting.size(tool.size_bytes)} per turn) was never called: it is "
                    "not needed, or its description does not explain when to use it"
                )
            elif tool.calls and tool.ok / tool.calls < FAILING:
                calls = formatting.pluralize(tool.calls, "call")
                found.append(
                    f"{name} failed in {tool.calls - tool.ok} of {calls}: its parameters may be "
                    "described wrongly, or a service that it needs is down"
                )
            elif tool.calls and not tool.seen and self.requests:
                found.append(
                    f"{name} is called but not defined in the requests: a client may rename it"
                )
        return found

    def data(self) -> dict[str, Any]:
        return {
            "measured": {
                "runs": self.runs,
                "requests": self.requests,
                "requests_skipped": self.skipped,
                "turns": self.turns,
                "tools": [tool.data() for tool in self.tools],
                "contributors": [row.data() for row in self.contributors],
            },
            "hypotheses": self.hypotheses(),
        }


def _cells(row: CostRow) -> list[str]:
    calls = "–" if row.calls is None else str(row.calls)
    if not row.calls and row.requested:
        calls = f"{row.requested} requested"
    return [
        formatting.single_line(row.name, 40),
        formatting.size(row.size_bytes) if row.seen else "–",
        str(row.tokens) if row.seen else "–",
        f"{row.seen / row.total:.0%}" if row.total else "–",
        calls,
        f"{row.ok / row.calls:.0%}" if row.calls else "–",
    ]


def rank_tools(store: Store, since_ns: int | None = None, runs_max: int = RUNS_MAX) -> Ranking:
    """Rank the tools and contributors of the latest runs with model calls."""
    latest = store.read_latest_calls(since_ns, runs_max)
    run_ids = [call.run_id for call in latest]
    rows: dict[str, CostRow] = {}
    requested: Counter[str] = Counter()
    requests, skipped = _measure_requests(store, latest, rows, requested)
    # A history lacks the calls of the last answer, and those of other conversations.
    requested |= _count_answered_calls(store, run_ids)
    calls = store.count_tool_calls(run_ids)
    for name in {*calls, *requested}:
        rows.setdefault(name, CostRow(name))
    for name, tool in rows.items():
        tool.calls, tool.ok = calls.get(name, (0, 0))
        tool.requested = requested[name]
        tool.total = requests
    return Ranking(
        runs=len(latest),
        turns=sum(call.turns for call in latest),
        requests=requests,
        skipped=skipped,
        tools=sorted(rows.values(), key=CostRow.sort_key),
        contributors=_measure_contributors(store, run_ids, calls),
    )


def _measure_requests(
    store: Store, latest: Iterable[LatestCall], rows: dict[str, CostRow], requested: Counter[str]
) -> tuple[int, int]:
    """Measure tool definitions and count the calls in histories.

    Return the number of requests read, and of requests skipped.
    """
    latest = list(latest)
    bodies = Counter(
        call.body for call in latest if call.body is not None and call.size_bytes <= REQUEST_MAX
    )
    requests = 0
    for body, raw in store.read_bodies(list(bodies)):
        request = parse_model_request(raw.decode(errors="replace"))
        if request is None:
            continue
        requests += bodies[body]
        turns = sum(call.turns for call in latest if call.body == body)
        for _ in range(bodies[body]):  # runs whose requests are equal share a body
            for tool in {tool.name: tool for tool in request.tools}.values():
                _add(rows, tool.name, tool.size_bytes)
            for message in request.messages:
                requested.update(tool_call.name for tool_call in message.calls)
        for name in {tool.name for tool in request.tools}:
            rows[name].turns += turns
    return requests, len(latest) - requests


def _count_answered_calls(store: Store, run_ids: list[str]) -> Counter[str]:
    """Count the tool calls in the recorded answers of models, each once."""
    counts: Counter[str] = Counter()
    try:
        for _, raw in store.read_bodies(store.read_responses(run_ids, ANSWERS_MAX, ANSWER_MAX)):
            response = parse_response(raw.decode(errors="replace"), None)
            if response is not None:
                counts.update(call.name for call in response.calls)
    except VestigeError:
        pass  # A body was evicted, or it is damaged.
    return counts


def _measure_contributors(
    store: Store, run_ids: list[str], calls: Mapping[str, tuple[int, int]]
) -> list[CostRow]:
    rows: dict[str, CostRow] = {}
    prompts = 0
    for _, raw in store.read_bodies(store.read_prompt_assemblies(run_ids, ASSEMBLIES_MAX)):
        lengths: Counter[str] = Counter()
        for segment in parse_segments(raw.decode(errors="replace")):
            lengths[segment.contributor] += segment.length
        prompts += bool(lengths)
        for contributor, length in lengths.items():
            _add(rows, contributor, length)
    for name, row in rows.items():
        row.total = prompts
        kind, _, tool = name.partition(":")
        if kind == "tool":
            row.calls, row.ok = calls.get(tool, (0, 0))
    return sorted(rows.values(), key=lambda row: (-row.size_bytes * row.seen, row.name))


def _add(rows: dict[str, CostRow], name: str, size_bytes: int) -> None:
    row = rows.setdefault(name, CostRow(name))
    total = row.size_bytes * row.seen + size_bytes
    row.seen += 1
    row.size_bytes = total // row.seen
