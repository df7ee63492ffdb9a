"""Find the origin of the final answer of a conversation, if no tool returned it.

A log of messages has no failed spans: agents report what they did as text. The values of the final
answer are traced back to the message that stated them first. If a tool returned them, or the task
contains them, the answer is supported. If no earlier message has them, the answer rests on the last
message of another agent, which does not contain it.

Agents that answer from their knowledge are common and often right, so a value that an agent stated
is a hint, unless the log itself shows a failure: the run failed, the answer is uncertain, or an
agent, code or a tool reports that something did not succeed. An answer that no message had stated
is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.answer_effects import Action, agent_actions, get_input
from vestige.query.evidence import Evidence
from vestige.record.finding import Finding, Severity
from vestige.record.run import SpanInfo

AGENTS_MIN = 2
VALUE_MIN = 3
"""Shorter values occur by chance."""
LENGTH_MIN = 40
"""Shorter messages only end the conversation."""
TEXT_MAX = 20_000

_MARKED = re.compile(r"FINAL ANSWER\s*:?\s*\**\s*([^\n]{1,300})", re.IGNORECASE)
_END_WORDS = re.compile(r"\b(?:TERMINATE|DONE|FINISHED)\b")
_VALUE = re.compile(
    r"\*\*([^*\n]{2,60})\*\*|[\"“']([^\"”'\n]{3,60})[\"”']|\\boxed\{([^}]{1,40})\}"
    r"|(\d[\d.,:/-]*\d|\b\d\b)|\b([A-Z][a-z]{2,}(?: [A-Z][a-z]+)+)"
)
_UNCERTAIN = re.compile(
    r"\b(?:unable to|could ?n[o']t|cannot|can't|not (?:found|available|possible|sure|certain)"
    r"|no (?:information|data|results?|answer)|unclear|unknown|uncertain|inconclusive|assum\w+"
    r"|approximate\w*|estimat\w+|likely|probably|might|it seems|appears to|unfortunately|sorry)\b",
    re.IGNORECASE,
)
_FAILURE = re.compile(
    r"\b(?:unable to|not able to|could ?n[o']t|failed to|not found|stuck|stalled|no results?)\b"
    r"|Traceback \(most recent|^\s*(?:\w+\.)*\w+(?:Error|Exception)\s*:|exitcode: [1-9]"
    r"|execution failed|\b(?:404|403|500) (?:not found|forbidden|client error|server error)"
    r"|\bno such file\b|\btimed out\b",
    re.IGNORECASE | re.MULTILINE,
)


@check(
    "answer-origin",
    title="Final answer not returned by a tool",
    looks_at="group chats that were imported as messages: values of the final answer, the task, "
    "the tool results, and the first message that states them",
    severity="warning",
    confidence=0.4,
    false_positives="an answer that needs no data; agents that report the results of their tools "
    "as text; only a hint if the log shows no failure",
    version=2,
)
def answer_origin(evidence: Evidence) -> Iterator[Finding]:
    actions = [a for a in agent_actions(evidence) if "message_index" in a.call.attributes]
    if len({action.call.component for action in actions}) < AGENTS_MIN:
        return
    final = _find_final(actions)
    if final is None:
        return
    values, is_marked = _find_values(actions[final].text)
    known = _task_text(evidence, actions)
    values = [value for value in values if value.lower() not in known]
    returned = [(tool, _get_text(evidence, tool)) for tool in evidence.of_type("tool")]
    stated = [
        (action, value)
        for value in values
        if (action := _find_first(evidence, actions[: final + 1], value, returned)) is not None
    ]
    severity: Severity = "warning" if _shows_failure(evidence, actions, final) else "hint"
    if stated and not (is_marked and stated[0][0] is actions[final]):
        first, value = min(stated, key=lambda case: evidence.places[case[0].call.id])
        yield _origin_finding(evidence, first, value, actions[final], severity)
    elif is_marked:
        before = _find_last_report(actions[:final], actions[final])
        if before is not None:
            yield _missing_finding(evidence, before, actions[final])


def _find_final(actions: Sequence[Action]) -> int | None:
    """Return the index of the message with the final answer."""
    for index in range(len(actions) - 1, -1, -1):
        text = actions[index].text
        if _MARKED.search(text) or len(_END_WORDS.sub("", text).strip()) >= LENGTH_MIN:
            return index
    return None


def _find_values(text: str) -> tuple[list[str], bool]:
    """Return the values of an answer, and whether it is marked as the final one."""
    marked = _MARKED.search(text)
    if marked is not None:
        value = marked[1].strip(" .*\"'")
        return ([value] if len(value) > VALUE_MIN else []), True
    found = (next(filter(None, groups)) for groups in _VALUE.findall(text[:TEXT_MAX]))
    return list(dict.fromkeys(value.strip(" .:,") for value in found))[:50], False


def _task_text(evidence: Evidence, actions: Sequence[Action]) -> str:
    """Return the task: the input of the run, and the first message of a group chat."""
    root = evidence.root
    parts = [evidence.input(root) or "" if root is not None else "", actions[0].text]
    parts.extend(get_input(evidence, action.call) for action in actions[:3])
    return "\n".join(part[:TEXT_MAX] for part in parts).lower()


def _find_first(
    evidence: Evidence,
    actions: Sequence[Action],
    value: str,
    returned: Sequence[tuple[SpanInfo, str]],
) -> Action | None:
    """Return the message that states a value first; None if a tool returned it before."""
    if not value:
        return None
    lowered = value.lower()
    for action in actions[1:]:
        if lowered in action.text.lower():
            place = evidence.places[action.call.id]
            earlier = (text for tool, text in returned if evidence.places[tool.id] < place)
            return None if any(lowered in text for text in earlier) else action
    return None


def _find_last_report(actions: Sequence[Action], final: Action) -> Action | None:
    """Return the last message of another agent before the answer."""
    others = (a for a in reversed(actions) if a.call.component != final.call.component)
    return next(others, None)


def _get_text(evidence: Evidence, tool: SpanInfo) -> str:
    return (evidence.output(tool) or "")[: 10 * TEXT_MAX].lower()


def _shows_failure(evidence: Evidence, actions: Sequence[Action], final: int) -> bool:
    """Return whether the log shows by itself that something failed, or the answer is uncertain."""
    if evidence.run.info.outcome in ("error", "timeout"):
        return True
    if _UNCERTAIN.search(actions[final].text[:TEXT_MAX]):
        return True
    texts = [_get_text(evidence, tool) for tool in evidence.of_type("tool")]
    texts += [action.text for action in actions[1:]]  # the first message is the task
    return any(_FAILURE.search(text) for text in texts)


def _origin_finding(
    evidence: Evidence, first: Action, value: str, final: Action, severity: Severity
) -> Finding:
    shown = formatting.single_line(value, 60)
    return make_finding(
        evidence,
        "answer-origin",
        kind="answer/origin",
        severity=severity,
        basis="hypothesis",
        cause=first.call.id,
        evidence=[first.call.id, final.call.id],
        message=f'"{shown}" of the final answer is first stated by '
        f"{formatting.single_line(first.call.component, 40)} ({first.call.short_id}), and no tool "
        "returned it before.",
        command=f"vestige body {first.call.short_id} --out --text",
    )


def _missing_finding(evidence: Evidence, before: Action, final: Action) -> Finding:
    return make_finding(
        evidence,
        "answer-origin",
        kind="answer/origin",
        basis="hypothesis",
        cause=before.call.id,
        evidence=[before.call.id, final.call.id],
        message=f"The final answer ({final.call.short_id}) is in no earlier message; the last "
        f"report before it is {formatting.single_line(before.call.component, 40)}'s "
        f"({before.call.short_id}).",
        command=f"vestige body {before.call.short_id} --out --text",
    )
