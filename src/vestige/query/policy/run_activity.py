"""The activity of a run, in the terms of a policy: tool calls, models, hosts, tokens, cost, time.

activity = evidence.once(read_activity)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from vestige.query.evidence import Evidence
from vestige.query.stats.costs import span_costs
from vestige.query.trajectory import build_trajectory
from vestige.query.trajectory.types import Action, Step


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool."""

    name: str
    arguments: Any
    """Parsed, or the text if it is not JSON; None if they were not recorded."""
    span_id: str | None
    """The execution, or the model call that requested it."""


@dataclass(slots=True)
class Activity:
    """Counts and names of a run."""

    tool_calls: list[ToolCall] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    """The first span that used each model."""
    hosts: dict[str, str] = field(default_factory=dict)
    """The first span that called each host."""
    model_calls: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    """None if no price is known."""
    duration_s: float = 0.0


def read_activity(evidence: Evidence) -> Activity:
    """Return the activity of a run."""
    run = evidence.run
    found = Activity(tokens=run.info.tokens)
    end_ns = run.info.ended_ns or run.info.last_ns
    found.duration_s = max(0, end_ns - run.info.started_ns) / 1e9
    calls = evidence.model_calls
    found.model_calls = len(calls)
    found.cost_usd = span_costs(calls, evidence.prices).dollars if calls else None
    for span in run.spans:
        for names, key in ((found.models, "model"), (found.hosts, "host")):
            value = span.attributes.get(key)
            if isinstance(value, str) and value:
                names.setdefault(value, span.id)
    for step in evidence.once(build_trajectory).steps:
        found.tool_calls += [
            _read_call(step, action) for action in step.actions if action.kind in ("tool", "agent")
        ]
    return found


def _read_call(step: Step, action: Action) -> ToolCall:
    item = action.arguments or next(
        (
            each
            for each in step.answer
            if each.kind == "tool_call" and each.call_id and each.call_id == action.call_id
        ),
        None,
    )
    span_id = action.span_id or (step.span.id if step.span is not None else None)
    return ToolCall(action.name, _parse(item.text) if item is not None else None, span_id)


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
