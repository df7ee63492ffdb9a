"""Errors and missing resources that an agent passed over.

error/ignored      the last result before the answer is an error; the answer does not mention it,
                   and nothing was tried again
resource/missing   a file, page or record was not found, or a search returned nothing, and no later
                   action returned data
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.checks.answer_effects import is_final_tool
from vestige.query.checks.tools.soft_errors import find_soft_error
from vestige.query.evidence import Evidence
from vestige.query.trajectory import Action, Step, Trajectory, build_trajectory
from vestige.record.finding import Finding

FINDINGS_MAX = 3
RESULT_MAX = 4_000
"""Longer results contain data, whatever else they contain."""

MISSING_TEXT_MAX = 400
"""A longer text that mentions a missing file is a report about it."""

_MENTION = re.compile(
    r"\b(?:error|fail|could ?n[o']t|can ?n[o']t|unable|unavailable|inaccessible|missing|not found"
    r"|no (?:results?|data|information|access|such|matches|match)|(?:found|find|see) no"
    r"|there (?:is|are|was|were) no|(?:has|have|had) no|does ?n[o']t|did ?n[o']t"
    r"|exception"
    r"|sorry|invalid|denied|timed? ?out|instead|alternative|however|unfortunately|despite|without"
    r"|issue|problem|incomplete|unknown|uncertain|try again|retry|empty|nothing|none|404"
    r"|unreachable"
    r"|refused|blocked|down\b)",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"FileNotFoundError|no such file or directory|\b404\b.{0,40}not found|\bHTTP[ /\d.]*404\b"
    r"|\b404 client error|page not found|(?:file|document|resource|page|record|url|path)\b.{0,80}"
    r"\b(?:not found|does not exist|is missing)|no such (?:file|table|key|bucket|user|record)",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"\s*(?:\[\s*\]|\{\s*\}|null|none|\"\"|''"
    r"|(?:no|0|zero) (?:results?|matches|documents?|records?|rows?|hits?|items?)\b.{0,120}"
    r"|(?:nothing|not) found\b.{0,80})\s*\.?\s*",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b.{0,200}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Done:
    """An action of a conversation, and its error; None if it returned data."""

    step: Step
    action: Action
    error: str | None


@check(
    "ignored-error",
    title="Error was ignored",
    looks_at="results of tools and code that are errors, the actions after them, and the texts of "
    "the answers after them",
    severity="warning",
    confidence=0.65,
    false_positives="a tool whose result the task does not need; an answer in another language "
    "than English that mentions the error",
)
def ignored_error(evidence: Evidence) -> Iterator[Finding]:
    yield from islice(_find_ignored(evidence), FINDINGS_MAX)


def _find_ignored(evidence: Evidence) -> Iterator[Finding]:
    for done, later in _unanswered_endings(evidence):
        if _is_missing(done.error or "") or _is_empty(done.action):
            continue
        answer = later[-1]
        cause = later[0].span or done.step.span
        if cause is None or _are_mentioned(later, done.action):
            continue
        yield make_finding(
            evidence,
            "ignored-error",
            kind="error/ignored",
            basis="hypothesis",
            cause=cause.id,
            evidence=_ids(done, answer),
            message=f"{_name(done.action)} returned an error, and the answer "
            f"({_short(answer)}) neither mentions it nor was it tried again: "
            f"{formatting.single_line(done.error or '', 160)}",
        )


@check(
    "missing-resource",
    title="Missing file, page or record",
    looks_at="results of tools and code: 404, a file that does not exist, an empty search; and "
    "whether a later action returned data",
    severity="warning",
    confidence=0.65,
    false_positives="a check whether something exists; only a hint if the answer mentions it",
    version=2,
)
def missing_resource(evidence: Evidence) -> Iterator[Finding]:
    for done, later in islice(_unanswered_endings(evidence), FINDINGS_MAX):
        error = done.error or ""
        empty = _is_empty(done.action)
        if not empty and not _is_missing(error):
            continue
        mentioned = _are_mentioned(later, done.action)
        cause = done.action.span_id or (done.step.span.id if done.step.span else None)
        event = "returned nothing" if empty else "did not find what it was given"
        yield make_finding(
            evidence,
            "missing-resource",
            kind="resource/missing",
            severity="hint" if mentioned else "warning",
            basis="hypothesis",
            cause=cause,
            evidence=_ids(done, later[-1]),
            message=f"{_name(done.action)} {event}, and the agent answered "
            f"({_short(later[-1])}) without other data: "
            f"{formatting.single_line(error or 'an empty result', 160)}",
        )


# --- endings --------------------------------------------------------------------------------------


def _unanswered_endings(evidence: Evidence) -> Iterator[tuple[_Done, Sequence[Step]]]:
    """Yield conversations whose last results before the answer are errors.

    The first of these errors, and the steps after it. Imported messages are left out: their
    results are texts of other agents.
    """
    trajectory = evidence.once(build_trajectory)
    for steps in _by_conversation(trajectory):
        if any(step.span and "message_index" in step.span.attributes for step in steps):
            continue
        done_last_first = (
            _Done(step, action, find_error(action))
            for step in reversed(steps)
            for action in reversed(step.actions)
            if not is_final_tool(action.name) and action.kind in ("tool", "code")
        )
        failed: _Done | None = None
        for done in done_last_first:
            if done.error is None:
                break
            failed = done
        if failed is None or failed.action.status in ("open", "unanswered"):
            continue
        later = [step for step in steps if step.number > failed.step.number]
        if later and later[-1].answer_text.strip():
            yield failed, later


def _by_conversation(trajectory: Trajectory) -> Iterator[list[Step]]:
    for conversation in trajectory.conversations:
        yield [trajectory.steps[number - 1] for number in conversation.steps]


def find_error(action: Action) -> str | None:
    """Return the error of an action, or "an empty result"; None if it returned data."""
    text = action.result.text if action.result is not None else ""
    if action.error:
        return action.error
    if action.result is not None and action.result.is_error:
        return text[:500] or "error"
    if len(text) > RESULT_MAX:
        return None
    if _is_empty(action):
        return "an empty result"
    if action.kind == "code" and (found := _EXCEPTION.search(text)):
        return found[0]
    if len(text) <= MISSING_TEXT_MAX and _is_missing(text):
        return text
    return find_soft_error(text)


def _is_empty(action: Action) -> bool:
    """Return whether a search returned nothing. Many tools return nothing on success."""
    text = action.result.text if action.result is not None else ""
    return action.kind == "tool" and len(text) < 300 and _EMPTY.fullmatch(text) is not None


def _is_missing(error: str) -> bool:
    return _MISSING.search(error[:1_000]) is not None


def _are_mentioned(steps: Sequence[Step], action: Action) -> bool:
    texts = [item.text for step in steps for item in step.answer]
    name = action.name.lower()
    return any(_MENTION.search(text) or (len(name) > 4 and name in text.lower()) for text in texts)


def _ids(done: _Done, answer: Step) -> list[str]:
    ids = [
        done.action.span_id,
        done.step.span.id if done.step.span else None,
        answer.span.id if answer.span else None,
    ]
    return [span_id for span_id in dict.fromkeys(ids) if span_id]


def _name(action: Action) -> str:
    return "The code" if action.kind == "code" else formatting.single_line(action.name, 60)


def _short(step: Step) -> str:
    return step.span.short_id if step.span is not None else f"step {step.number}"
