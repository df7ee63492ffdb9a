"""The task of a run that no model call received.

A program that fills the wrong variable into its prompt, or hands its agents the result of another
step, lets them work on something else. Their steps look healthy: only the input of the run and
the inputs of its model calls together show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from vestige.query import formatting
from vestige.query.checks import check, make_finding
from vestige.query.evidence import Evidence
from vestige.query.trajectory.headline import extract_task
from vestige.query.trajectory.task import find_task_input
from vestige.record.finding import Finding
from vestige.record.run import SpanInfo

WORDS_MIN: Final = 6
"""Fewer words are a name or an id, which a program looks up."""
SHARE_MIN: Final = 0.4
"""Share of the task's words that a prompt about it contains, however it is worded."""
TASK_MAX: Final = 20_000
TEXT_MAX: Final = 200_000
CALLS_MAX: Final = 200
"""Characters of the task and of one input, and model calls, that are compared."""

_WORD: Final = re.compile(r"[^\W_]{5,}|\d{2,}")


@check(
    "task-not-passed",
    title="Task never reached the model",
    looks_at="the input of the run or of its first agent, and the inputs of all model calls: words "
    "that they share",
    severity="warning",
    confidence=0.7,
    false_positives="a program that translates its task, or works on parts of a document without "
    "naming the task",
)
def task_not_passed(evidence: Evidence) -> Iterator[Finding]:
    task = extract_task(find_task_input(evidence))[:TASK_MAX]
    words = frozenset(_WORD.findall(task.lower()))
    if len(words) < WORDS_MIN or task.lstrip().startswith(("{", "[")):
        return
    calls = evidence.model_calls
    missing, read = set(words), 0
    for call in calls[:CALLS_MAX]:
        found = _read_words(evidence, call)
        read += bool(found)
        missing -= found
        if len(missing) <= (1 - SHARE_MIN) * len(words):
            return
    if not read or len(calls) > CALLS_MAX:
        return
    yield make_finding(
        evidence,
        "task-not-passed",
        kind="task/not-passed",
        basis="hypothesis",
        cause=calls[0].id,
        evidence=[calls[0].id],
        message="No model call received the task of the run: its inputs have "
        f"{len(words) - len(missing)} of the {len(words)} words of "
        f'"{formatting.single_line(task, 120)}".',
        command=f"vestige body {calls[0].short_id} --in --text",
    )


def _read_words(evidence: Evidence, call: SpanInfo) -> set[str]:
    """Return the words that a call received; of an imported message, its own, too."""
    request = evidence.request(call)
    parts = [message.text for message in request.messages] if request is not None else []
    if call.attributes.get("message_index") is not None:
        response = evidence.response(call)
        parts.append(response.text if response is not None else "")
    return {word for part in parts for word in _WORD.findall(part[:TEXT_MAX].lower())}
