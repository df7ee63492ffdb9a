"""Which checks had something to look at in a run.

A check without findings has passed only if the run has what it looks at. Without model calls, or
with bodies that were not recorded or are of an unknown shape, "no invalid history" would be true
and misleading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from vestige.query.checks.sent_requests import was_sent
from vestige.query.evidence import Evidence
from vestige.record.run import BodyRef, Run, SpanInfo

_SENT: Final = "sent"
"""Model calls with a recorded request (query/checks/sent_requests.py)."""

_REQUEST: Final = "request"
_ANSWER: Final = "answer"
"""Model calls whose input or output was recorded and could be parsed."""
_RESULT: Final = "result"
"""Tools with a recorded output, or model calls whose inputs may contain results."""

PARSED_MAX: Final = 10
"""Model calls that are parsed to see whether the shape of their bodies is known."""

_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "announced-call": (_ANSWER,),
    "answer-origin": ("message",),
    "answer-without-tool": (_ANSWER,),
    "bad-arguments": (_ANSWER,),
    "broken-instruction": (_ANSWER,),
    "cache-churn": (_SENT,),
    "cache-miss": (_SENT,),
    "call-as-text": (_ANSWER,),
    "changed-arguments": ("tool",),
    "changed-retry": ("llm",),
    "content-filter": ("llm",),
    "context-pressure": ("llm",),
    "cut-result": ("tool",),
    "delivery-without-enqueue": ("queue.deliver",),
    "detour": (_ANSWER,),
    "duplicate-delivery": ("queue.deliver",),
    "duplicate-result": ("llm", "tool", "queue.deliver"),
    "empty-response": (_ANSWER,),
    "failed-action": ("llm",),
    "failed-call": ("llm",),
    "failed-case": ("test",),
    "failed-tool": ("tool",),
    "foreign-response": (_SENT,),
    "history-head-loss": (_SENT,),
    "history-loss": (_SENT,),
    "history-mutation": (_SENT,),
    "ignored-error": (_ANSWER,),
    "invalid-history": (_SENT,),
    "loop": ("llm", "tool"),
    "misrouted-answer": (_SENT,),
    "misrouted-delivery": ("queue.deliver",),
    "missing-resource": (_ANSWER,),
    "object-result": (_REQUEST,),
    "orphan-call": (_ANSWER,),
    "output-cut": ("llm",),
    "oversized-result": (_REQUEST,),
    "repeated-code": (_ANSWER,),
    "repeated-message": (_SENT,),
    "repeated-result": (_REQUEST,),
    "repeated-tool-error": ("tool",),
    "retry-storm": ("llm", "http"),
    "runaway-cost": ("llm",),
    "soft-error": (_RESULT,),
    "steps-after-answer": (_ANSWER,),
    "swapped-results": ("tool",),
    "task-not-passed": (_REQUEST,),
    "undelivered-message": ("queue.enqueue",),
    "unknown-tool": (_ANSWER,),
    "unlinked-delivery": ("queue.deliver",),
    "unsupported-answer": (_ANSWER,),
}
"""Types of spans or bodies by check: one of them must be there. Other checks apply to every run."""


def find_inapplicable(run: Run, names: Sequence[str], evidence: Evidence) -> list[str]:
    """Return the checks that had nothing to look at."""
    present = {span.type for span in run.spans}
    calls = [span for span in run.spans if span.type == "llm"]
    if any(was_sent(span) for span in calls):
        present.add(_SENT)
    if any("message_index" in span.attributes for span in calls):
        present.add("message")
    if _any_parsed(calls, evidence.request, lambda span: span.input):
        present |= {_REQUEST, _RESULT}
    if _any_parsed(calls, evidence.response, lambda span: span.output):
        present.add(_ANSWER)
    if any(span.type == "tool" and span.output is not None for span in run.spans):
        present.add(_RESULT)
    return [name for name in names if present.isdisjoint(_NEEDS.get(name, tuple(present)))]


def _any_parsed(
    calls: Sequence[SpanInfo],
    parse: Callable[[SpanInfo], object | None],
    get_body: Callable[[SpanInfo], BodyRef | None],
) -> bool:
    recorded = [call for call in calls if get_body(call) is not None]
    return any(parse(call) is not None for call in recorded[:PARSED_MAX])
