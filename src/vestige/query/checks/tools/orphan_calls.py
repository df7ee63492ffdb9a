"""Check for tool calls that a model requested and that never ran.

A call is matched with its execution by the attribute `tool_call_id`, or by a result in a later
request. Much that looks like a call is none: the answer in a structure, a transfer, a text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from vestige.query.checks import check, make_finding
from vestige.query.checks.answer_effects import is_final_tool
from vestige.query.checks.finding_text import format_call, format_outcome, named
from vestige.query.checks.requested_calls import (
    RequestedCall,
    get_call_id,
    get_tool_name,
    iter_requested_calls,
    latest_texts,
    model_calls,
    parse_json,
)
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding
from vestige.record.types import OWN_COMPONENT

FINDINGS_MAX = 5
ID_MIN = 5
"""Shortest call id that is searched in texts: shorter ones occur by chance."""


_TRANSFER = re.compile(r"transfer|hand_?-?off|delegate|route_to|switch_to", re.IGNORECASE)
_RESULT_TEXT = re.compile(
    r"\b(?:observation|tool (?:result|response|output)s?|function (?:result|response)|returned)\b",
    re.IGNORECASE,
)


@check(
    "orphan-call",
    title="Tool call never executed",
    looks_at="tool calls in llm outputs without a tool span or a result in a later request, in a "
    "finished run",
    severity="warning",
    confidence=0.7,
    false_positives="a call that is the answer (structured output, hand-over) or waits for a "
    "person; an agent that writes calls and results as text, without their ids",
    version=8,
)
def orphan_call(evidence: Evidence) -> Iterator[Finding]:
    if evidence.run.info.outcome == "running":
        return
    executions = _Executions(evidence)
    orphans = [call for call in iter_requested_calls(evidence) if not executions.match(call)]
    if orphans:
        texts = latest_texts(evidence)
        at_the_end = _find_calls_before_exceptions(evidence)
        orphans = [
            call
            for call in orphans
            if not is_final_tool(call.call.name)
            and not _is_in_texts(call, texts)
            and not _is_transfer(evidence, call)
            and not _was_followed_by_agent(evidence, call)
            and call.span.id not in at_the_end
            and not _is_forced(evidence, call)
        ]
    problem = "it never ran"
    if all(span.attributes.get("inferred") is True for span in evidence.of_type("tool")):
        # HTTP capture alone does not see a tool that hangs or raises.
        problem = "it returned no result: it never ran, or did not finish"
    count = f"{len(orphans)} calls without a result; " if len(orphans) > 1 else ""
    last = evidence.model_calls[-1].id if evidence.model_calls else None
    for requested in orphans[:FINDINGS_MAX]:
        repeated = requested.span.id == last and _ran_before(evidence, requested)
        yield make_finding(
            evidence,
            "orphan-call",
            # The end of a loop: the program gave up after a call that it had run before.
            severity="hint" if repeated else "warning",
            cause=requested.span.id,
            evidence=[requested.span.id],
            message=f"{named(requested.span)} called {format_call(requested.call)}, but {problem} "
            f"({count}outcome of the run: {format_outcome(evidence)}).",
        )


def _ran_before(evidence: Evidence, requested: RequestedCall) -> bool:
    """Return whether an earlier model call requested the same with the same arguments."""
    arguments = parse_json(requested.call.arguments)
    return any(
        each.span.id != requested.span.id
        and each.call.name == requested.call.name
        and parse_json(each.call.arguments) == arguments
        for each in iter_requested_calls(evidence)
    )


def _is_in_texts(requested: RequestedCall, texts: Sequence[str]) -> bool:
    """Return whether the history has the call's id, or its name with a result, as text."""
    call_id, name = requested.call.id or "", requested.call.name
    if len(call_id) >= ID_MIN and any(call_id in text for text in texts):
        return True
    return any(name in text and _RESULT_TEXT.search(text) for text in texts)


def _is_transfer(evidence: Evidence, requested: RequestedCall) -> bool:
    """Return whether a call hands the conversation to another agent, which then answered."""
    if _TRANSFER.search(requested.call.name) is None:
        return False
    place = evidence.places[requested.span.id]
    return any(evidence.places[call.id] > place for call in evidence.model_calls)


def _was_followed_by_agent(evidence: Evidence, requested: RequestedCall) -> bool:
    """Return whether another agent ran next, which the call may have started by another name."""
    siblings = evidence.children[requested.span.parent_id]
    place = evidence.places[requested.span.id]
    at = bisect_right(siblings, place, key=lambda each: evidence.places[each.id])
    kinds = (span.type for span in islice(siblings, at, None))
    return next((kind for kind in kinds if kind in ("agent", "llm")), "") == "agent"


def _find_calls_before_exceptions(evidence: Evidence) -> set[str]:
    """Return the last model call of each process that an uncaught exception ended.

    A tool that it requested raised the exception, or did not matter any more."""
    ended = {
        log.writer
        for log in evidence.run.logs
        if log.component == OWN_COMPONENT
        and "uncaught exception" in str(log.attributes.get("last_words"))
    }
    last = {call.writer: call.id for call in evidence.model_calls}
    return {last[writer] for writer in ended & last.keys()}


def _is_forced(evidence: Evidence, requested: RequestedCall) -> bool:
    """Return whether the request forced this tool: the call is the answer, in a structure."""
    body = parse_json(evidence.input(requested.span) or "")
    choice = body.get("tool_choice") if isinstance(body, dict) else None
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        return name == requested.call.name or (name is None and _offers_one(body))
    return choice in ("required", "any") and _offers_one(body)


def _offers_one(body: dict[str, Any]) -> bool:
    tools = body.get("tools")
    return isinstance(tools, list) and len(tools) == 1


class _Executions:
    """Matches requested calls with tool spans, and with results in requests."""

    def __init__(self, evidence: Evidence) -> None:
        tools, calls = evidence.of_type("tool"), model_calls(evidence)
        requested_ids = {requested.call.id for requested in iter_requested_calls(evidence)}
        self._ids = {get_call_id(span) for span in tools}
        self._without_id = Counter(get_tool_name(s) for s in tools if get_call_id(s) is None)
        # A program may assign its own ids to calls that have none.
        self._with_own_id = Counter(
            get_tool_name(span) for span in tools if get_call_id(span) not in requested_ids
        )
        self._order = {model.span.id: index for index, model in enumerate(calls)}
        self._results = {key: index for index, model in enumerate(calls) for key in model.results}
        self._unread = max((index for index, model in enumerate(calls) if model.unread), default=-1)

    def match(self, requested: RequestedCall) -> bool:
        """Return whether the call ran, or that is unknown. A span without an id matches once."""
        call_id, name = requested.call.id, requested.call.name
        if call_id is not None and (call_id in self._ids or call_id in self._results):
            return True
        unmatched = self._with_own_id if call_id is None else self._without_id
        if unmatched[name] > 0:
            unmatched[name] -= 1
            return True
        return self._order[requested.span.id] < max(self._unread, self._results.get(name, -1))
