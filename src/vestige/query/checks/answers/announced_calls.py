"""Tools and agents that a model announced and did not call.

A model that writes "I will use `web_search`" and then only prints text, or answers, has skipped
the work: what follows is not based on the tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.answer_effects import Action, actions_by_agent, is_agent, is_final_tool
from vestige.query.checks.available_tools import find_tool_names
from vestige.query.checks.requested_calls import get_tool_name
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

FINDINGS_MAX = 3
EVIDENCE_MAX = 6
NAME_MIN = 5
"""Shorter names are words of ordinary texts."""

_INTENT = (
    r"\b(?i:use|using|call|calling|invoke|invoking|ask|asking|query|querying|delegat\w+ to|run|via"
    r"|with|leverag\w+|consult|request|through|employ\w*)\s+(?:to\s+)?"
    r"(?:(?:the|our|my|a)\s+(?:[a-z][\w-]*\s+){0,3})?[`'\"*]*(%s)\b(?!\s*\()"
)
_CALLED = re.compile(r"\b(\w+)\s*\(")
_NOT_INTENT = re.compile(
    r"\b(?:could|can|did|does|do|was|were|is|are)(?: ?n[o']t|not)\b|\bcannot\b|\bcan't\b|\bnot\b"
    r"|\b(?:was|were|been|had|failed|unable|tried|attempted|after|since|previous(?:ly)?|earlier"
    r"|already|instead of|without|avoid)\b",
    re.IGNORECASE,
)
"""Words before a name that make it a report or a refusal, not an announcement."""


@check(
    "announced-call",
    title="Announced tool was never called",
    looks_at="texts of llm outputs that announce a tool or agent by its name, the calls and the "
    "code of the same output, and the calls after it",
    severity="warning",
    confidence=0.7,
    false_positives="a plan that was changed; a text that explains tools to a user",
    version=3,
)
def announced_call(evidence: Evidence) -> Iterator[Finding]:
    names = [name for name in find_tool_names(evidence) if len(name) >= NAME_MIN and "_" in name]
    if not names:
        return
    intent = re.compile(_INTENT % "|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    yield from islice(_find_skipped(evidence, intent), FINDINGS_MAX)


def _find_skipped(evidence: Evidence, intent: re.Pattern[str]) -> Iterator[Finding]:
    for actions in actions_by_agent(evidence):
        planned: dict[str, Action] = {}
        used: set[str] = set()
        for index, action in enumerate(actions):
            announced = _find_announced(intent, action.text) - used
            used |= _called_names(evidence, action)
            acts = bool(action.code or action.tool_names or action.tools)
            if not acts and index + 1 < len(actions):
                # A text without an action is a plan for later ones.
                planned.update((name, action) for name in announced if name not in planned)
                continue
            called = _called_names(evidence, action)
            skipped = sorted(announced - called)
            ends = action.is_final or index + 1 == len(actions)
            if skipped and acts and not called:
                again = _find_again(evidence, actions[index + 1 :], intent)
                yield _finding(evidence, action, skipped, None, again)
                break
            if ends and planned and not _any_called(evidence, actions[: index + 1]):
                name = next(iter(planned))
                yield _finding(evidence, action, [name], planned[name])
                break


def _find_announced(intent: re.Pattern[str], text: str) -> set[str]:
    """Return the tools that a text says the model will use."""
    found = set()
    for match in intent.finditer(text):
        sentence = re.split(r"[.!?\n]", text[max(0, match.start() - 200) : match.start()])[-1]
        if _NOT_INTENT.search(sentence) is None:
            found.add(match[1])
    return found


def _find_again(
    evidence: Evidence, actions: Sequence[Action], intent: re.Pattern[str]
) -> list[str]:
    """Return later calls that announce an unused tool and only have other code."""
    found = []
    used: set[str] = set()
    for action in actions:
        announced = _find_announced(intent, action.text) - used
        called = _called_names(evidence, action)
        used |= called
        if announced and not called and (action.code or action.tools):
            found.append(action.call.id)
    return found


def _called_names(evidence: Evidence, action: Action) -> set[str]:
    """Return the tools and agents that an action called, except the final tool."""
    called = {name for name in action.tool_names if not is_final_tool(name)}
    offered = (name for name in find_tool_names(evidence) if not is_final_tool(name))
    called.update(set(_CALLED.findall(action.code)).intersection(offered))
    called.update(get_tool_name(tool) for tool in action.working_tools)
    called.update(span.name for span in _agents_inside(evidence, action))
    return called


def _agents_inside(evidence: Evidence, action: Action) -> list[SpanInfo]:
    """Return the agents beside a call: those that it started."""
    return [
        span
        for span in evidence.once(_agents_by_parent).get(action.call.parent_id, ())
        if evidence.places[span.id] > evidence.places[action.call.id]
    ]


def _agents_by_parent(evidence: Evidence) -> dict[str | None, list[SpanInfo]]:
    found: dict[str | None, list[SpanInfo]] = {}
    for span in filter(is_agent, evidence.run.spans):
        found.setdefault(span.parent_id, []).append(span)
    return found


def _any_called(evidence: Evidence, actions: Sequence[Action]) -> bool:
    return any(
        _called_names(evidence, action) or (action.code and not action.is_final)
        for action in actions
    )


def _finding(
    evidence: Evidence,
    action: Action,
    names: Sequence[str],
    plan: Action | None,
    again: Sequence[str] = (),
) -> Finding:
    shown = ", ".join(formatting.single_line(name, 40) for name in names[:3])
    if plan is None:
        message = f"The model announced {shown} and did not call it: its answer only has other code"
        if not action.code:
            message = f"The model announced {shown} and answered without calling it"
    else:
        message = (
            f"The plan ({plan.call.short_id}) announced {shown}, but the agent answered without "
            "calling any tool"
        )
    ids = [action.call.id, *([plan.call.id] if plan is not None else []), *again]
    return make_finding(
        evidence,
        "announced-call",
        kind="tool/announced",
        basis="hypothesis",
        cause=action.call.id,
        evidence=ids[:EVIDENCE_MAX],
        message=f"{message}.",
        command=f"vestige body {action.call.short_id} --out --text",
    )
